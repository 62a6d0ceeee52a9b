/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fault.c - the wrappers "fault:" and "trace:" alone: around a stub that keeps every op until
 * the test answers it (or answers at once), in an env whose clock is a number. TAP on stdout.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "engine.h"
#include "registry.h"

/* ---- TAP ------------------------------------------------------------------------------------- */

static int tests, failures;

static void ok(bool good, const char *what)
{
    tests++;
    failures += !good;
    printf("%sok %d - %s\n", good ? "" : "not ", tests, what);
}

/* ---- An env with virtual time ---------------------------------------------------------------- */

static int64_t clock_ns = 1000;
static pawl_timer *timers; /* in order of due time, through `next` */
static int log_lines;
static char log_last[512];

static int64_t env_now(pawl_env *env)
{
    (void)env;
    return clock_ns;
}

static uint64_t env_random(pawl_env *env)
{
    (void)env;
    return 7;
}

static void env_timer_clear(pawl_env *env, pawl_timer *timer)
{
    (void)env;
    for (pawl_timer **at = &timers; timer->armed && *at; at = &(*at)->next)
        if (*at == timer) {
            *at = timer->next;
            timer->armed = false;
            return;
        }
}

static void env_timer_set(pawl_env *env, pawl_timer *timer, int64_t due)
{
    pawl_timer **at = &timers;

    env_timer_clear(env, timer);
    while (*at && (*at)->due <= due)
        at = &(*at)->next;
    timer->due = due;
    timer->next = *at;
    timer->armed = true;
    *at = timer;
}

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static void env_log(pawl_env *env, int level, const char *format, ...)
{
    va_list args;

    (void)env;
    (void)level;
    va_start(args, format);
    vsnprintf(log_last, sizeof log_last, format, args);
    va_end(args);
    log_lines++;
}

/* Let `ms` pass. */
static void run(int64_t ms)
{
    int64_t until = clock_ns + ms * PAWL_NS_PER_MS;

    while (timers && timers->due <= until) {
        pawl_timer *timer = timers;
        timers = timer->next;
        timer->armed = false;
        if (timer->due > clock_ns)
            clock_ns = timer->due;
        timer->fire(timer);
    }
    clock_ns = until;
}

/* ---- The stub inside ------------------------------------------------------------------------- */

enum { STUB_MAX = 4096 };

static struct {
    pawl_op *out[STUB_MAX]; /* NULL once answered */
    int seen;
    int opened;
    bool at_once; /* answer inside submit */
    bool stubborn; /* don't complete inside cancel */
} stub;

static void stub_answer(int i, int code)
{
    pawl_op *op = stub.out[i];

    stub.out[i] = NULL;
    op->token = 100 + (uint64_t)i;
    op->ntokens = op->tokens;
    op->lease_from = 11;
    op->granted_ms = 12;
    op->value = 13;
    for (size_t k = 0; k < op->batch_len; k++)
        op->batch[k].code = k % 2 ? PAWL_ENOTHELD : 0;
    if (code)
        pawl_error_set(op->err, code, "stub: no");
    pawl_op_finish(op, code);
}

static int stub_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    (void)self;
    (void)env;
    (void)url;
    (void)err;
    return 0;
}

static void stub_submit(void *self, pawl_op *op)
{
    (void)self;
    stub.out[stub.seen++] = op;
    if (stub.at_once && op->kind != PAWL_OP_EVENT)
        stub_answer(stub.seen - 1, 0);
}

static int stub_find(const pawl_op *op)
{
    for (int i = 0; i < stub.seen; i++)
        if (stub.out[i] == op)
            return i;
    return -1;
}

static void stub_cancel(void *self, pawl_op *op)
{
    (void)self;
    if (!stub.stubborn)
        stub_answer(stub_find(op), PAWL_ECANCELED);
}

static void stub_close(void *self)
{
    (void)self;
    for (int i = 0; i < stub.seen; i++)
        if (stub.out[i])
            stub_answer(i, PAWL_ECANCELED);
}

