/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: findings about the server, for `pawl doctor`.
 *
 * Each master (one server, the sentinels' master, every node of a cluster with slots) gets the same
 * requests at once, and answers in order: missing rights, two settings, INFO, TIME. If a right that
 * a check itself needs is missing, the check is reported as skipped. Findings are reported as the
 * answers come; the op is finished with the last answer.
 *
 * exam->out is the number of pending calls, plus one while calls are being sent. A cancelled exam
 * (op == NULL) is freed with its last answer.
 */
#include <stdlib.h>

#include "exam.h"
#include "examine.h"

/* ---- life ------------------------------------------------------------------------------------ */

static void finish(exam *x, int code, const char *words)
{
    pawl_op *op = x->op;

    x->op = NULL;
    if (op)
        pawl_op_finish_with(op, code, words);
}

static void answered(exam *x)
{
    if (--x->out)
        return;
    finish(x, x->code, x->words);
    while (x->parts) {
        part *p = x->parts;

        x->parts = p->next;
        free(p);
    }
    free(x);
}

/* Was the server not reached? Other errors are answers of the server, and lead to findings. */
static bool unreached(int code)
{
    return code == PAWL_ECONN || code == PAWL_EUNKNOWN || code == PAWL_ECANCELED ||
           code == PAWL_ENOMEM;
}

static void part_failed(redis_call *call, int code, const char *words)
{
    exam *x = ((part *)call->about)->exam;

    if (!x->code) {
        x->code = code;
        snprintf(x->words, sizeof x->words, "%s", words);
    }
    answered(x);
}

void redis_found(const redis_call *call, uint64_t level, const char *id, const char *what,
                const char *why, const char *remedy)
{
    pawl_op *op = ((part *)call->about)->exam->op;

    if (op)
        pawl_op_found(op, level, id, call->on->where, what, why, remedy);
}

/* ---- rights ---------------------------------------------------------------------------------- */

/* Calls each command of ARGV (words with blanks between them; K, H and C stand for the two keys and
 * the channel) in a way that changes nothing: the server checks rights before it finds the
 * arguments wrong. Answers with the refused commands. */
static const char rights_script[] =
    "local bad = {}\n"
    "for i = 2, #ARGV do\n"
    " local c = {}\n"
    " for w in string.gmatch(ARGV[i], '%S+') do\n"
    "  c[#c + 1] = w == 'K' and KEYS[1] or w == 'H' and KEYS[2] or w == 'C' and ARGV[1] or w\n"
    " end\n"
    " local r = redis.pcall(unpack(c))\n"
    " local e = type(r) == 'table' and r.err or ''\n"
    " if string.find(e, 'ACL failure') or string.find(e, 'NOPERM')\n"
    "  or string.find(e, 'executing the script can') then\n"
    "  local kind = string.find(e, 'channel') and '&' or string.find(e, 'key') and '~' or '+'\n"
    "  bad[#bad + 1] = kind .. c[1]\n"
    " end\n"
    "end\n"
    "return bad\n";

#define BOTH                                                                                       \
    "time", "scan 0 COUNT 1", "get K", "set K x BAD", "exists K", "incrby K x", "pttl K",          \
    "pexpire K x", "hget H f", "hmget H f", "hset H f v g", "hdel H f", "hexists H f",             \
    "zadd H x m", "zrem H m", "zscore H m", "zrange H 0 0", "zrangebyscore H 0 0", "publish C x",  \
    "del K"

static const char *const pawl_commands[] = {BOTH, "pexpireat K x", "hincrby H f x",
    "zrevrange H 0 0", "zpopmin H", "zremrangebyscore H 0 0", "zremrangebyrank H 0 0", NULL};
static const char *const redisson_commands[] = {BOTH, "type K", "decrby K x", "hgetall H",
    "hkeys H", "hlen H", "lindex H 0", "lpop H", "lrange H 0 0", "lrem H 0 x", "zcard H",
    "zincrby H x m", NULL};

static int write_rights(redis_call *call, resp_buf *out)
{
    const redis *r = call->on->redis;
    const char *const *commands = r->settings.redisson ? redisson_commands : pawl_commands;
    char name[64], tag[12] = "", channel[REDIS_CHANNEL_MAX];
    redis_keys keys;
    resp_command c;
    size_t n = 0;

    while (commands[n])
        n++;
    if (r->settings.service == REDIS_CLUSTER) /* a name that this node serves */
        redis_slot_tag(tag, call->slot);
    snprintf(name, sizeof name, "%s%s%spawl-doctor-%016llx", tag[0] ? "{" : "", tag,
             tag[0] ? "}" : "", (unsigned long long)r->env->client_id);
    redis_keys_make(&keys, r->settings.prefix, name);
    /* A channel of the pattern that the user needs, to which nobody listens. */
    if (r->settings.redisson)
        snprintf(channel, sizeof channel, "redisson_pawl:doctor");
    else
        snprintf(channel, sizeof channel, "%s@doctor", r->settings.prefix);
    c = resp_begin_eval(out, rights_script, sizeof rights_script - 1, 2, n + 1);
    resp_add(&c, keys.k, keys.k_length);
    redis_add_helper(&c, &keys, ":rec");
    resp_add_text(&c, channel);
    for (size_t i = 0; i < n; i++)
        resp_add_text(&c, commands[i]);
    return resp_end(&c);
}

/* Add a right to the list, if the list does not have the right yet. */
static void add_right(char *list, size_t size, const char *right)
{
    size_t length = strlen(list), n = strlen(right);

    for (const char *at = list; (at = strstr(at, right)); at += n)
        if (at[n] == 0 || at[n] == ' ')
            return;
    if (length + n + 2 < size)
        stpcpy(stpcpy(list + length, length ? " " : ""), right);
}

static void patterns(const redis_settings *s, bool channel, char *list, size_t size)
{
    char text[4 * REDIS_PREFIX_MAX + 64];
    const char *p = s->prefix;

    if (channel && s->redisson)
        snprintf(text, sizeof text, "'&redisson_*%s*' '&redisson_pawl:*'", p);
    else if (channel)
        snprintf(text, sizeof text, "'&%s@*'", p);
    else if (s->redisson)
        snprintf(text, sizeof text, "'~%s*' '~{%s*}:*' '~redisson_*%s*' '~{pawl@*}:client'", p, p,
                 p);
    else
        snprintf(text, sizeof text, "'~%s*' '~{%s*' '~{*}:%s*'", p, p, p);
    add_right(list, size, text);
}

static void rights_missing(const redis_call *call, const char *list)
{
    const char *user = call->on->user ? call->on->user : "default";
    char what[1200], remedy[1300];

    snprintf(what, sizeof what, "the user %.60s lacks rights: %s", user, list);
    snprintf(remedy, sizeof remedy, "ACL SETUSER %.60s %s", user, list);
    redis_found(call, PAWL_FINDING_DANGER, "rights", what,
                "Some calls fail with PAWL_EAUTH, perhaps only the rare ones: breaking a lock, or "
                "giving up a wait.", remedy);
}

static bool answer_rights(redis_call *call, const resp_node *reply)
{
    part *p = call->about;
    char list[1000] = "";

    if (reply->type != RESP_ARRAY)
        return false;
    for (uint32_t i = 0; i < reply->count; i++) {
        const resp_node *node = resp_child(reply, i);
        char right[40];

        if (!node || !resp_is_text(node) || node->length < 2)
            return false;
        snprintf(right, sizeof right, "%.*s", (int)node->length, node->text);
        if (right[0] == '+')
            add_right(list, sizeof list, right);
        else
            patterns(&call->on->redis->settings, right[0] == '&', list, sizeof list);
    }
    if (list[0])
        rights_missing(call, list);
    answered(p->exam);
    return true;
}

/* The server refuses EVAL itself, or the keys. */
static void rights_failed(redis_call *call, int code, const char *words)
{
    if (unreached(code)) {
        part_failed(call, code, words);
        return;
    }
    if (code == PAWL_EAUTH)
        redis_found(call, PAWL_FINDING_DANGER, "rights", words,
                    "No lock can be taken without this right.",
                    "Grant the rights of docs/security.md with ACL SETUSER.");
    answered(((part *)call->about)->exam);
}

/* ---- settings -------------------------------------------------------------------------------- */

enum { SETTING_SAVE, SETTING_FSYNC };

static int write_config(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 3);

    resp_add_text(&c, "CONFIG");
    resp_add_text(&c, "GET");
    resp_add_text(&c, call->tag == SETTING_SAVE ? "save" : "appendfsync");
    return resp_end(&c);
}

