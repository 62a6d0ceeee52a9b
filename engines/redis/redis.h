/* SPDX-License-Identifier: Apache-2.0
 *
 * redis.h - the Redis engine, inside.
 *
 *     redis.c     the functions of the engine, events, the client information
 *     settings.c  reads the URL
 *     link.c      one connection, and the calls on it; on top of ../kit/link.c
 *     hello.c     the greeting of a connection
 *     sentinel.c  asks sentinels for the address of the master
 *     cluster.c   which node serves a slot      map_link.c  reads the slot map of a cluster
 *     slots.c     the slot map of one node      hosts.c  which hosts may be connected to
 *     shards.c    the client's channels in a cluster
 *     age.c       how long the server has run
 *     calls.c     calls, and errors of the server       rights.c  names a missing right
 *     keys.c      names to keys
 *     waiters.c   acquire: the ops that may wait        waiters_table.c  the table of waiters
 *     ops.c       release, break, latch         renew.c  renew
 *     replicas.c  proof that replicas have a grant
 *     stale.c     messages about acquires that have ended
 *     pawl.c, redisson.c   the layouts: requests and messages
 *     channels.c  channels that waiters listen on
 *     inspect.c   inspect, count and list       scan.c  finds the names in use
 *     rows.c      the answers of inspect, as rows for the user
 *     examine.c   findings about the server     examine_info.c  the findings that INFO leads to
 *
 * A *call* is one command and its reply. A link has a list of pending calls, in the order they were
 * written (Redis answers in order), and a backlog of calls that wait until the link is ready. The
 * maker of a call can lose interest (call->about = NULL); the answer is then read and ignored. A
 * connection is dropped when an unexpected reply is read, or when no reply comes for too long.
 *
 * Everything runs under the client's mutex. Nothing here blocks; the only other threads are the
 * resolver threads, and each of them touches only a result struct of its own.
 */
#ifndef PAWL_REDIS_H
#define PAWL_REDIS_H

#include <uv.h>

#include "engine.h"
#include "kit/link.h"
#include "kit/waiter.h"
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
    char *path;       /* of a unix socket, instead of an address; else NULL */
    char *master;     /* the name of the master, for sentinels */
    char *hosts;      /* of a cluster: which hosts may be connected to; NULL: see hosts.c */
    net_login login, sentinel_login;
    char *prefix;
    bool tls;
    net_tls_settings tls_settings; /* the host is the link's */
    int64_t db;
    int64_t replicas;     /* how many replicas must have a grant */
    bool redisson;        /* the layout is redisson */
    bool plain_semaphore; /* layout redisson: use RSemaphore, without leases */
} redis_settings;

int redis_settings_read(redis_settings *s, const pawl_env *env, const pawl_url *url,
                        pawl_error *err);
/* Can the text be a host's name or address? Checks text that a server has sent. */
bool redis_is_host(const char *text);
/* Wipes passwords. Accepts zeroes. */
void redis_settings_free(redis_settings *s);

/* ---- keys.c ---------------------------------------------------------------------------------- */

#define REDIS_K_MAX (REDIS_PREFIX_MAX + PAWL_NAME_MAX)

typedef struct redis_keys {
    size_t k_length, base_length;
    char k[REDIS_K_MAX + 1];
    char base[2 * REDIS_K_MAX + 32]; /* the beginning of the helper keys; room for a suffix */
} redis_keys;

