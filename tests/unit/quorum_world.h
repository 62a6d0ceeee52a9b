/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum_world.h - a world for the engine "quorum:" alone: virtual time, five stores that can
 * be slow, silent, young or forgetful, and clients that are instances of the engine.
 *
 * A store is reached through the inner engine "node:K". Each request travels `delay`, is carried
 * out in one step, and its answer travels as long. The engine's own rule is checked all the time:
 * no inner engine is entered while one of its ops is being answered.
 */
#ifndef PAWL_QUORUM_WORLD_H
#define PAWL_QUORUM_WORLD_H

#include "check.h"
#include "engine.h"

#define MS PAWL_NS_PER_MS
enum { STORES = 5, NAMES = 3, CROWD = 64, TIMEOUT_MS = 2000, LEASE = 10000 };

typedef struct grant {
    pawl_owner owner;
    uint64_t token;
    uint32_t ntokens;
    uint8_t mode;
    int64_t since, ends;
} grant;

typedef struct message message;

typedef struct name_state {
    uint64_t counter;
    grant holders[CROWD];
    size_t nholders;
    message *queue[CROWD]; /* ACQUIREs that wait */
    size_t nqueue;
} name_state;

typedef struct store {
    int64_t delay, jitter; /* ns, each way */
    bool silent;           /* takes requests, answers nothing */
    int refuses;           /* with this code, at once */
    int64_t beat;          /* > 0: a renewal counts from so long before, as with a session */
    bool restarted;        /* it knows when it began */
    int64_t born;
    unsigned drop, lose;   /* so many of 1000 requests, answers vanish */
    uint64_t clock;        /* counters never stay behind it (us), like a server's own */
    size_t requests[PAWL_OP_EVENT + 1];
    name_state names[NAMES];
} store;

typedef struct client {
    pawl_env env;
    pawl_instance engine;
    int number;
    uint32_t caps; /* what its nodes can do */
    int64_t late_ms; /* by how much its wall clock is behind */
    struct tied *tied[STORES];
} client;

/* One op of the test's, and what became of it. */
typedef struct ask {
    pawl_op op;
    pawl_error err;
    pawl_renewal item;
    int done; /* how often */
    int64_t at;
    char name[8];
} ask;

extern store stores[STORES];
extern int64_t world_now;
extern uint64_t world_seed;

void world_begin(uint64_t seed);
/* Let time pass. */
void world_run(int64_t ms);
bool world_run_until(const ask *a, int64_t ms); /* or so long at most */
void world_restart(int k);                      /* it forgets everything, and is young */
void world_tell(int k, const client *c, int event);
uint64_t world_random(uint64_t below);
size_t world_requests(int kind); /* of all stores since the beginning */
size_t world_held(int name);     /* at how many stores somebody has it */
size_t world_waits(int name);
bool world_has(int k, int name, const client *c);

extern const char *const world_url; /* five nodes, that vote when they are 10 s old */
void client_open(client *c, const char *url);
int client_try_open(client *c, const char *url, pawl_error *err);
void client_close(client *c);

void ask_acquire(client *c, ask *a, int name, uint64_t seq, bool queue, int64_t lease_ms,
                 int64_t wait_ms);
void ask_release(client *c, ask *a, int name, uint64_t seq, uint8_t mode);
void ask_renew(client *c, ask *a, int name, uint64_t seq, int64_t lease_ms);
void ask_submit(client *c, ask *a, uint8_t kind, int name);
void ask_cancel(client *c, ask *a);
/* Acquire and release, which must go well; one try, and its code. */
void ask_take(client *c, ask *a, int name, uint64_t seq);
void ask_give(client *c, int name, uint64_t seq);
int ask_try(client *c, ask *a, int name, uint64_t seq);

/* Between quorum_world.c and quorum_store.c. */
void world_timer_set(pawl_env *env, pawl_timer *timer, int64_t due);
void world_timer_clear(pawl_env *env, pawl_timer *timer);
void world_expire(name_state *n);
void world_admit(store *s, name_state *n);
int world_instance_open(pawl_env *env, pawl_instance *ret, const char *url, pawl_error *err);
void world_instance_close(pawl_instance *instance);

#endif
