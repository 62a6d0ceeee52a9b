/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum.c - the engine "quorum:URL|URL|URL...": a majority of any engines (Redlock, fenced).
 *
 *     quorum:redis://a|redis://b|redis://c      each URL with its own parameters
 *     quorum:settle=5000|redis://a|...          how old a store must be to vote, ms (see node.c)
 *
 * WHEN A LOCK IS HELD. A lock is held while a majority of the nodes has granted the lock to the
 * holder, and the lease at each of these nodes, counted from before the request, is not over. Two
 * majorities have a node in common, and no node grants a name twice. So two owners never hold the
 * same lock at the same time, as long as no node forgets a grant before the lease is over. A node
 * that forgets (by restarting empty) does not vote for the length of a lease; by then the forgotten
 * grants are over, or stand on other nodes. The token, which rises with every grant, protects
 * against stores with wrong clocks, and against processes that are stopped past their lease
 * (token.c has the argument).
 *
 * STATES, and the code that changes them, always under the client's mutex, one step at a time:
 *
 *     acquire     (acquire.c) an ACQUIRE without an answer. Its task runs after answers of nodes,
 *                 at its timer, at cancel. finish() answers the op once and frees the acquire.
 *     attempt     (attempt.c, giveback.c) one try at all nodes: OPEN, HELD, VOID, never backwards.
 *                 An OPEN attempt belongs to its acquire. A HELD attempt is found by the
 *                 submitter's owner number. A VOID attempt gives back its grants and frees itself.
 *     node state  of an attempt, one per node: changed by that node's answers alone.
 *     broadcast   (broadcast.c) one request to all nodes. A broadcast answers its op once, and is
 *                 freed when the last node has answered or was cancelled.
 *     node        (node.c) up or down, young or old: by its answers and their time.
 *
 * WHY THAT IS SAFE. An inner engine may call op->done at any time, also inside submit and cancel.
 * op->done only writes the node state (or answer) and puts the task on `todo`. Tasks run from
 * quorum_pump, which is called from the quorum's own functions and timers, never from inside an
 * inner engine, and never recursively. So no inner engine is entered twice, no memory is freed
 * while a caller uses it, and an inner op lives inside an attempt, broadcast or node that is not
 * freed before the inner op is answered.
 */
#include <stdlib.h>

#include "quorum.h"

/* ---- tasks ----------------------------------------------------------------------------------- */

static void soon(pawl_timer *timer)
{
    quorum_pump(timer->arg);
}

void quorum_later(quorum *q, quorum_task *task)
{
    if (!task->link.next)
        list_init(&task->link);
    if (list_empty(&task->link))
        list_append(&q->todo, &task->link);
    if (!q->pumping && !q->soon.armed && !q->closed)
        q->env->timer_set(q->env, &q->soon, 0);
}

void quorum_forget_task(quorum_task *task)
{
    if (task->link.next)
        list_remove(&task->link);
}

void quorum_pump(quorum *q)
{
    struct list *l;

    if (q->pumping || q->closed)
        return;
    q->pumping = true;
    while ((l = list_take(&q->todo))) {
        quorum_task *task = list_entry(l, quorum_task, link);

        task->run(task);
    }
    q->pumping = false;
    if (q->soon.armed)
        q->env->timer_clear(q->env, &q->soon);
    if (q->moved)
        q->env->loop_changed(q->env);
    q->moved = false;
}

/* ---- opening --------------------------------------------------------------------------------- */

static const char *const example = "quorum:redis://a|redis://b|redis://c";

static int read_settings(quorum *q, const char **text, pawl_error *err)
{
    static const char key[] = "settle=";
    char *end;

    if (strncmp(*text, key, sizeof key - 1))
        return 0;
    q->settle_ms = strtoll(*text + sizeof key - 1, &end, 10);
    if (*end != '|' || q->settle_ms < 1 || q->settle_ms > 1000LL * 3600 * 24 * 365)
        return pawl_error_set(err, PAWL_EINVAL, "quorum: settle= is how many ms old a store must "
                              "be to vote, and is followed by |");
    *text = end + 1;
    return 0;
}

/* Whether one of the URLs before this one is the same. */
static bool repeated(const char *first, const char *url, size_t length)
{
    for (const char *at = first; at < url; at += strcspn(at, "|") + 1)
        if (strcspn(at, "|") == length && !strncmp(at, url, length))
            return true;
    return false;
}

