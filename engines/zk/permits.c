/* SPDX-License-Identifier: Apache-2.0
 *
 * permits.c - semaphores, laid out as Curator's InterProcessSemaphoreV2:
 *
 *     NAME/locks/_c_UUID-lock-N      a mutex: the order of the waiters
 *     NAME/leases/_c_UUID-lease-N    a node per permit
 *
 * Only the first waiter in `locks` may take permits: that waiter lists `leases`, creates one lease
 * per permit (one request for all, which is carried out whole or not at all) and leaves `locks`. If
 * there are not enough free permits, the waiter stays first and watches `leases`; so nobody
 * overtakes, and a released permit wakes one process. The leases are created before the waiter
 * leaves the mutex, so the next waiter sees them.
 *
 * In Curator, the capacity is each client's own number. Pawl's clients agree on one capacity: a
 * waiter that is first while nobody else uses the semaphore writes the capacity into the node NAME,
 * and that capacity is in force while anybody uses the semaphore.
 *
 * A waiter that may not queue is refused if there are not enough free permits, and also if the
 * first waiter wants more permits than are free (each node's data has the number wanted). Otherwise
 * the first waiter is about to leave the mutex, and the waiter waits for that.
 */
#include <stdlib.h>

#include "waiter.h"

#define REQUEST_MAX 900000 /* bytes; a server refuses more than about a million */

/* The request of STEP_MORE. */
enum asked { ASKED_FIRST, ASKED_TAKE, ASKED_FIND, ASKED_STAT };

const char *zk_permits_lease_path(zk_waiter *w, uint32_t i)
{
    char lease[ZK_NODE_MAX + 12];

    zk_node_name(lease, w->task.zk, ZK_LEASE, 0, w->seq, w->epoch);
    snprintf(lease + strlen(lease), 12, "%010d", w->leases[i]);
    return zk_path(w->task.zk, w->name, "leases", lease);
}

/* ---- reading the queue ----------------------------------------------------------------------- */

static bool capacity_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    if (error)
        return true;
    w->capacity = zk_count_read(jute_get_bytes(body), "pawl permits=");
    w->capacity = w->capacity < 0 ? 0 : w->capacity;
    return !body->bad;
}

static bool leases_listed(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    if (error == ZK_NO_NODE) {
        zk_watch_clear(&w->ahead);
        w->again = w->watches_leases;
    } else if (error) {
        zk_waiter_note(w, error);
    }
    if (error)
        return true;
    w->in_use = (int64_t)jute_count(body, 4);
    return !body->bad;
}

static void permits_query(zk_waiter *w)
{
    zk *z = w->task.zk;
    const char *path;

    w->capacity = w->in_use = 0;
    zk_ask(&w->task, ZK_CHILDREN, zk_path(z, w->name, NULL, NULL), false, zk_queue_types, 0);
    zk_ask(&w->task, ZK_GET, zk_path(z, w->name, NULL, NULL), false, capacity_read, 0);
    zk_ask(&w->task, ZK_CHILDREN, zk_path(z, w->name, "locks", NULL), false, zk_queue_answered, 0);
    path = zk_path(z, w->name, "leases", NULL);
    if (w->watches_leases && !zk_watch_set(&w->ahead, &w->task, path))
        w->code = PAWL_ENOMEM;
    zk_ask(&w->task, ZK_CHILDREN, path, w->watches_leases, leases_listed, 0);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static bool lease_created(zk_waiter *w, jute_reader *body)
{
    jute_bytes path = jute_get_bytes(body);

    if (body->bad || w->nleases >= w->permits)
        return false;
    w->leases[w->nleases++] = zk_child_read(false, path).sequence;
    return true;
}

static void not_taken(zk_waiter *w, int error)
{
    w->nleases = 0;
    w->leases_are = NODE_NONE;
    w->folders = error == ZK_NO_NODE ? FOLDERS_MISSING : FOLDERS_EXIST;
    if (error != ZK_NO_NODE)
        zk_waiter_note(w, error);
}

static bool one_taken(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error) {
        not_taken(w, error);
        return true;
    }
    if (!lease_created(w, body))
        return false;
    w->token = (uint64_t)jute_stat(body).czxid;
    if (!jute_at_end(body))
        return false;
    w->leases_are = NODE_EXISTS;
    return true;
}

/* The answer is a list of results, each behind a header with its type: all succeeded or none. The
 * answer does not have the czxid of the leases. */