/* A map or an array of name and value. */
static bool answer_config(redis_call *call, const resp_node *reply)
{
    part *p = call->about;
    const resp_node *value = resp_child(reply, 1);

    p->settings = value && resp_is_text(value);
    if (p->settings && call->tag == SETTING_SAVE)
        p->saves = value->length > 0;
    else if (p->settings)
        snprintf(p->appendfsync, sizeof p->appendfsync, "%.*s",
                 (int)(value->length < 15 ? value->length : 15), value->text);
    answered(p->exam);
    return true;
}

/* The answer to INFO, which comes later, leads to a finding that persistence was not checked. */
static void config_failed(redis_call *call, int code, const char *words)
{
    if (unreached(code))
        part_failed(call, code, words);
    else
        answered(((part *)call->about)->exam);
}

/* ---- INFO ------------------------------------------------------------------------------------ */

static int write_info(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 1);

    (void)call;
    resp_add_text(&c, "INFO");
    return resp_end(&c);
}

static bool answer_info(redis_call *call, const resp_node *reply)
{
    part *p = call->about;
    char *info = resp_is_text(reply) ? strndup(reply->text, reply->length) : NULL;

    if (info) {
        redis_exam_info(call, info);
    }
    free(info);
    answered(p->exam);
    return true;
}

