/* SPDX-License-Identifier: Apache-2.0
 *
 * redis.h - the Redis engine, inside.
 *
 *     redis.c     the engine's slots, and what belongs to no op (events, the client's own entry)
 *     settings.c  what the URL says
 *     link.c      one connection: its life, and the calls on it; on top of ../net/stream.c
 *     hello.c     its first words
 *     sentinel.c  where the master is, by asking sentinels
 *     cluster.c   which node serves a slot      map_link.c  whom to ask, and whom to believe
 *     slots.c     what a node says of them      hosts.c  which hosts may be followed
 *     shards.c    the client's channels in a cluster
 *     age.c       for how long the server has run
 *     calls.c     what a call and an error of the server's are
 *     keys.c      names to keys
 *     waiters.c   acquire: the ops that may wait        waiters_table.c  those there are
 *     ops.c       release, break, latch         renew.c  renew
 *     replicas.c  proof that replicas have it
 *     stale.c     messages about acquires that are over
 *     pawl.c, redisson.c   the layouts: what is sent, what messages say
 *     channels.c  channels that waiters listen on
 *     inspect.c   inspect, count and list      scan.c  which names there are
 *     rows.c      what the user is shown of them
 *     examine.c   what is wrong with the server      examine_info.c  what INFO tells of that
 *
 * A *call* is one command on its way. The link has those that are out, in the order they were
 * written (Redis answers in order), and those that wait until it is ready. Whoever made a call may
 * lose interest (call->about = NULL); the answer is then read and dropped. A connection is never
 * used again after anything unexpected was read from it, or too long nothing.
 *
 * Everything under the client's mutex. Nothing here blocks; the only other threads are those that
 * resolve names, and they touch a box of their own.
 */
#ifndef PAWL_REDIS_H
#define PAWL_REDIS_H

#include <uv.h>

#include "engine.h"
#include "list.h"
#include "net/net.h"
#include "resp.h"

#define REDIS_PREFIX_MAX 255
#define REDIS_WORDS NET_WORDS

typedef struct redis redis;
typedef struct redis_link redis_link;
typedef struct redis_call redis_call;

/* ---- settings.c ------------------------------------------------------------------------------ */

#define REDIS_MASTER_MAX 255

enum redis_service { REDIS_ONE, REDIS_SENTINEL, REDIS_CLUSTER };

typedef struct redis_settings {
    enum redis_service service;
    net_addresses at; /* the server, the sentinels, or some nodes of the cluster */
    char *path;       /* of a unix socket, instead; else NULL */
    char *master;     /* what the sentinels call it */
    char *hosts;      /* of a cluster: which hosts may be followed; NULL: see hosts.c */
    net_login login, sentinel_login;
    char *prefix;
    bool tls;
    net_tls_settings tls_settings; /* the host is the link's */
    int64_t db;
    int64_t replicas;     /* that must have a grant */
    bool redisson;        /* the layout */
    bool plain_semaphore; /* of that layout: RSemaphore, without leases */
} redis_settings;

int redis_settings_read(redis_settings *s, const pawl_env *env, const pawl_url *url,
                        pawl_error *err);
/* Can it be a host's name or address? For what a server says. */
bool redis_is_host(const char *text);
/* Wipes what is secret. Accepts zeroes. */
void redis_settings_free(redis_settings *s);

/* ---- keys.c ---------------------------------------------------------------------------------- */

#define REDIS_K_MAX (REDIS_PREFIX_MAX + PAWL_NAME_MAX)

typedef struct redis_keys {
    size_t k_length, base_length;
    char k[REDIS_K_MAX + 1];
    char base[2 * REDIS_K_MAX + 32]; /* what the helper keys begin with; room for their end */
} redis_keys;

