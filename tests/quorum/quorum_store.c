/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum_store.c - the stores of quorum_world.h, and the inner engine "node:K" that uses them.
 *
 * The stages of a message: COMING (its timer will carry out the message), WAITING (in a queue, or
 * in a store that is silent), GOING (its timer will answer), LOST (its timer will answer
 * PAWL_EUNKNOWN).
 */
#include "kit/rows.h" /* before the type `client` */
#include "quorum_world.h"

#include <stdlib.h>

enum stage { COMING, WAITING, GOING, LOST };

struct message {
    message *next, **link;
    struct tied *tied;
    pawl_op *op;
    enum stage stage;
    bool queued;
    pawl_timer timer;
};

/* The inner engine's state: one per client and node. */
typedef struct tied {
    client *client;
    int k;
    pawl_op *event;
    message *messages;
} tied;

store stores[STORES];

static int answering; /* an op->done is on the stack */

/* ---- answers --------------------------------------------------------------------------------- */

static void forget(message *m)
{
    world_timer_clear(NULL, &m->timer);
    *m->link = m->next;
    if (m->next)
        m->next->link = m->link;
    free(m);
}

static void answer(message *m, int code)
{
    pawl_op *op = m->op;

    forget(m);
    if (code)
        pawl_error_set(op->err, code, "%s", code == PAWL_ECONN ? "Connection refused" : "no");
    answering++;
    pawl_op_finish(op, code);
    answering--;
}

static void answer_now(pawl_timer *timer)
{
    message *m = timer->arg;

    answer(m, m->op->code);
}

static void answer_unknown(pawl_timer *timer)
{
    answer(timer->arg, PAWL_EUNKNOWN);
}

static int64_t travel(const store *s)
{
    return s->delay + (s->jitter ? (int64_t)world_random((uint64_t)s->jitter) : 0);
}

static void later(message *m, int64_t ns, void (*fire)(pawl_timer *))
{
    m->timer.fire = fire;
    m->timer.arg = m;
    world_timer_set(&m->tied->client->env, &m->timer, world_now + ns);
}

static void reply(message *m, int code)
{
    store *s = &stores[m->tied->k];

    m->op->code = code;
    m->queued = false;
    if (s->lose && world_random(1000) < s->lose) {
        m->stage = LOST;
        later(m, 300 * MS, answer_unknown);
    } else if (travel(s)) {
        m->stage = GOING;
        later(m, travel(s), answer_now);
    } else {
        answer(m, code);
    }
}

/* ---- a store --------------------------------------------------------------------------------- */

static grant *find_grant(name_state *n, const pawl_owner *owner)
{
    for (size_t i = 0; i < n->nholders; i++)
        if (n->holders[i].owner.client == owner->client && n->holders[i].owner.seq == owner->seq)
            return &n->holders[i];
    return NULL;
}

static void drop_grant(name_state *n, grant *g)
{
    *g = n->holders[--n->nholders];
}

void world_expire(name_state *n)
{
    for (size_t i = n->nholders; i-- > 0;)
        if (n->holders[i].ends <= world_now)
            drop_grant(n, &n->holders[i]);
}

static bool fits(const name_state *n, const pawl_op *op)
{
    for (size_t i = 0; i < n->nholders; i++) {
        const grant *g = &n->holders[i];
        bool own = op->with_seq && g->owner.seq == op->with_seq &&
                   g->owner.client == op->owner.client;

        if (!own && (op->mode != PAWL_MODE_SHARED || g->mode != PAWL_MODE_SHARED))
            return false;
    }
    return n->nholders < CROWD;
}

static int64_t age(const store *s)
{
    return s->restarted ? (world_now - s->born) / MS + 1 : 0;
}

static void enter(const store *s, name_state *n, pawl_op *op, int64_t ms, bool floor)
{
    uint64_t clock = s->clock ? (uint64_t)(world_now / 1000) + s->clock : 0;

    if (floor && n->counter < op->floor)
        n->counter = op->floor;
    if (n->counter + op->tokens < clock) /* as on a Redis server */
        n->counter = clock - op->tokens;
    n->holders[n->nholders++] = (grant){.owner = op->owner, .token = n->counter + 1,
                                        .ntokens = op->tokens, .mode = op->mode,
                                        .since = world_now, .ends = world_now + ms * MS};
    op->token = n->counter + 1;
    op->ntokens = op->tokens;
    op->value = age(s);
    n->counter += op->tokens;
}

