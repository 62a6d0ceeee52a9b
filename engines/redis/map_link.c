/* SPDX-License-Identifier: Apache-2.0
 *
 * map_link.c - the slot map of the cluster: which nodes to ask, and which answers to accept.
 *
 * Any node can be asked (CLUSTER INFO, then CLUSTER SLOTS), and any node can be wrong: removed from
 * the cluster, cut off from the others, or out of date. So no node is trusted for ever. Each
 * request goes to two nodes: to the node of the map link (redis.link), a connection that tries the
 * URL's addresses and the addresses of all known masters and stays with a node that is in order;
 * and to one of the other connected masters, in turn. Requests are sent at the start, when a
 * connection is lost, when MOVED names a node (to the named node), every 300 ms while a master in
 * use can't be reached or the map is not trusted or doubted, and every 3 s in any case, since a
 * stopped master does not hang up.
 *
 * The map has one of these states, changed only by adopt() and redis_cluster_doubt(), under the
 * client's mutex like everything here:
 *
 *     unknown (known false)     no node has answered; calls about slots wait at the map link
 *     tentative (trusted false) of a node that says cluster_state:fail. Used only while there is no
 *                               other map; the map of any node in order replaces a tentative map
 *     trusted                   of a node that said cluster_state:ok, or refuses CLUSTER INFO
 *     doubted                   trusted, but a node has answered CLUSTERDOWN since
 *
 * A node map is refused, and the map stays as it is, if the node map has a flaw (slots.c: no
 * masters, too many, hosts that are not allowed), if its node says cluster_state:fail and there is
 * a map, or if the node map contradicts a map that was confirmed within the last STALE_MS: the
 * node's epoch is lower than the map's, or the node map shares no node with the map (another
 * cluster has the address now). After STALE_MS without a confirmation such node maps are accepted:
 * the cluster may have been rebuilt. This is safe because a wrong map never grants anything. A node
 * that does not serve a slot answers MOVED or CLUSTERDOWN, so a wrong map only costs time, and so
 * does refusing a correct one.
 *
 * When the node map of the map link's node is refused, the map link tries the next address. Pauses
 * come only after a round through all addresses, and grow to 1 s.
 */
#include <stdlib.h>

#include "waiters.h"

#define ASK_ANYWAY_MS 3000
#define ASK_TROUBLED_MS 300
#define STALE_MS INT64_C(10000)

/* ---- when to ask ----------------------------------------------------------------------------- */

static bool troubled(const redis *r)
{
    const redis_cluster *c = &r->cluster;

    for (size_t i = 0; i < c->nnodes; i++)
        if (c->nodes[i]->nslots && c->nodes[i]->state != LINK_READY &&
            !redis_link_sleeps(c->nodes[i]))
            return true;
    return !c->trusted || c->doubted;
}

static void plan(redis *r)
{
    int64_t ms = troubled(r) ? ASK_TROUBLED_MS : ASK_ANYWAY_MS;

    ms -= (int64_t)(r->env->random(r->env) % (uint64_t)(ms / 4));
    kit_timer_ms(r->env, &r->cluster.timer, ms);
}

/* One of the connected masters that is not the map link's node; NULL: there is none. */
static redis_link *another(redis *r)
{
    redis_cluster *c = &r->cluster;

    for (size_t i = 0; i < c->nnodes; i++) {
        redis_link *link = c->nodes[c->turn++ % c->nnodes];

        if (link->state == LINK_READY &&
            (link->port != r->link.port || strcmp(link->host, r->link.host)))
            return link;
    }
    return NULL;
}

void redis_cluster_refresh(redis *r)
{
    redis_link *link = another(r);

    redis_map_link_ask(&r->link);
    if (link)
        redis_map_link_ask(link);
    plan(r);
}

void redis_cluster_doubt(redis *r)
{
    redis_cluster *c = &r->cluster;

    c->doubted = true;
    if (c->timer.due - r->env->now(r->env) > ASK_TROUBLED_MS * PAWL_NS_PER_MS)
        plan(r);
}

