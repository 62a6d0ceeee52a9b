/* SPDX-License-Identifier: Apache-2.0
 *
 * task.c - tasks, their requests, and their watches.
 *
 * A request that reads sets a watch in the server; the watch fires once, as an event with the path.
 * The client records the watch by path before the request is sent, so that every event finds its
 * watch. The server's watches end with the connection; then every task reads again anyway (`go`),
 * so the records are dropped as well. An event without a record belongs to a task that has ended.
 */
#include <stdlib.h>

#include "kit/hash.h"
#include "zk.h"

#define SPARE_MAX 256

/* ---- tasks ----------------------------------------------------------------------------------- */

void zk_task_begin(zk_task *task, zk *z, const zk_task_type *type)
{
    *task = (zk_task){.zk = z, .type = type};
    list_append(&z->tasks, &task->link);
}

void zk_task_end(zk_task *task)
{
    list_remove(&task->link);
    for (struct list *l = task->zk->link.calls.next; task->out && l != &task->zk->link.calls;
         l = l->next) {
        zk_call *call = list_entry(l, zk_call, link);

        if (call->task == task) {
            call->task = NULL;
            task->out--;
        }
    }
}

void zk_task_go(zk_task *task)
{
    if (task->zk->link.state != LINK_READY || task->out)
        return;
    task->lost = false;
    task->type->go(task);
}

/* Call `fn` for each task once, even if tasks begin or end meanwhile. */
static void for_each(zk *z, void (*fn)(zk_task *task, void *arg), void *arg)
{
    struct list all, *l;

    list_take_all(&all, &z->tasks);
    while ((l = list_take(&all))) {
        list_append(&z->tasks, l);
        fn(list_entry(l, zk_task, link), arg);
    }
}

static void go_one(zk_task *task, void *arg)
{
    (void)arg;
    zk_task_go(task);
}

void zk_tasks_go(zk *z)
{
    for_each(z, go_one, NULL);
}

static void expire_one(zk_task *task, void *arg)
{
    (void)arg;
    if (task->type->expired)
        task->type->expired(task);
}

void zk_tasks_expired(zk *z)
{
    for_each(z, expire_one, NULL);
}

struct refusal {
    int code;
    const char *words;
};

static void refuse_one(zk_task *task, void *arg)
{
    const struct refusal *why = arg;

    task->type->refused(task, why->code, why->words);
}

void zk_tasks_refused(zk *z, int code, const char *words)
{
    struct refusal why = {code, words};

    for_each(z, refuse_one, &why);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static zk_call *call_new(zk *z)
{
    struct list *spare = list_take(&z->spare_calls);

    z->nspare_calls -= spare != NULL;
    return spare ? list_entry(spare, zk_call, link) : malloc(sizeof(zk_call));
}

static void call_free(zk *z, zk_call *call)
{
    if (z->nspare_calls >= SPARE_MAX) {
        free(call);
        return;
    }
    list_append(&z->spare_calls, &call->link);
    z->nspare_calls++;
}

void zk_call_done(zk_call *call, int error, jute_reader *body)
{
    zk_task *task = call->task;
    zk *z = task ? task->zk : NULL;
    zk_answer_fn *answer = call->answer;
    int64_t tag = call->tag;

    if (z)
        z->opcode = call->opcode;
    if (!task) {
        free(call);
        return;
    }
    call_free(z, call);
    task->out--;
    if (answer && !answer(task, tag, error, body)) {
        task->lost = true;
        zk_link_drop(z, PAWL_EPROTO, "an answer makes no sense");
        return;
    }
    if (!task->out && !task->lost)
        task->type->next(task);
}

void zk_call_lost(zk_call *call)
{
    if (call->task)
        call->task->lost = true;
    zk_call_done(call, ZK_LOST, NULL);
}

void zk_watches_lost(zk *z)
{
    for (size_t i = 0; i < ZK_BUCKETS; i++)
        while (!list_empty(&z->watches[i]))
            zk_watch_clear(list_entry(z->watches[i].next, zk_watch, link));
}

/* ---- requests -------------------------------------------------------------------------------- */

jute_writer zk_request(zk *z, int opcode)
{
    zk_link *link = &z->link;
    jute_writer w = {.buf = &link->out, .start = kit_buf_length(&link->out), .failed = true};

    if (link->state != LINK_READY)
        return w;
    link->xid = link->xid == INT32_MAX ? 1 : link->xid + 1;
    w = jute_begin(&link->out);
    jute_put_int(&w, link->xid);
    jute_put_int(&w, opcode);
    z->opcode = opcode;
    return w;
}

void zk_request_end(zk_task *task, jute_writer *w, zk_answer_fn *answer, int64_t tag)
{
    zk_link *link = (zk_link *)(void *)((char *)w->buf - offsetof(zk_link, out));
    zk *z = (zk *)(void *)((char *)link - offsetof(zk, link));
    zk_call *call;

    if (link->state != LINK_READY) {
        if (task)
            task->lost = true;
        return;
    }
    call = call_new(z);
    if (!jute_end(w) || !call) {
        free(call);
        if (task)
            task->lost = true;
        zk_link_drop(z, PAWL_ENOMEM, "out of memory");
        return;
    }
    *call = (zk_call){.task = task, .answer = answer, .tag = tag, .xid = link->xid,
                      .opcode = z->opcode, .sent = z->env->now(z->env)};
    list_append(&link->calls, &call->link);
    if (task)
        task->out++;
    z->env->loop_changed(z->env);
    kit_link_expect(&link->kit, call->sent + link->limit_ms * PAWL_NS_PER_MS);
}

/* One ACL entry: all permissions, for the creator or for everybody. */
void zk_put_acl(zk *z, jute_writer *w)
{
    jute_put_int(w, 1);
    jute_put_int(w, 31);
    jute_put_text(w, z->settings.open_acl ? "world" : "auth");
    jute_put_text(w, z->settings.open_acl ? "anyone" : "");
}

void zk_ask_create(zk_task *task, int opcode, const char *path, const char *data, size_t length,
                   int flags, zk_answer_fn *answer, int64_t tag)
{
    jute_writer w = zk_request(task->zk, opcode);

    jute_put_text(&w, path);
    jute_put_bytes(&w, data, length);
    zk_put_acl(task->zk, &w);
    jute_put_int(&w, flags);
    zk_request_end(task, &w, answer, tag);
}

void zk_ask_folders(zk_task *task, const char *path, zk_answer_fn *answer)
{
    bool stays = task->zk->settings.kazoo;
    char part[ZK_PATH_MAX];

    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        zk_ask_create(task, stays ? ZK_CREATE2 : ZK_CREATE_CONTAINER, part, "", 0,
                      stays ? ZK_PERSISTENT : ZK_CONTAINER, answer, 0);
    }
}

