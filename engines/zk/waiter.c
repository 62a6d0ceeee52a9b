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
 * A DOWNGRADE (p->with_seq) gets a node with the sequence of its writer, in front of all waiters.
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

void zk_waiter_note(zk_waiter *p, int error)
{
    if (error != ZK_LOST)
        p->code = zk_error_code(p->task.zk, error, p->words);
}

bool zk_waiter_noted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    if (error)
        zk_waiter_note(zk_waiter_of(task), error);
    return true;
}

const char *zk_waiter_node_path(zk_waiter *p, const char *node)
{
    return zk_path(p->task.zk, p->name, p->kind->dir, node);
}

/* Reads the waiter's own node: does the node exist, in this session, and when was it created? */
static bool own_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);
    zk_stat stat;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error == ZK_NO_NODE) {
        zk_watch_clear(&p->own);
        p->own_is = OWN_GONE;
        return true;
    }
    if (error) {
        zk_waiter_note(p, error);
        return true;
    }
    jute_get_bytes(body);
    stat = jute_stat(body);
    if (!jute_at_end(body) || stat.ephemeral_owner != task->zk->session.id)
        return false; /* the node's name contains the session's number */
    if (p->own_is == OWN_UNWATCHED)
        p->own_is = OWN_WATCHED;
    if (!p->token)
        p->token = (uint64_t)stat.czxid;
    return true;
}

/* The first lease stands for all permits of the waiter. */
void zk_waiter_ask_own(zk_waiter *p)
{
    const char *path = p->nleases ? zk_permits_lease_path(p, 0) : zk_waiter_node_path(p, p->node);

    if (zk_watch_set(&p->own, &p->task, path))
        zk_ask(&p->task, ZK_GET, path, true, own_read, 0);
}

bool zk_waiter_keep_node(zk_waiter *p, jute_bytes name)
{
    bool kazoo = p->task.zk->settings.kazoo && !p->kind->dir;

    if (name.length >= sizeof p->node)
        return false;
    memcpy(p->node, name.data, name.length);
    p->node[name.length] = 0;
    p->sequence = zk_child_read(kazoo, name).sequence;
    p->node_is = NODE_EXISTS;
    return true;
}

/* The waiter's node exists and has this path. False: not the path of one of our nodes. */
static bool keep_path(zk_waiter *p, jute_bytes path)
{
    const char *slash = path.length ? memrchr(path.data, '/', path.length) : NULL;
    size_t length = slash ? (size_t)(path.data + path.length - slash - 1) : 0;

    return slash && zk_waiter_keep_node(p, (jute_bytes){slash + 1, length});
}

/* The create failed: no node was created. */
static void not_created(zk_waiter *p, int error)
{
    p->node_is = NODE_NONE;
    if (error != ZK_NO_NODE)
        zk_waiter_note(p, error);
    else if (p->folders == FOLDERS_DENIED && p->tries > 2) /* the folders can't be created */
        zk_waiter_note(p, ZK_NO_AUTH);
    p->folders = error == ZK_NO_NODE ? FOLDERS_MISSING : FOLDERS_EXIST;
}

static bool created(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);
    jute_bytes path;
    zk_stat stat;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error) {
        not_created(p, error);
        return true;
    }
    path = jute_get_bytes(body);
    stat = jute_stat(body);
    if (!jute_at_end(body) || stat.ephemeral_owner != task->zk->session.id || !keep_path(p, path))
        return false;
    p->folders = FOLDERS_EXIST;
    p->token = (uint64_t)stat.czxid;
    return true;
}

/* The results of the check of the writer's node and of the create of the reader's node. */
static bool created_beside(zk_task *task, int64_t tag, int header, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);
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
        return keep_path(p, path);
    p->node_is = NODE_NONE;
    if (error == ZK_NO_NODE)
        p->with_seq = p->token = 0; /* the writer has lost its lock */
    else
        zk_waiter_note(p, error);
    return true;
}

/* Create the reader's node with the writer's sequence, if the writer's node exists. */
static void create_beside(zk_waiter *p, const zk_waiter *writer, const char *path, const char *who,
                          size_t length)
{
    zk *z = p->task.zk;
    char beside[ZK_PATH_MAX];
    jute_writer w = zk_request(z, ZK_MULTI);

    snprintf(beside, sizeof beside, "%s", zk_waiter_node_path(p, writer->node));
    jute_put_int(&w, ZK_CHECK);
    jute_put_bool(&w, false);
    jute_put_int(&w, -1);
    jute_put_text(&w, beside);
    jute_put_int(&w, -1);
    jute_put_int(&w, ZK_CREATE);
    jute_put_bool(&w, false);
    jute_put_int(&w, -1);
    jute_put_text(&w, path);
    jute_put_bytes(&w, who, length);
    zk_put_acl(z, &w);
    jute_put_int(&w, ZK_EPHEMERAL);
    jute_put_int(&w, -1);
    jute_put_bool(&w, true);
    jute_put_int(&w, -1);
    zk_request_end(&p->task, &w, created_beside, 0);
}

