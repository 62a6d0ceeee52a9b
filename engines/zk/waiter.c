/* SPDX-License-Identifier: Apache-2.0
 *
 * waiter.c - acquire: a node in a queue, from creation to deletion.
 *
 *     PEEK --> ENTER --> granted
 *                | blocked
 *                v
 *              WATCH --> (waits) --event--> RECHECK --> granted, or WATCH again
 *
 *     granted: the own node is deleted --> the core is told to ask (PAWL_EVENT_VERIFY)
 *     release, cancel, refused: LEAVE --> over
 *
 * These are the steps; waiter.h has the table of a waiter's states.
 *
 * Only a waiter that may not queue (or waits for a latch) peeks first. All others take a free lock
 * in one round trip, because the list is requested together with the create. The node must belong
 * to this session, and the list that grants the lock must show the node; after a reconnect the
 * waiter reads its own node again as well.
 *
 * If a create gets no answer, FIND searches for the node by its unique id. The search follows a
 * write (zk_ask_turn), because a request of the last connection may be carried out much later, when
 * a majority is back; an overlooked node would block everybody until the session ends. A delete is
 * repeated until the server has confirmed the delete or the session has ended, even if no op waits
 * for the delete any more, so that no node is left behind that blocks others. A waiter whose node
 * somebody else deleted starts over at the end of the queue.
 *
 * A DOWNGRADE (w->with_seq) gets a node with the sequence of its writer, in front of all waiters.
 * That is allowed only while the writer's node exists, and this client may not have been notified
 * yet that somebody deleted that node. So one request checks the writer's node and creates the
 * reader's: either both exist at once, or the reader's node is not created and the reader joins the
 * end of the queue. From then on the list decides, as for every reader: nothing exclusive may be in
 * front.
 *
 * A waiter that has waited or held for WAITER_WATCH_MS also watches its own node; most acquires are
 * over sooner and save the request. Once per session timeout every watched node is read again
 * (zk_waiter_check), so an event that a server fails to send delays a waiter no longer than that.
 */
#include <stdlib.h>

#include "waiter.h"

#define TRIES_MAX 50

static void zk_waiter_next(zk_task *task);

/* ---- requests -------------------------------------------------------------------------------- */

void zk_waiter_note(zk_waiter *w, int error)
{
    if (error != ZK_LOST)
        w->code = zk_error_code(w->task.zk, error, w->words);
}

bool zk_waiter_noted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    if (error)
        zk_waiter_note(zk_waiter_of(task), error);
    return true;
}

const char *zk_waiter_node_path(zk_waiter *w, const char *node)
{
    return zk_path(w->task.zk, w->name, w->kind->dir, node);
}

/* Reads the waiter's own node: does the node exist, in this session, and when was it created? */
static bool own_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    zk_stat stat;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error == ZK_NO_NODE) {
        zk_watch_clear(&w->own);
        w->own_is = OWN_GONE;
        return true;
    }
    if (error) {
        zk_waiter_note(w, error);
        return true;
    }
    jute_get_bytes(body);
    stat = jute_stat(body);
    if (!jute_at_end(body) || stat.ephemeral_owner != task->zk->session.id)
        return false; /* the node's name contains the session's number */
    if (w->own_is == OWN_UNWATCHED)
        w->own_is = OWN_WATCHED;
    if (!w->token)
        w->token = (uint64_t)stat.czxid;
    return true;
}

/* The first lease stands for all permits of the waiter. */
void zk_waiter_ask_own(zk_waiter *w)
{
    const char *path = w->nleases ? zk_permits_lease_path(w, 0) : zk_waiter_node_path(w, w->node);

    if (zk_watch_set(&w->own, &w->task, path))
        zk_ask(&w->task, ZK_GET, path, true, own_read, 0);
}

bool zk_waiter_keep_node(zk_waiter *w, jute_bytes name)
{
    bool kazoo = w->task.zk->settings.kazoo && !w->kind->dir;

    if (name.length >= sizeof w->node)
        return false;
    memcpy(w->node, name.data, name.length);
    w->node[name.length] = 0;
    w->sequence = zk_child_read(kazoo, name).sequence;
    w->node_is = NODE_EXISTS;
    return true;
}