/* Make K: the prefix and the name. Returns the length of K. */
size_t redis_key(char k[REDIS_K_MAX + 1], const char *prefix, const char *name);
void redis_keys_make(redis_keys *keys, const char *prefix, const char *name);
void redis_keys_of(redis_keys *keys, const char *k, size_t length);
/* Add {K}SUFFIX (":queue") to a command. */
void redis_add_helper(resp_command *c, redis_keys *keys, const char *suffix);
/* Add the five keys that most scripts use, K first. */
void redis_add_keys(resp_command *c, redis_keys *keys);
uint16_t redis_slot(const char *key, size_t length);
/* Make a number whose digits hash to this slot. Returns its length. */
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
    /* Write the command. Returns 0 or a code. */
    int (*write)(redis_call *call, resp_buf *out);
    /* The reply is not an error. Return false if the reply makes no sense. */
    bool (*answer)(redis_call *call, const resp_node *reply);
    /* PAWL_EUNKNOWN: the command was sent and no reply came. Else: not carried out. */
    void (*failed)(redis_call *call, int code, const char *words);
    /* For commands that are answered by a push, like SUBSCRIBE: does this push answer the call?
     * NULL: the command has an ordinary reply. */
    bool (*by_push)(const redis_call *call, const resp_node *push);
    bool proven;  /* with replicas=, a WAIT must follow the call */
    bool tells;   /* the call leads to messages, so a mute link refuses the call. Not set for a
                     release: a mute client must still be able to release */
    void (*before)(redis_call *call); /* on a node with sharded channels: sends commands that the
                                         call needs first; may be NULL */
} redis_call_type;

struct redis_call {
    struct list link; /* in its link's calls or backlog */
    const redis_call_type *type;
    redis_link *on;
    void *about;      /* the maker's; NULL: the answer is ignored */
    int64_t tag;      /* the maker's */
    int64_t sent;     /* an instant before the command was written */
    uint64_t proof;   /* the number of the WAIT that follows the call */
    uint16_t slot;
    uint8_t hops;     /* how often the call was redirected to another node */
    bool routed;      /* the slot decides which link the call is sent on */
    bool asking;      /* the node is importing the slot: send ASKING first */
    bool whole_text;  /* the server does not know the script: send the text, not the digest */
};

/* A new call, to be sent by redis_link_send on just this link. NULL: no memory. */
redis_call *redis_call_new(redis_link *link, const redis_call_type *type, void *about,
                           int64_t tag);
/* A new call, to be sent by redis_call_send to the link that serves the slot, now or later. */
redis_call *redis_call_about(redis *r, uint16_t slot, const redis_call_type *type, void *about,
                             int64_t tag);
void redis_call_send(redis_call *call);
void redis_call_free(redis_call *call);
/* EVALSHA or EVAL, for a type's `write`. */
resp_command redis_begin(const redis_call *call, const redis_script *script, resp_buf *out,
                         size_t nkeys, size_t nargs);
/* Is the reply this error? Servers before 7.0 wrap the errors of commands inside scripts. */
bool redis_error_is(const resp_node *reply, const char *word);
/* Pawl's code for an error of the server; `words` gets the error text. */
int redis_error_code(const redis_link *link, const resp_node *reply, char words[REDIS_WORDS]);

/* ---- rights.c -------------------------------------------------------------------------------- */

/* The user lacks a right: add the name of the right to `words` if the server has not named it. */
void redis_name_right(const redis_link *link, const resp_node *reply, char words[REDIS_WORDS]);

#define REDIS_OWNER_MAX 40
/* Make the scripts' name of an owner, "CLIENT:SEQ"; returns the length. */
size_t redis_owner(char text[REDIS_OWNER_MAX], uint64_t client, uint64_t seq);
/* Does this node contain that owner? */
bool redis_is_owner(const resp_node *node, uint64_t client, uint64_t seq);

/* ---- link.c ---------------------------------------------------------------------------------- */

enum redis_greeting { GREET_HELLO, GREET_SELECT, GREET_KILL, GREET_PING, GREET_PUBLISH };

/* The purpose of a connection, as callbacks. */
typedef struct redis_role {
    /* An attempt begins. False: link->host is not known yet, and redis_link_located will follow.
     * NULL: the host is always known. */
    bool (*locate)(redis_link *link);
    void (*ready)(redis_link *link);
    /* The server can't be used, and a retry will not help. */
    void (*refused)(redis_link *link, int code, const char *words);
    void (*push)(redis_link *link, const resp_node *push);
    void (*dropped)(redis_link *link); /* before the pause that follows; may be NULL */
    /* LOCATING has timed out: write the error text. False: there is none. May be NULL. */
    bool (*lost)(const redis_link *link, char words[REDIS_WORDS]);
    /* Must this call wait although the link is ready? NULL: never. */
    bool (*holds_back)(const redis_link *link, const redis_call *call);
} redis_role;