static const pawl_engine stub_engine = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE,
    .scheme = "stub",
    .open = stub_open,
    .close = stub_close,
    .submit = stub_submit,
    .cancel = stub_cancel,
};

static char inner_url[64];

static int env_instance_open(pawl_env *e, pawl_instance *ret, const char *url, pawl_error *err)
{
    bool fails = !strncmp(url, "failing:", 8);

    (void)e;
    *ret = (pawl_instance){0};
    if (!fails && strncmp(url, "stub:", 5))
        return pawl_error_set(err, PAWL_ENOTSUP, "no such engine");
    snprintf(inner_url, sizeof inner_url, "%s", url);
    *ret = (pawl_instance){&stub_engine, NULL};
    stub.opened++;
    return fails ? pawl_error_set(err, PAWL_ECONN, "failed half-way") : 0;
}

static void env_instance_close(pawl_instance *i)
{
    i->engine->close(i->state);
    stub.opened--;
}

static pawl_env env = {
    .now = env_now,
    .random = env_random,
    .timer_set = env_timer_set,
    .timer_clear = env_timer_clear,
    .log = env_log,
    .instance_open = env_instance_open,
    .instance_close = env_instance_close,
};

/* ---- The engine under test ------------------------------------------------------------------- */

static const pawl_engine *engine;
static void *self;
static pawl_error words;

static int open_rest(const pawl_engine *which, const char *rest)
{
    char scheme[] = "x", copy[256];
    pawl_url url = {.scheme = scheme, .rest = copy};

    snprintf(copy, sizeof copy, "%s", rest);
    memset(&stub, 0, sizeof stub);
    memset(&words, 0, sizeof words);
    engine = which;
    self = calloc(1, which->state_size);
    return which->open(self, &env, &url, &words);
}

static void open_fault(const char *options)
{
    char rest[200];

    snprintf(rest, sizeof rest, "%s;stub:x?a=b", options);
    if (open_rest(&pawl_engine_fault, rest)) {
        printf("Bail out! %s: %s\n", options, words.text);
        exit(1);
    }
}

/* Close, and check that nothing is left: no timer, no inner op, no inner engine. */
static bool clean_close(void)
{
    bool clean;

    engine->close(self);
    clean = !timers && stub.opened == 0;
    for (int i = 0; i < stub.seen; i++)
        clean = clean && !stub.out[i];
    free(self);
    return clean;
}

static int done_count;

static void count_done(pawl_op *op)
{
    (void)op;
    done_count++;
}

/* An acquire for owner number `seq`; its answer counts in done_count. */
static pawl_op make(uint8_t kind, uint64_t seq)
{
    return (pawl_op){.kind = kind,
                     .name = "n",
                     .owner = {.client = 1, .holder = 2, .seq = seq},
                     .tokens = 3,
                     .lease_ms = 1000,
                     .queue = 1,
                     .deadline = PAWL_NEVER,
                     .done = count_done,
                     .err = &words};
}

static void submit(pawl_op *op)
{
    done_count = 0;
    op->code = 1;
    engine->submit(self, op);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void test_options(void)
{
    static const char *const bad[] = {
        "drop=5",        "drop=5;",       "drop=101;stub:", "drop=x;stub:",  "drop=;stub:",
        "drop=1.;stub:", "delay=-1;stub:", "flop=1;stub:",  "only=fly;stub:", "seed=1x;stub:",
        "drop=100.1;stub:", "lose=1.23456;stub:", "seed=18446744073709551616;stub:", ""};
    bool all = true;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int code = open_rest(&pawl_engine_fault, bad[i]);
        all = all && code == PAWL_EINVAL && words.code == PAWL_EINVAL && strlen(words.text) > 20;
        all = clean_close() && all;
    }
    ok(all, "wrong options are refused with words");
    ok(open_rest(&pawl_engine_fault, "drop=1;bad:") == PAWL_ENOTSUP && clean_close(),
       "the inner engine's refusal to open is passed on");
    ok(open_rest(&pawl_engine_fault, "drop=1;failing:") == PAWL_ECONN && clean_close(),
       "an inner engine that failed to open is closed");
    open_fault("drop=0.25,lose=100,delay=20,repeat=5,refuse=2,evict=1,seed=4,only=acquire+renew");
    ok(!strcmp(inner_url, "stub:x?a=b"), "the inner URL keeps its parameters");
    ok(engine->caps_of(self) == stub_engine.caps, "the capabilities are the inner engine's");
    ok(clean_close(), "closing at once leaves nothing");
}