/* The waiter's node exists and has this path. False: not the path of one of our nodes. */
static bool keep_path(zk_waiter *w, jute_bytes path)
{
    const char *slash = path.length ? memrchr(path.data, '/', path.length) : NULL;
    size_t length = slash ? (size_t)(path.data + path.length - slash - 1) : 0;

    return slash && zk_waiter_keep_node(w, (jute_bytes){slash + 1, length});
}

/* The create failed: no node was created. */
static void not_created(zk_waiter *w, int error)
{
    w->node_is = NODE_NONE;
    if (error != ZK_NO_NODE)
        zk_waiter_note(w, error);
    else if (w->folders == FOLDERS_DENIED && w->tries > 2) /* the folders can't be created */
        zk_waiter_note(w, ZK_NO_AUTH);
    w->folders = error == ZK_NO_NODE ? FOLDERS_MISSING : FOLDERS_EXIST;
}

static bool created(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    jute_bytes path;
    zk_stat stat;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error) {
        not_created(w, error);
        return true;
    }
    path = jute_get_bytes(body);
    stat = jute_stat(body);
    if (!jute_at_end(body) || stat.ephemeral_owner != task->zk->session.id || !keep_path(w, path))
        return false;
    w->folders = FOLDERS_EXIST;
    w->token = (uint64_t)stat.czxid;
    return true;
}

/* The results of the check of the writer's node and of the create of the reader's node. */
static bool created_beside(zk_task *task, int64_t tag, int header, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    int type, error = header;
    jute_bytes path = {0};

    (void)tag;
    if (error == ZK_LOST)
        return true;
    while (!header && (type = jute_multi(body, &error))) {
        if (type == ZK_CREATE)
            path = jute_get_bytes(body);
        else if (type != ZK_CHECK)
            return false;
    }
    if (body->bad)
        return false;
    if (error == ZK_NODE_EXISTS) /* an earlier request of this waiter created the node */
        return true;
    if (!error)
        return keep_path(w, path);
    w->node_is = NODE_NONE;
    if (error == ZK_NO_NODE)
        w->with_seq = w->token = 0; /* the writer has lost its lock */
    else
        zk_waiter_note(w, error);
    return true;
}

/* Create the reader's node with the writer's sequence, if the writer's node exists. */
static void create_beside(zk_waiter *w, const zk_waiter *writer, const char *path, const char *data,
                          size_t length)
{
    zk *z = w->task.zk;
    char beside[ZK_PATH_MAX];
    jute_writer out = zk_request(z, ZK_MULTI);

    snprintf(beside, sizeof beside, "%s", zk_waiter_node_path(w, writer->node));
    jute_put_int(&out, ZK_CHECK);
    jute_put_bool(&out, false);
    jute_put_int(&out, -1);
    jute_put_text(&out, beside);
    jute_put_int(&out, -1);
    jute_put_int(&out, ZK_CREATE);
    jute_put_bool(&out, false);
    jute_put_int(&out, -1);
    jute_put_text(&out, path);
    jute_put_bytes(&out, data, length);
    zk_put_acl(z, &out);
    jute_put_int(&out, ZK_EPHEMERAL);
    jute_put_int(&out, -1);
    jute_put_bool(&out, true);
    jute_put_int(&out, -1);
    zk_request_end(&w->task, &out, created_beside, 0);
}

static void start_query(zk_waiter *w, enum zk_waiter_step step)
{
    w->step = step;
    zk_queue_clear(&w->list);
    w->code = 0;
    w->words[0] = 0;
    w->again = w->not_semaphore = false;
    if (step == STEP_PEEK && w->sure)
        zk_ask_turn(&w->task, zk_path(w->task.zk, w->name, NULL, NULL));
    w->kind->query(w);
}

/* The exclusive grant of the same client beside which a shared grant is made. */
static const zk_waiter *partner_of(const zk_waiter *w)
{
    const zk_waiter *partner = w->with_seq ? zk_waiter_find(w->task.zk, w->with_seq) : NULL;

    return partner && zk_waiter_holds(partner) ? partner : NULL;
}

static bool folder_made(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    if (error == ZK_NO_AUTH) /* also returned for folders that exist */
        zk_waiter_of(task)->folders = FOLDERS_DENIED;
    return true;
}

