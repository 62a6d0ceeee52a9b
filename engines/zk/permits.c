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

const char *zk_permits_lease_path(zk_waiter *p, uint32_t i)
{
    char lease[ZK_NODE_MAX + 12];

    zk_node_name(lease, p->task.zk, ZK_LEASE, 0, p->seq, p->epoch);
    snprintf(lease + strlen(lease), 12, "%010d", p->leases[i]);
    return zk_path(p->task.zk, p->name, "leases", lease);
}

/* ---- reading the queue ----------------------------------------------------------------------- */

static bool capacity_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);

    (void)tag;
    if (error)
        return true;
    p->capacity = zk_count_read(jute_get_bytes(body), "pawl permits=");
    p->capacity = p->capacity < 0 ? 0 : p->capacity;
    return !body->bad;
}

static bool leases_listed(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);

    (void)tag;
    if (error == ZK_NO_NODE) {
        zk_watch_clear(&p->ahead);
        p->again = p->watches_leases;
    } else if (error) {
        zk_waiter_note(p, error);
    }
    if (error)
        return true;
    p->in_use = (int64_t)jute_count(body, 4);
    return !body->bad;
}

static void permits_query(zk_waiter *p)
{
    zk *z = p->task.zk;
    const char *path;

    p->capacity = p->in_use = 0;
    zk_ask(&p->task, ZK_CHILDREN, zk_path(z, p->name, NULL, NULL), false, zk_queue_types, 0);
    zk_ask(&p->task, ZK_GET, zk_path(z, p->name, NULL, NULL), false, capacity_read, 0);
    zk_ask(&p->task, ZK_CHILDREN, zk_path(z, p->name, "locks", NULL), false, zk_queue_answered, 0);
    path = zk_path(z, p->name, "leases", NULL);
    if (p->watches_leases && !zk_watch_set(&p->ahead, &p->task, path))
        p->code = PAWL_ENOMEM;
    zk_ask(&p->task, ZK_CHILDREN, path, p->watches_leases, leases_listed, 0);
}

/* ---- taking ---------------------------------------------------------------------------------- */

static bool lease_created(zk_waiter *p, jute_reader *body)
{
    jute_bytes path = jute_get_bytes(body);

    if (body->bad || p->nleases >= p->permits)
        return false;
    p->leases[p->nleases++] = zk_child_read(false, path).sequence;
    return true;
}

static void not_taken(zk_waiter *p, int error)
{
    p->nleases = 0;
    p->leases_are = NODE_NONE;
    p->folders = error == ZK_NO_NODE ? FOLDERS_MISSING : FOLDERS_EXIST;
    if (error != ZK_NO_NODE)
        zk_waiter_note(p, error);
}

static bool one_taken(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error) {
        not_taken(p, error);
        return true;
    }
    if (!lease_created(p, body))
        return false;
    p->token = (uint64_t)jute_stat(body).czxid;
    if (!jute_at_end(body))
        return false;
    p->leases_are = NODE_EXISTS;
    return true;
}

/* The answer is a list of results, each behind a header with its type: all succeeded or none. The
 * answer does not have the czxid of the leases. */
static bool all_taken(zk_task *task, int64_t tag, int header, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);
    int type, error = header;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    while (!header && (type = jute_multi(body, &error)))
        if (type != ZK_CREATE || !lease_created(p, body))
            return false;
    if (body->bad)
        return false;
    if (error)
        not_taken(p, error);
    else if (p->nleases != p->permits)
        return false;
    else
        p->leases_are = NODE_EXISTS;
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

void zk_permits_leave_mutex(zk_waiter *p)
{
    zk_ask_delete(&p->task, zk_waiter_node_path(p, p->node), -1, mutex_left, 0);
}