static int open_node(quorum *q, const char *url, size_t length, pawl_error *err)
{
    quorum_node *n = &q->nodes[q->n];
    pawl_error inner = {.text = ""};
    char *copy = strndup(url, length);
    int code;

    if (!copy)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    n->quorum = q;
    q->n++;
    code = q->env->instance_open(q->env, &n->inner, copy, &inner);
    explicit_bzero(copy, length);
    free(copy);
    return code ? pawl_error_set(err, code, "quorum: node %zu: %.200s", q->n, inner.text) : 0;
}

static int open_nodes(quorum *q, const char *text, pawl_error *err)
{
    size_t n = 1, length;
    int code = 0;

    for (const char *at = text; (at = strchr(at, '|')); at++)
        n++;
    if (n < 3 || n > QUORUM_MOST)
        return pawl_error_set(err, PAWL_EINVAL, "quorum: give 3 to %d URLs with | between, as in "
                              "%s", QUORUM_MOST, example);
    q->nodes = calloc(n, sizeof *q->nodes);
    if (!q->nodes)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    for (const char *at = text; q->n < n && !code; at += length + 1) {
        length = strcspn(at, "|");
        if (!length || repeated(text, at, length))
            code = pawl_error_set(err, PAWL_EINVAL, "quorum: URL %zu is %s; write for example %s",
                                  q->n + 1, length ? "given twice" : "empty", example);
        else
            code = open_node(q, at, length, err);
    }
    q->majority = n / 2 + 1;
    return code;
}

/* The capabilities that all nodes have. Tokens need a counter that can be raised. Permits and
 * latches are numbers that a majority can't agree on. If the store counts re-entries
 * (layout=redisson), a shared grant beside an exclusive one works differently, so SHARED is left
 * out. */
static void set_caps(quorum *q)
{
    uint32_t all = PAWL_CAP_FENCE | PAWL_CAP_FLOOR | PAWL_CAP_QUEUE | PAWL_CAP_RANGE |
                   PAWL_CAP_SHARED | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_HERE |
                   PAWL_CAP_EXAMINE,
             any = 0; /* a restriction of one node restricts the quorum */

    for (size_t i = 0; i < q->n; i++) {
        all &= pawl_instance_caps(&q->nodes[i].inner);
        any |= pawl_instance_caps(&q->nodes[i].inner);
    }
    q->fences = (all & PAWL_CAP_FENCE) && (all & PAWL_CAP_FLOOR);
    if (!q->fences)
        all &= ~(uint32_t)(PAWL_CAP_FENCE | PAWL_CAP_RANGE);
    if (any & PAWL_CAP_COUNTS)
        all &= ~(uint32_t)PAWL_CAP_SHARED;
    q->caps = (all & ~(uint32_t)PAWL_CAP_FLOOR) | PAWL_CAP_BREAKS_LATE |
              (any & (PAWL_CAP_PRIVATE | PAWL_CAP_FAIR_ONLY | PAWL_CAP_BREAKS_UNSEEN |
                      PAWL_CAP_BREAKER_UNNAMED));
}

static int quorum_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    quorum *q = self;
    const char *text = url->rest;
    int code;

    q->env = env;
    q->soon = (pawl_timer){.fire = soon, .arg = q};
    list_init(&q->todo);
    list_init(&q->attempts);
    list_init(&q->acquires);
    list_init(&q->broadcasts);
    list_init(&q->spare);
    code = read_settings(q, &text, err);
    if (!code)
        code = open_nodes(q, text, err);
    if (code)
        return code;
    set_caps(q);
    q->pumping = true;
    for (size_t i = 0; i < q->n; i++)
        quorum_node_listen(&q->nodes[i]);
    q->pumping = false;
    quorum_pump(q);
    return 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

static void free_lists(quorum *q)
{
    struct list *l;

    while ((l = list_take(&q->spare)))
        free(list_entry(l, quorum_attempt, link));
    list_each_safe(quorum_attempt, a, &q->attempts, link) {
        size_t out = 0;

        for (size_t i = 0; i < q->n; i++)
            out += a->node_states[i].out || a->node_states[i].back_out;
        if (!out)
            quorum_attempt_free(a);
    }
    list_each_safe(quorum_broadcast, b, &q->broadcasts, link) {
        size_t out = 0;

        for (size_t i = 0; i < q->n; i++)
            out += b->answers[i].out;
        if (!out)
            quorum_broadcast_free(b);
    }
}

/* Every op of the quorum except EVENT has been answered. Inner ops without an answer are background
 * work; the inner engines end them when they are closed. If an inner engine does not, the memory of
 * the op is leaked, which is better than freeing memory in use. */