static void enter(zk_waiter *w)
{
    zk *z = w->task.zk;
    const zk_waiter *partner = partner_of(w);
    char node[ZK_NODE_MAX + 12], data[ZK_CLIENT_INFO_MAX], path[ZK_PATH_MAX];
    size_t length = zk_client_info_write(data, z, w->permits);

    if (!partner)
        w->with_seq = 0; /* then the waiter queues like all others */
    w->epoch = z->session.epoch;
    w->token = partner ? partner->token : 0;
    w->own_is = OWN_UNWATCHED;
    zk_waiter_node_id(w, node);
    if (partner)
        snprintf(node + strlen(node), 12, "%010d", partner->sequence);
    snprintf(path, sizeof path, "%s", zk_waiter_node_path(w, node));
    if (w->folders != FOLDERS_EXIST) {
        w->folders = FOLDERS_MISSING;
        zk_ask_folders(&w->task, path, folder_made);
    }
    if (w->folders != FOLDERS_EXIST && w->mode == PAWL_MODE_PERMITS) {
        w->made_leases = true;
        zk_ask_create(&w->task, ZK_CREATE_CONTAINER, zk_path(z, w->name, "leases", NULL), "", 0,
                      ZK_CONTAINER, folder_made, 0);
    }
    w->node_is = NODE_UNSURE;
    if (partner)
        create_beside(w, partner, path, data, length);
    else
        zk_ask_create(&w->task, ZK_CREATE2, path, data, length, ZK_EPHEMERAL | ZK_SEQUENTIAL,
                      created, 0);
    start_query(w, STEP_ENTER);
}

void zk_waiter_recheck(zk_waiter *w)
{
    start_query(w, STEP_RECHECK);
}

static bool deleted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    (void)body;
    if (error == ZK_LOST) {
        w->repeated = true;
        return true;
    }
    w->node_is = NODE_NONE;
    if (error == ZK_NO_NODE && !w->repeated)
        w->own_is = OWN_GONE;
    if (error && error != ZK_NO_NODE)
        w->task.zk->env->log(w->task.zk->env, PAWL_LOG_WARNING,
                             "\"%s\": a node can't be deleted (%d)", w->name, error);
    return true;
}

/* Was the waiter's node created, or will it be? */
static void find_own(zk_waiter *w)
{
    zk_ask_turn(&w->task, zk_waiter_node_path(w, NULL));
    zk_ask(&w->task, ZK_CHILDREN, zk_waiter_node_path(w, NULL), false, zk_queue_found, 0);
}

static void leave(zk_waiter *w)
{
    zk *z = w->task.zk;

    zk_watch_clear(&w->ahead);
    zk_watch_clear(&w->own);
    if (w->node_is == NODE_UNSURE || w->leases_are == NODE_UNSURE) {
        w->step = STEP_LEAVE;
        if (w->node_is == NODE_UNSURE)
            find_own(w);
        if (w->leases_are == NODE_UNSURE)
            zk_permits_find(w);
        return;
    }
    w->step = STEP_GONE;
    if (w->node_is == NODE_EXISTS)
        zk_ask_delete(&w->task, zk_path(z, w->name, w->kind->dir, w->node), -1, deleted, 0);
    zk_permits_give_back(w, 0);
    if (w->made_leases && !w->nleases) /* empty containers that never had a child stay forever */
        zk_ask_delete(&w->task, zk_path(z, w->name, "leases", NULL), -1, NULL, 0);
    w->made_leases = false;
    if (!w->task.out && !w->task.lost)
        zk_waiter_end(w, w->own_is == OWN_GONE ? PAWL_ENOTHELD : 0);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* End the waiter with this code; the op is finished when all nodes are deleted. */
static void refuse(zk_waiter *w, int code)
{
    w->code = code;
    w->state = WAITER_LEAVES;
    leave(w);
}

static void grant(zk_waiter *w)
{
    w->step = STEP_IDLE;
    w->made_leases = false;
    if (w->mode == PAWL_MODE_LATCH) { /* nothing is held; the node is deleted in the background */
        zk_waiter_finish(&w->ops, 0, NULL);
        refuse(w, 0);
        return;
    }
    w->state = WAITER_HOLDS;
    if (w->own_is == OWN_UNWATCHED)
        zk_waiter_timer(w, WAITER_WATCH_MS);
    zk_waiter_answer(w);
}

static bool ahead_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    (void)body;
    if (error == ZK_NO_NODE) {
        zk_watch_clear(&w->ahead);
        w->again = true;
    } else if (error) {
        zk_waiter_note(w, error);
    }
    return true;
}

