/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the session that the server granted, the ensemble as listed in
 * /zookeeper/config, and the answer of each server of the URL to "srvr", on a connection per
 * server.
 *
 * The node is read first; then all probes run at once, and the last probe that ends finishes the
 * op. exam->out counts the running probes, and one more while probes are being started.
 */
#include <stdlib.h>

#include "examine.h"
#include "net/probe.h"
#include "zk.h"

typedef struct exam {
    zk_task task;
    pawl_op *op;
    size_t servers; /* in the ensemble; 0: unknown */
    size_t out;     /* probes; 0: not begun */
    net_probe probes[];
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

static void exam_free(exam *x)
{
    for (size_t i = 0; i < x->task.zk->settings.servers.n; i++)
        net_probe_end(&x->probes[i]);
    zk_task_end(&x->task);
    free(x);
}

static void finish(exam *x, int code, const char *words)
{
    pawl_op *op = x->op;

    exam_free(x);
    pawl_op_finish_with(op, code, words);
}

/* Counts lines "server.1=...". A standalone server, and one that doesn't let us read the node, has
 * none. */
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

/* ---- the servers ----------------------------------------------------------------------------- */

static void server_down(exam *x, const net_probe *p, const char *words)
{
    char what[300];

    snprintf(what, sizeof what, "the server does not serve: %.200s", words);
    pawl_op_found(x->op, PAWL_FINDING_WARNING, "zk-down", p->at->where, what,
                  "The ensemble works with a majority: fewer other servers may fail before no lock "
                  "can be taken.", "Start the server; look at its log.");
}

/* "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on ..." */
static void server_version(exam *x, const net_probe *p)
{
    static const char key[] = "Zookeeper version: ";
    const char *at = strstr(p->heard, key);
    char what[64];

    if (!at)
        return;
    at += sizeof key - 1;
    snprintf(what, sizeof what, "ZooKeeper %.*s", (int)strcspn(at, "-, \n") % 30, at);
    pawl_op_fact(x->op, "server", p->at->where, what, 0);
}

static void probed(exam *x)
{
    if (!--x->out)
        finish(x, 0, NULL);
}

static void probe_done(net_probe *p)
{
    exam *x = p->arg;

    if (!p->answered)
        server_down(x, p, p->words);
    else if (strstr(p->heard, "not currently serving"))
        server_down(x, p, "it has no majority, or is still starting");
    else
        server_version(x, p);
    probed(x);
}

static void probe_all(exam *x)
{
    zk *z = x->task.zk;

    x->out = 1;
    for (size_t i = 0; i < z->settings.servers.n; i++) {
        net_probe *p = &x->probes[i];

        *p = (net_probe){.env = z->env, .at = &z->settings.servers.list[i],
            .tls_context = z->tls_context, .tls = z->settings.tls_settings, .says = "srvr",
            .arg = x, .done = probe_done};
        x->out++;
        net_probe_start(p);
    }
    probed(x);
}

/* ---- the task -------------------------------------------------------------------------------- */

static void exam_go(zk_task *task)
{
    if (exam_of(task)->out)
        return; /* the probes need no session */
    zk_ask(task, ZK_GET, "/zookeeper/config", false, config_read, 0);
}

static void exam_next(zk_task *task)
{
    exam *x = exam_of(task);
    zk *z = task->zk;
    const zk_settings *s = &z->settings;

    examine_network(x->op, where_of(z), z->link.stream.fd, s->tls, s->tls_settings.verify);
    look_at_session(z, x->op);
    look_at_ensemble(z, x->op, x->servers);
    probe_all(x);
}

static void exam_refused(zk_task *task, int code, const char *words)
{
    if (!exam_of(task)->out)
        finish(exam_of(task), code, words);
}

static const zk_task_type type = {.go = exam_go, .next = exam_next, .refused = exam_refused};

void zk_examine(zk *z, pawl_op *op)
{
    exam *x = calloc(1, sizeof *x + z->settings.servers.n * sizeof x->probes[0]);

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
    exam_free(op->engine[0]);
    zk_give_up(z, op, false);
}
