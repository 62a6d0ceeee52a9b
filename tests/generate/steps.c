/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.c - does one step of a program, and opens and closes the clients and objects of a program.
 */
#include "steps.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t token_mutex = PTHREAD_MUTEX_INITIALIZER;

int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void nap_us(int64_t us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};

    while (nanosleep(&t, &t))
        ;
}

const char *run_name(const struct run *run, int64_t name, char *buffer)
{
    snprintf(buffer, 96, "%s-%d", run->prefix, (int)name);
    return buffer;
}

bool may_wait(const struct step *s)
{
    int64_t wait = s->kind == DO_sacquire ? s->b : s->a;

    if (s->kind != DO_acquire && s->kind != DO_start && s->kind != DO_sacquire &&
        s->kind != DO_wait)
        return false;
    return wait < 0 || wait > SHORT_WAIT;
}

struct op *op_new(struct run *run, const struct step *step, int number)
{
    struct op *op = &run->ops[number];

    if (op->state)
        return NULL;
    op->run = run;
    op->number = number;
    op->thread = step->thread;
    op->step = *step;
    op->object = step->kind == DO_close || step->kind == DO_list
                     ? NULL
                     : &run->program->objects[step->object];
    run->begun++;
    op->state = 1;
    return op;
}

/* ---- The state of a handle ------------------------------------------------------------------- */

static bool is_grant(const struct op *op)
{
    int kind = op->step.kind;

    return !op->code && (kind == DO_acquire || kind == DO_start || kind == DO_sacquire);
}

/* 0: no token; 1: larger than every earlier token of this name; 2: the largest token, again; 3:
 * smaller. A token in a result that is no grant is always 2. */
static int token_class(const struct op *op, int64_t name, uint64_t token)
{
    struct run *run = op->run;
    int class;

    if (!token || !is_grant(op))
        return token ? 2 : 0;
    pthread_mutex_lock(&token_mutex);
    class = token > run->max_token[name] ? 1 : token == run->max_token[name] ? 2 : 3;
    if (class == 1)
        run->max_token[name] = token;
    pthread_mutex_unlock(&token_mutex);
    return class;
}

void steps_observe(struct op *op)
{
    struct object *o = op->object;

    if (!o || o->freed || op->run->free || op->step.kind == DO_break)
        return; /* a break may be reported before or after the handle is read */
    if (o->type == MULTI && op->step.kind == DO_cancel)
        return; /* the members that the acquire has are released at any time */
    if (o->type == LOCK || o->type == MULTI) {
        op->hold_count = pawl_lock_hold_count(o->p);
        op->held = pawl_lock_held(o->p) && pawl_lock_valid_ms(o->p) > 0;
        op->reason = pawl_lock_lost_reason(o->p);
        if (o->type == LOCK)
            op->token_class = token_class(op, o->name, pawl_lock_token(o->p));
    } else if (o->type == SEM) {
        op->held = pawl_semaphore_valid_ms(o->p) > 0;
        op->reason = pawl_semaphore_lost_reason(o->p);
        op->token_class = token_class(op, o->name, pawl_semaphore_token(o->p));
    }
    op->seen = clock_ns();
}

static int sum_rows(void *arg, const pawl_info *info)
{
    struct op *op = arg;

    if (info->role != PAWL_ROLE_SUMMARY)
        return 0;
    op->waiters = (int64_t)info->waiters;
    op->value = (int64_t)info->holders * 1000 + (info->type == PAWL_TYPE_SEMAPHORE
                                                  ? info->available * 10
                                                  : info->type == PAWL_TYPE_LATCH ? info->count * 10
                                                                                  : 0) +
             (info->holders && info->shared ? 1 : 0);
    return 0;
}

struct listing {
    const char *prefix;
    int64_t count;
};