static void wait_for(zk_waiter *w)
{
    const char *path;

    w->waited = true;
    for (struct list *l = w->ops.next; l != &w->ops; l = l->next)
        pawl_op_waits(zk_waiter_op(l));
    w->step = STEP_WATCH;
    if (w->own_is == OWN_UNWATCHED)
        zk_waiter_timer(w, WAITER_WATCH_MS);
    if (!w->list.ahead) { /* the kind has set a watch already */
        if (!w->task.out)
            zk_waiter_next(&w->task);
        return;
    }
    path = zk_waiter_node_path(w, w->list.ahead);
    if (strlen(w->list.ahead) < ZK_NODE_MAX && zk_watch_set(&w->ahead, &w->task, path))
        zk_ask(&w->task, ZK_GET, path, true, ahead_read, 0);
    else
        refuse(w, PAWL_EBACKEND);
}

static void verify(zk_waiter *w)
{
    w->step = STEP_VERIFY;
    zk_waiter_ask_own(w);
}

void zk_waiter_check(zk_waiter *w)
{
    bool asks = w->state == WAITER_ASKS;

    if (w->state == WAITER_LEAVES || w->task.out || w->step != STEP_IDLE ||
        w->task.zk->link.state != LINK_READY)
        return;
    w->task.lost = false;
    if (!asks && w->own_is != OWN_UNWATCHED)
        verify(w);
    else if (asks && w->list.ahead)
        wait_for(w);
    else if (asks && w->node_is == NODE_EXISTS)
        zk_waiter_recheck(w);
}

static void begin(zk_waiter *w)
{
    w->sure = w->kind->peeks; /* the peek alone decides whether a latch is open */
    if (!w->with_seq && (w->kind->peeks || !w->queue))
        start_query(w, STEP_PEEK);
    else
        enter(w);
}

/* The waiter's node is gone: somebody deleted the node, or the server removed the empty folder. */
static void begin_anew(zk_waiter *w)
{
    w->node_is = NODE_NONE;
    if (++w->tries > TRIES_MAX) {
        snprintf(w->words, sizeof w->words, "\"%.80s\": its nodes vanish again and again", w->name);
        refuse(w, PAWL_EBACKEND);
        return;
    }
    begin(w);
}

/* A server may be behind, so that "busy" from a first peek may be out of date: the waiter peeks
 * again, behind all finished writes. "Free" is checked after the create of the node. */
static void peek_again(zk_waiter *w)
{
    w->sure = true;
    start_query(w, STEP_PEEK);
}

static void act(zk_waiter *w, int verdict)
{
    bool peeked = w->node_is == NODE_NONE && w->leases_are == NODE_NONE;
    bool refused = verdict < 0 || (verdict == WAITER_BLOCKED && !w->queue &&
                                   w->mode != PAWL_MODE_PERMITS);

    if (peeked && refused && !w->sure)
        peek_again(w);
    else if (verdict < 0)
        refuse(w, verdict);
    else if (verdict == WAITER_ANEW)
        begin_anew(w);
    else if (verdict == WAITER_GOES_ON)
        return;
    else if (verdict == WAITER_GRANTED && peeked && w->mode != PAWL_MODE_LATCH)
        enter(w);
    else if (verdict == WAITER_GRANTED)
        grant(w);
    else if (!w->queue && w->mode != PAWL_MODE_PERMITS)
        refuse(w, PAWL_EBUSY);
    else if (peeked)
        enter(w);
    else
        wait_for(w);
}

/* All answers of a query have arrived. */
static void queried(zk_waiter *w)
{
    if (w->code)
        refuse(w, w->code);
    else if (w->node_is == NODE_UNSURE)
        zk_task_go(&w->task);
    else if (w->step != STEP_PEEK &&
             (w->node_is == NODE_NONE || !w->list.own || w->own_is == OWN_GONE))
        begin_anew(w);
    else
        act(w, w->kind->decide(w));
}

