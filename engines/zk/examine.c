/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the session that the server granted, and the ensemble as /zookeeper/config
 * lists it. The server answers requests only while the ensemble has a majority, so an answer shows
 * that too.
 */
#include <stdlib.h>

#include "examine.h"
#include "zk.h"

typedef struct exam {
    zk_task task;
    pawl_op *op;
    size_t servers; /* in the ensemble; 0: not told */
} exam;

static exam *exam_of(zk_task *task)
{
    return (exam *)(void *)task;
}

static const char *where_of(const zk *z)
{
    return z->settings.servers.list[z->link.server].where;
}

static void look_at_session(const zk *z, pawl_op *op)
{
    int64_t asked = z->settings.session_ms, got = z->session.timeout_ms;
    char what[120];

    if (got == asked)
        return;
    snprintf(what, sizeof what, "a session of %lld ms was asked for, the server grants %lld ms",
             (long long)asked, (long long)got);
    pawl_op_found(op, PAWL_FINDING_WARNING, "zk-session", where_of(z), what,
                  got < asked ? "The session is the lease of all locks. A shorter one is lost "
                                "sooner when the network or the program pauses."
                              : "The session is the lease of all locks. After a crash the locks "
                                "stay taken for longer than intended.",
                  "Set minSessionTimeout and maxSessionTimeout in zoo.cfg (the defaults are 2 and "
                  "20 times tickTime), or ask for a session within these limits (session=).");
}

static void look_at_ensemble(const zk *z, pawl_op *op, size_t servers)
{
    if (servers == 2)
        pawl_op_found(op, PAWL_FINDING_WARNING, "zk-servers", where_of(z),
                      "the ensemble has two servers",
                      "Two servers need each other: when either fails, no lock can be taken. One "
                      "server alone would be more available.", "Add a third server.");
    if (servers > 1 && z->settings.servers.n == 1)
        pawl_op_found(op, PAWL_FINDING_WARNING, "zk-one-server", where_of(z),
                      "the URL names one of the ensemble's servers only",
                      "While this server is down, this client loses its locks though the ensemble "
                      "works.", "Name all servers in the URL, with commas between them.");
}

static void finish(exam *x, int code, const char *words)
{
    pawl_op *op = x->op;

    zk_task_end(&x->task);
    free(x);
    if (code && words)
        pawl_error_set(op->err, code, "%s", words);
    pawl_op_finish(op, code);
}

/* Lines "server.1=..."; a server that stands alone, and one that keeps the node to itself, tells
 * nothing. */
static bool config_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    exam *x = exam_of(task);
    jute_bytes data;

    (void)tag;
    x->servers = 0;
    if (error)
        return true;
    data = jute_get_bytes(body);
    if (body->bad)
        return false;
    for (size_t i = 0; i + 7 < data.length; i++)
        x->servers += !memcmp(data.data + i, "server.", 7) && (!i || data.data[i - 1] == '\n');
    return true;
}

static void exam_go(zk_task *task)
{
    zk_ask(task, ZK_GET, "/zookeeper/config", false, config_read, 0);
}

static void exam_next(zk_task *task)
{
    exam *x = exam_of(task);
    zk *z = task->zk;
    const zk_settings *s = &z->settings;

    pawl_op_fact(x->op, "server", where_of(z), "ZooKeeper", 0);
    examine_network(x->op, where_of(z), z->link.stream.fd, s->tls, s->tls_settings.verify);
    look_at_session(z, x->op);
    look_at_ensemble(z, x->op, x->servers);
    finish(x, 0, NULL);
}

static void exam_expired(zk_task *task)
{
    (void)task;
}

static void exam_refused(zk_task *task, int code, const char *words)
{
    finish(exam_of(task), code, words);
}

static const zk_task_type type = {.go = exam_go, .next = exam_next, .expired = exam_expired,
        .refused = exam_refused};

void zk_examine(zk *z, pawl_op *op)
{
    exam *x = calloc(1, sizeof *x);

    if (!x) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    x->op = op;
    op->engine[0] = x;
    zk_task_begin(&x->task, z, &type);
    zk_task_go(&x->task);
}

void zk_examine_cancel(zk *z, pawl_op *op)
{
    exam *x = op->engine[0];

    zk_task_end(&x->task);
    free(x);
    zk_give_up(z, op, false);
}
