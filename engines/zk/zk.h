/* SPDX-License-Identifier: Apache-2.0
 *
 * zk.h - the ZooKeeper engine, inside.
 *
 *     zk.c        the engine's slots, and events
 *     settings.c  what the URL says
 *     names.c     names to paths, and what the name of a node says
 *     who.c       what stands in a node: who made it
 *     jute.c      the wire format
 *     link.c      one connection at a time: its life, calls and answers
 *     attach.c    how it gets the session
 *     session.c   heartbeats, until when the session is good, RENEW
 *     task.c      tasks, their requests, and watches
 *     waiters.c   acquire and release      waiter.c  a node in a queue, from creation to end
 *     queue.c     what the children of a lock say to one of them
 *     permits.c   the same for a semaphore
 *     latch.c     set and count down
 *     inspect.c   inspect, list, count, break      rows.c  what the user is shown
 *
 * A *task* is something that goes on over several requests and, if need be, several connections: an
 * acquire (which lives on as the grant until it is deleted), a count-down, an inspection. It sends
 * a few requests at once, puts what the answers say into itself, and when the last one has come its
 * type decides (`next`). When the connection is lost, each request that was out is answered with
 * ZK_LOST; with the next connection of the session the task goes on from what it knows (`go`).
 * Nothing is sent while there is no connection, and nothing waits in the link. A session that has
 * ended takes all nodes with it; `expired` says so to each task.
 *
 * ZooKeeper answers in order, and carries out a session's requests in order: a list that was asked
 * for behind a create shows the new node.
 *
 * Everything under the client's mutex. Nothing here blocks; the only other threads are those that
 * resolve names, and they touch a box of their own.
 */
#ifndef PAWL_ZK_H
#define PAWL_ZK_H

#include <uv.h>

#include "engine.h"
#include "jute.h"
#include "kit/link.h"

#define ZK_WORDS NET_WORDS
#define ZK_CHROOT_MAX 512
#define ZK_PREFIX_MAX 255
#define ZK_NODE_MAX 96 /* a node's own name, if it is one of ours */
#define ZK_PATH_MAX (ZK_CHROOT_MAX + ZK_PREFIX_MAX + 3 * PAWL_NAME_MAX + ZK_NODE_MAX + 16)
#define ZK_WHO_MAX 1200
#define ZK_BUCKETS 1024

typedef struct zk zk;
typedef struct zk_task zk_task;

/* The server's error codes that mean something to us, and one of our own. */
enum zk_error {
    ZK_OK = 0,
    ZK_LOST = 1, /* the connection was lost before the answer */
    ZK_CONNECTION_LOSS = -4,
    ZK_UNIMPLEMENTED = -6, /* by a server before 3.5, which has no containers */
    ZK_NO_NODE = -101,
    ZK_NO_AUTH = -102,
    ZK_BAD_VERSION = -103,
    ZK_NODE_EXISTS = -110,
    ZK_NOT_EMPTY = -111,
    ZK_SESSION_EXPIRED = -112,
    ZK_AUTH_FAILED = -115,
    ZK_SESSION_MOVED = -118
};

enum zk_opcode {
    ZK_CREATE = 1,
    ZK_DELETE = 2,
    ZK_EXISTS = 3,
    ZK_GET = 4,
    ZK_SET = 5,
    ZK_SYNC = 9,
    ZK_CHILDREN = 12, /* with the parent's Stat */
    ZK_CHECK = 13,    /* only inside a multi: is the node there? */
    ZK_MULTI = 14,
    ZK_CREATE2 = 15, /* with the new node's Stat */
    ZK_CREATE_CONTAINER = 19,
    ZK_AUTH = 100,
    ZK_CLOSE = -11
};

enum zk_flags { ZK_PERSISTENT = 0, ZK_EPHEMERAL = 1, ZK_SEQUENTIAL = 2, ZK_CONTAINER = 4 };

enum zk_happened { ZK_CREATED = 1, ZK_DELETED = 2, ZK_DATA_CHANGED = 3, ZK_CHILDREN_CHANGED = 4 };

/* ---- settings.c ------------------------------------------------------------------------------ */

typedef struct zk_settings {
    net_addresses servers;
    char *base; /* what the path of every name begins with: "/app/locks/" or "/app/job-" */
    net_login login;
    net_tls_settings tls_settings; /* the host is the link's */
    int64_t session_ms;
    bool tls, kazoo, open_acl;
} zk_settings;

int zk_settings_read(zk_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err);
/* Wipes what is secret. Accepts zeroes. */
void zk_settings_free(zk_settings *s);

/* ---- names.c --------------------------------------------------------------------------------- */

/* The name as one component of a path; `at_root`: there "zookeeper" is taken. */
void zk_encode(char ret[3 * PAWL_NAME_MAX + 1], const char *name, bool at_root);
/* Back; false: no name is encoded so. */
bool zk_decode(char ret[PAWL_NAME_MAX + 1], const char *text, size_t length, bool at_root);
/* BASE NAME [/DIR] [/NODE]; dir and node may be NULL. Valid until the next call. */
const char *zk_path(zk *z, const char *name, const char *dir, const char *node);