static void info_failed(redis_call *call, int code, const char *words)
{
    if (code != PAWL_EAUTH) {
        part_failed(call, code, words);
        return;
    }
    redis_found(call, PAWL_FINDING_SKIPPED, "redis-info",
                "eviction, persistence and replicas were not checked", "",
                "The checks need the rights +info and +config|get: let an administrator run pawl "
                "doctor.");
    answered(((part *)call->about)->exam);
}

/* ---- TIME ------------------------------------------------------------------------------------ */

static int write_time(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 1);

    (void)call;
    resp_add_text(&c, "TIME");
    return resp_end(&c);
}

static bool answer_time(redis_call *call, const resp_node *reply)
{
    exam *x = ((part *)call->about)->exam;
    const resp_node *s = resp_child(reply, 0), *us = resp_child(reply, 1);
    int64_t seconds, micros;

    if (!s || !us || !resp_integer(s, &seconds) || !resp_integer(us, &micros) || seconds < 0 ||
        seconds > INT32_MAX * INT64_C(1000))
        return false;
    if (x->op)
        examine_clock(x->op, x->redis->env, call->on->where, seconds * 1000 + micros / 1000,
                      call->sent);
    answered(x);
    return true;
}

static void time_failed(redis_call *call, int code, const char *words)
{
    if (code == PAWL_EAUTH) /* the check of rights reports this */
        answered(((part *)call->about)->exam);
    else
        part_failed(call, code, words);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void ask(part *p, uint16_t slot, const redis_call_type *type, int64_t tag)
{
    redis_call *call = redis_call_about(p->exam->redis, slot, type, p, tag);

    if (!call) {
        p->exam->code = PAWL_ENOMEM;
        return;
    }
    p->exam->out++;
    redis_call_send(call);
}

static void ask_server(exam *x, uint16_t slot)
{
    static const redis_call_type
        rights = {.write = write_rights, .answer = answer_rights, .failed = rights_failed},
        config = {.write = write_config, .answer = answer_config, .failed = config_failed},
        info = {.write = write_info, .answer = answer_info, .failed = info_failed},
        time = {.write = write_time, .answer = answer_time, .failed = time_failed};
    const redis_settings *s = &x->redis->settings;
    redis_link *link = redis_link_at(x->redis, slot);
    part *p = calloc(1, sizeof *p);

    if (!p) {
        x->code = PAWL_ENOMEM;
        return;
    }
    p->exam = x;
    p->next = x->parts;
    x->parts = p;
    ask(p, slot, &rights, 0);
    ask(p, slot, &config, SETTING_SAVE);
    ask(p, slot, &config, SETTING_FSYNC);
    ask(p, slot, &info, 0);
    ask(p, slot, &time, 0);
    examine_network(x->op, link->where, link->state == LINK_READY ? link->stream.fd : -1, s->tls,
                    s->tls_settings.verify);
}

/* One slot of each node of a cluster. */
static void ask_nodes(exam *x)
{
    const redis_cluster *c = &x->redis->cluster;

    for (size_t node = 0; node < c->nnodes; node++)
        for (uint16_t slot = 0; slot < REDIS_SLOTS; slot++)
            if (c->slots[slot] == node + 1) {
                ask_server(x, slot);
                break;
            }
}

static int write_ping(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 1);

    (void)call;
    resp_add_text(&c, "PING");
    return resp_end(&c);
}

