/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum_world.h - an environment for the engine "quorum:" alone: virtual time, five stores that
 * can be slow, silent, restarted or empty, and clients that are instances of the engine.
 *
 * Clients reach a store through the inner engine "node:K". Each request takes `delay` to arrive, is
 * carried out in one step, and the answer takes as long. This rule of the engine is checked all the
 * time: no function of an inner engine is called while one of its ops is being answered.
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
    bool silent;           /* accepts requests, and does not answer */
    int refuses;           /* refuses requests with this code, at once */
    int64_t beat;          /* > 0: a renewal counts from this long before, as with a session */
    bool restarted;        /* the store reports when it was started */
    int64_t born;
    unsigned drop, lose;   /* requests, answers that are lost, of 1000 */
    uint64_t clock;        /* counters are never behind this clock (us), as on a server */
    size_t requests[PAWL_OP_EVENT + 1];
    name_state names[NAMES];
} store;

typedef struct client {
    pawl_env env;
    pawl_instance engine;
    int number;
    uint32_t caps; /* capabilities of the nodes */
    int64_t late_ms; /* how far the client's wall clock is behind */
    struct tied *tied[STORES];
} client;

/* One op of the test, and its result. */
typedef struct ask {
    pawl_op op;
    pawl_error err;
    pawl_renewal item;
    int done; /* how often the op was completed */
    int64_t at;
    char name[8];
} ask;

extern store stores[STORES];
extern int64_t world_now;
extern uint64_t world_seed;

void world_begin(uint64_t seed);
/* Let time pass. */
void world_run(int64_t ms);
bool world_run_until(const ask *a, int64_t ms); /* until `a` is done, at most `ms` */
void world_restart(int k);                      /* store k loses all data, and was just started */
void world_tell(int k, const client *c, int event);
uint64_t world_random(uint64_t below);
size_t world_requests(int kind); /* of all stores since the beginning */
size_t world_held(int name);     /* the number of stores at which the name is held */
size_t world_waits(int name);
bool world_has(int k, int name, const client *c);

extern const char *const world_url; /* five nodes, which vote from 10 s after their start */
void client_open(client *c, const char *url);
int client_try_open(client *c, const char *url, pawl_error *err);
void client_close(client *c);

/* What most cases use: a new world with three clients. */
extern client one, two, three;
void begin_three(void);
void end_three(void);

void ask_acquire(client *c, ask *a, int name, uint64_t seq, bool queue, int64_t lease_ms,
                 int64_t wait_ms);
void ask_release(client *c, ask *a, int name, uint64_t seq, uint8_t mode);
void ask_renew(client *c, ask *a, int name, uint64_t seq, int64_t lease_ms);
void ask_submit(client *c, ask *a, uint8_t kind, int name);
void ask_cancel(client *c, ask *a);
/* Acquire and release, which must succeed; one try, which returns its code. */
void ask_take(client *c, ask *a, int name, uint64_t seq);
void ask_give(client *c, int name, uint64_t seq);
int ask_try(client *c, ask *a, int name, uint64_t seq);

/* Functions that quorum_world.c and quorum_store.c share. */
void world_timer_set(pawl_env *env, pawl_timer *timer, int64_t due);
void world_timer_clear(pawl_env *env, pawl_timer *timer);
void world_expire(name_state *n);
void world_admit(store *s, name_state *n);
int world_instance_open(pawl_env *env, pawl_instance *ret, const char *url, pawl_error *err);
void world_instance_close(pawl_instance *instance);

#endif
