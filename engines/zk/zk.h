/* SPDX-License-Identifier: Apache-2.0
 *
 * zk.h - the ZooKeeper engine, inside.
 *
 *     zk.c        the functions of the engine, and events
 *     settings.c  reads the URL
 *     names.c     converts names to paths, and parses the names of nodes
 *     client_info.c  the data of a node: client information
 *     jute.c      the wire format
 *     link.c      the connection (one at a time), calls and answers
 *     attach.c    opens a session, or resumes one on a new connection
 *     session.c   heartbeats, how long the session is valid, RENEW
 *     task.c      tasks, their requests, and watches
 *     waiters.c   acquire and release      waiter.c  a node in a queue, from creation to end
 *     leftovers.c deletes nodes of ended acquires after the session was resumed
 *     queue.c     the position of a waiter among the children of a lock
 *     permits.c   the same for a semaphore
 *     latch.c     set and count down
 *     inspect.c   inspect, list, count, break      rows.c  the rows that the user sees
 *
 * A *task* is an activity that takes several requests and perhaps several connections: an acquire
 * (which lives on as the grant until the node is deleted), a count-down, an inspection. A task
 * sends a few requests at once and stores the answers; after the last answer, the task's type
 * decides how to go on (`next`). When the connection is lost, each outstanding request is answered
 * with ZK_LOST; with the next connection of the session the task continues from its stored state
 * (`go`). Nothing is sent while there is no connection, and the link has no queue of requests. When
 * a session ends, all its nodes are deleted; `expired` notifies each task.
 *
 * ZooKeeper carries out the requests of a session in order, and answers in order: a list that was
 * requested after a create shows the new node.
 *
 * All code runs under the client's mutex, and nothing here blocks. The only other threads resolve
 * host names; these threads touch only memory of their own.
 */
#ifndef PAWL_ZK_H
#define PAWL_ZK_H

#include <uv.h>

#include "engine.h"
#include "jute.h"
#include "kit/link.h"
#include "net/probe.h"

#define ZK_WORDS NET_WORDS
#define ZK_CHROOT_MAX 512
#define ZK_PREFIX_MAX 255
#define ZK_NODE_MAX 96 /* the longest name of one of our nodes, without the path */
#define ZK_PATH_MAX (ZK_CHROOT_MAX + ZK_PREFIX_MAX + 3 * PAWL_NAME_MAX + ZK_NODE_MAX + 16)
#define ZK_CLIENT_INFO_MAX 1200
#define ZK_BUCKETS 1024

typedef struct zk zk;
typedef struct zk_task zk_task;

/* The server's error codes that the engine handles, and one of our own. */
enum zk_error {
    ZK_OK = 0,
    ZK_LOST = 1, /* the connection was lost before the answer */
    ZK_CONNECTION_LOSS = -4,
    ZK_UNIMPLEMENTED = -6, /* sent by servers before 3.5, which have no containers */
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
    ZK_CHILDREN = 12, /* also returns the parent's Stat */
    ZK_CHECK = 13,    /* only inside a multi: does the node exist? */
    ZK_MULTI = 14,
    ZK_CREATE2 = 15, /* also returns the new node's Stat */
    ZK_CREATE_CONTAINER = 19,
    ZK_AUTH = 100,
    ZK_EPHEMERALS = 103, /* all nodes of the session; since ZooKeeper 3.6 */
    ZK_CLOSE = -11
};

enum zk_flags { ZK_PERSISTENT = 0, ZK_EPHEMERAL = 1, ZK_SEQUENTIAL = 2, ZK_CONTAINER = 4 };

enum zk_happened { ZK_CREATED = 1, ZK_DELETED = 2, ZK_DATA_CHANGED = 3, ZK_CHILDREN_CHANGED = 4 };

/* ---- settings.c ------------------------------------------------------------------------------ */