/* K: the prefix and the name. Returns its length. */
size_t redis_key(char k[REDIS_K_MAX + 1], const char *prefix, const char *name);
void redis_keys_make(redis_keys *keys, const char *prefix, const char *name);
void redis_keys_of(redis_keys *keys, const char *k, size_t length);
/* Add {K}SUFFIX (":queue") to a command. */
void redis_add_helper(resp_command *c, redis_keys *keys, const char *suffix);
/* K, and all five that most scripts want. */
void redis_add_keys(resp_command *c, redis_keys *keys);
uint16_t redis_slot(const char *key, size_t length);
/* Digits that fall into this slot. */
size_t redis_slot_tag(char tag[12], uint16_t slot);

/* ---- calls.c --------------------------------------------------------------------------------- */

typedef struct redis_script {
    const char *text;
    size_t length;
    const char *sha;
} redis_script;

extern const redis_script redis_script_acquire, redis_script_release, redis_script_cancel,
    redis_script_renew, redis_script_break, redis_script_inspect, redis_script_latch,
    redis_script_entry;
extern const redis_script redisson_script_acquire, redisson_script_release, redisson_script_renew,
    redisson_script_break, redisson_script_inspect, redisson_script_latch;

typedef struct redis_call_type {
    /* Write the command. 0 or a code. */
    int (*write)(redis_call *call, resp_buf *out);
    /* It was answered, not with an error. Return false if the answer makes no sense. */
    bool (*answer)(redis_call *call, const resp_node *reply);
    /* It was not: PAWL_EUNKNOWN it was sent and nothing came; else it was not carried out. */
    void (*failed)(redis_call *call, int code, const char *words);
    /* It is answered by a push, as SUBSCRIBE is: by this one? NULL: it is not. */
    bool (*by_push)(const redis_call *call, const resp_node *push);
    bool proven;  /* with replicas=, a WAIT must follow it */
    bool tells;   /* it leads to messages: refused by a link that is mute. A release is not: what is
                     held must come back */
    void (*before)(redis_call *call); /* what must be sent before it on call->on; may be NULL */
} redis_call_type;

struct redis_call {
    struct list link; /* in its link's calls or backlog */
    const redis_call_type *type;
    redis_link *on;
    void *about;      /* the maker's; NULL: nobody wants the answer */
    int64_t tag;      /* the maker's */
    int64_t sent;     /* an instant before it was written */
    uint64_t proof;   /* the number of the WAIT that follows it */
    uint16_t slot;
    uint8_t hops;     /* how often it was sent on to another node */
    bool routed;      /* its slot says which link it goes to */
    bool asking;      /* that node has the slot only in part yet: ASKING goes before */
    bool whole_text;  /* the server does not know the script: send all of it */
};

/* A new call, to be sent by redis_link_send on just this link. NULL: no memory. */
redis_call *redis_call_new(redis_link *link, const redis_call_type *type, void *about,
                           int64_t tag);
/* One about a slot, to be sent by redis_call_send: to the link that serves it, now or later. */
redis_call *redis_call_about(redis *r, uint16_t slot, const redis_call_type *type, void *about,
                             int64_t tag);
void redis_call_send(redis_call *call);
void redis_call_free(redis_call *call);
/* EVALSHA or EVAL, for a type's `write`. */
resp_command redis_begin(const redis_call *call, const redis_script *script, resp_buf *out,
                         size_t nkeys, size_t nargs);
/* Is it this error? Servers before 7.0 wrap what a command inside a script said. */
bool redis_error_is(const resp_node *reply, const char *word);
/* What an error of the server's means; `words` get its text. */
int redis_error_code(const redis_link *link, const resp_node *reply, char words[REDIS_WORDS]);

/* ---- rights.c -------------------------------------------------------------------------------- */

/* The server refuses a right: add to its words which one, where they don't say so. */
void redis_name_right(const redis_link *link, const resp_node *reply, char words[REDIS_WORDS]);