struct redis_link {
    KIT_WIRE;
    redis *redis;
    const redis_role *role;
    const redis_settings *settings;
    char host[NET_HOST_MAX]; /* "": a unix socket, or not known yet */
    uint16_t port;
    char where[NET_HOST_MAX + 16]; /* the server, for error texts: "localhost:6379" */
    const char *user, *password, *channel, *channel2; /* for the greeting; NULL: none */
    int64_t db;
    const char *tells;     /* a channel on which the user must be able to publish; NULL: none */
    char mute[REDIS_WORDS]; /* the link is mute: the missing right to use channels; "": not mute */
    bool must_be_master;
    resp_reader reader;
    bool sharded;          /* a node of a cluster that has sharded channels */
    char id[17];           /* the beginning of such a node's id; "": not known */
    bool moved;            /* the node took slots over: leases must be verified */
    bool counts;           /* `moved` was a fail-over, not a map that was out of date */
    int64_t served;        /* when the node was last seen to serve slots; 0: never */
    bool knows_better;     /* a MOVED error named this node: ask this node for the map */
    bool asked, ask_again; /* a request for the map is pending; and must be repeated */
    int8_t sound;          /* its cluster_state: 1 ok, 0 fail, -1 not known; see map_link.c */
    int64_t epoch;         /* the node's cluster_current_epoch; 0 not known */
    uint16_t number;       /* the node's index in the cluster's nodes, plus 1 */
    bool plain;            /* sharded messages are refused here: use plain ones */
    size_t nslots, had;    /* number of slots the node serves, and served before the map was read */
    uint8_t *listens;      /* shards.c: slots with a subscribed channel, a bit each; NULL: none */
    struct list proving;   /* answered calls that wait for their WAIT: by redis_proof.link */
    uint64_t proof_next;   /* the number of the next WAIT */
    bool proof_wanted;     /* calls were written that the next WAIT is to prove */
    bool proof_out;        /* a WAIT is pending */
    uint8_t greeting[5];   /* enum redis_greeting, the answers to come */
    uint8_t ngreeting, greeted;
    uint64_t server_id;    /* the server's id of this connection; 0 unknown */
    uint64_t old_id;       /* the server's id of the previous connection, to be killed */
    char address[64];      /* our end of this connection, and of the previous one */
    char old_address[64];
    bool read_only;        /* the server said READONLY: nothing more is sent here */
    kit_clock clock;       /* the server's */
    int64_t born;          /* an instant not before the server's start; see age.c */
};

/* Sets up; the link begins to connect. Address and greeting are set before or by role->locate. */
void redis_link_open(redis_link *link, redis *r, const redis_role *role);
/* Set the address of the server for the next attempts. */
void redis_link_address(redis_link *link, const char *host, uint16_t port);
/* The address is known now: continue the attempt that waits for the address. */
void redis_link_located(redis_link *link);
/* A link that was opened and put to sleep does not connect before redis_link_wake. */
void redis_link_sleep(redis_link *link);
void redis_link_wake(redis_link *link);
static inline bool redis_link_sleeps(const redis_link *link)
{
    return link->state == LINK_PAUSED && !link->timer.armed;
}
/* Fails the calls of the link with PAWL_ECANCELED. Accepts zeroes. */
void redis_link_close(redis_link *link);
/* The link owns the call from now on. Store pointers to the call before: it may fail at once. */
void redis_link_send(redis_link *link, redis_call *call);
/* The connection is of no use: close the connection, and retry after a pause. */
#define redis_link_drop(link, ...) kit_link_drop(&(link)->kit, __VA_ARGS__)
/* Free a call that was not written yet. False: the call was written. */
bool redis_call_withdraw(redis_call *call);
/* Withdraw all calls whose `about` is this. Returns their number. */
size_t redis_link_withdraw(redis_link *link, const void *about);

/* ---- hello.c --------------------------------------------------------------------------------- */