static void start_query(zk_waiter *p, enum zk_waiter_step step)
{
    p->step = step;
    zk_queue_clear(&p->list);
    p->code = 0;
    p->words[0] = 0;
    p->again = p->not_semaphore = false;
    if (step == STEP_PEEK && p->sure)
        zk_ask_turn(&p->task, zk_path(p->task.zk, p->name, NULL, NULL));
    p->kind->query(p);
}

/* The exclusive grant of the same client beside which a shared grant is made. */
static const zk_waiter *partner_of(const zk_waiter *p)
{
    const zk_waiter *partner = p->with_seq ? zk_waiter_find(p->task.zk, p->with_seq) : NULL;

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

static void enter(zk_waiter *p)
{
    zk *z = p->task.zk;
    const zk_waiter *partner = partner_of(p);
    char node[ZK_NODE_MAX + 12], who[ZK_WHO_MAX], path[ZK_PATH_MAX];
    size_t length = zk_who_write(who, z, p->permits);

    if (!partner)
        p->with_seq = 0; /* then the waiter queues like all others */
    p->epoch = z->session.epoch;
    p->token = partner ? partner->token : 0;
    p->own_is = OWN_UNWATCHED;
    zk_waiter_node_id(p, node);
    if (partner)
        snprintf(node + strlen(node), 12, "%010d", partner->sequence);
    snprintf(path, sizeof path, "%s", zk_waiter_node_path(p, node));
    if (p->folders != FOLDERS_EXIST) {
        p->folders = FOLDERS_MISSING;
        zk_ask_folders(&p->task, path, folder_made);
    }
    if (p->folders != FOLDERS_EXIST && p->mode == PAWL_MODE_PERMITS) {
        p->made_leases = true;
        zk_ask_create(&p->task, ZK_CREATE_CONTAINER, zk_path(z, p->name, "leases", NULL), "", 0,
                      ZK_CONTAINER, folder_made, 0);
    }
    p->node_is = NODE_UNSURE;
    if (partner)
        create_beside(p, partner, path, who, length);
    else
        zk_ask_create(&p->task, ZK_CREATE2, path, who, length, ZK_EPHEMERAL | ZK_SEQUENTIAL,
                      created, 0);
    start_query(p, STEP_ENTER);
}

void zk_waiter_recheck(zk_waiter *p)
{
    start_query(p, STEP_RECHECK);
}

static bool deleted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);

    (void)tag;
    (void)body;
    if (error == ZK_LOST) {
        p->repeated = true;
        return true;
    }
    p->node_is = NODE_NONE;
    if (error == ZK_NO_NODE && !p->repeated)
        p->own_is = OWN_GONE;
    if (error && error != ZK_NO_NODE)
        p->task.zk->env->log(p->task.zk->env, PAWL_LOG_WARNING,
                             "\"%s\": a node can't be deleted (%d)", p->name, error);
    return true;
}

/* Was the waiter's node created, or will it be? */
static void find_own(zk_waiter *p)
{
    zk_ask_turn(&p->task, zk_waiter_node_path(p, NULL));
    zk_ask(&p->task, ZK_CHILDREN, zk_waiter_node_path(p, NULL), false, zk_queue_found, 0);
}