#define REDIS_OWNER_MAX 40
/* "CLIENT:SEQ" as the scripts know it; returns the length. */
size_t redis_owner(char text[REDIS_OWNER_MAX], uint64_t client, uint64_t seq);
/* Is this node that owner? */
bool redis_is_owner(const resp_node *node, uint64_t client, uint64_t seq);

/* ---- link.c ---------------------------------------------------------------------------------- */

enum redis_link_state {
    LINK_CLOSED,     /* for good */
    LINK_PAUSED,     /* will try again at link->timer */
    LINK_LOCATING,   /* its address is being asked for */
    LINK_CONNECTING,
    LINK_GREETING,   /* the first words are out */
    LINK_READY
};

enum redis_greeting { GREET_HELLO, GREET_SELECT, GREET_KILL, GREET_PING, GREET_PUBLISH };

/* What a connection is for. */
typedef struct redis_role {
    /* An attempt begins. Is link->host known? Else redis_link_located when it is. NULL: always. */
    bool (*locate)(redis_link *link);
    void (*ready)(redis_link *link);
    /* The server can't be used, and trying again will not help. */
    void (*refused)(redis_link *link, int code, const char *words);
    void (*push)(redis_link *link, const resp_node *push);
    void (*dropped)(redis_link *link); /* before the pause that follows; may be NULL */
    /* LOCATING has taken too long. What is to be said about that? False: nothing. May be NULL. */
    bool (*lost)(const redis_link *link, char words[REDIS_WORDS]);
    /* Must this call wait although the link is ready? NULL: never. */
    bool (*holds_back)(const redis_link *link, const redis_call *call);
} redis_role;

struct redis_link {
    redis *redis;
    const redis_role *role;
    pawl_env *env;
    const redis_settings *settings;
    enum redis_link_state state;
    char host[NET_HOST_MAX]; /* "": a unix socket, or not known yet */
    uint16_t port;
    char where[NET_HOST_MAX + 16]; /* the server, for words: "localhost:6379" */
    const char *user, *password, *channel, *channel2; /* for the greeting; NULL: none */
    int64_t db;
    const char *tells;     /* a channel on which we must be able to send; NULL: none */
    char mute[REDIS_WORDS]; /* which right to use channels is missing; "": none */
    bool must_be_master;
    net_stream stream;
    net_tls_settings tls;
    resp_buf in, out;
    resp_reader reader;
    bool sharded;          /* a node of a cluster that has sharded channels */
    char id[17];           /* what such a node calls itself, the beginning of it; "": not known */
    bool moved;            /* it took slots over: leases must be verified */
    bool counts;           /* and that was a fail-over, not a map that was out of date */
    int64_t served;        /* when it was last seen to serve slots; 0: never */
    bool knows_better;     /* MOVED has named it: ask it for the map */
    bool asked, ask_again; /* the question for the map is out; and must be asked once more */
    int8_t sound;          /* its cluster_state: 1 ok, 0 fail, -1 not known; see map_link.c */
    int64_t epoch;         /* its cluster_current_epoch; 0 not known */
    uint16_t number;       /* its index in the cluster's nodes, plus 1 */
    bool plain;            /* sharded messages are refused here: use plain ones */
    size_t nslots, had;    /* how many it serves, and did before the map was read */
    uint8_t *listens;      /* shards.c: to which slots' channels, a bit each; NULL: to none */
    struct list proving;   /* answered, but WAIT is not: by redis_proof.link */
    uint64_t proof_next;   /* the number of the next WAIT */
    bool proof_wanted;     /* calls were written that the next WAIT is to prove */
    bool proof_out;        /* a WAIT is out */
    struct list calls;     /* out, in order */
    struct list backlog;   /* not written yet */
    pawl_timer timer;      /* PAUSED: its end. READY: the first call's limit. CONNECTING: none */
    uint8_t greeting[5];   /* enum redis_greeting, the answers to come */
    uint8_t ngreeting, greeted;
    uint64_t server_id;    /* of this connection, in the server's terms; 0 unknown */
    uint64_t old_id;       /* of the one before, to be killed */
    char address[64];      /* our end of this connection, and of the one before */
    char old_address[64];
    uint32_t failures;     /* attempts since it was last ready */
    uint64_t epochs;       /* how often it was ready */
    bool read_only;        /* the server said so: nothing more is sent here */
    int last_code;         /* why it is not ready */
    char words[REDIS_WORDS];
    /* server time `clock_server` (ms) was not before local `clock_local` (ns; 0: nothing known);
     * see redis_since */
    int64_t clock_server, clock_local;
    int64_t born;          /* an instant not before the server began; see age.c */
};