static void quorum_close(void *self)
{
    quorum *q = self;
    bool out = false;

    if (!q->env || q->closed)
        return;
    pawl_events_end(&q->events);
    q->pumping = true; /* no more tasks */
    list_each(quorum_attempt, a, &q->attempts, link)
        if (a->state == ATTEMPT_VOID)
            quorum_give_back_now(a);
    q->closed = true;
    q->env->timer_clear(q->env, &q->soon);
    list_each(quorum_attempt, a, &q->attempts, link)
        q->env->timer_clear(q->env, &a->timer);
    list_each(quorum_acquire, acquire, &q->acquires, link)
        q->env->timer_clear(q->env, &acquire->timer);
    list_each(quorum_broadcast, b, &q->broadcasts, link)
        q->env->timer_clear(q->env, &b->timer);
    for (size_t i = 0; i < q->n; i++) {
        quorum_node_end(&q->nodes[i]);
        out |= q->nodes[i].event_out || q->nodes[i].probe_out;
    }
    while (list_take(&q->todo))
        ;
    free_lists(q);
    if (out || !list_empty(&q->attempts) || !list_empty(&q->broadcasts))
        return;
    free(q->nodes);
    q->nodes = NULL;
    q->n = 0;
}

/* ---- the functions --------------------------------------------------------------------------- */

static void quorum_submit(void *self, pawl_op *op)
{
    quorum *q = self;

    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        quorum_acquire_submit(q, op);
        break;
    case PAWL_OP_RELEASE:
        quorum_release(q, op);
        break;
    case PAWL_OP_RENEW:
        quorum_renew(q, op);
        break;
    case PAWL_OP_BREAK:
        quorum_break(q, op);
        break;
    case PAWL_OP_INSPECT:
    case PAWL_OP_LIST:
        quorum_inspect(q, op);
        break;
    case PAWL_OP_EXAMINE:
        quorum_examine(q, op);
        break;
    case PAWL_OP_EVENT:
        pawl_events_submit(&q->events, op);
        break;
    default:
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOTSUP, "a quorum has neither semaphores "
                                          "nor latches: a majority can't agree on a number"));
    }
    quorum_pump(q);
}

static void quorum_cancel(void *self, pawl_op *op)
{
    quorum *q = self;

    if (op == q->events.op) {
        pawl_events_end(&q->events);
    } else if (op->engine[1]) {
        quorum_broadcast_cancel(q, op);
    } else if (op->kind == PAWL_OP_ACQUIRE) {
        quorum_acquire_cancel(q, op);
    } else {
        quorum_release_cancel(q, op);
    }
    quorum_pump(q);
}

/* Nodes that can't be flushed need a turn of the loop. */
static void quorum_flush(void *self)
{
    quorum *q = self;
    bool turn = false;

    for (size_t i = 0; i < q->n; i++) {
        const pawl_instance *inner = &q->nodes[i].inner;

        if (inner->engine && inner->engine->flush)
            inner->engine->flush(inner->state);
        else
            turn = true;
    }
    if (turn)
        q->env->loop_changed(q->env);
}

/* A node that has answered recently will answer again; at a node that is down, the lease ends the
 * grant. */
static bool quorum_unfinished(void *self)
{
    const quorum *q = self;
    int64_t since = quorum_now(q) - q->env->timeout_ms * PAWL_NS_PER_MS;

    for (const struct list *l = q->attempts.next; l != &q->attempts; l = l->next) {
        const quorum_attempt *a = list_entry((uintptr_t)l, quorum_attempt, link);

        for (size_t i = 0; i < q->n && a->state == ATTEMPT_VOID; i++)
            if (!quorum_node_state_quiet(&a->node_states[i]) &&
                (!q->nodes[i].down || q->nodes[i].heard > since))
                return true;
    }
    for (size_t i = 0; i < q->n; i++)
        if (pawl_instance_unfinished(&q->nodes[i].inner))
            return true;
    return false;
}

static uint32_t quorum_caps(void *self)
{
    return ((quorum *)self)->caps;
}

const pawl_engine pawl_engine_quorum = {
    .abi = PAWL_ENGINE_ABI,
    .scheme = "quorum",
    .state_size = sizeof(quorum),
    .open = quorum_open,
    .close = quorum_close,
    .submit = quorum_submit,
    .cancel = quorum_cancel,
    .caps_of = quorum_caps,
    .flush = quorum_flush,
    .identity = quorum_identity,
    .unfinished = quorum_unfinished,
};