void world_admit(store *s, name_state *n)
{
    world_expire(n);
    while (n->nqueue && fits(n, n->queue[0]->op)) {
        message *m = n->queue[0];
        int64_t ms = m->op->lease_ms < 500 ? m->op->lease_ms : 500; /* a claim */

        memmove(n->queue, n->queue + 1, --n->nqueue * sizeof n->queue[0]);
        enter(s, n, m->op, ms, false);
        m->op->granted_ms = ms;
        m->op->lease_from = world_now;
        m->op->waited = true;
        reply(m, 0);
    }
}

static void leave_queue(message *m)
{
    name_state *n = &stores[m->tied->k].names[m->op->name[0] - 'a'];

    for (size_t i = 0; i < n->nqueue; i++)
        if (n->queue[i] == m) {
            memmove(n->queue + i, n->queue + i + 1, (--n->nqueue - i) * sizeof n->queue[0]);
            break;
        }
    m->queued = false;
    world_admit(&stores[m->tied->k], n);
}

static void acquire(store *s, name_state *n, message *m)
{
    pawl_op *op = m->op;
    grant *g = find_grant(n, &op->owner);

    if (g) {
        if (op->floor > n->counter)
            n->counter = op->floor;
        if (g->ends < world_now + op->lease_ms * MS)
            g->ends = world_now + op->lease_ms * MS;
        op->token = g->token;
        op->ntokens = g->ntokens;
        op->value = age(s);
        reply(m, 0);
    } else if ((!n->nqueue || op->with_seq) && fits(n, op)) {
        enter(s, n, op, op->lease_ms, true);
        reply(m, 0);
    } else if (op->queue) {
        CHECK(n->nqueue < CROWD);
        n->queue[n->nqueue++] = m;
        m->stage = WAITING;
        m->queued = true;
    } else {
        reply(m, PAWL_EBUSY);
    }
}

static void renew(store *s, message *m)
{
    for (size_t i = 0; i < m->op->batch_len; i++) {
        pawl_renewal *item = &m->op->batch[i];
        name_state *n = &s->names[item->name[0] - 'a'];
        grant *g;

        world_expire(n);
        g = find_grant(n, &item->owner);
        item->code = g ? 0 : PAWL_ENOTHELD;
        if (g && g->ends < world_now + item->lease_ms * MS)
            g->ends = world_now + item->lease_ms * MS;
    }
    if (s->beat)
        m->op->lease_from = world_now - s->beat;
    reply(m, 0);
}

static void show(const name_state *n, pawl_op *op, const char *name, bool all)
{
    pawl_info row = {.size = sizeof row, .name = name, .role = PAWL_ROLE_SUMMARY, .host = "",
                     .holders = n->nholders, .waiters = n->nqueue, .program = "", .label = "x",
                     .owner = "", .lease_ms = -1, .since_ms = -1, .shared = n->nholders > 0};
    char id[KIT_ID_MAX];

    for (size_t i = 0; i < n->nholders; i++)
        row.shared &= n->holders[i].mode == PAWL_MODE_SHARED;
    op->row(op->row_arg, &row);
    for (size_t i = 0; all && i < n->nholders + n->nqueue; i++) {
        const grant *g = i < n->nholders ? &n->holders[i] : NULL;
        const pawl_op *waits = g ? NULL : n->queue[i - n->nholders]->op;
        const pawl_owner *o = g ? &g->owner : &waits->owner;

        row.owner = kit_owner_id(id, o->client, o->seq);
        row.role = g ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
        row.shared = (g ? g->mode : waits->mode) == PAWL_MODE_SHARED;
        row.holders = row.waiters = 0;
        row.token = g ? g->token : 0;
        row.lease_ms = g ? (g->ends - world_now) / MS : -1;
        row.since_ms = g ? (world_now - g->since) / MS : 0;
        op->row(op->row_arg, &row);
    }
}

static void carry_out(message *m)
{
    store *s = &stores[m->tied->k];
    pawl_op *op = m->op;
    name_state *n = &s->names[op->name && op->name[0] >= 'a' ? op->name[0] - 'a' : 0];
    grant *g;

    world_expire(n);
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        acquire(s, n, m);
        break;
    case PAWL_OP_RELEASE:
        g = find_grant(n, &op->owner);
        if (g)
            drop_grant(n, g);
        reply(m, g ? 0 : PAWL_ENOTHELD);
        world_admit(s, n);
        break;
    case PAWL_OP_RENEW:
        renew(s, m);
        break;
    case PAWL_OP_BREAK:
        g = n->nholders ? n->holders : NULL;
        n->nholders = 0;
        reply(m, g ? 0 : PAWL_ENOTHELD);
        world_admit(s, n);
        break;
    case PAWL_OP_INSPECT:
        show(n, op, op->name, true);
        reply(m, 0);
        break;
    default:
        for (int i = 0; i < NAMES; i++)
            if (s->names[i].nholders || s->names[i].nqueue)
                show(&s->names[i], op, (char[]){(char)('a' + i), 0}, false);
        reply(m, 0);
    }
}