static void timer_fired(pawl_timer *timer)
{
    redis_cluster_refresh(timer->arg);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* Is none of the nodes that serve slots now in this node map? */
static bool is_foreign(const redis_cluster *c, const redis_node_map *node_map)
{
    bool any = false;

    for (size_t i = 0; i < c->nnodes; i++) {
        if (!c->nodes[i]->nslots || !c->nodes[i]->id[0])
            continue;
        any = true;
        for (size_t n = 0; n < node_map->n; n++)
            if (!strcmp(node_map->nodes[n].id, c->nodes[i]->id))
                return false;
    }
    return any;
}

/* Should this node map replace the map? False: `words` has the reason. */
static bool judge(const redis_link *link, const redis_node_map *node_map, char words[REDIS_WORDS])
{
    const redis *r = link->redis;
    const redis_cluster *c = &r->cluster;
    bool fresh = c->trusted &&
                 r->env->now(r->env) - c->confirmed < STALE_MS * PAWL_NS_PER_MS;

    if (node_map->flaw[0])
        snprintf(words, REDIS_WORDS, "its map of the cluster is not used: %.170s", node_map->flaw);
    else if (!link->sound && c->known)
        snprintf(words, REDIS_WORDS, "it says that the cluster is down (cluster_state:fail)");
    else if (fresh && link->epoch && link->epoch < c->epoch)
        snprintf(words, REDIS_WORDS, "its map of the cluster is an old one");
    else if (fresh && is_foreign(c, node_map))
        snprintf(words, REDIS_WORDS, "it belongs to another cluster by now");
    else
        return true;
    return false;
}

static void adopt(redis_link *link, const redis_node_map *node_map)
{
    redis *r = link->redis;
    redis_cluster *c = &r->cluster;

    redis_node_map_use(r, node_map);
    c->known = true;
    if (link->sound) {
        c->trusted = true;
        c->doubted = false;
        c->epoch = link->epoch ? link->epoch : c->epoch;
        c->confirmed = r->env->now(r->env);
    }
    redis_cluster_changed(r);
    plan(r);
}

/* The map link's node is of no use for the map: try the next address. */
static void go_on(redis *r, const char *words)
{
    redis_link_drop(&r->link, PAWL_ECONN, "%s", words);
}

/* ---- the requests ---------------------------------------------------------------------------- */

static int write_two(resp_buf *out, const char *word)
{
    resp_command c = resp_begin(out, 2);

    resp_add_text(&c, "CLUSTER");
    resp_add_text(&c, word);
    return resp_end(&c);
}

static int write_info(redis_call *call, resp_buf *out)
{
    (void)call;
    return write_two(out, "INFO");
}

static int write_slots(redis_call *call, resp_buf *out)
{
    (void)call;
    return write_two(out, "SLOTS");
}

static bool info_answered(redis_call *call, const resp_node *reply)
{
    static const char state[] = "cluster_state:", epoch[] = "cluster_current_epoch:";
    redis_link *link = call->about;
    char text[2048];
    const char *at;

    if (!resp_is_text(reply) || reply->length >= sizeof text)
        return true; /* CLUSTER SLOTS decides */
    memcpy(text, reply->text, reply->length);
    text[reply->length] = 0;
    at = strstr(text, state);
    if (at)
        link->sound = !strncmp(at + strlen(state), "ok", 2);
    at = strstr(text, epoch);
    if (at)
        link->epoch = strtoll(at + strlen(epoch), NULL, 10);
    return true;
}

static void info_failed(redis_call *call, int code, const char *words)
{
    redis_link *link = call->about;
    redis_cluster *c = &link->redis->cluster;

    if (code != PAWL_EAUTH || c->told)
        return;
    c->told = true;
    link->env->log(link->env, PAWL_LOG_WARNING, "CLUSTER INFO is refused (give +cluster|info): a "
                   "node that is cut off from its cluster can't be told from others: %s", words);
}

static bool slots_answered(redis_call *call, const resp_node *reply)
{
    redis_link *link = call->about;
    redis *r = link->redis;
    bool good, sense, map_link = link == &r->link, again = link->ask_again;
    redis_node_map *node_map = redis_node_map_read(link, reply, &sense);
    char words[REDIS_WORDS] = "out of memory";

    if (!sense)
        return false;
    link->asked = link->ask_again = false;
    good = node_map && judge(link, node_map, words);
    if (good) {
        if (map_link)
            r->cluster.rounds = 0;
        adopt(link, node_map);
    }
    free(node_map);
    if (map_link && (!good || !link->sound))
        go_on(r, good ? "it says that the cluster is down (cluster_state:fail)" : words);
    else if (!good)
        link->env->log(link->env, PAWL_LOG_INFO, "%s: %s", link->where, words);
    else if (again)
        redis_map_link_ask(link);
    return true;
}

static void slots_failed(redis_call *call, int code, const char *words)
{
    redis_link *link = call->about;
    redis *r = link->redis;

    link->asked = link->ask_again = false;
    if (code == PAWL_EUNKNOWN || code == PAWL_ECANCELED || link != &r->link)
        return; /* asked again with the next connection */
    go_on(r, words);
    if (!r->cluster.known && code != PAWL_ECONN && r->cluster.next % r->settings.at.n == 0)
        redis_refused(&r->link, code, r->link.words);
}

static const redis_call_type info_type = {.write = write_info, .answer = info_answered,
    .failed = info_failed};
static const redis_call_type slots_type = {.write = write_slots, .answer = slots_answered,
    .failed = slots_failed};

void redis_map_link_ask(redis_link *link)
{
    redis_call *info, *slots;

    link->ask_again = link->asked;
    if (link->asked || link->state != LINK_READY)
        return; /* asked with the next answer or connection; see also the timer */
    info = redis_call_new(link, &info_type, link, 0);
    slots = info ? redis_call_new(link, &slots_type, link, 0) : NULL;
    if (!slots) {
        if (info)
            redis_call_free(info);
        return; /* the timer retries */
    }
    link->asked = true;
    link->knows_better = false;
    link->sound = -1;
    link->epoch = 0;
    redis_link_send(link, info);
    redis_link_send(link, slots);
}

/* ---- the map link ---------------------------------------------------------------------------- */

/* The URL's addresses, then the addresses of the known nodes. */
static bool map_link_locate(redis_link *link)
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

static void map_link_ready(redis_link *link)
{
    redis_map_link_ask(link);
}

static void map_link_dropped(redis_link *link)
{
    redis_cluster *c = &link->redis->cluster;

    c->next++;
    link->failures = 0;
    if (c->next % (link->settings->at.n + c->nnodes) == 0)
        link->failures = c->rounds++;
}

static void map_link_refused(redis_link *link, int code, const char *words)
{
    redis *r = link->redis;

    if (!r->cluster.known && r->cluster.next % r->settings.at.n == 0)
        redis_refused(link, code, words);
}

/* Until there is a map, all calls except CLUSTER INFO and CLUSTER SLOTS wait. */
static bool map_link_holds_back(const redis_link *link, const redis_call *call)
{
    return !link->redis->cluster.known && call->type != &info_type && call->type != &slots_type;
}

static const redis_role role_map_link = {.locate = map_link_locate, .ready = map_link_ready,
    .refused = map_link_refused, .push = redis_server_push, .dropped = map_link_dropped,
    .holds_back = map_link_holds_back};

void redis_map_link_open(redis *r)
{
    r->cluster.timer = (pawl_timer){.fire = timer_fired, .arg = r};
    redis_link_open(&r->link, r, &role_map_link);
    plan(r);
}

void redis_map_link_close(redis *r)
{
    if (r->cluster.timer.fire)
        r->env->timer_clear(r->env, &r->cluster.timer);
}