/* Sets up; the link begins to connect. Address and greeting are set before or by role->locate. */
void redis_link_open(redis_link *link, redis *r, const redis_role *role);
/* Whose connection it is to be from now on. */
void redis_link_address(redis_link *link, const char *host, uint16_t port);
/* The address is known now: go on with the attempt that waits for it. */
void redis_link_located(redis_link *link);
/* The next attempt shall not wait. */
void redis_link_hurry(redis_link *link);
/* A link that was opened and put to sleep does not connect before it is woken. */
void redis_link_sleep(redis_link *link);
void redis_link_wake(redis_link *link);
static inline bool redis_link_sleeps(const redis_link *link)
{
    return link->state == LINK_PAUSED && !link->timer.armed;
}
/* Fails what is on it with PAWL_ECANCELED. Accepts zeroes. */
void redis_link_close(redis_link *link);
/* The call is the link's now. Whoever keeps a pointer to it does so before: it may fail at once. */
void redis_link_send(redis_link *link, redis_call *call);
/* Fail and free all calls of a list. */
void redis_calls_fail(struct list *calls, int code, const char *words);
/* Write what there is. */
void redis_link_flush(redis_link *link);
/* The connection is of no use: close it, and try again in a while. */
__attribute__((format(printf, 3, 4)))
void redis_link_drop(redis_link *link, int code, const char *format, ...);
/* Take back a call that was not written yet. False: it was. */
bool redis_call_withdraw(redis_call *call);
/* Take back all of them about this; how many. */
size_t redis_link_withdraw(redis_link *link, const void *about);
/* A reply to `call` carried the server's time. */
void redis_clock_set(redis_call *call, int64_t server_ms);
/* An instant of the local clock that is not after the server's time `server_ms`. */
int64_t redis_since(redis_link *link, int64_t server_ms);

/* ---- hello.c --------------------------------------------------------------------------------- */

int redis_greet(redis_link *link);
/* An answer to the greeting. 0: go on; 1: that was the last; else a code, with words. */
int redis_greeted(redis_link *link, const resp_node *reply, char words[REDIS_WORDS]);

/* Ask a link that is mute whether that is over. */
void redis_may_publish(redis_link *link);

/* ---- replicas.c ------------------------------------------------------------------------------ */

typedef struct redis_proof redis_proof;

struct redis_proof {
    struct list link;
    uint64_t number;
    void (*proven)(redis_proof *proof, int64_t replicas); /* how many have it; -1: unknown */
};

/* The call was answered; tell `proof` when the replicas have it. */
void redis_prove(redis_call *call, redis_proof *proof);
/* Send the WAIT that is wanted. */
void redis_proof_ask(redis_link *link);
/* The connection is lost. */
void redis_proofs_fail(redis_link *link);
/* Too few replicas have it: what that means, and words. */
int redis_proof_code(const redis *r, int64_t replicas, char words[REDIS_WORDS]);

/* ---- sentinel.c ------------------------------------------------------------------------------ */

typedef struct redis_sentinel {
    redis_link link;     /* to one of them at a time */
    size_t next;         /* which comes next */
    uint32_t rounds;     /* through all of them in vain */
    size_t strangers;    /* in a row that don't know the master */
    bool asked;          /* the question is out */
    bool known;          /* they have told where the master is */
} redis_sentinel;