int redis_greet(redis_link *link);
/* An answer to the greeting. 0: go on; 1: that was the last answer; else a code, with words. */
int redis_greeted(redis_link *link, const resp_node *reply, char words[REDIS_WORDS]);

/* Check whether a mute link may publish by now. */
void redis_may_publish(redis_link *link);

/* ---- replicas.c ------------------------------------------------------------------------------ */

typedef struct redis_proof redis_proof;

struct redis_proof {
    struct list link;
    uint64_t number;
    /* The number of replicas that have carried out the call; -1: unknown. */
    void (*proven)(redis_proof *proof, int64_t replicas);
};

/* The call was answered: proof->proven is called when its WAIT is answered, too. */
void redis_prove(redis_call *call, redis_proof *proof);
/* A WAIT is wanted (link->proof_wanted): send the WAIT, unless one is pending. */
void redis_proof_ask(redis_link *link);
/* The connection is lost. */
void redis_proofs_fail(redis_link *link);
/* Too few replicas have a grant: the code, and the error text. */
int redis_proof_code(const redis *r, int64_t replicas, char words[REDIS_WORDS]);

/* ---- sentinel.c ------------------------------------------------------------------------------ */

typedef struct redis_sentinel {
    redis_link link;     /* to one sentinel at a time */
    size_t next;         /* the index of the sentinel to try next */
    uint32_t rounds;     /* rounds through all sentinels without success */
    size_t strangers;    /* number of sentinels in a row that don't know the master */
    bool asked;          /* a request is pending */
    bool known;          /* the sentinels have named the master's address */
} redis_sentinel;

void redis_sentinel_open(redis *r);
void redis_sentinel_close(redis *r);
/* Ask (again) for the master's address; the answer leads to redis_master_found. */
void redis_sentinel_ask(redis *r);

/* ---- age.c ----------------------------------------------------------------------------------- */

/* Ask the server for its age, now and on each new connection. */
void redis_age_want(redis *r, redis_link *link);
/* The link has a new connection. */
void redis_age_ready(redis *r, redis_link *link);
int64_t redis_age_ms(const redis_link *link);

/* ---- redis.c --------------------------------------------------------------------------------- */

typedef struct redis_waiter redis_waiter;

/* ---- layouts: pawl.c, redisson.c ------------------------------------------------------------- */

/* A layout writes the calls and reads the messages. The comments say what call->about is. */
typedef struct redis_layout {
    const char *name;
    uint32_t caps;
    bool own_channel;     /* messages to this client arrive on one channel of its own */
    bool exclusive_alone; /* most exclusive grants are alone on their key: renew by one key */
    int64_t refresh_ms;   /* how often waiters ask again, at least */
    int (*write_acquire)(redis_call *call, resp_buf *out); /* about a waiter */
    int (*write_cancel)(redis_call *call, resp_buf *out);
    int (*write_release)(redis_call *call, resp_buf *out); /* about an op */
    int (*write_renew)(redis_call *call, resp_buf *out);   /* about a redis_part */
    int (*write_break)(redis_call *call, resp_buf *out);
    int (*write_latch)(redis_call *call, resp_buf *out);
    int (*write_inspect)(const redis_call *call, const char *name, int mode, int64_t rows,
                         resp_buf *out);
    /* The waiter was queued. True: the waiter now listens, and must ask again. May be NULL. */
    bool (*listen)(redis_waiter *w);
    void (*message)(redis *r, redis_link *link, const resp_node *channel, const resp_node *text);
} redis_layout;

extern const redis_layout redis_layout_pawl, redis_layout_redisson;

/* The state of an item of a renewal: see renew.c. */
enum redis_renew { REDIS_ASK_ONE = 1, REDIS_ASK_THREE = 3, REDIS_IN_CALL = 5 };

/* The items of a renewal that are in one call (call->about). */
typedef struct redis_part {
    struct list link;
    struct renewal *whole;
    redis_call *call; /* NULL: answered */
    redis_proof proof;
    size_t n;
    pawl_renewal *items[];
} redis_part;