static void test_plain(void)
{
    pawl_op op = make(PAWL_OP_ACQUIRE, 1);

    open_fault("");
    submit(&op);
    ok(stub.seen == 1 && done_count == 0, "without faults the request goes straight in");
    stub_answer(0, 0);
    ok(done_count == 1 && op.code == 0 && op.token == 100 && op.ntokens == 3 &&
           op.lease_from == 11 && op.granted_ms == 12 && op.value == 13,
       "and its answer comes back whole");
    submit(&op);
    stub_answer(1, PAWL_EBUSY);
    ok(op.code == PAWL_EBUSY && !strcmp(words.text, "stub: no"), "words come back too");
    ok(clean_close(), "closed clean");
}

static void test_refuse_drop_lose(void)
{
    pawl_op op = make(PAWL_OP_ACQUIRE, 1);

    open_fault("refuse=100");
    submit(&op);
    ok(op.code == PAWL_ECONN && stub.seen == 0, "refuse: at once, and never sent");
    ok(clean_close(), "closed clean");

    open_fault("drop=100,delay=5");
    submit(&op);
    ok(done_count == 0, "drop: no answer yet");
    run(12);
    ok(op.code == PAWL_EUNKNOWN && stub.seen == 0, "drop: unknown, and never carried out");
    submit(&op);
    engine->cancel(self, &op);
    ok(op.code == PAWL_EUNKNOWN && done_count == 1, "drop: a cancel can't tell either");
    ok(clean_close(), "closed clean");

    open_fault("lose=100");
    submit(&op);
    stub_answer(0, 0);
    ok(op.code == PAWL_EUNKNOWN && stub.seen == 1, "lose: unknown, but carried out");
    submit(&op);
    engine->cancel(self, &op);
    ok(op.code == PAWL_EUNKNOWN && done_count == 1, "lose: what a cancel came to is lost as well");
    ok(clean_close(), "closed clean");
}

static void test_delay_cancel(void)
{
    pawl_op op = make(PAWL_OP_ACQUIRE, 1);

    open_fault("delay=20,repeat=100,seed=1");
    submit(&op);
    ok(stub.seen == 0, "delay: not inside at once");
    engine->cancel(self, &op);
    ok(op.code == PAWL_ECANCELED && done_count == 1, "cancel on the way in: cancelled");
    run(100);
    ok(stub.seen == 0, "and neither it nor a repeat is ever sent");
    submit(&op);
    run(20);
    stub_answer(0, 0);
    ok(done_count == 0, "delay: the answer takes time too");
    engine->cancel(self, &op);
    run(20);
    ok(op.code == 0 && done_count == 1, "cancel on the way out: the grant was faster");
    ok(clean_close(), "closed clean with a repeat under way");

    open_fault("");
    submit(&op);
    engine->cancel(self, &op);
    ok(op.code == PAWL_ECANCELED && done_count == 1, "cancel inside is passed on");
    ok(clean_close(), "closed clean");
}

static void test_repeat(void)
{
    char *name = strdup("borrowed");
    pawl_op op = make(PAWL_OP_RELEASE, 1);

    open_fault("repeat=100");
    stub.at_once = true;
    op.name = name;
    submit(&op);
    memset(name, 'x', 8);
    free(name);
    memset(&op, 0xff, sizeof op);
    stub.at_once = false;
    run(5);
    ok(stub.seen == 2 && !strcmp(stub.out[1]->name, "borrowed") && stub.out[1]->owner.seq == 1,
       "repeat: the same request arrives again, with its own memory");
    stub_answer(1, 0);
    op = make(PAWL_OP_BREAK, 1);
    stub.at_once = true;
    submit(&op);
    op.kind = PAWL_OP_LIST;
    submit(&op);
    run(5);
    ok(stub.seen == 4, "repeat: never a break, never a list");
    ok(clean_close(), "closed clean");
}