void redis_sentinel_open(redis *r);
void redis_sentinel_close(redis *r);
/* Ask (again) where the master is; redis_master_found is told. */
void redis_sentinel_ask(redis *r);

/* ---- age.c ----------------------------------------------------------------------------------- */

/* Somebody wants to know it, from now on. */
void redis_age_want(redis *r, redis_link *link);
/* There is a new connection. */
void redis_age_ready(redis *r, redis_link *link);
int64_t redis_age_ms(const redis_link *link);

/* ---- redis.c --------------------------------------------------------------------------------- */

typedef struct redis_waiter redis_waiter;

/* ---- layouts: pawl.c, redisson.c ------------------------------------------------------------- */

/* What is written for a call about: */
typedef struct redis_layout {
    const char *name;
    uint32_t caps;
    bool own_channel;     /* this client has one on which its messages arrive */
    bool exclusive_alone; /* an exclusive grant is alone on its key, mostly: renewed by one key */
    int64_t refresh_ms;   /* how often waiters ask again, at least */
    int (*write_acquire)(redis_call *call, resp_buf *out); /* a waiter */
    int (*write_cancel)(redis_call *call, resp_buf *out);
    int (*write_release)(redis_call *call, resp_buf *out); /* an op */
    int (*write_renew)(redis_call *call, resp_buf *out);   /* its items that are REDIS_IN_CALL */
    int (*write_break)(redis_call *call, resp_buf *out);
    int (*write_latch)(redis_call *call, resp_buf *out);
    int (*write_inspect)(const redis_call *call, const char *name, int mode, int64_t rows,
                         resp_buf *out);
    /* The waiter was not granted. True: it listens from now on, and must ask again. May be NULL. */
    bool (*listen)(redis_waiter *w);
    void (*message)(redis *r, redis_link *link, const resp_node *channel, const resp_node *text);
} redis_layout;

extern const redis_layout redis_layout_pawl, redis_layout_redisson;

/* Where an item of a renewal stands: see renew.c. */
enum redis_renew { REDIS_ASK_ONE = 1, REDIS_ASK_THREE = 3, REDIS_IN_CALL = 5 };

/* Items of a renewal that are in one call, which is about it. */
typedef struct redis_part {
    struct list link;
    struct renewal *whole;
    redis_call *call; /* NULL: answered */
    redis_proof proof;
    size_t n;
    pawl_renewal *items[];
} redis_part;

/* Is this owner ("UUID:NUMBER") a client of Pawl's? Then which, for its entry. */
bool redisson_client_of(const char *owner, uint64_t *client);

/* ---- cluster.c ------------------------------------------------------------------------------- */

#define REDIS_SLOTS 16384
#define REDIS_NODES_MAX 1000 /* masters: as many as Redis Cluster is made for */
#define REDIS_NODE_ID 16     /* so much of a node's id is kept */

typedef struct redis_cluster {
    redis_link **nodes; /* masters, now or once; those that serve nothing are closed */
    size_t nnodes, room;
    uint16_t *slots;    /* the index of the node that serves it, plus 1; 0: not known */
    uint8_t *used;      /* the slots that this client has asked about, a bit each */
    size_t next;        /* which address the map link (redis.link) tries next */
    uint32_t rounds;    /* through all of them in vain */
    size_t turn;        /* which node is asked for the map next, beside the map link */
    bool known;         /* there is a map; see map_link.c */
    bool trusted;       /* and it is of a node that was in order */
    bool doubted;       /* a node has said CLUSTERDOWN since */
    bool told;          /* that CLUSTER INFO is refused */
    int64_t epoch;      /* of the map; 0 not known */
    int64_t confirmed;  /* when it was last read from a node that was in order */
    pawl_timer timer;
} redis_cluster;