static int count_names(void *arg, const pawl_info *info)
{
    struct listing *l = arg;

    if (!strncmp(info->name, l->prefix, strlen(l->prefix)) &&
        info->name[strlen(l->prefix)] == '-')
        l->count++;
    return 0;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

bool steps_free(struct object *o)
{
    if (pthread_rwlock_trywrlock(&o->guard))
        return false;
    if (!o->freed) {
        if (o->run->hooks)
            o->run->hooks->freeing(o);
        o->freed = true;
        if (o->type == SEM)
            pawl_semaphore_free(o->p);
        else if (o->type == LATCH)
            pawl_latch_free(o->p);
        else
            pawl_lock_free(o->p);
        o->p = NULL;
    }
    pthread_rwlock_unlock(&o->guard);
    return true;
}

/* The callback may run before this function returns, so everything that the callback reads is
 * written before the call. */
void steps_start(struct op *op, struct object *o)
{
    int code;

    op->async = true;
    op->began = clock_ns();
    if (op->run->hooks)
        op->run->hooks->before(op);
    code = op->step.kind == DO_rstart
               ? pawl_lock_release_start(o->p, steps_done, op)
               : pawl_lock_acquire_start(o->p, op->step.a, steps_done, op);
    if (!code)
        return;
    op->code = code;
    op->ended = clock_ns();
    if (op->run->hooks)
        op->run->hooks->after(op);
    steps_observe(op);
    op->state = 2;
    op->run->finished++;
}

static int all_losses(struct run *run)
{
    int n = 0;

    for (int i = 0; i < run->program->nobjects; i++)
        n += run->program->objects[i].losses;
    return n;
}

struct search {
    uint64_t token;
    bool found;
};

static int find_token(void *arg, const pawl_info *info)
{
    struct search *s = arg;

    s->found |= info->role == PAWL_ROLE_HOLDER && info->token == s->token;
    return 0;
}

/* Wait until the hold is lost, a callback of this or another handle of the name has reported the
 * loss, and the service has ended the hold, too: the service's lease lasts a little longer than the
 * holder's. */
static void await_loss(struct op *op, struct object *o)
{
    int64_t until = clock_ns() + 1000000LL * op->step.a;
    struct client *c = &op->run->program->clients[o->client];
    struct search s = {.token = pawl_lock_token(o->p), .found = true};
    int before = all_losses(op->run);

    if (!pawl_lock_held(o->p))
        return;
    while (clock_ns() < until && (pawl_lock_held(o->p) || all_losses(op->run) == before))
        nap_us(2000);
    while (clock_ns() < until + 5000000000 && s.found && !pawl_lock_held(o->p)) {
        s.found = false;
        if (pthread_rwlock_tryrdlock(&c->guard))
            return;
        if (!c->closed)
            pawl_inspect(c->p, pawl_lock_name(o->p), find_token, &s, NULL);
        pthread_rwlock_unlock(&c->guard);
        nap_us(2000);
    }
    nap_us(60000 + o->lease * 20); /* the service's extra time, if no holder is shown */
}

static int on_lock(struct op *op, struct object *o)
{
    const struct step *s = &op->step;

    switch (s->kind) {
    case DO_acquire:
        return pawl_lock_acquire(o->p, s->a, NULL);
    case DO_release:
        return pawl_lock_release(o->p, NULL);
    case DO_renew:
        return pawl_lock_renew(o->p, s->a, NULL);
    case DO_break:
        return pawl_lock_break(o->p, NULL);
    case DO_cancel:
        return pawl_lock_cancel(o->p);
    case DO_expire:
        await_loss(op, o);
        return 0;
    default:
        op->skipped = true;
        return 0;
    }
}

static int on_sem(struct op *op, struct object *o)
{
    const struct step *s = &op->step;

    switch (s->kind) {
    case DO_sacquire:
        return pawl_semaphore_acquire(o->p, (uint32_t)s->a, s->b, NULL);
    case DO_srelease:
        return pawl_semaphore_release(o->p, (uint32_t)s->a, NULL);
    case DO_avail:
        return pawl_semaphore_available(o->p, &op->value, NULL);
    case DO_cancel:
        return pawl_semaphore_cancel(o->p);
    default:
        op->skipped = true;
        return 0;
    }
}

static int on_latch(struct op *op, struct object *o)
{
    const struct step *s = &op->step;

    switch (s->kind) {
    case DO_set:
        return pawl_latch_set(o->p, s->a, NULL);
    case DO_down:
        return pawl_latch_count_down(o->p, NULL);
    case DO_count:
        return pawl_latch_count(o->p, &op->value, NULL);
    case DO_wait:
        return pawl_latch_wait(o->p, s->a, NULL);
    case DO_cancel:
        return pawl_latch_cancel(o->p);
    default:
        op->skipped = true;
        return 0;
    }
}

static int inspect(struct op *op, struct client *c, struct object *o)
{
    char name[96];
    struct listing l = {op->run->prefix, 0};
    int code;

    if ((o && o->type == MULTI) || pthread_rwlock_tryrdlock(&c->guard)) {
        op->skipped = true;
        return 0;
    }
    if (c->closed) {
        op->skipped = true;
        code = 0;
    } else if (o) {
        run_name(op->run, o->name, name);
        code = op->step.a ? pawl_list(c->p, name, sum_rows, op, NULL) /* a pattern without stars */
                          : pawl_inspect(c->p, name, sum_rows, op, NULL);
    } else {
        code = pawl_list(c->p, NULL, count_names, &l, NULL);
        op->value = l.count;
    }
    pthread_rwlock_unlock(&c->guard);
    return code;
}

void run_close_client(struct run *run, struct client *c, int *code)
{
    (void)run;
    if (c->closed)
        return;
    if (c->looping) {
        c->stop = true;
        pthread_join(c->looper, NULL);
        c->looping = false;
    }
    while (pthread_rwlock_trywrlock(&c->guard)) /* doesn't block: steered threads take turns */
        nap_us(50);
    if (!c->closed) {
        c->closed = true;
        *code = pawl_close(c->p);
    }
    pthread_rwlock_unlock(&c->guard);
}

/* In the child of a closed client, PAWL_ESTATE is right, too. */
static void fork_here(struct op *op, struct object *o)
{
    bool closed = op->run->program->clients[o->client].closed;

    op->value = steps_fork(o);
    if (op->value && !(closed && op->value < 100))
        op->run->blocked_wrong++;
    if (closed)
        op->value = 0;
}

bool may_last(const struct step *s)
{
    return s->kind == DO_acquire || s->kind == DO_sacquire || s->kind == DO_wait ||
           s->kind == DO_hold;
}

static void on_object(struct op *op, struct object *o)
{
    if (op->step.kind == DO_free) {
        op->skipped = o->freed || !steps_free(o);
        return;
    }
    if (pthread_rwlock_tryrdlock(&o->guard)) {
        op->skipped = true;
        return;
    }
    if (o->freed || (op->step.kind == DO_hold && !op->run->free)) {
        op->skipped = true;
    } else if (op->step.kind == DO_start || op->step.kind == DO_rstart) {
        if (o->type == LOCK || o->type == MULTI)
            steps_start(op, o);
        else
            op->skipped = true;
    } else {
        if (op->run->hooks)
            op->run->hooks->before(op);
        o->inside += may_last(&op->step);
        if (op->step.kind == DO_inspect)
            op->code = inspect(op, &op->run->program->clients[o->client], o);
        else if (op->step.kind == DO_hold)
            op->run->hooks->hold(op);
        else if (op->step.kind == DO_fork)
            fork_here(op, o);
        else
            op->code = o->type == SEM ? on_sem(op, o)
                       : o->type == LATCH ? on_latch(op, o)
                                          : on_lock(op, o);
        op->ended = clock_ns();
        if (op->run->hooks)
            op->run->hooks->after(op);
        steps_observe(op);
        o->inside -= may_last(&op->step);
    }
    pthread_rwlock_unlock(&o->guard);
}

void run_step(struct op *op)
{
    struct run *run = op->run;

    op->began = clock_ns();
    if (op->step.kind == DO_sleep) {
        nap_us(op->step.a * 1000);
    } else if (op->step.kind == DO_fault) {
        if (run->hooks)
            run->hooks->fault(op);
    } else if (op->object) {
        if (op->object->present)
            on_object(op, op->object);
        else
            op->skipped = true;
    } else if (op->step.object >= run->program->nclients) {
        op->skipped = true;
    } else if (op->step.kind == DO_list) {
        op->code = inspect(op, &run->program->clients[op->step.object], NULL);
    } else {
        struct client *c = &run->program->clients[op->step.object];

        op->skipped = c->closed || !c->present;
        if (!op->skipped) {
            if (run->hooks)
                run->hooks->before(op);
            run_close_client(run, c, &op->code);
            op->ended = clock_ns();
            if (run->hooks)
                run->hooks->after(op);
        }
    }
    if (!op->async || op->skipped) { /* else the callback does that */
        op->state = 2;
        run->finished++;
    }
}

/* ---- Opening and closing a program ----------------------------------------------------------- */

static void *loop_main(void *arg)
{
    struct client *c = arg;
    struct pollfd p = {.fd = pawl_client_fd(c->p), .events = POLLIN};

    while (!c->stop)
        if (poll(&p, 1, 5) >= 0)
            pawl_client_process(c->p);
    return NULL;
}

static int open_client(struct run *run, struct client *c)
{
    pawl_client_options options = {.size = sizeof options,
                                   .cohort = (uint64_t)c->cohort,
                                   .label = c->label,
                                   .watchdog_ms = c->watchdog,
                                   .timeout_ms = c->timeout};
    pawl_error err;
    int code;

    snprintf(c->label, sizeof c->label, "%.40s.%d.%d", run->prefix, run->program->process,
             (int)(c - run->program->clients));
    code = pawl_open(&c->p, run->url, &options, &err);

    pthread_rwlock_init(&c->guard, NULL);
    c->closed = code != 0;
    c->stop = false;
    c->looping = false;
    if (code)
        fprintf(stderr, "generate: open: %s\n", err.text);
    else if (c->loop && !pthread_create(&c->looper, NULL, loop_main, c))
        c->looping = true;
    return code;
}

static int new_lock(struct run *run, struct object *o, pawl_client *client, const char *name,
                    pawl_error *err)
{
    pawl_lock_options options = {.size = sizeof options,
                                 .kind = (uint64_t)o->kind,
                                 .lease_ms = o->lease,
                                 .max_hold_ms = o->max_hold,
                                 .owner = (uint64_t)o->owner,
                                 .on_lost = steps_lost,
                                 .arg = o,
                                 .at_least_ms = o->at_least};

    (void)run;
    return pawl_lock_new((pawl_lock **)&o->p, client, name, &options, err);
}

static int new_multi(struct run *run, struct object *o, pawl_error *err)
{
    pawl_lock *members[MAX_MEMBERS];

    for (int i = 0; i < o->nmembers; i++)
        members[i] = run->program->objects[o->members[i]].p;
    return pawl_multi_new((pawl_lock **)&o->p, members, (size_t)o->nmembers, err);
}

static int new_object(struct run *run, struct object *o)
{
    pawl_client *client = run->program->clients[o->client].p;
    pawl_semaphore_options options = {.size = sizeof options,
                                      .permits = (uint64_t)o->permits,
                                      .lease_ms = o->lease,
                                      .on_lost = steps_lost,
                                      .arg = o};
    char name[96];
    pawl_error err = {0};
    int code;

    o->run = run;
    o->freed = false;
    o->losses = 0;
    o->last_reason = 0;
    pthread_rwlock_init(&o->guard, NULL);
    run_name(run, o->name, name);
    code = o->type == LOCK    ? new_lock(run, o, client, name, &err)
           : o->type == MULTI ? new_multi(run, o, &err)
           : o->type == SEM
               ? pawl_semaphore_new((pawl_semaphore **)&o->p, client, name, &options, &err)
               : pawl_latch_new((pawl_latch **)&o->p, client, name, &err);
    if (code)
        fprintf(stderr, "generate: object %d: %s\n", o->id, err.text);
    return code;
}

int run_open(struct run *run)
{
    struct program *p = run->program;
    int code = 0;

    for (int i = 0; i < p->nclients && !code; i++)
        if (p->clients[i].present)
            code = open_client(run, &p->clients[i]);
    for (int i = 0; i < p->nobjects && !code; i++)
        if (p->objects[i].present)
            code = new_object(run, &p->objects[i]);
    return code;
}

bool run_await_all(struct run *run, int64_t ms)
{
    int64_t until = clock_ns() + ms * 1000000;

    while (run->begun != run->finished) {
        if (clock_ns() > until)
            return false;
        nap_us(200);
    }
    return true;
}

/* Some handles are freed before their client is closed, others afterwards. False: a call hangs. */
bool run_close(struct run *run)
{
    struct program *p = run->program;
    int code = 0;

    for (int i = 0; i < p->nobjects; i++)
        if (p->objects[i].present && p->objects[i].p && (p->seed + (uint64_t)i) % 3 == 0)
            steps_free(&p->objects[i]);
    for (int i = 0; i < p->nclients; i++)
        if (p->clients[i].present)
            run_close_client(run, &p->clients[i], &code);
    if (!run_await_all(run, HANG_MS))
        return false;
    for (int i = 0; i < p->nobjects; i++)
        if (p->objects[i].present && p->objects[i].p)
            steps_free(&p->objects[i]);
    return true;
}