/* Does this owner ("UUID:NUMBER") belong to a client of Pawl? *client is for the key of its
 * client information. */
bool redisson_client_of(const char *owner, uint64_t *client);

/* ---- cluster.c ------------------------------------------------------------------------------- */

#define REDIS_SLOTS 16384
#define REDIS_NODES_MAX 1000 /* masters: the suggested limit of Redis Cluster */
#define REDIS_NODE_ID 16     /* how many characters of a node's id are kept */

typedef struct redis_cluster {
    redis_link **nodes; /* present and former masters; nodes that serve no slots are closed */
    size_t nnodes, room;
    uint16_t *slots;    /* for each slot the index of its node, plus 1; 0: not known */
    uint8_t *used;      /* the slots that this client has asked about, a bit each */
    size_t next;        /* which address the map link (redis.link) tries next */
    uint32_t rounds;    /* rounds through all addresses without success */
    size_t turn;        /* which node is asked for the map next, beside the map link */
    bool known;         /* there is a map; see map_link.c */
    bool trusted;       /* the map is of a node that was in order */
    bool doubted;       /* a node has answered CLUSTERDOWN since */
    bool told;          /* the log says already that CLUSTER INFO is refused */
    int64_t epoch;      /* of the map; 0 not known */
    int64_t confirmed;  /* when the map was last read from a node that was in order */
    pawl_timer timer;
} redis_cluster;

int redis_cluster_open(redis *r, pawl_error *err);
void redis_cluster_close(redis *r);
void redis_cluster_free(redis *r);
uint16_t redis_cluster_slot(const redis *r, const char *name);
redis_link *redis_cluster_link(redis *r, uint16_t slot);
/* MOVED, ASK: redirect the call to the named node. False: the reply is no redirection. */
bool redis_cluster_redirect(redis_link *link, redis_call *call, const resp_node *reply);
/* Find or add the node at this address; a new node sleeps. NULL: no memory, or too many. */
redis_link *redis_cluster_node(redis *r, const char *host, uint16_t port);
/* This node serves slots that another node served before. */
void redis_cluster_taken(redis_link *node);
/* The map has changed. */
void redis_cluster_changed(redis *r);

/* ---- map_link.c ------------------------------------------------------------------------------ */

void redis_map_link_open(redis *r);
void redis_map_link_close(redis *r);
/* Ask this node for the map. */
void redis_map_link_ask(redis_link *link);
/* The map may be out of date: ask for a map now, or soon. */
void redis_cluster_refresh(redis *r);
void redis_cluster_doubt(redis *r);

/* ---- slots.c --------------------------------------------------------------------------------- */

#define REDIS_NODE_MAP_BUCKETS 2048

typedef struct redis_node_map_node {
    char host[NET_HOST_MAX];
    uint16_t port;
    char id[REDIS_NODE_ID + 1];
} redis_node_map_node;

/* The slot map as a node describes it. */
typedef struct redis_node_map {
    char flaw[REDIS_WORDS]; /* why the map can't be used; "": no flaw */
    size_t n, covered;      /* masters; slots, counted as often as they are named */
    uint16_t slots[REDIS_SLOTS]; /* an index in `nodes`, plus 1; 0: no node */
    uint16_t table[REDIS_NODE_MAP_BUCKETS];
    redis_node_map_node nodes[REDIS_NODES_MAX];
} redis_node_map;

/* Read an answer to CLUSTER SLOTS; free the map after use. NULL: no memory, or (*sense false) the
 * answer makes no sense. */
redis_node_map *redis_node_map_read(const redis_link *from, const resp_node *reply, bool *sense);
void redis_node_map_use(redis *r, const redis_node_map *node_map);

/* ---- hosts.c --------------------------------------------------------------------------------- */

/* Is this a list for hosts=? */
bool redis_hosts_valid(const char *list);
/* May the client connect to a host that the node `from` has named? */
bool redis_may_follow(const redis_link *from, const char *host);

/* ---- shards.c -------------------------------------------------------------------------------- */

#define REDIS_CHANNEL_MAX (REDIS_PREFIX_MAX + 40)