enum zk_sort { ZK_EXCLUSIVE, ZK_SHARED, ZK_WAITER, ZK_LEASE, ZK_OTHER };

/* What the name of a child says. */
typedef struct zk_child {
    enum zk_sort sort;
    int32_t sequence;
} zk_child;

zk_child zk_child_read(bool kazoo, jute_bytes name);
/* The name of a new node without its sequence; `sort` and the op's kind choose what it is (a kind
 * below 0: the mutex of a semaphore, which both flavors name alike). */
void zk_node_name(char ret[ZK_NODE_MAX], const zk *z, enum zk_sort sort, int lock_kind,
                  uint64_t seq, uint16_t epoch);
static inline bool zk_bytes_are(jute_bytes b, const char *text)
{
    return b.length == strlen(text) && !memcmp(b.data, text, b.length);
}
/* Do they begin with this? */
static inline bool zk_bytes_begin(jute_bytes b, const char *text)
{
    return b.length >= strlen(text) && !memcmp(b.data, text, strlen(text));
}
/* Is a before b? Sequences wrap around. */
static inline bool zk_before(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b) < 0;
}

/* ---- who.c ----------------------------------------------------------------------------------- */

typedef struct zk_who {
    bool pawl; /* else the rest is unknown */
    int64_t pid, lease_ms, want;
    char host[256], program[256], label[256];
} zk_who;

/* What stands in a node of this client's. */
size_t zk_who_write(char ret[ZK_WHO_MAX], const zk *z, uint32_t want);
void zk_who_read(zk_who *ret, jute_bytes data);
/* The number behind `word`, if that is what the data begins with; -1: none. Anybody may write
 * anything there, so it is brought within bounds in which sums can't overflow. */
int64_t zk_count_read(jute_bytes data, const char *word);

/* ---- task.c ---------------------------------------------------------------------------------- */

typedef struct zk_watch {
    struct list link; /* in its bucket */
    zk_task *task;
    char *path; /* NULL: none is set */
} zk_watch;

typedef struct zk_task_type {
    void (*go)(zk_task *task);      /* there is a connection: go on from what is known */
    void (*next)(zk_task *task);    /* all that was asked has been answered */
    void (*expired)(zk_task *task); /* a session has ended, with all its nodes; or NULL */
    void (*woken)(zk_task *task, zk_watch *watch, int happened); /* a watch has fired; it is gone */
    /* The service can't be used and trying again won't help. */
    void (*refused)(zk_task *task, int code, const char *words);
} zk_task_type;

struct zk_task {
    struct list link; /* in zk->tasks, in order of arrival */
    zk *zk;
    const zk_task_type *type;
    unsigned out; /* requests that are out */
    bool lost;    /* one of them got no answer */
};

/* An answer: `body` is what is behind the header, if error is 0. False: it makes no sense. */
typedef bool zk_answer_fn(zk_task *task, int64_t tag, int error, jute_reader *body);

typedef struct zk_call {
    struct list link;
    zk_task *task; /* NULL: nobody wants the answer */
    zk_answer_fn *answer;
    int64_t tag, sent;
    int32_t xid;
    int opcode;
} zk_call;

void zk_task_begin(zk_task *task, zk *z, const zk_task_type *type);
void zk_task_end(zk_task *task); /* answers that are still to come are dropped */
/* It may go on: now if there is a connection and nothing is out, else by itself later. */
void zk_task_go(zk_task *task);
void zk_tasks_go(zk *z);
void zk_tasks_expired(zk *z);
void zk_tasks_refused(zk *z, int code, const char *words);
/* The connection is lost: a call that was out, and all watches. */
void zk_call_lost(zk_call *call);
void zk_watches_lost(zk *z);
/* Give a call back, with its task told. */
void zk_call_done(zk_call *call, int error, jute_reader *body);

/* A request: begin, put its fields, end. Without a connection the task is `lost`, and that is
 * all. */
jute_writer zk_request(zk *z, int opcode);
void zk_request_end(zk_task *task, jute_writer *w, zk_answer_fn *answer, int64_t tag);
void zk_put_acl(zk *z, jute_writer *w);

void zk_ask_create(zk_task *task, int opcode, const char *path, const char *data, size_t length,
                   int flags, zk_answer_fn *answer, int64_t tag);
/* Every folder above the node, as containers; that they exist is fine. kazoo looks after a folder
 * once and fails if it goes later, so there they stay, as its own do. */
void zk_ask_folders(zk_task *task, const char *path, zk_answer_fn *answer);
void zk_ask_delete(zk_task *task, const char *path, int version, zk_answer_fn *answer, int64_t tag);
/* ZK_EXISTS, ZK_GET or ZK_CHILDREN. */
void zk_ask(zk_task *task, int opcode, const char *path, bool watch, zk_answer_fn *answer,
            int64_t tag);

/* Bring the server up to date with the leader before the next read of this connection. That is not
 * enough to see every write of other clients that is over: a leader may answer a follower's client
 * before it has applied the write itself, and a `sync` at the leader waits for nothing. Good enough
 * for lists that people read. */