static void write_capacity(zk_waiter *p, int64_t capacity)
{
    char text[64];
    int n = snprintf(text, sizeof text, "pawl permits=%lld", (long long)capacity);
    jute_writer w = zk_request(p->task.zk, ZK_SET);

    jute_put_text(&w, zk_path(p->task.zk, p->name, NULL, NULL));
    jute_put_bytes(&w, text, (size_t)n);
    jute_put_int(&w, -1);
    zk_request_end(&p->task, &w, zk_waiter_noted, 0);
}

static void ask_for_all(zk_waiter *p, const char *path, const char *who, size_t length)
{
    jute_writer w = zk_request(p->task.zk, ZK_MULTI);

    for (uint32_t i = 0; i < p->permits; i++) {
        jute_put_int(&w, ZK_CREATE);
        jute_put_bool(&w, false);
        jute_put_int(&w, -1);
        jute_put_text(&w, path);
        jute_put_bytes(&w, who, i ? 0 : length);
        zk_put_acl(p->task.zk, &w);
        jute_put_int(&w, ZK_EPHEMERAL | ZK_SEQUENTIAL);
    }
    jute_put_int(&w, -1);
    jute_put_bool(&w, true);
    jute_put_int(&w, -1);
    zk_request_end(&p->task, &w, all_taken, 0);
}

static int take(zk_waiter *p, int64_t capacity)
{
    zk *z = p->task.zk;
    char lease[ZK_NODE_MAX], who[ZK_WHO_MAX];
    size_t length = zk_who_write(who, z, p->permits);
    const char *path;

    zk_watch_clear(&p->ahead);
    zk_watch_clear(&p->own);
    p->own_is = OWN_UNWATCHED;
    free(p->leases);
    p->nleases = 0;
    p->leases = calloc(p->permits, sizeof *p->leases);
    if (!p->leases)
        return PAWL_ENOMEM;
    if (p->capacity != capacity)
        write_capacity(p, capacity);
    zk_node_name(lease, z, ZK_LEASE, 0, p->seq, p->epoch);
    path = zk_path(z, p->name, "leases", lease);
    p->leases_are = NODE_UNSURE;
    p->token = 0;
    p->step = STEP_MORE;
    p->asked = ASKED_TAKE;
    if (p->permits == 1)
        zk_ask_create(&p->task, ZK_CREATE2, path, who, length, ZK_EPHEMERAL | ZK_SEQUENTIAL,
                      one_taken, 0);
    else
        ask_for_all(p, path, who, length);
    zk_permits_leave_mutex(p);
    return WAITER_GOES_ON;
}

/* ---- decisions ------------------------------------------------------------------------------- */

static bool first_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);
    zk_who who;

    (void)tag;
    if (error)
        return true;
    zk_who_read(&who, jute_get_bytes(body));
    p->first_wants = who.want;
    return !body->bad;
}

static int ask_first(zk_waiter *p)
{
    p->first_wants = 0;
    p->step = STEP_MORE;
    p->asked = ASKED_FIRST;
    if (strlen(p->list.first) >= ZK_NODE_MAX)
        return PAWL_EBUSY;
    zk_ask(&p->task, ZK_GET, zk_waiter_node_path(p, p->list.first), false, first_read, 0);
    return WAITER_GOES_ON;
}

/* The capacity in force, or a code. */
static int64_t capacity_of(zk_waiter *p)
{
    bool others = p->list.others || p->in_use;
    int64_t in_force = others ? p->capacity : 0, capacity = in_force ? in_force : p->count;

    if (p->list.locks || p->list.latch)
        return zk_waiter_in_use(p);
    if (!capacity || (p->count && capacity != p->count)) {
        snprintf(p->words, sizeof p->words, "\"%.60s\" %s", p->name,
                 capacity ? "is in use with another capacity" : "has no capacity yet");
        return PAWL_ESTATE;
    }
    if (p->permits > capacity ||
        p->permits * (strlen(zk_path(p->task.zk, p->name, "leases", "")) + ZK_NODE_MAX) >
            REQUEST_MAX) {
        snprintf(p->words, sizeof p->words, "\"%.60s\": more permits than %s", p->name,
                 p->permits > capacity ? "its capacity" : "fit into one request");
        return PAWL_EINVAL;
    }
    return capacity;
}

