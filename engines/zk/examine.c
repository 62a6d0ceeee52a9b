/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the session that the server granted, the ensemble as listed in
 * /zookeeper/config, the user's rights in the folder of the locks, and the answer of each server of
 * the URL to "srvr", on a connection per server.
 *
 * The nodes are read first; then all probes run at once, and the last probe that ends finishes the
 * op. exam->out counts the running probes, and one more while probes are being started.
 *
 * Nothing is created to check the right to create: the transaction with the create also checks for
 * a node that does not exist, so the server refuses the whole transaction. If the folder does not
 * exist, the nearest folder above it counts, because the first lock creates the folder there.
 */
#include <stdlib.h>

#include "examine.h"
#include "zk.h"

typedef struct exam {
    zk_task task;
    pawl_op *op;
    size_t servers; /* in the ensemble; 0: unknown */
    char folder[ZK_CHROOT_MAX + ZK_PREFIX_MAX + 2]; /* whose rights are checked */
    int read_error, create_error;
    bool cut;       /* the folder of the locks does not exist; `folder` is above it */
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

/* ---- rights ---------------------------------------------------------------------------------- */

static bool folder_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    exam_of(task)->read_error = error;
    return true;
}

/* The first failure: of the create, or of the check, which must fail. */
static bool create_tried(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    exam *x = exam_of(task);

    (void)tag;
    if (!error)
        jute_multi(body, &error);
    x->create_error = error;
    return error && (!body || !body->bad);
}

static void ask_create(exam *x)
{
    jute_writer w = zk_request(x->task.zk, ZK_MULTI);
    char path[sizeof x->folder + 16], none[sizeof path + 8];

    snprintf(path, sizeof path, "%s%s_c_doctor", x->folder, x->folder[1] ? "/" : "");
    snprintf(none, sizeof none, "%s_none", path);
    jute_put_int(&w, ZK_CREATE);
    jute_put_bool(&w, false);
    jute_put_int(&w, -1);
    jute_put_text(&w, path);
    jute_put_bytes(&w, "", 0);
    zk_put_acl(x->task.zk, &w);
    jute_put_int(&w, ZK_EPHEMERAL);
    jute_put_int(&w, ZK_CHECK);
    jute_put_bool(&w, false);
    jute_put_int(&w, -1);
    jute_put_text(&w, none);
    jute_put_int(&w, -1);
    jute_put_int(&w, -1); /* the end */
    jute_put_bool(&w, true);
    jute_put_int(&w, -1);
    zk_request_end(&x->task, &w, create_tried, 0);
}

static void ask_rights(exam *x)
{
    zk_ask(&x->task, ZK_GET, x->folder, false, folder_read, 0);
    ask_create(x);
}

static void look_at_rights(exam *x)
{
    const zk *z = x->task.zk;
    const char *user = z->settings.login.user;
    bool read = x->read_error != ZK_NO_AUTH || x->cut, create = x->create_error != ZK_NO_AUTH;
    char what[1000], remedy[2000];

    if (read && create)
        return;
    snprintf(what, sizeof what, "%s%.100s lacks the right to %s in %s", user ? "the user " : "",
             user ? user : "everybody", read ? "create" : create ? "read" : "read and create",
             x->folder);
    snprintf(remedy, sizeof remedy, "zkCli.sh: setAcl %s %s%.100s%s, with a comma and the entries "
             "that getAcl %s shows, because setAcl replaces all of them%s", x->folder,
             user ? "digest:" : "world:", user ? user : "anyone", user ? ":HASH:cr" : ":cr",
             x->folder, user ? "; docs/security.md describes HASH." : ".");
    pawl_op_found(x->op, PAWL_FINDING_DANGER, "rights", where_of(z), what,
                  create ? "Nobody can list the locks: pawl ls, top and serve fail."
                         : "No lock can be taken: each lock has a node of its own there.", remedy);
}

/* The folder does not exist: go to the folder above. False: it exists. */
static bool go_up(exam *x)
{
    char *slash = strrchr(x->folder, '/');

    if (x->read_error != ZK_NO_NODE || !x->folder[1])
        return false;
    slash[slash == x->folder] = 0;
    x->cut = true;
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

static void server_version(exam *x, const net_probe *p)
{
    char version[ZK_VERSION_MAX], what[64];

    if (!zk_version_read(p, version))
        return;
    snprintf(what, sizeof what, "ZooKeeper %s", version);
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
    ask_rights(exam_of(task));
}

static void exam_next(zk_task *task)
{
    exam *x = exam_of(task);
    zk *z = task->zk;
    const zk_settings *s = &z->settings;

    if (go_up(x)) {
        ask_rights(x);
        return;
    }
    examine_network(x->op, where_of(z), z->link.stream.fd, s->tls, s->tls_settings.verify);
    look_at_session(z, x->op);
    look_at_ensemble(z, x->op, x->servers);
    look_at_rights(x);
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
    snprintf(x->folder, sizeof x->folder, "%s", z->settings.base);
    *strrchr(x->folder, '/') = 0; /* "/app/locks/", "/app/job-", "/" */
    if (!x->folder[0])
        strcpy(x->folder, "/");
    op->engine[0] = x;
    zk_task_begin(&x->task, z, &type);
    zk_task_go(&x->task);
}

void zk_examine_cancel(zk *z, pawl_op *op)
{
    exam_free(op->engine[0]);
    zk_give_up(z, op, false);
}