static void test_repeat_queued(void)
{
    pawl_op op = make(PAWL_OP_ACQUIRE, 1), other = make(PAWL_OP_ACQUIRE, 2);

    open_fault("repeat=100");
    submit(&op);
    run(50);
    ok(stub.seen == 1, "repeat: not while the original waits in the queue");
    stub_answer(0, 0);
    ok(op.code == 0, "the original is granted");
    run(50);
    ok(stub.seen == 2 && stub.out[1], "then the repeat arrives, and waits inside");
    submit(&op);
    ok(stub.seen == 2 && done_count == 0, "the same owner again takes that place over");
    stub_answer(1, 0);
    ok(op.code == 0 && done_count == 1 && op.token == 101, "and gets its grant");
    run(50);
    ok(stub.seen == 3 && stub.out[2], "its own repeat follows");
    submit(&op);
    engine->cancel(self, &op);
    ok(op.code == PAWL_ECANCELED && done_count == 1, "a place taken over can be cancelled");
    run(50);
    op.queue = 0;
    submit(&op);
    ok(stub.seen == 5 && !stub.out[3] && stub.out[4], "one that won't queue takes nothing over");
    stub_answer(4, PAWL_EBUSY);
    other.deadline = clock_ns + 100 * PAWL_NS_PER_MS;
    submit(&other);
    int at = stub.seen - 1;
    stub_answer(at, 0);
    run(99);
    ok(stub.out[stub.seen - 1] != NULL, "a repeat waits inside");
    run(5);
    ok(stub.out[stub.seen - 1] == NULL, "but not past the deadline of its original");
    ok(clean_close(), "closed clean with repeats everywhere");
}

static void test_renew(void)
{
    pawl_renewal items[3] = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
    pawl_op op = make(PAWL_OP_RENEW, 0);

    op.name = NULL;
    op.batch = items;
    op.batch_len = 3;
    open_fault("repeat=100");
    submit(&op);
    ok(stub.out[0]->batch != items && !strcmp(stub.out[0]->batch[2].name, "c"),
       "renew: the batch is copied");
    stub_answer(0, 0);
    ok(op.code == 0 && items[0].code == 0 && items[1].code == PAWL_ENOTHELD && items[2].code == 0,
       "renew: the items' codes come back");
    ok(clean_close(), "closed clean");
    open_fault("lose=100");
    items[1].code = 5;
    submit(&op);
    stub_answer(0, 0);
    ok(op.code == PAWL_EUNKNOWN && items[1].code == 5, "renew: a lost answer tells nothing");
    ok(clean_close(), "closed clean");
}

static void test_event(void)
{
    pawl_op event = make(PAWL_OP_EVENT, 0), op = make(PAWL_OP_COUNT, 0);

    event.name = NULL;
    open_fault("evict=100,drop=100,lose=100,delay=10,only=count");
    submit(&event);
    ok(stub.seen == 1, "event: never dropped or delayed");
    submit(&op);
    ok(event.code == 0 && event.event == PAWL_EVENT_RECONNECT,
       "evict: the event op says reconnect");
    submit(&event);
    ok(stub.seen == 1 && event.code == 1, "event: the inner engine's one stays out meanwhile");
    stub.out[0]->event = PAWL_EVENT_LOST;
    stub_answer(0, 0);
    ok(event.code == 0 && event.event == PAWL_EVENT_LOST, "event: the inner engine's is passed on");
    submit(&op);
    submit(&event);
    ok(event.code == 0 && event.event == PAWL_EVENT_RECONNECT,
       "evict: told later if nobody listens");
    submit(&event);
    submit(&op);
    stub.out[1]->event = PAWL_EVENT_VERIFY;
    stub_answer(1, 0);
    submit(&event);
    ok(event.code == 0 && event.event == PAWL_EVENT_VERIFY, "event: kept until somebody asks");
    submit(&event);
    run(100);
    engine->cancel(self, &event);
    ok(event.code == PAWL_ECANCELED, "event: can be cancelled");
    submit(&event);
    ok(clean_close() && event.code == PAWL_ECANCELED, "event: ends with close");
}