void zk_ask_delete(zk_task *task, const char *path, int version, zk_answer_fn *answer, int64_t tag)
{
    jute_writer w = zk_request(task->zk, ZK_DELETE);

    jute_put_text(&w, path);
    jute_put_int(&w, version);
    zk_request_end(task, &w, answer, tag);
}

void zk_ask(zk_task *task, int opcode, const char *path, bool watch, zk_answer_fn *answer,
            int64_t tag)
{
    jute_writer w = zk_request(task->zk, opcode);

    jute_put_text(&w, path);
    jute_put_bool(&w, watch);
    zk_request_end(task, &w, answer, tag);
}

void zk_ask_sync(zk_task *task)
{
    jute_writer w = zk_request(task->zk, ZK_SYNC);

    jute_put_text(&w, "/");
    zk_request_end(task, &w, NULL, 0);
}

void zk_ask_turn(zk_task *task, const char *folder)
{
    char path[ZK_PATH_MAX];

    snprintf(path, sizeof path, "%.*s/_c_none", ZK_PATH_MAX - 10, folder);
    zk_ask_delete(task, path, INT32_MAX, NULL, 0);
}

static const char *right_to(int opcode)
{
    switch (opcode) {
    case ZK_CREATE:
    case ZK_CREATE2:
    case ZK_CREATE_CONTAINER:
        return "create";
    case ZK_DELETE:
        return "delete";
    case ZK_SET:
        return "write";
    case ZK_MULTI:
        return "create or delete";
    default:
        return "read";
    }
}

/* The server accepts any user with any password. A wrong one shows only when a node belongs to
 * another user. */
static void say_right(const zk *z, const char *where, int error, char words[ZK_WORDS])
{
    const char *user = z->settings.login.user, *right = right_to(z->opcode);

    if (user)
        snprintf(words, ZK_WORDS, "%.40s: the right to %s is missing at or below %.40s, or user "
                 "'%.20s' has another password; check PAWL_USER and PAWL_PASSWORD", where, right,
                 z->settings.base, user);
    else
        snprintf(words, ZK_WORDS, "%.40s: the right to %s is missing at or below %.60s (error %d), "
                 "and no user was given; see docs/security.md", where, right, z->settings.base,
                 error);
}

int zk_error_code(const zk *z, int error, char words[ZK_WORDS])
{
    const char *where = z->settings.servers.list[z->link.server].where;

    if (error == ZK_NO_AUTH || error == ZK_AUTH_FAILED) {
        say_right(z, where, error, words);
        return PAWL_EAUTH;
    }
    if (error == ZK_UNIMPLEMENTED) {
        snprintf(words, ZK_WORDS, "%.50s: server too old: it can't create containers, Pawl needs "
                 "ZooKeeper 3.5 or newer (error %d)", where, error);
        return PAWL_ENOTSUP;
    }
    snprintf(words, ZK_WORDS, "%.50s: ZooKeeper's error %d", where, error);
    return PAWL_EBACKEND;
}

/* ---- watches --------------------------------------------------------------------------------- */

static struct list *bucket_of(zk *z, const char *path, size_t length)
{
    return &z->watches[kit_hash(path, length) % ZK_BUCKETS];
}

bool zk_watch_set(zk_watch *watch, zk_task *task, const char *path)
{
    zk_watch_clear(watch);
    watch->path = strdup(path);
    if (!watch->path)
        return false;
    watch->task = task;
    list_append(bucket_of(task->zk, path, strlen(path)), &watch->link);
    return true;
}

void zk_watch_clear(zk_watch *watch)
{
    if (!watch->path)
        return;
    list_remove(&watch->link);
    free(watch->path);
    watch->path = NULL;
}

void zk_watches_fire(zk *z, jute_bytes path, int happened)
{
    struct list *bucket = bucket_of(z, path.data, path.length), fired, *l;

    list_init(&fired);
    for (l = bucket->next; l != bucket;) {
        zk_watch *watch = list_entry(l, zk_watch, link);

        l = l->next;
        if (zk_bytes_are(path, watch->path)) {
            list_remove(&watch->link);
            list_append(&fired, &watch->link);
        }
    }
    while (!list_empty(&fired)) { /* watches cleared meanwhile leave this list */
        zk_watch *watch = list_entry(fired.next, zk_watch, link);
        zk_task *task = watch->task;

        zk_watch_clear(watch);
        task->type->woken(task, watch, happened);
    }
}