/* The requests of a held waiter have been answered. */
static void held_answered(zk_waiter *w)
{
    bool gone = w->own_is == OWN_GONE;

    if (w->step == STEP_TRIM) {
        w->nleases = w->trim < w->nleases ? w->trim : w->nleases;
        if (w->keep >= w->trim)
            zk_waiter_finish(&w->releases, gone ? PAWL_ENOTHELD : 0, NULL);
    }
    w->step = STEP_IDLE;
    if (gone)
        pawl_events_report(&w->task.zk->events, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
    if (!list_empty(&w->releases))
        zk_task_go(&w->task);
}

/* All requests of this step have been answered; none was lost. */
static void zk_waiter_next(zk_task *task)
{
    zk_waiter *w = zk_waiter_of(task);

    if (w->state == WAITER_LEAVES && w->step == STEP_GONE)
        zk_waiter_end(w, w->own_is == OWN_GONE ? PAWL_ENOTHELD : 0);
    else if (w->state == WAITER_LEAVES)
        leave(w);
    else if (w->step == STEP_PEEK || w->step == STEP_ENTER || w->step == STEP_RECHECK)
        queried(w);
    else if (w->step == STEP_VERIFY || w->step == STEP_TRIM)
        held_answered(w);
    else if (w->code)
        refuse(w, w->code);
    else if (w->step == STEP_MORE)
        act(w, w->kind->more(w));
    else if (w->step == STEP_FIND ? w->node_is == NODE_NONE : w->own_is == OWN_GONE)
        begin_anew(w);
    else if (w->step == STEP_FIND) {
        w->step = STEP_STAT;
        zk_waiter_ask_own(w);
    } else if (w->step == STEP_STAT || (w->step == STEP_WATCH && w->again))
        zk_waiter_recheck(w);
    else
        w->step = STEP_IDLE;
}

/* The server no longer watches the own node for this waiter. */
static void unwatched(zk_waiter *w)
{
    if (w->own_is == OWN_WATCHED)
        w->own_is = OWN_UNWATCHED;
}

/* There is a new connection, or something happened: start the step that fits the stored state. */
static void zk_waiter_go(zk_task *task)
{
    zk_waiter *w = zk_waiter_of(task);

    if (w->state == WAITER_LEAVES) {
        leave(w);
    } else if (w->state == WAITER_HOLDS && !list_empty(&w->releases)) {
        w->step = STEP_TRIM;
        w->trim = w->keep;
        zk_permits_give_back(w, w->trim);
    } else if (w->state == WAITER_HOLDS) {
        verify(w);
        if (w->leases_are == NODE_EXISTS && w->node_is == NODE_EXISTS)
            zk_permits_leave_mutex(w);
    } else if (w->leases_are != NODE_NONE) {
        w->code = 0;
        zk_permits_find(w);
    } else if (w->node_is == NODE_UNSURE) {
        w->step = STEP_FIND;
        w->code = 0;
        find_own(w);
    } else if (w->node_is == NODE_EXISTS) {
        w->waited = true;
        unwatched(w);
        zk_waiter_recheck(w);
        zk_waiter_ask_own(w);
    } else {
        begin(w);
    }
}

static void zk_waiter_woken(zk_task *task, zk_watch *watch, int happened)
{
    zk_waiter *w = zk_waiter_of(task);

    if (watch == &w->own && w->state == WAITER_HOLDS && happened == ZK_DELETED) {
        w->own_is = OWN_GONE;
        pawl_events_report(&task->zk->events, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
        return;
    }
    if (watch == &w->own)
        unwatched(w);
    if (w->state == WAITER_LEAVES || task->out)
        w->again = true;
    else if (w->state == WAITER_HOLDS)
        verify(w);
    else
        zk_waiter_recheck(w);
}

const zk_task_type zk_waiter_type = {.go = zk_waiter_go, .next = zk_waiter_next,
        .expired = zk_waiter_expired, .woken = zk_waiter_woken, .refused = zk_waiter_refused};