/* The outcomes of many ops, one letter each. */
static void history(char *text, size_t n, const char *options)
{
    open_fault(options);
    stub.at_once = true;
    for (size_t i = 0; i < n; i++) {
        pawl_op op = make(PAWL_OP_RELEASE, i);
        submit(&op);
        run(100);
        text[i] = (char)(op.code == 0 ? '.' : op.code == PAWL_ECONN ? 'c' : 'u');
    }
    text[n] = 0;
    clean_close();
}

static void test_seed(void)
{
    enum { N = 300 };
    char a[N + 1], b[N + 1], c[N + 1];

    history(a, N, "drop=10,lose=10,delay=20,repeat=10,refuse=10,seed=1");
    int first = stub.seen;
    history(b, N, "drop=10,lose=10,delay=20,repeat=10,refuse=10,seed=1");
    ok(!strcmp(a, b) && first == stub.seen, "the same seed gives the same faults");
    history(c, N, "drop=10,lose=10,delay=20,repeat=10,refuse=10,seed=2");
    ok(strcmp(a, c) != 0, "another seed gives others");
    ok(strchr(a, '.') && strchr(a, 'c') && strchr(a, 'u'), "some succeed, some don't");
    history(a, N, "drop=100,only=acquire+latch-set");
    ok(!strchr(a, 'u'), "only: other kinds are left alone");
}

static void test_stubborn_close(void)
{
    pawl_op op = make(PAWL_OP_ACQUIRE, 1);

    open_fault("repeat=100");
    submit(&op);
    stub_answer(0, 0);
    run(50);
    stub.stubborn = true;
    ok(stub.seen == 2 && clean_close(),
       "close: a repeat that won't cancel ends with the inner one");
}

static void test_trace(void)
{
    pawl_op op = make(PAWL_OP_ACQUIRE, 9), event = make(PAWL_OP_EVENT, 0);

    ok(open_rest(&pawl_engine_trace, "") == PAWL_EINVAL && clean_close(),
       "trace: needs an inner URL");
    ok(open_rest(&pawl_engine_trace, "failing:") == PAWL_ECONN && clean_close(),
       "trace: an inner engine that failed to open is closed");
    ok(open_rest(&pawl_engine_trace, "stub:y?c=d") == 0 && !strcmp(inner_url, "stub:y?c=d"),
       "trace: the rest is the inner URL");
    ok(engine->caps_of(self) == stub_engine.caps, "trace: capabilities of the inner engine");
    log_lines = 0;
    submit(&op);
    clock_ns += 5000;
    stub_answer(0, 0);
    ok(op.code == 0 && op.token == 100 && op.ntokens == 3 && op.lease_from == 11 &&
           op.granted_ms == 12,
       "trace: the answer comes back whole");
    ok(log_lines == 2 && strstr(log_last, "acquire \"n\" 0001#9 ok after 5 us"),
       "trace: a line down and a line up");
    submit(&op);
    engine->cancel(self, &op);
    ok(op.code == PAWL_ECANCELED && strstr(log_last, "PAWL_ECANCELED"),
       "trace: cancel is passed on");
    event.name = NULL;
    submit(&event);
    ok(clean_close() && event.code == PAWL_ECANCELED, "trace: closed clean, event included");
}

int main(void)
{
    test_options();
    test_plain();
    test_refuse_drop_lose();
    test_delay_cancel();
    test_repeat();
    test_repeat_queued();
    test_renew();
    test_event();
    test_seed();
    test_stubborn_close();
    test_trace();
    printf("1..%d\n", tests);
    return failures != 0;
}
