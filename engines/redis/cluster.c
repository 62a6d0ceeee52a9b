/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.c - which node serves a slot.
 *
 * The map has for each slot the node that serves it, as far as is known. Each master has a link of
 * its own. One more, the scout (redis.link), goes to any node of the cluster, the next one when
 * that fails, and is there to ask for the map: at first, when something shows that it is out of
 * date (MOVED, a lost connection), every 300 ms while a master can't be reached, and every 5 s
 * anyway, since a stopped master does not hang up. Calls about slots that nobody is known to serve
 * go to the scout, too; the node it talks to says where they belong.
 *
 * MOVED and ASK prove that nothing was done: the call is sent on, at most HOPS times; then they are
 * errors of "not now", as TRYAGAIN and CLUSTERDOWN are. After a MOVED it is the node it names that
 * is asked for the map: others may not have heard yet.
 *
 * When a slot has a new node: calls that were not sent are sent there, and waits ask there
 * (redis_waits_move). If the old node is gone, or the new one had no slots before, it has taken
 * over, and every lease is verified as soon as it is connected. That counts as a fail-over unless
 * it had slots a moment ago: for some seconds one node's map says this, another's that.
 */
#include <stdlib.h>

#include "waits.h"

#define HOPS 5
#define ASK_ANYWAY_MS 5000
#define ASK_TROUBLED_MS 300
#define STALE_MS INT64_C(10000) /* so long some node may still have an old map */

/* ---- the map --------------------------------------------------------------------------------- */

uint16_t redis_cluster_slot(const redis *r, const char *name)
{
    char k[REDIS_K_MAX + 1];
    size_t length = redis_key(k, r->settings.prefix, name);

    return redis_slot(k, length);
}

redis_link *redis_cluster_link(redis *r, uint16_t slot)
{
    uint16_t node = r->cluster.slots[slot];

    return node ? r->cluster.nodes[node - 1] : &r->link;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void ask(redis *r, redis_link *link);

void redis_cluster_taken(redis_link *node)
{
    int64_t now = node->env->now(node->env);

    node->moved = true;
    node->counts |= !node->served || now - node->served > STALE_MS * PAWL_NS_PER_MS;
}

static void tell_taken(redis_link *node)
{
    bool counts = node->counts;

    node->moved = node->counts = false;
    redis_event(node->redis, counts ? PAWL_EVENT_FAILOVER : PAWL_EVENT_VERIFY);
}

static void node_ready(redis_link *link)
{
    redis *r = link->redis;

    if (link->knows_better)
        ask(r, link);

    if (link->moved)
        tell_taken(link);
    else if (link->epochs > 1)
        redis_event(r, PAWL_EVENT_RECONNECT);
    redis_age_ready(r, link);
    redis_waits_resend(r, link);
    if (link == redis_link_at(r, r->entry_slot))
        redis_entry_keep(r);
}

static void node_dropped(redis_link *link)
{
    redis *r = link->redis;

    redis_cluster_refresh(r);
    if (link == redis_link_at(r, r->entry_slot))
        redis_entry_over(r);
}

static const redis_role role_node = {.ready = node_ready, .refused = redis_refused,
    .push = redis_server_push, .dropped = node_dropped};

static redis_link *unused_node(redis *r)
{
    redis_cluster *c = &r->cluster;

    for (size_t i = 0; i < c->nnodes; i++)
        if (c->nodes[i]->state == LINK_CLOSED) {
            *c->nodes[i] = (redis_link){0};
            return c->nodes[i];
        }
    if (c->nnodes == REDIS_SLOTS)
        return NULL;
    if (c->nnodes == c->room) {
        size_t room = c->room ? 2 * c->room : 8;
        redis_link **nodes = realloc(c->nodes, room * sizeof *nodes);

        if (!nodes)
            return NULL;
        c->nodes = nodes;
        c->room = room;
    }
    c->nodes[c->nnodes] = calloc(1, sizeof *c->nodes[0]);
    return c->nodes[c->nnodes] ? c->nodes[c->nnodes++] : NULL;
}

redis_link *redis_cluster_node(redis *r, const char *host, uint16_t port)
{
    redis_link *link;

    for (size_t i = 0; i < r->cluster.nnodes; i++) {
        link = r->cluster.nodes[i];
        if (link->state != LINK_CLOSED && link->port == port && !strcmp(link->host, host))
            return link;
    }
    link = unused_node(r);
    if (!link)
        return NULL;
    redis_link_address(link, host, port);
    redis_link_for_locks(link, r);
    redis_link_open(link, r, &role_node);
    return link;
}

/* ---- the question ---------------------------------------------------------------------------- */

static bool troubled(const redis *r)
{
    for (size_t i = 0; i < r->cluster.nnodes; i++)
        if (r->cluster.nodes[i]->nslots && r->cluster.nodes[i]->state != LINK_READY)
            return true;
    return !r->cluster.known;
}

static void plan(redis *r)
{
    int64_t ms = troubled(r) ? ASK_TROUBLED_MS : ASK_ANYWAY_MS;

    ms -= (int64_t)(r->env->random(r->env) % (uint64_t)(ms / 4));
    r->env->timer_set(r->env, &r->cluster.timer, r->env->now(r->env) + ms * PAWL_NS_PER_MS);
}

/* Calls that were not sent yet, and are somebody else's now. */
static void reroute(redis_link *link)
{
    struct list mine, *l;

    list_take_all(&mine, &link->backlog);
    while ((l = list_take(&mine))) {
        redis_call *call = list_entry(l, redis_call, link);

        if (call->routed)
            redis_call_send(call);
        else
            redis_link_send(link, call);
    }
}

/* The map is another one. */
static void map_changed(redis *r)
{
    redis_cluster *c = &r->cluster;

    for (size_t i = 0; i < c->nnodes; i++) {
        redis_link *link = c->nodes[i];

        if (link->state == LINK_CLOSED)
            continue;
        reroute(link);
        if (link->moved && link->state == LINK_READY)
            tell_taken(link);
    }
    reroute(&r->link);
    redis_waits_move(r);
    if (redis_cluster_link(r, r->entry_slot) == &r->link)
        redis_entry_over(r);
    for (size_t i = 0; i < c->nnodes; i++)
        if (!c->nodes[i]->nslots && list_empty(&c->nodes[i]->calls) &&
            list_empty(&c->nodes[i]->backlog))
            redis_link_close(c->nodes[i]);
}

static int write_question(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 2);

    (void)call;
    resp_add_text(&c, "CLUSTER");
    resp_add_text(&c, "SLOTS");
    return resp_end(&c);
}