static void leave(zk_waiter *p)
{
    zk *z = p->task.zk;

    zk_watch_clear(&p->ahead);
    zk_watch_clear(&p->own);
    if (p->node_is == NODE_UNSURE || p->leases_are == NODE_UNSURE) {
        p->step = STEP_LEAVE;
        if (p->node_is == NODE_UNSURE)
            find_own(p);
        if (p->leases_are == NODE_UNSURE)
            zk_permits_find(p);
        return;
    }
    p->step = STEP_GONE;
    if (p->node_is == NODE_EXISTS)
        zk_ask_delete(&p->task, zk_path(z, p->name, p->kind->dir, p->node), -1, deleted, 0);
    zk_permits_give_back(p, 0);
    if (p->made_leases && !p->nleases) /* empty containers that never had a child stay forever */
        zk_ask_delete(&p->task, zk_path(z, p->name, "leases", NULL), -1, NULL, 0);
    p->made_leases = false;
    if (!p->task.out && !p->task.lost)
        zk_waiter_end(p, p->own_is == OWN_GONE ? PAWL_ENOTHELD : 0);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* End the waiter with this code; the op is finished when all nodes are deleted. */
static void refuse(zk_waiter *p, int code)
{
    p->code = code;
    p->state = WAITER_LEAVES;
    leave(p);
}

static void grant(zk_waiter *p)
{
    p->step = STEP_IDLE;
    p->made_leases = false;
    if (p->mode == PAWL_MODE_LATCH) { /* nothing is held; the node is deleted in the background */
        zk_waiter_finish(&p->ops, 0, NULL);
        refuse(p, 0);
        return;
    }
    p->state = WAITER_HOLDS;
    if (p->own_is == OWN_UNWATCHED)
        zk_waiter_timer(p, WAITER_WATCH_MS);
    zk_waiter_answer(p);
}

static bool ahead_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *p = zk_waiter_of(task);

    (void)tag;
    (void)body;
    if (error == ZK_NO_NODE) {
        zk_watch_clear(&p->ahead);
        p->again = true;
    } else if (error) {
        zk_waiter_note(p, error);
    }
    return true;
}

static void wait_for(zk_waiter *p)
{
    const char *path;

    p->waited = true;
    for (struct list *l = p->ops.next; l != &p->ops; l = l->next)
        pawl_op_waits(zk_waiter_op(l));
    p->step = STEP_WATCH;
    if (p->own_is == OWN_UNWATCHED)
        zk_waiter_timer(p, WAITER_WATCH_MS);
    if (!p->list.ahead) { /* the kind has set a watch already */
        if (!p->task.out)
            zk_waiter_next(&p->task);
        return;
    }
    path = zk_waiter_node_path(p, p->list.ahead);
    if (strlen(p->list.ahead) < ZK_NODE_MAX && zk_watch_set(&p->ahead, &p->task, path))
        zk_ask(&p->task, ZK_GET, path, true, ahead_read, 0);
    else
        refuse(p, PAWL_EBACKEND);
}

static void verify(zk_waiter *p)
{
    p->step = STEP_VERIFY;
    zk_waiter_ask_own(p);
}

void zk_waiter_check(zk_waiter *p)
{
    bool asks = p->state == WAITER_ASKS;

    if (p->state == WAITER_LEAVES || p->task.out || p->step != STEP_IDLE ||
        p->task.zk->link.state != LINK_READY)
        return;
    p->task.lost = false;
    if (!asks && p->own_is != OWN_UNWATCHED)
        verify(p);
    else if (asks && p->list.ahead)
        wait_for(p);
    else if (asks && p->node_is == NODE_EXISTS)
        zk_waiter_recheck(p);
}

static void begin(zk_waiter *p)
{
    p->sure = p->kind->peeks; /* the peek alone decides whether a latch is open */
    if (!p->with_seq && (p->kind->peeks || !p->queue))
        start_query(p, STEP_PEEK);
    else
        enter(p);
}

/* The waiter's node is gone: somebody deleted the node, or the server removed the empty folder. */
static void begin_anew(zk_waiter *p)
{
    p->node_is = NODE_NONE;
    if (++p->tries > TRIES_MAX) {
        snprintf(p->words, sizeof p->words, "\"%.80s\": its nodes vanish again and again", p->name);
        refuse(p, PAWL_EBACKEND);
        return;
    }
    begin(p);
}

/* A server may be behind, so that "busy" from a first peek may be out of date: the waiter peeks
 * again, behind all finished writes. "Free" is checked after the create of the node. */
static void peek_again(zk_waiter *p)
{
    p->sure = true;
    start_query(p, STEP_PEEK);
}

static void act(zk_waiter *p, int verdict)
{
    bool peeked = p->node_is == NODE_NONE && p->leases_are == NODE_NONE;
    bool refused = verdict < 0 || (verdict == WAITER_BLOCKED && !p->queue &&
                                   p->mode != PAWL_MODE_PERMITS);

    if (peeked && refused && !p->sure)
        peek_again(p);
    else if (verdict < 0)
        refuse(p, verdict);
    else if (verdict == WAITER_ANEW)
        begin_anew(p);
    else if (verdict == WAITER_GOES_ON)
        return;
    else if (verdict == WAITER_GRANTED && peeked && p->mode != PAWL_MODE_LATCH)
        enter(p);
    else if (verdict == WAITER_GRANTED)
        grant(p);
    else if (!p->queue && p->mode != PAWL_MODE_PERMITS)
        refuse(p, PAWL_EBUSY);
    else if (peeked)
        enter(p);
    else
        wait_for(p);
}