static int permits_decide(zk_waiter *p)
{
    int64_t capacity = capacity_of(p);
    bool room = capacity - p->in_use >= (int64_t)p->permits;

    if (capacity < 0)
        return (int)capacity;
    if (!room && !p->queue)
        return PAWL_EBUSY;
    if (p->list.ahead)
        return p->queue ? WAITER_BLOCKED : ask_first(p);
    if (room && p->node_is == NODE_EXISTS)
        return take(p, capacity);
    if (room)
        return WAITER_GRANTED; /* the node is created first */
    if (p->watches_leases && !p->again)
        return WAITER_BLOCKED;
    p->watches_leases = true;
    zk_waiter_recheck(p);
    return WAITER_GOES_ON;
}

/* The leases exist. Read the czxid if it is not known. */
static int permits_taken(zk_waiter *p)
{
    p->watches_leases = false;
    if (p->own_is == OWN_GONE || !p->nleases)
        return WAITER_ANEW;
    if (p->token)
        return WAITER_GRANTED;
    p->asked = ASKED_STAT;
    zk_waiter_ask_own(p);
    if (p->node_is == NODE_EXISTS)
        zk_permits_leave_mutex(p);
    return WAITER_GOES_ON;
}

static int permits_more(zk_waiter *p)
{
    int64_t capacity = p->capacity ? p->capacity : p->count;

    if (p->asked == ASKED_FIRST)
        return capacity - p->in_use < p->first_wants ? PAWL_EBUSY : WAITER_BLOCKED;
    if (p->asked == ASKED_FIND && !p->nleases && p->node_is == NODE_EXISTS) {
        zk_waiter_recheck(p); /* check that the own node exists and is still first */
        return WAITER_GOES_ON;
    }
    return permits_taken(p);
}

const zk_waiter_kind zk_waiter_permits = {.dir = "locks", .query = permits_query,
        .decide = permits_decide, .more = permits_more};

/* ---- finding and giving back ----------------------------------------------------------------- */

static bool leases_found(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);
    char id[ZK_NODE_MAX];
    size_t n;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    p->nleases = 0;
    p->leases_are = error ? NODE_NONE : NODE_UNSURE;
    if (error)
        return true;
    zk_node_name(id, task->zk, ZK_LEASE, 0, p->seq, p->epoch);
    n = jute_count(body, 4);
    for (size_t i = 0; i < n; i++) {
        jute_bytes name = jute_get_bytes(body);

        if (zk_bytes_begin(name, id) && p->nleases < p->permits)
            p->leases[p->nleases++] = zk_child_read(false, name).sequence;
    }
    if (body->bad)
        return false;
    p->leases_are = p->nleases ? NODE_EXISTS : NODE_NONE;
    return true;
}

void zk_permits_find(zk_waiter *p)
{
    p->step = p->state == WAITER_LEAVES ? STEP_LEAVE : STEP_MORE;
    p->asked = ASKED_FIND;
    zk_ask_turn(&p->task, zk_path(p->task.zk, p->name, "leases", NULL)); /* as in find_own */
    zk_ask(&p->task, ZK_CHILDREN, zk_path(p->task.zk, p->name, "leases", NULL), false,
           leases_found, 0);
}

static bool lease_deleted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);

    (void)tag;
    (void)body;
    if (error == ZK_LOST)
        p->repeated = true;
    else if (error == ZK_NO_NODE)
        p->own_is = p->repeated ? p->own_is : OWN_GONE;
    else if (error)
        zk_waiter_note(p, error);
    return true;
}

void zk_permits_give_back(zk_waiter *p, uint32_t keep)
{
    for (uint32_t i = keep; i < p->nleases; i++)
        zk_ask_delete(&p->task, zk_permits_lease_path(p, i), -1, lease_deleted, 0);
}
