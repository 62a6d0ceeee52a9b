/* SPDX-License-Identifier: Apache-2.0
 *
 * serve.h - pawl serve: a web page that shows the locks of a service.
 *
 * THREADS. One thread, the watcher (watch.c), asks the service: once per interval, for any number
 * of pages. Each HTTP connection has a thread of libmicrohttpd's, which reads the data that the
 * watcher has found. The only other request to the service is a break that an operator wants.
 *
 * The board has one mutex. The watcher alone changes the table, the details, the history and the
 * notes (the texts of the last events), with the mutex locked, and never asks the service with the
 * mutex locked. Readers copy the data to send. `stop` is set with the mutex locked and ends all
 * waits; after that nobody reads the notes, so the watcher can free them when it ends.
 */
#ifndef PAWL_SERVE_H
#define PAWL_SERVE_H

#include <pthread.h>
#include <stdatomic.h>

#include "../tool.h"

#define SLOTS 360        /* slots of the history: one hour */
#define SLOT_MS 10000
#define NOTES 32         /* events that a slow reader may be behind */
#define INSPECTIONS 8    /* at most, per round */
#define DETAILS 64       /* names that pages may look at, at a time */
#define PASTS 1000       /* names with a history */
#define WATCHERS 100     /* event streams at a time */

/* A string that grows. */
typedef struct text {
    FILE *out;
    char *data;
    size_t length;
} text;

FILE *text_open(text *); /* NULL: no memory */
bool text_close(text *); /* false: no memory, and nothing to free */

/* One event for the overview. */
typedef struct note {
    uint64_t seq;
    size_t length;
    char data[];
} note;

/* One name, as of the last listing. */
typedef struct sight {
    struct sight *next; /* in its hash bucket */
    pawl_info info;     /* with strings of its own */
    int64_t taken;      /* when it was listed (boot time, ms) */
    uint64_t round;
    bool changed;
} sight;

typedef struct slot {
    int64_t holders, waiters, hold_ms, wait_ms; /* maxima; -1: not known */
} slot;

typedef struct history {
    int64_t last; /* number of the newest slot (past.c); 0: none */
    slot slots[SLOTS];
} history;

/* The history of one name. It is kept when the name is no longer listed. */
typedef struct past {
    struct past *next;
    int64_t seen;
    history h;
    char name[];
} past;

/* The holders and waiters of a name that pages look at. */
typedef struct detail {
    char name[256];
    char *json;         /* the lock as JSON, or NULL */
    uint64_t seq;       /* the round of `json` */
    int64_t wanted;     /* when a page asked for this name (boot, ms); 0: never */
    unsigned watchers;
} detail;

typedef struct board {
    const tool *tool;
    char service[256];  /* the URL, without secrets */
    int64_t interval_ms;
    pawl_client *client; /* NULL until the service could be opened */
    bool allow_break;
    char token[256];
    char *hosts[16];    /* names that are accepted in a Host header */
    size_t nhosts;

    pthread_mutex_t mutex;
    pthread_cond_t news; /* a round has finished, or `stop` is set */
    atomic_bool stop;
    uint64_t seq;       /* rounds begun */
    uint64_t done;      /* rounds finished */
    uint64_t good, bad; /* rounds that succeeded, rounds that failed */
    uint64_t inspections, breaks;
    bool ok;
    char error[300];    /* of the last round */
    int64_t taken;      /* when the data was complete (boot, ms); 0: never */
    int64_t round_ms;   /* how long that round took */

    sight **table;
    size_t room, names;
    past *pasts[1024];
    size_t npasts;
    history all;
    detail details[DETAILS];
    note *notes[NOTES]; /* notes[seq % NOTES] */
    unsigned watchers;
} board;

int64_t boot_ms(void);

/* ---- watch.c: the watcher ------------------------------------------------------------------- */
int watch_start(board *, pthread_t *);

/* ---- table.c, past.c: with the mutex --------------------------------------------------------- */
/* Take a row of pawl_list into the table. Returns 0 or PAWL_ENOMEM. */
int table_take(board *, const pawl_info *);
/* Forget the names that were not seen in this round; their ids go to `gone`. */
void table_sweep(board *, FILE *gone);
sight *table_find(const board *, const char *name); /* or NULL */
slot slot_of_sight(const sight *); /* for the history */
/* Call fn for each name. */
void table_each(const board *, void (*fn)(void *arg, sight *), void *arg);
void table_free(board *);

void past_push(history *, int64_t now, const slot *);
past *past_of(board *, const char *name, bool make); /* or NULL */
void past_json(const history *, FILE *, int64_t now); /* NULL history: all unknown */
void past_free(board *);

/* ---- detail.c: names that pages look at ------------------------------------------------------ */
/* The detail of a name; added if there is room. Called with the mutex locked. NULL: too many. */
detail *detail_want(board *, const char *name);
/* Inspect the wanted names. Locks the mutex itself. */
void details_refresh(board *, uint64_t seq);

/* ---- json.c ---------------------------------------------------------------------------------- */
void put_id(FILE *, const char *name); /* percent-encoded, in quotes */
void put_sight(FILE *, const sight *, int64_t now);
/* Write the state of the service as members of a JSON object, without braces. Called with the mutex
 * locked. */
void put_state(FILE *, const board *);

/* ---- metrics.c ------------------------------------------------------------------------------- */
bool metrics_text(board *, bool openmetrics, text *); /* false: no memory */

/* ---- http.c, events.c, break.c: on the threads of connections -------------------------------- */
struct MHD_Connection;
struct MHD_Daemon *http_start(board *, const char *listen, char *url, size_t size);
void http_stop(struct MHD_Daemon *);
int http_events(board *, struct MHD_Connection *, const char *name);
int http_break(board *, struct MHD_Connection *);
/* Queue a response with the headers that all responses have; `data` is freed later. Returns MHD_YES
 * or MHD_NO. */
int http_reply(struct MHD_Connection *, unsigned status, const char *type, char *data,
               size_t length);
int http_json(struct MHD_Connection *, unsigned status, text *);
/* Reply {"message": "..."}. */
int http_message(struct MHD_Connection *, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct MHD_Response;
void http_headers(struct MHD_Response *, const char *type);
/* Is this authority ("host:port") a name of this server? */
bool http_host_ok(const board *, const char *authority);

typedef struct asset {
    const char *url, *type;
    const unsigned char *data;
    size_t length;
} asset;
extern const asset assets[]; /* made by embed.py */

#endif