static bool all_taken(zk_task *task, int64_t tag, int header, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    int type, error = header;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    while (!header && (type = jute_multi(body, &error)))
        if (type != ZK_CREATE || !lease_created(w, body))
            return false;
    if (body->bad)
        return false;
    if (error)
        not_taken(w, error);
    else if (w->nleases != w->permits)
        return false;
    else
        w->leases_are = NODE_EXISTS;
    return true;
}

static bool mutex_left(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    if (error != ZK_LOST)
        zk_waiter_of(task)->node_is = NODE_NONE;
    return true;
}

void zk_permits_leave_mutex(zk_waiter *w)
{
    zk_ask_delete(&w->task, zk_waiter_node_path(w, w->node), -1, mutex_left, 0);
}

static void write_capacity(zk_waiter *w, int64_t capacity)
{
    char text[64];
    int n = snprintf(text, sizeof text, "pawl permits=%lld", (long long)capacity);
    jute_writer out = zk_request(w->task.zk, ZK_SET);

    jute_put_text(&out, zk_path(w->task.zk, w->name, NULL, NULL));
    jute_put_bytes(&out, text, (size_t)n);
    jute_put_int(&out, -1);
    zk_request_end(&w->task, &out, zk_waiter_noted, 0);
}

static void ask_for_all(zk_waiter *w, const char *path, const char *data, size_t length)
{
    jute_writer out = zk_request(w->task.zk, ZK_MULTI);

    for (uint32_t i = 0; i < w->permits; i++) {
        jute_put_int(&out, ZK_CREATE);
        jute_put_bool(&out, false);
        jute_put_int(&out, -1);
        jute_put_text(&out, path);
        jute_put_bytes(&out, data, i ? 0 : length);
        zk_put_acl(w->task.zk, &out);
        jute_put_int(&out, ZK_EPHEMERAL | ZK_SEQUENTIAL);
    }
    jute_put_int(&out, -1);
    jute_put_bool(&out, true);
    jute_put_int(&out, -1);
    zk_request_end(&w->task, &out, all_taken, 0);
}

static int take(zk_waiter *w, int64_t capacity)
{
    zk *z = w->task.zk;
    char lease[ZK_NODE_MAX], data[ZK_CLIENT_INFO_MAX];
    size_t length = zk_client_info_write(data, z, w->permits);
    const char *path;

    zk_watch_clear(&w->ahead);
    zk_watch_clear(&w->own);
    w->own_is = OWN_UNWATCHED;
    free(w->leases);
    w->nleases = 0;
    w->leases = calloc(w->permits, sizeof *w->leases);
    if (!w->leases)
        return PAWL_ENOMEM;
    if (w->capacity != capacity)
        write_capacity(w, capacity);
    zk_node_name(lease, z, ZK_LEASE, 0, w->seq, w->epoch);
    path = zk_path(z, w->name, "leases", lease);
    w->leases_are = NODE_UNSURE;
    w->token = 0;
    w->step = STEP_MORE;
    w->asked = ASKED_TAKE;
    if (w->permits == 1)
        zk_ask_create(&w->task, ZK_CREATE2, path, data, length, ZK_EPHEMERAL | ZK_SEQUENTIAL,
                      one_taken, 0);
    else
        ask_for_all(w, path, data, length);
    zk_permits_leave_mutex(w);
    return WAITER_GOES_ON;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static bool first_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    zk_client_info client_info;

    (void)tag;
    if (error)
        return true;
    zk_client_info_read(&client_info, jute_get_bytes(body));
    w->first_wants = client_info.want;
    return !body->bad;
}

static int ask_first(zk_waiter *w)
{
    w->first_wants = 0;
    w->step = STEP_MORE;
    w->asked = ASKED_FIRST;
    if (strlen(w->list.first) >= ZK_NODE_MAX)
        return PAWL_EBUSY;
    zk_ask(&w->task, ZK_GET, zk_waiter_node_path(w, w->list.first), false, first_read, 0);
    return WAITER_GOES_ON;
}