/* All answers of a query have arrived. */
static void queried(zk_waiter *p)
{
    if (p->code)
        refuse(p, p->code);
    else if (p->node_is == NODE_UNSURE)
        zk_task_go(&p->task);
    else if (p->step != STEP_PEEK &&
             (p->node_is == NODE_NONE || !p->list.own || p->own_is == OWN_GONE))
        begin_anew(p);
    else
        act(p, p->kind->decide(p));
}

/* The requests of a held waiter have been answered. */
static void settled(zk_waiter *p)
{
    bool gone = p->own_is == OWN_GONE;

    if (p->step == STEP_TRIM) {
        p->nleases = p->trim < p->nleases ? p->trim : p->nleases;
        if (p->keep >= p->trim)
            zk_waiter_finish(&p->releases, gone ? PAWL_ENOTHELD : 0, NULL);
    }
    p->step = STEP_IDLE;
    if (gone)
        pawl_events_report(&p->task.zk->events, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
    if (!list_empty(&p->releases))
        zk_task_go(&p->task);
}

/* All requests of this step have been answered; none was lost. */
static void zk_waiter_next(zk_task *task)
{
    zk_waiter *p = zk_waiter_of(task);

    if (p->state == WAITER_LEAVES && p->step == STEP_GONE)
        zk_waiter_end(p, p->own_is == OWN_GONE ? PAWL_ENOTHELD : 0);
    else if (p->state == WAITER_LEAVES)
        leave(p);
    else if (p->step == STEP_PEEK || p->step == STEP_ENTER || p->step == STEP_RECHECK)
        queried(p);
    else if (p->step == STEP_VERIFY || p->step == STEP_TRIM)
        settled(p);
    else if (p->code)
        refuse(p, p->code);
    else if (p->step == STEP_MORE)
        act(p, p->kind->more(p));
    else if (p->step == STEP_FIND ? p->node_is == NODE_NONE : p->own_is == OWN_GONE)
        begin_anew(p);
    else if (p->step == STEP_FIND) {
        p->step = STEP_STAT;
        zk_waiter_ask_own(p);
    } else if (p->step == STEP_STAT || (p->step == STEP_WATCH && p->again))
        zk_waiter_recheck(p);
    else
        p->step = STEP_IDLE;
}

/* The server no longer watches the own node for this waiter. */
static void unwatched(zk_waiter *p)
{
    if (p->own_is == OWN_WATCHED)
        p->own_is = OWN_UNWATCHED;
}

/* There is a new connection, or something happened: start the step that fits the stored state. */
static void zk_waiter_go(zk_task *task)
{
    zk_waiter *p = zk_waiter_of(task);

    if (p->state == WAITER_LEAVES) {
        leave(p);
    } else if (p->state == WAITER_HOLDS && !list_empty(&p->releases)) {
        p->step = STEP_TRIM;
        p->trim = p->keep;
        zk_permits_give_back(p, p->trim);
    } else if (p->state == WAITER_HOLDS) {
        verify(p);
        if (p->leases_are == NODE_EXISTS && p->node_is == NODE_EXISTS)
            zk_permits_leave_mutex(p);
    } else if (p->leases_are != NODE_NONE) {
        p->code = 0;
        zk_permits_find(p);
    } else if (p->node_is == NODE_UNSURE) {
        p->step = STEP_FIND;
        p->code = 0;
        find_own(p);
    } else if (p->node_is == NODE_EXISTS) {
        p->waited = true;
        unwatched(p);
        zk_waiter_recheck(p);
        zk_waiter_ask_own(p);
    } else {
        begin(p);
    }
}

static void zk_waiter_woken(zk_task *task, zk_watch *watch, int happened)
{
    zk_waiter *p = zk_waiter_of(task);

    if (watch == &p->own && p->state == WAITER_HOLDS && happened == ZK_DELETED) {
        p->own_is = OWN_GONE;
        pawl_events_report(&task->zk->events, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
        return;
    }
    if (watch == &p->own)
        unwatched(p);
    if (p->state == WAITER_LEAVES || task->out)
        p->again = true;
    else if (p->state == WAITER_HOLDS)
        verify(p);
    else
        zk_waiter_recheck(p);
}

const zk_task_type zk_waiter_type = {.go = zk_waiter_go, .next = zk_waiter_next,
        .expired = zk_waiter_expired, .woken = zk_waiter_woken, .refused = zk_waiter_refused};
