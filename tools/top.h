/* SPDX-License-Identifier: Apache-2.0
 *
 * top.h - the state of `pawl top`. All of it belongs to the main thread; see feed.h for the other.
 */
#ifndef PAWL_TOP_H
#define PAWL_TOP_H

#include "feed.h"

#define TOP_COLUMNS 9
#define TEXT_MAX 600

/* The meaning of the keys at the moment. */
enum top_mode {
    MODE_LIST,
    MODE_LOCK,    /* one lock is open */
    MODE_FILTER,  /* the filter is being typed */
    MODE_CONFIRM, /* break it? */
    MODE_HELP
};

typedef struct top {
    const tool *tool;
    const char *pattern;   /* of the names that the service is asked for; "": all */
    char service[200];     /* the URL without secrets */
    int64_t interval_ms;
    enum top_mode mode, before; /* `before`: where MODE_CONFIRM, MODE_HELP return to */
    int quit;              /* -1: no; else the exit status */

    /* The service. Times are of CLOCK_MONOTONIC, in ms. */
    feed feed;
    int64_t next;          /* when to ask again */
    int64_t asked;         /* the last question */
    int64_t listed, opened; /* the answers in `all` and `open`; 0: none yet */
    bool failing;          /* the last answer was an error, since `failing_since` */
    int64_t failing_since;
    int trouble_code;
    char trouble[TEXT_MAX];
    char notice[TEXT_MAX]; /* until the next key */

    /* The list. */
    rows all;              /* as it came */
    row **shown;           /* rows that pass the filter, sorted; pointers into `all` */
    size_t nshown;
    enum row_order order;
    bool reversed;
    char filter[256], old_filter[256];
    char chosen[256];      /* the name under the bar; the bar follows the name */
    size_t at, first;      /* the bar's row; the first row on the screen */
    column columns[TOP_COLUMNS];

    /* The open lock: a summary, then holders and waiters in order. */
    char name[256];
    rows open;
    size_t scroll;

    /* A break under way. */
    char victim[256];
    rows shown_victim;     /* rows of the service when the question was asked */
    bool want_victim, want_break; /* to be asked as soon as the feed is free */
    char prompt[TEXT_MAX];
} top;

/* ---- top_state.c --------------------------------------------------------------------------- */

int64_t top_now(void);

/* Filter and sort anew, after new rows or another wish; the bar stays on its name. */
void top_arrange(top *);

/* Move the bar, or the open lock's page, by n rows. */
void top_move(top *, int64_t n);

/* Take over an answer; send the question that is due. */
void top_take(top *);
void top_ask(top *);

/* ---- top_view.c ---------------------------------------------------------------------------- */

/* The lock is on the screen, not the list. */
static inline bool top_is_open(const top *t)
{
    return (t->mode > MODE_FILTER ? t->before : t->mode) == MODE_LOCK;
}

/* How many rows of the list, or of the open lock, are on the screen. */
size_t top_page(const top *);
void top_draw(top *);

#endif