/* The capacity in force, or a code. */
static int64_t capacity_of(zk_waiter *w)
{
    bool others = w->list.others || w->in_use;
    int64_t in_force = others ? w->capacity : 0, capacity = in_force ? in_force : w->count;

    if (w->list.locks || w->list.latch)
        return zk_waiter_in_use(w);
    if (!capacity || (w->count && capacity != w->count)) {
        snprintf(w->words, sizeof w->words, "\"%.60s\" %s", w->name,
                 capacity ? "is in use with another capacity" : "has no capacity yet");
        return PAWL_ESTATE;
    }
    if (w->permits > capacity ||
        w->permits * (strlen(zk_path(w->task.zk, w->name, "leases", "")) + ZK_NODE_MAX) >
            REQUEST_MAX) {
        snprintf(w->words, sizeof w->words, "\"%.60s\": more permits than %s", w->name,
                 w->permits > capacity ? "its capacity" : "fit into one request");
        return PAWL_EINVAL;
    }
    return capacity;
}

static int permits_decide(zk_waiter *w)
{
    int64_t capacity = capacity_of(w);
    bool room = capacity - w->in_use >= (int64_t)w->permits;

    if (capacity < 0)
        return (int)capacity;
    if (!room && !w->queue)
        return PAWL_EBUSY;
    if (w->list.ahead)
        return w->queue ? WAITER_BLOCKED : ask_first(w);
    if (room && w->node_is == NODE_EXISTS)
        return take(w, capacity);
    if (room)
        return WAITER_GRANTED; /* the node is created first */
    if (w->watches_leases && !w->again)
        return WAITER_BLOCKED;
    w->watches_leases = true;
    zk_waiter_recheck(w);
    return WAITER_GOES_ON;
}

/* The leases exist. Read the czxid if it is not known. */
static int permits_taken(zk_waiter *w)
{
    w->watches_leases = false;
    if (w->own_is == OWN_GONE || !w->nleases)
        return WAITER_ANEW;
    if (w->token)
        return WAITER_GRANTED;
    w->asked = ASKED_STAT;
    zk_waiter_ask_own(w);
    if (w->node_is == NODE_EXISTS)
        zk_permits_leave_mutex(w);
    return WAITER_GOES_ON;
}

static int permits_more(zk_waiter *w)
{
    int64_t capacity = w->capacity ? w->capacity : w->count;

    if (w->asked == ASKED_FIRST)
        return capacity - w->in_use < w->first_wants ? PAWL_EBUSY : WAITER_BLOCKED;
    if (w->asked == ASKED_FIND && !w->nleases && w->node_is == NODE_EXISTS) {
        zk_waiter_recheck(w); /* check that the own node exists and is still first */
        return WAITER_GOES_ON;
    }
    return permits_taken(w);
}

const zk_waiter_kind zk_waiter_permits = {.dir = "locks", .query = permits_query,
        .decide = permits_decide, .more = permits_more};

/* ---- finding and giving back ----------------------------------------------------------------- */

static bool leases_found(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    char id[ZK_NODE_MAX];
    size_t n;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    w->nleases = 0;
    w->leases_are = error ? NODE_NONE : NODE_UNSURE;
    if (error)
        return true;
    zk_node_name(id, task->zk, ZK_LEASE, 0, w->seq, w->epoch);
    n = jute_count(body, 4);
    for (size_t i = 0; i < n; i++) {
        jute_bytes name = jute_get_bytes(body);

        if (zk_bytes_begin(name, id) && w->nleases < w->permits)
            w->leases[w->nleases++] = zk_child_read(false, name).sequence;
    }
    if (body->bad)
        return false;
    w->leases_are = w->nleases ? NODE_EXISTS : NODE_NONE;
    return true;
}

void zk_permits_find(zk_waiter *w)
{
    w->step = w->state == WAITER_LEAVES ? STEP_LEAVE : STEP_MORE;
    w->asked = ASKED_FIND;
    zk_ask_turn(&w->task, zk_path(w->task.zk, w->name, "leases", NULL)); /* as in find_own */
    zk_ask(&w->task, ZK_CHILDREN, zk_path(w->task.zk, w->name, "leases", NULL), false,
           leases_found, 0);
}

static bool lease_deleted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    (void)body;
    if (error == ZK_LOST)
        w->repeated = true;
    else if (error == ZK_NO_NODE)
        w->own_is = w->repeated ? w->own_is : OWN_GONE;
    else if (error)
        zk_waiter_note(w, error);
    return true;
}

void zk_permits_give_back(zk_waiter *w, uint32_t keep)
{
    for (uint32_t i = keep; i < w->nleases; i++)
        zk_ask_delete(&w->task, zk_permits_lease_path(w, i), -1, lease_deleted, 0);
}