static void arrive(message *m)
{
    store *s = &stores[m->tied->k];

    if (s->silent) {
        m->stage = WAITING;
    } else if (s->drop && world_random(1000) < s->drop) {
        m->stage = LOST;
        later(m, 300 * MS, answer_unknown);
    } else {
        carry_out(m);
    }
}

static void arrive_now(pawl_timer *timer)
{
    arrive(timer->arg);
}

/* ---- the inner engine ------------------------------------------------------------------------ */

static void node_submit(void *self, pawl_op *op)
{
    tied *t = self;
    store *s = &stores[t->k];
    message *m;

    CHECK_EQ(answering, 0);
    s->requests[op->kind]++;
    if (op->kind == PAWL_OP_EVENT) {
        CHECK(!t->event);
        t->event = op;
        return;
    }
    if (s->refuses) {
        answering++;
        pawl_op_finish(op, pawl_error_set(op->err, s->refuses, "%s", s->refuses == PAWL_ECONN
                                          ? "Connection refused" : "wrong password"));
        answering--;
        return;
    }
    m = calloc(1, sizeof *m);
    CHECK(m);
    m->tied = t;
    m->op = op;
    m->next = t->messages;
    m->link = &t->messages;
    if (m->next)
        m->next->link = &m->next;
    t->messages = m;
    op->engine[0] = m;
    if (travel(s))
        later(m, travel(s), arrive_now);
    else
        arrive(m);
}

static void node_cancel(void *self, pawl_op *op)
{
    tied *t = self;
    message *m = op->engine[0];

    CHECK_EQ(answering, 0);
    if (op == t->event) {
        t->event = NULL;
        answering++;
        pawl_op_finish(op, PAWL_ECANCELED);
        answering--;
    } else if (m->stage == COMING) {
        answer(m, PAWL_ECANCELED);
    } else if (m->stage == WAITING) {
        if (m->queued)
            leave_queue(m);
        answer(m, m->op->kind == PAWL_OP_ACQUIRE ? PAWL_ECANCELED : PAWL_EUNKNOWN);
    } else if (m->stage == LOST) {
        answer(m, PAWL_EUNKNOWN);
    }
}

static void node_close(void *self)
{
    tied *t = self;

    if (t->event) {
        pawl_op *op = t->event;
        t->event = NULL;
        pawl_op_finish(op, PAWL_ECANCELED);
    }
    while (t->messages) {
        message *m = t->messages;

        if (m->queued)
            leave_queue(m);
        if (m->stage == COMING && m->op->kind == PAWL_OP_RELEASE && !stores[t->k].silent) {
            name_state *n = &stores[t->k].names[m->op->name[0] - 'a'];
            grant *g = find_grant(n, &m->op->owner);

            if (g) /* the grant was made before the close */
                drop_grant(n, g);
            world_admit(&stores[t->k], n);
        }
        answer(m, PAWL_ECANCELED);
    }
}

static int node_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    (void)self;
    (void)env;
    (void)url;
    (void)err;
    return 0;
}

static uint32_t node_caps(void *self)
{
    return ((tied *)self)->client->caps;
}

static const pawl_engine node_engine = {
    .abi = PAWL_ENGINE_ABI,
    .scheme = "node",
    .state_size = sizeof(tied),
    .open = node_open,
    .close = node_close,
    .submit = node_submit,
    .cancel = node_cancel,
    .caps_of = node_caps,
};

int world_instance_open(pawl_env *env, pawl_instance *ret, const char *url, pawl_error *err)
{
    tied *t;

    *ret = (pawl_instance){0};
    if (strncmp(url, "node:", 5) || url[5] < '0' || url[5] >= '0' + STORES)
        return pawl_error_set(err, PAWL_EINVAL, "'%s' is not a node", url);
    t = calloc(1, sizeof *t);
    t->client = (client *)(void *)env;
    t->k = url[5] - '0';
    t->client->tied[t->k] = t;
    *ret = (pawl_instance){&node_engine, t};
    return 0;
}

void world_instance_close(pawl_instance *instance)
{
    if (!instance->engine)
        return;
    instance->engine->close(instance->state);
    free(instance->state);
}

void world_tell(int k, const client *c, int event)
{
    pawl_op *op = c->tied[k]->event;

    CHECK(op);
    c->tied[k]->event = NULL;
    op->event = event;
    answering++;
    pawl_op_finish(op, 0);
    answering--;
}