static bool answer_question(redis_call *call, const resp_node *reply)
{
    redis *r = call->about;
    redis_cluster *c = &r->cluster;

    if (!redis_slots_read(r, call->on, reply))
        return false;
    c->asked = false;
    c->known = true;
    c->rounds = 0;
    map_changed(r);
    plan(r);
    if (c->wanted)
        ask(r, &r->link);
    return true;
}

static void question_failed(redis_call *call, int code, const char *words)
{
    redis *r = call->about;

    r->cluster.asked = false;
    if (code == PAWL_EUNKNOWN || code == PAWL_ECANCELED)
        return; /* asked again with the next connection */
    if (call->on != &r->link)
        return;
    if (!r->cluster.known && code != PAWL_ECONN)
        redis_refused(&r->link, code, words);
    redis_link_drop(&r->link, PAWL_ECONN, "%s", words); /* another node may know better */
}

static void ask(redis *r, redis_link *link)
{
    static const redis_call_type type = {.write = write_question, .answer = answer_question,
        .failed = question_failed};
    redis_cluster *c = &r->cluster;
    redis_call *call;

    c->wanted = c->asked || link->state != LINK_READY;
    if (c->wanted)
        return;
    call = redis_call_new(link, &type, r, 0);
    if (!call)
        return; /* the timer comes back */
    c->asked = true;
    link->knows_better = false;
    redis_link_send(link, call);
}

void redis_cluster_refresh(redis *r)
{
    ask(r, &r->link);
    plan(r);
}

static void timer_fired(pawl_timer *timer)
{
    redis_cluster_refresh(timer->arg);
}

/* ---- the scout ------------------------------------------------------------------------------- */

/* The URL's addresses, then those of the nodes that are known. */
static bool scout_locate(redis_link *link)
{
    redis *r = link->redis;
    redis_cluster *c = &r->cluster;
    size_t n = r->settings.at.n, at = c->next % (n + c->nnodes);

    if (at < n)
        redis_link_address(link, r->settings.at.list[at].host, r->settings.at.list[at].port);
    else if (c->nodes[at - n]->host[0])
        redis_link_address(link, c->nodes[at - n]->host, c->nodes[at - n]->port);
    return true;
}

static void scout_ready(redis_link *link)
{
    ask(link->redis, link);
}