int redis_cluster_open(redis *r, pawl_error *err);
void redis_cluster_close(redis *r);
void redis_cluster_free(redis *r);
uint16_t redis_cluster_slot(const redis *r, const char *name);
redis_link *redis_cluster_link(redis *r, uint16_t slot);
/* MOVED, ASK: send the call where it belongs. False: the reply is nothing of that sort. */
bool redis_cluster_redirect(redis_link *link, redis_call *call, const resp_node *reply);
/* The node at this address; a new one sleeps. NULL: no memory, or too many. */
redis_link *redis_cluster_node(redis *r, const char *host, uint16_t port);
/* This node serves slots that another one did. */
void redis_cluster_taken(redis_link *node);
/* The map is another one. */
void redis_cluster_changed(redis *r);

/* ---- map_link.c ------------------------------------------------------------------------------ */

void redis_map_link_open(redis *r);
void redis_map_link_close(redis *r);
/* Ask this node for the map. */
void redis_map_link_ask(redis_link *link);
/* The map may be out of date: ask for it now, or soon. */
void redis_cluster_refresh(redis *r);
void redis_cluster_doubt(redis *r);

/* ---- slots.c --------------------------------------------------------------------------------- */

#define REDIS_NODE_MAP_BUCKETS 2048

typedef struct redis_node_map_node {
    char host[NET_HOST_MAX];
    uint16_t port;
    char id[REDIS_NODE_ID + 1];
} redis_node_map_node;

/* What a node says of the cluster. */
typedef struct redis_node_map {
    char flaw[REDIS_WORDS]; /* why it can't be used; "": it can */
    size_t n, covered;      /* masters; slots, counted as often as they are named */
    uint16_t slots[REDIS_SLOTS]; /* an index in `nodes`, plus 1; 0: nobody's */
    uint16_t table[REDIS_NODE_MAP_BUCKETS];
    redis_node_map_node nodes[REDIS_NODES_MAX];
} redis_node_map;

/* An answer to CLUSTER SLOTS; to be freed. NULL: no memory, or (*sense false) it makes none. */
redis_node_map *redis_node_map_read(const redis_link *from, const resp_node *reply, bool *sense);
void redis_node_map_use(redis *r, const redis_node_map *node_map);

/* ---- hosts.c --------------------------------------------------------------------------------- */

/* Is this a list for hosts=? */
bool redis_hosts_valid(const char *list);
/* May a host that this node has named be connected to? */
bool redis_may_follow(const redis_link *from, const char *host);

/* ---- shards.c -------------------------------------------------------------------------------- */

#define REDIS_CHANNEL_MAX (REDIS_PREFIX_MAX + 40)

/* Where messages about names of the call's slot are to be sent: a letter, then the channel. */
void redis_shard_channel(char text[REDIS_CHANNEL_MAX], const redis_call *call);
/* Listen there, before the call is sent. */
void redis_shard_listen(redis_call *call);
/* A confirmation came unasked: the server listens no more on our behalf. */
void redis_shard_ended(redis_link *link, const resp_node *channel);
/* The connection is new: may this user send sharded messages? */
void redis_shard_probe(redis_link *link);
/* This user may not use sharded channels there. */
void redis_shards_refused(redis_link *link, const char *words);
/* Is the push this word about this channel? */
bool redis_push_is(const resp_node *push, const char *word, const char *channel, size_t length);

#define REDIS_CHANNEL_BUCKETS 64

struct redis {
    pawl_env *env;
    const redis_layout *layout;
    redis_settings settings;
    void *tls_context;
    redis_link link;       /* to the server; of a cluster, the map link */
    redis_sentinel sentinel;
    redis_cluster cluster;
    uv_prepare_t prepare;  /* before the loop polls: write */
    bool prepared;
    bool wants_age;
    char no_wait[REDIS_WORDS]; /* the user has no right to WAIT; "": it has */
    char channel[REDIS_PREFIX_MAX + 40]; /* 'p' (cluster: 'c'), then where our messages arrive */
    struct list calls;     /* spare ones */
    size_t ncalls;
    pawl_op *event;
    int pending_event;     /* an event that came while no EVENT op was out */
    pawl_broken broken;    /* breaks of our grants that no EVENT has reported yet */
    bool moved;            /* the next connection is to another server than the last */
    pawl_timer entry_timer;
    uint16_t entry_slot;
    bool entered;          /* it was written, or can't be now */
    int64_t started;       /* Unix time, ms */

