/* SPDX-License-Identifier: Apache-2.0
 *
 * sequence.c - programs from the standard input, each run one step at a time: on memory: first,
 * then on the engine under test, which must give the same results.
 *
 * After each step the runner waits until nothing moves any more. On memory: (the oracle) this is
 * the case when as many operations are under way as the clients count waiters, and a barrier
 * request through each client (rest.c) changes nothing any more. For the engine under test the
 * runner knows from the oracle which operations end in this step and how many holders each name has
 * afterwards, and waits for that.
 *
 * An operation that ends in a step in which the oracle's did not, or not within HANG_MS, is a
 * difference. So is a different code, hold count, loss, lost reason or count, and a token that is
 * not larger than all earlier tokens of the name where the oracle's token was. Operations that the
 * end of the program cuts off must end once, with any code. ambiguous.c names steps to leave out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sequence.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    struct op *op;
    bool quit;
};

/* The results on memory:. */
struct trace {
    int done_step[MAX_OPS];
    bool skip[MAX_STEPS];
    int losses[MAX_STEPS + 1][MAX_OBJECTS];
    int holders[MAX_STEPS][MAX_NAMES];
};

static struct worker workers[MAX_THREADS];
static struct trace oracle;
static bool ordered, gone_is_broken, writers_token, shows_less;
static int differences;

/* ---- Threads --------------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
    struct worker *worker = arg;

    for (;;) {
        struct op *op;

        pthread_mutex_lock(&worker->mutex);
        while (!worker->op && !worker->quit)
            pthread_cond_wait(&worker->cond, &worker->mutex);
        op = worker->op;
        pthread_mutex_unlock(&worker->mutex);
        if (!op)
            return NULL;
        run_step(op);
        pthread_mutex_lock(&worker->mutex);
        worker->op = NULL;
        pthread_mutex_unlock(&worker->mutex);
    }
}

static void worker_start(struct worker *worker)
{
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->cond, NULL);
    worker->op = NULL;
    worker->quit = false;
    if (pthread_create(&worker->thread, NULL, worker_main, worker))
        abort();
}

static void worker_end(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->quit = true;
    pthread_cond_signal(&worker->cond);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
}

/* A thread whose call has ended, or has only started an operation, is free in a moment. */
static bool worker_busy(struct worker *worker)
{
    for (;;) {
        struct op *op;

        pthread_mutex_lock(&worker->mutex);
        op = worker->op;
        pthread_mutex_unlock(&worker->mutex);
        if (!op)
            return false;
        if (op->state == 1 && op->step.kind != DO_start && op->step.kind != DO_rstart)
            return true;
        nap_us(20);
    }
}

static void worker_give(struct worker *worker, struct op *op)
{
    pthread_mutex_lock(&worker->mutex);
    worker->op = op;
    pthread_cond_signal(&worker->cond);
    pthread_mutex_unlock(&worker->mutex);
}

/* ---- Waiting until nothing moves ------------------------------------------------------------- */

static int all_losses(struct run *run)
{
    int n = 0;

    for (int i = 0; i < run->program->nobjects; i++)
        n += run->program->objects[i].losses;
    return n;
}

/* A wait for a latch ends if the latch is at 0, the handle is freed or the client is closed. */
static bool latch_is_closed(struct run *run, struct object *o)
{
    int64_t count = 0;

    if (run->program->clients[o->client].closed || pthread_rwlock_tryrdlock(&o->guard))
        return false;
    if (!o->freed && pawl_latch_count(o->p, &count, NULL))
        count = 0;
    pthread_rwlock_unlock(&o->guard);
    return count > 0;
}

/* At rest: all operations under way wait without an end, and the clients count as many waiters. A
 * wait of a multi-lock that no client counts (for example between two members) is at rest after
 * 300 ms. */
static bool at_rest(struct run *run, int64_t since)
{
    int n = 0;
    bool multi = false;

    for (int i = 0; i < MAX_OPS; i++) {
        struct op *op = &run->ops[i];

        if (op->state != 1)
            continue;
        if (!may_wait(&op->step) ||
            (op->step.kind == DO_wait && !latch_is_closed(run, op->object)))
            return false;
        n += op->step.kind != DO_wait;
        multi |= op->object->type == MULTI;
    }
    return waiting_at_clients(run) == n || (multi && clock_ns() - since > 300000000);
}