/* The link is ready, and in a cluster the map is known (map_link.c). */
static void ask_all(redis_call *call)
{
    exam *x = ((part *)call->about)->exam;
    const redis_settings *s = &x->redis->settings;

    if (x->op && s->service == REDIS_SENTINEL && s->at.n < 2)
        redis_found(call, PAWL_FINDING_WARNING, "redis-sentinels",
                    "the URL names one sentinel only",
                    "While this sentinel is down, no client finds the master.",
                    "Name all sentinels in the URL, with commas between them.");
    if (x->op && s->service == REDIS_CLUSTER)
        ask_nodes(x);
    else if (x->op)
        ask_server(x, 0);
    answered(x);
}

static bool answer_ping(redis_call *call, const resp_node *reply)
{
    (void)reply;
    ask_all(call);
    return true;
}

/* A server that can't write to its disk refuses even PING. */
static void ping_failed(redis_call *call, int code, const char *words)
{
    if (unreached(code) || code == PAWL_EAUTH)
        part_failed(call, code, words);
    else
        ask_all(call);
}

void redis_examine(redis *r, pawl_op *op)
{
    static const redis_call_type ping = {.write = write_ping, .answer = answer_ping,
        .failed = ping_failed};
    exam *x = calloc(1, sizeof *x);
    part *p = calloc(1, sizeof *p);
    redis_call *call = x && p ? redis_call_new(&r->link, &ping, p, 0) : NULL;

    if (!call) {
        free(x);
        free(p);
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    *x = (exam){.redis = r, .op = op, .out = 1, .parts = p};
    p->exam = x;
    op->engine[0] = x;
    redis_link_send(&r->link, call);
}

/* Unsent calls are withdrawn; the last pending call frees the exam. */
void redis_examine_cancel(redis *r, pawl_op *op)
{
    exam *x = op->engine[0];
    const redis_link *down = r->link.state != LINK_READY && r->link.last_code ? &r->link : NULL;

    x->out++;
    for (part *p = x->parts; p; p = p->next) {
        x->out -= r->link.state == LINK_CLOSED ? 0 : redis_link_withdraw(&r->link, p);
        for (size_t i = 0; i < r->cluster.nnodes; i++)
            if (r->cluster.nodes[i]->state != LINK_CLOSED)
                x->out -= redis_link_withdraw(r->cluster.nodes[i], p);
    }
    finish(x, down ? down->last_code : PAWL_ECANCELED, down ? down->words : NULL);
    answered(x);
}