    struct list waiters;   /* in order of arrival */
    redis_waiter **table;  /* by owner.seq */
    size_t nwaiters, table_room;
    struct list spare_waiters;
    size_t nspare_waiters;
    size_t nstale;         /* cancels of acquires that this client does not know, out */
    struct list channels[REDIS_CHANNEL_BUCKETS]; /* that waiters listen on */
};

/* The slot of a name's keys; 0 where there are no slots. */
static inline uint16_t redis_slot_of(const redis *r, const char *name)
{
    return r->settings.service == REDIS_CLUSTER ? redis_cluster_slot(r, name) : 0;
}

/* Which connection serves a slot, and a name. */
static inline redis_link *redis_link_at(redis *r, uint16_t slot)
{
    return r->settings.service == REDIS_CLUSTER ? redis_cluster_link(r, slot) : &r->link;
}

static inline redis_link *redis_link_for(redis *r, const char *name)
{
    return redis_link_at(r, redis_slot_of(r, name));
}

/* The sentinels say so. */
void redis_master_found(redis *r, const char *host, uint16_t port);
/* The link is for locks: how it greets, and what its messages are. */
void redis_link_for_locks(redis_link *link, redis *r);
void redis_server_push(redis_link *link, const resp_node *push);
/* Write the client's entry, now and again. */
void redis_entry_keep(redis *r);
/* It was, or can't be: acquires may go out. */
void redis_entry_over(redis *r);
/* Trying again will not help: tell those who were not heard yet. */
void redis_refused(redis_link *link, int code, const char *words);
void redis_event(redis *r, int event);
/* A notice says that a grant of this client was broken: seq as in pawl_op.by_seq, and by whom. */
void redis_broken(redis *r, uint64_t seq, const char *by, size_t length);
/* The key of a client's entry, and its slot. */
void redis_add_entry_key(resp_command *c, const redis *r, uint64_t client);
uint16_t redis_entry_slot(const redis *r, uint64_t client);

/* ---- waiters.c, ops.c, inspect.c ------------------------------------------------------------- */

void redis_acquire(redis *r, pawl_op *op);
void redis_acquire_cancel(redis *r, pawl_op *op);
void redis_waiters_resend(redis *r, redis_link *link); /* NULL: all */
/* Slots have moved: waiters that were with another node ask the one that has them now. */
void redis_waiters_move(redis *r);
/* Those of a slot ask again. */
void redis_waiters_ask(redis *r, uint16_t slot);
void redis_waiters_refuse(redis *r, redis_link *link, int code, const char *words);
void redis_waiters_end(redis *r);
/* A cancel is out at a server that answers: the engine's `unfinished`. */
bool redis_waiters_leave(void *self);

/* stale.c: a message told of an acquire that this client does not know. token 0: it was told to
 * watch, not granted. */
void redis_disown(redis *r, const char *name, uint64_t seq, uint64_t token, int64_t granted);

void redis_simple(redis *r, pawl_op *op); /* release, break, latch */
void redis_simple_cancel(redis *r, pawl_op *op);

void redis_renew(redis *r, pawl_op *op);
void redis_renew_cancel(redis *r, pawl_op *op);

void redis_inspect(redis *r, pawl_op *op); /* inspect, count, list */
void redis_inspect_cancel(redis *r, pawl_op *op);

void redis_examine(redis *r, pawl_op *op);
void redis_examine_cancel(redis *r, pawl_op *op);

#endif