typedef struct zk_settings {
    net_addresses servers;
    char *base; /* the path of every name begins with this: "/app/locks/" or "/app/job-" */
    net_login login;
    net_tls_settings tls_settings; /* the host is in the link */
    int64_t session_ms;
    bool tls, kazoo, open_acl;
} zk_settings;

int zk_settings_read(zk_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err);
/* Wipes the secrets. Accepts zeroes. */
void zk_settings_free(zk_settings *s);

/* ---- names.c --------------------------------------------------------------------------------- */

/* The name as one component of a path; `at_root`: the name "zookeeper" is taken there. */
void zk_encode(char ret[3 * PAWL_NAME_MAX + 1], const char *name, bool at_root);
/* The inverse of zk_encode; false: the text is not an encoded name. */
bool zk_decode(char ret[PAWL_NAME_MAX + 1], const char *text, size_t length, bool at_root);
/* BASE NAME [/DIR] [/NODE]; dir and node may be NULL. Valid until the next call. */
const char *zk_path(zk *z, const char *name, const char *dir, const char *node);

enum zk_sort { ZK_EXCLUSIVE, ZK_SHARED, ZK_WAITER, ZK_LEASE, ZK_OTHER };

/* The meaning of a child's name. */
typedef struct zk_child {
    enum zk_sort sort;
    int32_t sequence;
} zk_child;

zk_child zk_child_read(bool kazoo, jute_bytes name);
/* The name of a new node without the sequence. `sort` and the op's kind choose the type of node (a
 * kind below 0: the mutex of a semaphore, which has the same name in both flavors). */
void zk_node_name(char ret[ZK_NODE_MAX], const zk *z, enum zk_sort sort, int lock_kind,
                  uint64_t seq, uint16_t epoch);
static inline bool zk_bytes_are(jute_bytes b, const char *text)
{
    return b.length == strlen(text) && !memcmp(b.data, text, b.length);
}
/* Do the bytes begin with the text? */
static inline bool zk_bytes_begin(jute_bytes b, const char *text)
{
    return b.length >= strlen(text) && !memcmp(b.data, text, strlen(text));
}
/* Is a before b? Sequences wrap around. */
static inline bool zk_before(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b) < 0;
}

/* ---- client_info.c --------------------------------------------------------------------------- */

typedef struct zk_client_info {
    bool pawl; /* else the other fields are unknown */
    int64_t pid, lease_ms, want;
    char host[256], program[256], label[256];
} zk_client_info;

/* The data of a node that this client creates. */
size_t zk_client_info_write(char ret[ZK_CLIENT_INFO_MAX], const zk *z, uint32_t want);
void zk_client_info_read(zk_client_info *ret, jute_bytes data);
/* The number after `word`, if the data begins with `word`; -1: none. Anybody can write anything
 * into a node, so the number is limited to a range in which sums can't overflow. */
int64_t zk_count_read(jute_bytes data, const char *word);

/* ---- task.c ---------------------------------------------------------------------------------- */

typedef struct zk_watch {
    struct list link; /* in the bucket of the path */
    zk_task *task;
    char *path; /* NULL: the watch is not set */
} zk_watch;

typedef struct zk_task_type {
    void (*go)(zk_task *task);      /* there is a connection: continue from the stored state */
    void (*next)(zk_task *task);    /* all requests have been answered */
    void (*expired)(zk_task *task); /* the session has ended, with all its nodes; or NULL */
    void (*woken)(zk_task *task, zk_watch *watch, int happened); /* fired, and is cleared */
    /* The service can't be used, and a retry won't help. */
    void (*refused)(zk_task *task, int code, const char *words);
} zk_task_type;

struct zk_task {
    struct list link; /* in zk->tasks, in order of arrival */
    zk *zk;
    const zk_task_type *type;
    unsigned out; /* outstanding requests */
    bool lost;    /* a request got no answer */
};

/* Handles an answer. `body` is the part after the header, if error is 0. False: malformed
 * answer. */
typedef bool zk_answer_fn(zk_task *task, int64_t tag, int error, jute_reader *body);