static _Noreturn void no_rest(void)
{
    printf("  nothing comes to rest on memory:\ndiffers hang\n");
    fflush(stdout);
    _exit(3);
}

/* The oracle is at rest after five rounds through all clients in which nothing has changed. Waiting
 * for a fixed time would prove nothing: a thread that gets no processor time sees nothing move. */
static void settle_oracle(struct run *run, int kind)
{
    int64_t begin = clock_ns(), enough = kind == DO_break ? 20000000 : 0;
    int before = -1;

    for (int calm = 0; calm < 5 || clock_ns() - begin < enough; calm++) {
        int now;

        if (!barrier_pass(run))
            no_rest();
        now = run->finished * 1000 + all_losses(run);
        if (now != before || !at_rest(run, begin))
            calm = 0;
        before = now;
        if (clock_ns() - begin > HANG_MS * 1000000LL)
            no_rest();
    }
}

static _Noreturn void hang(struct run *run, const char *what, int number)
{
    printf("  %s: %s, which it did on memory:\n", run->ops[number].step.text, what);
    puts(was_disturbed(run) ? "disturbed" : "differs hang");
    fflush(stdout);
    if (getenv("GENERATE_STOP")) /* for a debugger */
        pause();
    _exit(3);
}

static void await_op(struct run *run, int number, int64_t until)
{
    while (run->ops[number].state != 2) {
        if (clock_ns() > until)
            hang(run, "does not end", number);
        nap_us(50);
    }
}

static void await_losses(struct run *run, int k, int64_t until)
{
    for (int i = 0; i < run->program->nobjects; i++)
        while (run->program->objects[i].losses < oracle.losses[k][i]) {
            if (clock_ns() > until) {
                printf("  %s: object %d is not told that it is lost\n",
                       run->ops[k].step.text, i);
                differences++;
                return;
            }
            nap_us(50);
        }
}

/* A wait that has just begun is in the queue once its client counts the wait, and has had an answer
 * since; or, with a connection for each wait (layout=advisory), once the service shows the waiter.
 * A multi-lock has the members before the one that it waits for. */
static void await_queued(struct run *run, int k)
{
    const struct object *o = run->ops[k].object;
    int64_t until = clock_ns() + HANG_MS * 1000000LL / 10, name;

    while (waiting_at_clients(run) < waits_under_way(run) && clock_ns() < until)
        nap_us(50);
    if (gone_is_broken)
        await_waiters(run, o->name, until);
    holders_of(run, o->name);
    for (int i = 0; o->type == MULTI && i < o->nmembers; i++)
        for (name = run->program->objects[o->members[i]].name; clock_ns() < until &&
             holders_of(run, name) < oracle.holders[k][name]; nap_us(1000))
            ;
    nap_us(2000);
}

/* Whether holders of a name are counted: of locks, and of semaphores if the service shows them. */
static bool is_counted(const struct program *p, int64_t name)
{
    for (int i = 0; i < p->nobjects; i++)
        if (p->objects[i].present && p->objects[i].name == name &&
            (p->objects[i].type == LOCK || (p->objects[i].type == SEM && !shows_less)))
            return true;
    return false;
}

/* A free, a cancel, a close or a callback may release locks in the background; and the step that
 * waits for the end of a lease does nothing if the lease has ended at its holder already, although
 * the lease lasts longer at the service. Wait until the service shows as many holders as memory:
 * did. */
static void await_holders(struct run *run, int k, int64_t until)
{
    for (int64_t name = 0; name < MAX_NAMES; name++)
        while (is_counted(run->program, name) && holders_of(run, name) > oracle.holders[k][name]) {
            if (clock_ns() > until) {
                printf("  %s: name %d has more holders than on memory:\n", run->ops[k].step.text,
                       (int)name);
                differences++;
                return;
            }
            nap_us(1000);
        }
}

static bool gives_back(struct run *run, int k)
{
    int kind = run->program->steps[k].kind;

    if (kind == DO_free || kind == DO_cancel || kind == DO_close || kind == DO_break ||
        kind == DO_expire)
        return true;
    for (int i = 0; i < run->program->nobjects; i++)
        if (run->program->objects[i].done || run->program->objects[i].lost)
            return true;
    return false;
}