void zk_ask_sync(zk_task *task);
/* Let the next read show every write that was over before, of all clients, and every write that
 * this session ever asked for, if it is carried out at all. (A leader that has lost its majority
 * keeps a write, answers a `sync` and a read without it, and carries it out when the majority is
 * back.) Only a write of one's own waits its turn behind others: this one deletes a node below
 * `folder` that does not exist, which needs no right. A read behind a create of one's own needs
 * neither. */
void zk_ask_turn(zk_task *task, const char *folder);

/* Note that the server was or will be asked to watch. False: no memory. */
bool zk_watch_set(zk_watch *watch, zk_task *task, const char *path);
void zk_watch_clear(zk_watch *watch);
/* An event arrived. */
void zk_watches_fire(zk *z, jute_bytes path, int happened);

/* What an error of the server's means, in words; also which right is missing, inside an answer. */
int zk_error_code(const zk *z, int error, char words[ZK_WORDS]);

/* ---- link.c, attach.c ------------------------------------------------------------------------ */

typedef struct zk_link {
    KIT_WIRE;
    size_t server;    /* which one is used or tried */
    int64_t attached; /* an instant before the session's request was written */
    bool fresh;       /* the session is new */
    int32_t xid;
} zk_link;

void zk_link_open(zk *z);
/* What is written still goes out; nothing is answered any more. Accepts zeroes. */
void zk_link_close(zk *z);
/* The connection is of no use: close it, and try the next server. */
#define zk_link_drop(z, ...) kit_link_drop(&(z)->link.kit, __VA_ARGS__)

/* attach.c: ask for the session. */
void zk_link_attach(zk *z);
/* The server's answer to that. False: the link was dropped. */
bool zk_link_attached(zk *z, jute_reader *body);
/* The link is ready: user and password, then what waits. */
void zk_link_ready(zk *z);

/* ---- session.c ------------------------------------------------------------------------------- */

#define ZK_TOUCHES 16

typedef struct zk_session {
    int64_t id; /* 0: none */
    char password[16];
    size_t password_length;
    int64_t timeout_ms; /* as negotiated */
    int64_t last_zxid;  /* the largest that was seen: no server that is behind it will do */
    int64_t until;      /* it can't end before, by the local clock */
    int64_t touches[ZK_TOUCHES]; /* instants before which something was sent that was answered */
    size_t ntouches;
    bool verified; /* since the connection was made, what is held has been looked at */
    uint16_t epoch; /* counts sessions */
    unsigned nbeats;
    pawl_timer beat_timer;
    zk_task beat;
    struct list renewals; /* RENEW ops that wait; op->engine[0..1] is the link */
} zk_session;

void zk_session_open(zk *z);
void zk_session_close(zk *z);
/* The link is ready, with the session it had or (`fresh`) a new one. */
void zk_session_ready(zk *z, bool fresh, int64_t sent);
/* The lease of a grant that is given now. */
void zk_session_lease(zk *z, pawl_op *op);
void zk_renew(zk *z, pawl_op *op);
void zk_renew_cancel(zk *z, pawl_op *op);

/* ---- waiters.c ------------------------------------------------------------------------------- */

void zk_acquire(zk *z, pawl_op *op);
void zk_acquire_cancel(zk *z, pawl_op *op);
void zk_release(zk *z, pawl_op *op);
void zk_release_cancel(zk *z, pawl_op *op);
/* Forget what is left; the session takes the nodes along. */
void zk_waiters_end(zk *z);
/* Read again what everybody waits for and holds, in case that an event was lost. */
void zk_waiters_check(zk *z);
/* Does the server, as far as we know, still have this grant? */
bool zk_holds(zk *z, uint64_t seq);

/* ---- latch.c, inspect.c ---------------------------------------------------------------------- */

void zk_latch(zk *z, pawl_op *op);
void zk_latch_cancel(zk *z, pawl_op *op);

void zk_inspect(zk *z, pawl_op *op);
void zk_inspect_cancel(zk *z, pawl_op *op);

/* ---- zk.c ------------------------------------------------------------------------------------ */

#define ZK_RECEIPTS 64

struct zk {
    pawl_env *env;
    zk_settings settings;
    void *tls_context;
    zk_link link;
    zk_session session;
    uv_prepare_t prepare; /* before the loop polls: write */
    bool prepared;
    pawl_events events;
    struct list tasks;
    struct list spare_calls;
    size_t nspare_calls;
    struct list watches[ZK_BUCKETS]; /* by path */
    struct list waiters[ZK_BUCKETS]; /* by owner.seq */
    uint64_t receipts[ZK_RECEIPTS];  /* latch ops that are done, by owner.seq */
    size_t nreceipts;
    int opcode; /* of the request that is being written, or answered */
    char path[ZK_PATH_MAX];
    char host[256];
};

/* Finish an op that was given up before anything was answered: PAWL_EUNKNOWN if it was sent, else
 * PAWL_ECONN or why there is no connection. */
void zk_give_up(zk *z, pawl_op *op, bool sent);

/* ---- examine.c ------------------------------------------------------------------------------- */

void zk_examine(zk *z, pawl_op *op);
void zk_examine_cancel(zk *z, pawl_op *op);

#endif