typedef struct zk_call {
    struct list link;
    zk_task *task; /* NULL: the answer is ignored */
    zk_answer_fn *answer;
    int64_t tag, sent;
    int32_t xid;
    int opcode;
} zk_call;

void zk_task_begin(zk_task *task, zk *z, const zk_task_type *type);
void zk_task_end(zk_task *task); /* answers that still come are ignored */
/* The task may continue: now if there is a connection and nothing is outstanding, otherwise by
 * itself later. */
void zk_task_go(zk_task *task);
void zk_tasks_go(zk *z);
void zk_tasks_expired(zk *z);
void zk_tasks_refused(zk *z, int code, const char *words);
/* The connection is lost: fail an outstanding call, and clear all watches. */
void zk_call_lost(zk_call *call);
void zk_watches_lost(zk *z);
/* Notify the task of a call, and put the call back into the pool. */
void zk_call_done(zk_call *call, int error, jute_reader *body);

/* A request: begin, put the fields, end. Without a connection only the task's `lost` is set. */
jute_writer zk_request(zk *z, int opcode);
void zk_request_end(zk_task *task, jute_writer *w, zk_answer_fn *answer, int64_t tag);
void zk_put_acl(zk *z, jute_writer *w);

void zk_ask_create(zk_task *task, int opcode, const char *path, const char *data, size_t length,
                   int flags, zk_answer_fn *answer, int64_t tag);
/* Create every folder above the node, as containers; folders that exist are no error. kazoo checks
 * for a folder once and fails if the folder vanishes later, so flavor=kazoo creates permanent
 * nodes. */
void zk_ask_folders(zk_task *task, const char *path, zk_answer_fn *answer);
void zk_ask_delete(zk_task *task, const char *path, int version, zk_answer_fn *answer, int64_t tag);
/* ZK_EXISTS, ZK_GET or ZK_CHILDREN. */
void zk_ask(zk_task *task, int opcode, const char *path, bool watch, zk_answer_fn *answer,
            int64_t tag);

/* Bring the server up to date with the leader before the next read on this connection. A `sync`
 * does not make every finished write of other clients visible: a leader may answer a follower's
 * client before the leader itself has applied the write, and a `sync` at the leader waits for
 * nothing. This is good enough for lists that people read. */
void zk_ask_sync(zk_task *task);
/* Make sure that the next read shows every finished write of all clients, and every write that this
 * session ever requested, if such a write is carried out at all. (A leader that has lost its
 * majority keeps a write, answers a `sync` and a read without the write, and carries out the write
 * when the majority is back.) Only a write waits its turn behind other writes: this function
 * deletes a node below `folder` that does not exist, which needs no permission. A read after a
 * create of our own needs neither zk_ask_sync nor zk_ask_turn. */
void zk_ask_turn(zk_task *task, const char *folder);

/* Record a watch that the server was or will be asked for. False: out of memory. */
bool zk_watch_set(zk_watch *watch, zk_task *task, const char *path);
void zk_watch_clear(zk_watch *watch);
/* An event arrived: wake the tasks that watch the path. */
void zk_watches_fire(zk *z, jute_bytes path, int happened);

/* The PAWL_E... code and the error text of a server error. Call this inside an answer function to
 * name the missing permission. */
int zk_error_code(const zk *z, int error, char words[ZK_WORDS]);

/* ---- link.c, attach.c ------------------------------------------------------------------------ */

typedef struct zk_link {
    KIT_WIRE;
    size_t server;    /* index of the server in use or being tried */
    int64_t attached; /* an instant before the request for the session was written */
    bool fresh;       /* the session is new */
    int32_t xid;
    net_probe version;
} zk_link;

void zk_link_open(zk *z);
/* Data already written still goes out; no call is answered any more. Accepts zeroes. */
void zk_link_close(zk *z);
/* The connection is of no use: close it, and try the next server. */
#define zk_link_drop(z, ...) kit_link_drop(&(z)->link.kit, __VA_ARGS__)