static void settle_target(struct run *run, int k)
{
    int64_t until = clock_ns() + HANG_MS * 1000000LL;

    for (int i = 0; i < MAX_OPS; i++)
        if (oracle.done_step[i] <= k)
            await_op(run, i, until);
    await_losses(run, k, until);
    if (gives_back(run, k))
        await_holders(run, k, until);
    if (oracle.done_step[k] > k && !oracle.skip[k])
        await_queued(run, k);
    for (int i = 0; i < MAX_OPS; i++)
        if (oracle.done_step[i] > k && run->ops[i].state == 2) {
            printf("  %s: ended with %s, while it waits on memory: (after '%s')\n",
                   run->ops[i].step.text, pawl_errname(run->ops[i].code), run->ops[k].step.text);
            differences++;
        }
}

/* ---- Running --------------------------------------------------------------------------------- */

static void note(struct run *run, int k)
{
    for (int i = 0; i < MAX_OPS; i++)
        if (run->ops[i].state == 2 && oracle.done_step[i] > k)
            oracle.done_step[i] = k;
    for (int i = 0; i < run->program->nobjects; i++)
        oracle.losses[k][i] = run->program->objects[i].losses;
    for (int64_t name = 0; name < MAX_NAMES; name++)
        oracle.holders[k][name] = is_counted(run->program, name) ? holders_of(run, name) : 0;
}

static void one_step(struct run *run, int k, bool is_oracle)
{
    struct step *s = &run->program->steps[k];
    struct worker *worker = &workers[s->thread];
    struct op *op;

    if (is_oracle)
        oracle.skip[k] = (s->kind != DO_close && s->kind != DO_list &&
                          !run->program->objects[s->object].present) ||
                         worker_busy(worker) || is_ambiguous(run, s, ordered);
    op = op_new(run, s, k);
    if (oracle.skip[k]) {
        op->skipped = true;
        op->state = 2;
        run->finished++;
    } else if (s->kind == DO_end) {
        worker_end(worker);
        worker_start(worker);
        op->state = 2;
        run->finished++;
    } else {
        if (worker_busy(worker))
            hang(run, "finds its thread in another call", k);
        pin_handles(run, op);
        worker_give(worker, op);
    }
    if (is_oracle) {
        settle_oracle(run, s->kind);
        note(run, k);
    } else {
        settle_target(run, k);
    }
}

static int run_program(struct run *run, bool is_oracle)
{
    struct program *p = run->program;
    int code = run_open(run);
    bool ended;

    if (code)
        return code;
    for (int i = 0; i < p->nthreads; i++)
        worker_start(&workers[i]);
    for (int k = 0; k < p->nsteps && !differences; k++)
        one_step(run, k, is_oracle);
    if (is_oracle)
        barrier_end();
    ended = run_close(run);
    if (!ended) {
        for (int i = 0; i < MAX_OPS; i++)
            if (run->ops[i].state == 1)
                hang(run, is_oracle ? "never ends, on memory: itself" : "never ends", i);
    }
    for (int i = 0; i < p->nthreads; i++)
        worker_end(&workers[i]);
    order_losses(run, oracle.done_step);
    return 0;
}

static void differ(const struct op *op, const char *what, int64_t want, int64_t got)
{
    differences++;
    printf("  %s%s: %s is %lld, on memory: %lld\n", op->step.text,
           op->number >= MAX_STEPS ? "(started by a callback)" : "", what, (long long)got,
           (long long)want);
}

static int64_t reason_of(const struct op *op)
{
    return gone_is_broken && op->reason == PAWL_LOST_GONE ? PAWL_LOST_BROKEN : op->reason;
}

static int class_of(const struct op *want, const struct op *got)
{
    bool reads = is_read(got);

    if (got->token_class + want->token_class == 4 && is_among_readers(got, oracle.done_step))
        return want->token_class;

    /* memory: gives the reader a larger token than the writer's */
    return writers_token && got->token_class == 2 &&
                   (want->token_class == 3 || (reads && want->token_class == 1))
               ? want->token_class
               : got->token_class;
}

