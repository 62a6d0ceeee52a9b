/* SPDX-License-Identifier: Apache-2.0
 *
 * top.h - the state of `pawl top`. Only the main thread uses it; see feed.h for the other thread.
 */
#ifndef PAWL_TOP_H
#define PAWL_TOP_H

#include "feed.h"

#define TOP_COLUMNS 9
#define TEXT_MAX 600

/* The mode decides what the keys mean. */
enum top_mode {
    MODE_LIST,
    MODE_LOCK,    /* one lock is open */
    MODE_FILTER,  /* the filter is being typed */
    MODE_CONFIRM, /* the question whether to break a lock */
    MODE_HELP
};

typedef struct top {
    const tool *tool;
    const char *pattern;   /* the pattern of names in the request to the service; "": all */
    char service[200];     /* the URL without secrets */
    int64_t interval_ms;
    enum top_mode mode, before; /* `before`: where MODE_CONFIRM, MODE_HELP return to */
    int quit;              /* -1: no; else the exit status */

    /* The service. Times are of CLOCK_MONOTONIC, in ms. */
    feed feed;
    int64_t next;          /* when to send the next request */
    int64_t asked;         /* when the last request was sent */
    int64_t listed, opened; /* when the data in `all` and `open` arrived; 0: not yet */
    bool failing;          /* the last answer was an error, since `failing_since` */
    int64_t failing_since;
    int trouble_code;
    char trouble[TEXT_MAX];
    char notice[TEXT_MAX]; /* shown until the next key */

    /* The list. */
    rows all;              /* all rows, as received */
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
    bool want_victim, want_break; /* to be sent as soon as the feed is free */
    char prompt[TEXT_MAX];
} top;

/* ---- top_state.c --------------------------------------------------------------------------- */

int64_t top_now(void);

/* Filter and sort again, after new rows or a new filter or order; the bar stays on its name. */
void top_arrange(top *);

/* Move the bar, or the open lock's page, by n rows. */
void top_move(top *, int64_t n);

/* Take over an answer; send the question that is due. */
void top_take(top *);
void top_ask(top *);

/* ---- top_view.c ---------------------------------------------------------------------------- */

/* Is one lock on the screen, not the list? */
static inline bool top_is_open(const top *t)
{
    return (t->mode > MODE_FILTER ? t->before : t->mode) == MODE_LOCK;
}

/* How many rows of the list, or of the open lock, are on the screen. */
size_t top_page(const top *);
void top_draw(top *);

#endif