/* version.c: ask for the server's version, log it, and then request the session. */
void zk_version_ask(zk *z);
#define ZK_VERSION_MAX 40
bool zk_version_read(const net_probe *p, char version[ZK_VERSION_MAX]);
/* attach.c: request the session. */
void zk_link_attach(zk *z);
/* Handle the server's answer to that request. False: the link was dropped. */
bool zk_link_attached(zk *z, jute_reader *body);
/* The link is ready: send user and password, then let all tasks continue. */
void zk_link_ready(zk *z);

/* ---- session.c ------------------------------------------------------------------------------- */

#define ZK_TOUCHES 16

typedef struct zk_session {
    int64_t id; /* 0: none */
    char password[16];
    size_t password_length;
    int64_t timeout_ms; /* as negotiated */
    int64_t last_zxid;  /* the largest zxid seen: servers behind this zxid are not usable */
    int64_t until;      /* the session can't end before, by the local clock */
    int64_t touches[ZK_TOUCHES]; /* instants before requests that were answered */
    size_t ntouches;
    bool verified; /* everything held has been checked on this connection */
    uint16_t epoch; /* counts the sessions */
    unsigned nbeats;
    pawl_timer beat_timer;
    zk_task beat;
    struct list renewals; /* waiting RENEW ops; op->engine[0..1] is the link */
} zk_session;

void zk_session_open(zk *z);
void zk_session_close(zk *z);
/* The link is ready, with the previous session or (`fresh`) a new one. */
void zk_session_ready(zk *z, bool fresh, int64_t sent);
/* Set the lease of a grant that is made now. */
void zk_session_lease(zk *z, pawl_op *op);
void zk_renew(zk *z, pawl_op *op);
void zk_renew_cancel(zk *z, pawl_op *op);

/* ---- waiters.c ------------------------------------------------------------------------------- */

void zk_acquire(zk *z, pawl_op *op);
void zk_acquire_cancel(zk *z, pawl_op *op);
void zk_release(zk *z, pawl_op *op);
void zk_release_cancel(zk *z, pawl_op *op);
/* Free all waiters; the nodes end with the session. */
void zk_waiters_end(zk *z);
/* Read again every node that is waited for or held, in case an event was lost. */
void zk_waiters_check(zk *z);
/* Does the server, as far as we know, still have this grant? */
bool zk_holds(zk *z, uint64_t seq);

/* ---- leftovers.c ----------------------------------------------------------------------------- */

typedef struct zk_leftovers {
    zk_task task;
    kit_buf paths;  /* of nodes to be deleted, each with its NUL */
    unsigned lost;  /* connections in a row that were lost before the answer */
    bool unknown;   /* the server does not know the request */
} zk_leftovers;

void zk_leftovers_open(zk *z);
/* The session was resumed: delete its nodes that no waiter knows. */
void zk_leftovers_ask(zk *z);
void zk_leftovers_close(zk *z);

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
    zk_leftovers leftovers;
    uv_prepare_t prepare; /* writes requests before the loop polls */
    bool prepared;
    pawl_events events;
    struct list tasks;
    struct list spare_calls;
    size_t nspare_calls;
    struct list watches[ZK_BUCKETS]; /* by path */
    struct list waiters[ZK_BUCKETS]; /* by owner.seq */
    uint64_t receipts[ZK_RECEIPTS];  /* owner.seq of finished latch ops */
    size_t nreceipts;
    int opcode; /* of the request being written, or answered */
    char path[ZK_PATH_MAX];
};

/* Finish an op that was cancelled before an answer came: with PAWL_EUNKNOWN if a request was sent,
 * else with PAWL_ECONN or the reason why there is no connection. */
void zk_give_up(zk *z, pawl_op *op, bool sent);

/* ---- examine.c ------------------------------------------------------------------------------- */

void zk_examine(zk *z, pawl_op *op);
void zk_examine_cancel(zk *z, pawl_op *op);

#endif