static void compare_op(const struct op *want, const struct op *got, bool less)
{
    const struct {
        const char *what;
        int64_t want, got;
    } rows[] = {
        {"left out", want->skipped, got->skipped},
        {"code", want->code, got->code},
        {"number of done callbacks", want->dones, got->dones},
        {"hold count", want->hold_count, got->hold_count},
        {"held", want->held, less ? want->held : got->held},
        {"class of token (0 none, 1 larger than all, 2 the largest, 3 smaller)",
         want->token_class, less ? want->token_class : class_of(want, got)},
        {"lost reason", reason_of(want), reason_of(got)},
        {"value", want->value, got->value},
    };

    if (is_under_way(want, got))
        return;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].want != rows[i].got) {
            differ(got, rows[i].what, rows[i].want, rows[i].got);
            return; /* later differences may follow from this one */
        }
}

/* This check does not depend on memory:. After a blocking acquire that returned 0 the lock, or all
 * members of the multi-lock, are held, unless the acquire returned at the end of the program. */
static void check_grants(const struct run *run)
{
    for (int i = 0; i < MAX_STEPS && !differences; i++) {
        const struct op *op = &run->ops[i];

        if (oracle.done_step[i] >= run->program->nsteps || op->state != 2 || op->skipped ||
            op->step.kind != DO_acquire || op->code || op->held)
            continue;
        differences++;
        printf("  %s: returned 0, but the lock is not held (%s)\n", op->step.text, run->url);
    }
}

static void compare(struct run *want, struct run *got)
{
    int before = differences;

    check_grants(want);
    check_grants(got);
    for (int i = 0; i < MAX_OPS && differences == before; i++)
        if (oracle.done_step[i] < want->program->nsteps && got->ops[i].state == 2)
            compare_op(&want->ops[i], &got->ops[i], told_beside_grant(want, oracle.done_step, i));
        else if (got->ops[i].async && got->ops[i].state && got->ops[i].dones > 1)
            differ(&got->ops[i], "number of done callbacks", 1, got->ops[i].dones);
    if (got->blocked_wrong || want->blocked_wrong) {
        differences++;
        printf("  a call inside a callback was not answered as pawl.h says (%d, memory: %d)\n",
               got->blocked_wrong, want->blocked_wrong);
    }
}

static struct run *prepare(struct program *p, const char *url)
{
    static unsigned number;
    struct run *run = calloc(1, sizeof *run);

    if (!run)
        abort();
    run->program = p;
    run->url = url;
    snprintf(run->prefix, sizeof run->prefix, "gen%d.%u", (int)getpid(), ++number);
    return run;
}

static void begin_oracle(void)
{
    differences = 0;
    memset(&oracle, 0, sizeof oracle);
    for (int i = 0; i < MAX_OPS; i++)
        oracle.done_step[i] = MAX_STEPS + 1;
}

/* Print the results of one program on memory:, a line for each step, for c_test.py. */
int expect_main(void)
{
    static struct program p;
    struct run *run = prepare(&p, "memory:");

    begin_oracle();
    if (parse_program(&p, stdin) || run_program(run, true))
        return 1;
    for (int i = 0; i < p.nsteps; i++) {
        const struct op *op = &run->ops[i];

        printf("%d %d %d %d %lld %d %d\n", i, op->skipped, oracle.done_step[i], op->code,
               (long long)op->value, op->held, op->hold_count);
    }
    free(run);
    return 0;
}

/* Words in `way`: "ordered" if the service serves waiters of all kinds in order, as memory: does.
 * "gone" if a holder can't tell a break from a lost connection (pawl.h: layout=advisory). "writer"
 * if a reader that also holds the name exclusively has the token of the exclusive hold
 * (docs/zookeeper.md). "less" if a semaphore's holders are not shown (docs/redisson.md). */
int sequence_main(const char *url, const char *way)
{
    static struct program p;

    ordered = !strncmp(way, "ordered", 7);
    gone_is_broken = strstr(way, "gone") != NULL;
    writers_token = strstr(way, "writer") != NULL;
    shows_less = strstr(way, "less") != NULL;
    while (!parse_program(&p, stdin)) {
        struct run *want = prepare(&p, "memory:"), *got = prepare(&p, url);

        begin_oracle();
        if (run_program(want, true) || run_program(got, false))
            printf("differs can't open\n");
        else {
            compare(want, got);
            if (differences)
                puts(was_disturbed(want) || was_disturbed(got) ? "disturbed" : "differs");
            else
                printf("same %d\n", got->finished);
        }
        fflush(stdout);
        free(want);
        free(got);
    }
    return 0;
}
