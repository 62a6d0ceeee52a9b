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

#define SLOTS 360        /* of the history, one hour */
#define SLOT_MS 10000
#define NOTES 32         /* events that a slow reader may be behind */
#define INSPECTIONS 8    /* per round, at most */
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

/* One name, as the service last told. */
typedef struct sight {
    struct sight *next; /* in its hash bucket */
    pawl_info info;     /* with strings of its own */
    int64_t taken;      /* when (boot, ms) */
    uint64_t round;
    bool changed;
} sight;

typedef struct slot {
    int64_t holders, waiters, hold_ms, wait_ms; /* the most of each; -1: not known */
} slot;

typedef struct history {
    int64_t last; /* number of the newest slot: boot time / SLOT_MS */
    slot slots[SLOTS];
} history;

/* The history of one name, which outlives its sight. */
typedef struct past {
    struct past *next;
    int64_t seen;
    history h;
    char name[];
} past;

/* The holders and waiters of a name that pages look at, or that is contended. */
typedef struct detail {
    char name[256];
    char *json;         /* of the lock, or NULL */
    uint64_t seq;       /* the round that it is from */
    int64_t wanted;     /* when a page asked for it (boot, ms); 0: none did */
    unsigned watchers;
    int64_t wait_ms;    /* of the first waiter; -1: nobody waits, or not known */
} detail;

typedef struct board {
    const tool *tool;
    char service[256];  /* the URL, without secrets */
    int64_t interval_ms;
    pawl_client *client; /* NULL until the service could be opened */
    bool allow_break;
    char token[256];
    char *hosts[16];    /* names that a Host header may have */
    size_t nhosts;

    pthread_mutex_t mutex;
    pthread_cond_t news; /* a round is over, or stop */
    atomic_bool stop;
    uint64_t seq;       /* rounds begun */
    uint64_t done;      /* rounds finished */
    uint64_t good, bad; /* of them */
    uint64_t inspections, breaks;
    bool ok;
    char error[300];    /* of the last round */
    int64_t taken;      /* when the data was complete (boot, ms); 0: never */
    int64_t round_ms;   /* how long that took */

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
/* Call fn for each. */
void table_each(const board *, void (*fn)(void *arg, sight *), void *arg);
void table_free(board *);

void past_push(history *, int64_t now, const slot *);
past *past_of(board *, const char *name, bool make); /* or NULL */
void past_json(const history *, FILE *, int64_t now); /* NULL history: all unknown */
void past_free(board *);

/* ---- detail.c: names that pages look at ------------------------------------------------------ */
/* The detail of a name, made if there is room; with the mutex. NULL: too many. */
detail *detail_want(board *, const char *name);
/* Inspect the wanted and the most contended names. Locks the mutex itself. */
void details_refresh(board *, uint64_t seq);
/* The lock as JSON, by one inspection. Returns a Pawl code; *ret is to be freed. */
int lock_json(board *, const char *name, char **ret, int64_t *wait_ms, pawl_error *);

/* ---- json.c ---------------------------------------------------------------------------------- */
void put_id(FILE *, const char *name); /* percent-encoded, in quotes */
void put_sight(FILE *, const sight *, int64_t now);
/* Members of the state of the service, without braces; with the mutex. */
void put_state(FILE *, const board *);

/* ---- metrics.c ------------------------------------------------------------------------------- */
bool metrics_text(board *, bool openmetrics, text *); /* false: no memory */

/* ---- http.c, events.c, break.c: on the threads of connections -------------------------------- */
struct MHD_Connection;
struct MHD_Daemon *http_start(board *, const char *listen, char *url, size_t size);
void http_stop(struct MHD_Daemon *);
int http_events(board *, struct MHD_Connection *, const char *name);
int http_break(board *, struct MHD_Connection *);
/* Queue a response with the headers that all have; `data` is freed later. Returns MHD_YES or NO. */
int http_reply(struct MHD_Connection *, unsigned status, const char *type, char *data,
               size_t length);
int http_json(struct MHD_Connection *, unsigned status, text *);
/* {"message": "..."} */
int http_message(struct MHD_Connection *, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct MHD_Response;
void http_headers(struct MHD_Response *, const char *type);
/* May a page of this authority ("host:port") be talked to? */
bool http_host_ok(const board *, const char *authority);

typedef struct asset {
    const char *url, *type;
    const unsigned char *data;
    size_t length;
} asset;
extern const asset assets[]; /* made by embed.py */

#endif