static void scout_dropped(redis_link *link)
{
    redis_cluster *c = &link->redis->cluster;

    c->next++;
    link->failures = 0;
    if (c->next % (link->settings->at.n + c->nnodes) == 0)
        link->failures = c->rounds++;
}

static void scout_refused(redis_link *link, int code, const char *words)
{
    redis *r = link->redis;

    if (!r->cluster.known && r->cluster.next % r->settings.at.n == 0)
        redis_refused(link, code, words);
}

/* What is for a slot's own node waits here until there is a map. */
static bool scout_holds_back(const redis_link *link, const redis_call *call)
{
    return call->routed && !link->redis->cluster.known;
}

static const redis_role role_scout = {.locate = scout_locate, .ready = scout_ready,
    .refused = scout_refused, .push = redis_server_push, .dropped = scout_dropped,
    .holds_back = scout_holds_back};

int redis_cluster_open(redis *r, pawl_error *err)
{
    r->cluster.slots = calloc(REDIS_SLOTS, sizeof *r->cluster.slots);
    if (!r->cluster.slots)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    r->cluster.timer = (pawl_timer){.fire = timer_fired, .arg = r};
    redis_link_open(&r->link, r, &role_scout);
    plan(r);
    return 0;
}

/* After the links' calls have ended: nodes are still looked up by slot meanwhile. */
void redis_cluster_close(redis *r)
{
    redis_cluster *c = &r->cluster;

    if (c->timer.fire)
        r->env->timer_clear(r->env, &c->timer);
    for (size_t i = 0; i < c->nnodes; i++)
        redis_link_close(c->nodes[i]);
}

void redis_cluster_free(redis *r)
{
    for (size_t i = 0; i < r->cluster.nnodes; i++)
        free(r->cluster.nodes[i]);
    free(r->cluster.nodes);
    free(r->cluster.slots);
    r->cluster = (redis_cluster){0};
}

/* ---- calls that are sent on ------------------------------------------------------------------ */

/* "MOVED 3999 host:port": the node, or NULL. No host: as this link's. */
static redis_link *node_named(redis_link *link, const resp_node *reply, uint16_t *slot)
{
    char text[NET_HOST_MAX + 40], host[NET_HOST_MAX];
    unsigned number, port;
    char *colon;
    int used = 0;

    if (reply->length >= sizeof text)
        return NULL;
    memcpy(text, reply->text, reply->length);
    text[reply->length] = 0;
    colon = strrchr(text, ':');
    if (!colon || sscanf(colon, ":%u", &port) != 1 || port < 1 || port > 65535)
        return NULL;
    *colon = 0;
    if (sscanf(text, "%*s %u %n", &number, &used) != 1 || !used || number >= REDIS_SLOTS)
        return NULL;
    *slot = (uint16_t)number;
    snprintf(host, sizeof host, "%s", text[used] && text[used] != '?' ? text + used : link->host);
    if (!redis_is_host(host))
        return NULL;
    return redis_cluster_node(link->redis, host, (uint16_t)port);
}

/* The slot is there now. */
static void slot_moved(redis *r, uint16_t slot, redis_link *to)
{
    redis_link *from = redis_cluster_link(r, slot);

    if (from == to)
        return;
    if (!to->nslots && from != &r->link)
        redis_cluster_taken(to);
    from->nslots -= from->nslots > 0;
    to->nslots++;
    to->served = r->env->now(r->env);
    for (size_t i = 0; i < r->cluster.nnodes; i++)
        if (r->cluster.nodes[i] == to)
            r->cluster.slots[slot] = (uint16_t)(i + 1);
    redis_channels_move(r);
    to->knows_better = true;
    if (to->state != LINK_READY)
        return;
    if (to->moved)
        tell_taken(to);
    ask(r, to);
}

bool redis_cluster_redirect(redis_link *link, redis_call *call, const resp_node *reply)
{
    bool moved = resp_error_is(reply, "MOVED"), asked = resp_error_is(reply, "ASK");
    redis *r = link->redis;
    redis_link *to;
    uint16_t slot;

    if ((!moved && !asked) || !call->routed || !call->about)
        return false;
    to = node_named(link, reply, &slot);
    if (!to || slot != call->slot || ++call->hops > HOPS) {
        redis_cluster_refresh(r);
        return false;
    }
    if (moved)
        slot_moved(r, slot, to);
    call->asking = asked;
    redis_link_send(to, call);
    if (moved)
        redis_waits_move(r);
    return true;
}