/* The channel for messages about names of the call's slot: a letter, then the channel's name. Only
 * for a link with sharded channels (sharded, and not plain); others use redis.channel. */
const char *redis_shard_channel(char text[REDIS_CHANNEL_MAX], const redis_call *call);
/* Subscribe to that channel, before the call is sent on a link that is `sharded`. */
void redis_shard_listen(redis_call *call);
/* An unasked confirmation came: the server has ended the subscription. */
void redis_shard_ended(redis_link *link, const resp_node *channel);
/* The connection is new: check whether this user may send sharded messages. */
void redis_shard_probe(redis_link *link);
/* This user may not use sharded channels at this node. */
void redis_shards_refused(redis_link *link, const char *words);
/* Does the push have this first word and this channel? */
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
    char no_wait[REDIS_WORDS]; /* the user has no right to WAIT; "": WAIT is allowed */
    char channel[REDIS_PREFIX_MAX + 40]; /* 'p' (cluster: 'c'), then the channel of this client */
    struct list calls;     /* pooled calls */
    size_t ncalls;
    pawl_events events;
    bool moved;            /* the next connection is to another server than the last */
    pawl_timer client_info_timer;
    uint16_t client_info_slot;
    bool client_info_over; /* the client information was written, or can't be written now */
    int64_t started;       /* Unix time, ms */

    struct list waiters;   /* in order of arrival */
    kit_seqs table;        /* the same waiters, by owner.seq */
    struct list spare_waiters;
    size_t nspare_waiters;
    size_t nstale;         /* pending cancels of acquires that this client does not know */
    struct list channels[REDIS_CHANNEL_BUCKETS]; /* the channels that waiters listen on */
};

/* The slot of a name's keys; 0 without a cluster. */
static inline uint16_t redis_slot_of(const redis *r, const char *name)
{
    return r->settings.service == REDIS_CLUSTER ? redis_cluster_slot(r, name) : 0;
}

/* The link that serves a slot, and the link that serves a name. */
static inline redis_link *redis_link_at(redis *r, uint16_t slot)
{
    return r->settings.service == REDIS_CLUSTER ? redis_cluster_link(r, slot) : &r->link;
}

static inline redis_link *redis_link_for(redis *r, const char *name)
{
    return redis_link_at(r, redis_slot_of(r, name));
}

/* The sentinels have named the address of the master. */
void redis_master_found(redis *r, const char *host, uint16_t port);
/* Set up a link for locks: login, database and channels for its greeting. */
void redis_link_for_locks(redis_link *link, redis *r);
void redis_server_push(redis_link *link, const resp_node *push);
/* Write the client information, now and periodically. */
void redis_client_info_keep(redis *r);
/* The client information was written, or writing it failed: send the held-back acquires. */
void redis_client_info_over(redis *r);
/* A retry will not help: fail the backlog of the link, and the waiters that were not sent yet. */
void redis_refused(redis_link *link, int code, const char *words);
/* The key of a client's information, and its slot. */
void redis_add_client_info_key(resp_command *c, const redis *r, uint64_t client);
uint16_t redis_client_info_slot(const redis *r, uint64_t client);

/* ---- waiters.c, ops.c, inspect.c ------------------------------------------------------------- */

void redis_acquire(redis *r, pawl_op *op);
void redis_acquire_cancel(redis *r, pawl_op *op);
void redis_waiters_resend(redis *r, redis_link *link); /* NULL: all */
/* Slots have moved: waiters that asked another node ask the node that has their slot now. */
void redis_waiters_move(redis *r);
/* The waiters of a slot ask again. */
void redis_waiters_ask(redis *r, uint16_t slot);
void redis_waiters_refuse(redis *r, redis_link *link, int code, const char *words);
void redis_waiters_end(redis *r);
/* Is a cancel pending on a ready link? The engine's `unfinished`. */
bool redis_waiters_leave(void *self);

/* stale.c: a message is about an acquire that this client does not know. token 0: the message asks
 * the acquire to watch, and grants nothing. */
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
