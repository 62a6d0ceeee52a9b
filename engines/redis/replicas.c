/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas.c - replicas=N: a grant or a renewal counts only when N replicas have stored it.
 *
 * Calls that need proof (call types that are `proven`) are followed by a WAIT on the same
 * connection, one WAIT for all calls of one flush: WAIT covers everything that this connection
 * wrote before. WAITs are numbered, and a call has the number of the WAIT that follows. After its
 * answer a call is listed in link->proving until that WAIT is answered, in order.
 *
 * A WAIT delays the commands after it on the connection, by a quarter of the timeout at most. Only
 * one WAIT is pending at a time: while a replica is gone every WAIT takes that long, and several
 * WAITs in a row would exceed the timeout. Calls that are written while a WAIT is pending are
 * proven by the next WAIT, which is sent when the first is answered.
 */
#include "redis.h"

int redis_proof_code(const redis *r, int64_t replicas, char words[REDIS_WORDS])
{
    if (replicas < 0)
        snprintf(words, REDIS_WORDS, "connection lost before replicas had it");
    else if (r->no_wait[0])
        snprintf(words, REDIS_WORDS, "%s", r->no_wait);
    else
        snprintf(words, REDIS_WORDS, "only %lld of %lld replicas have it",
                 (long long)replicas, (long long)r->settings.replicas);
    return replicas < 0 ? PAWL_EUNKNOWN : r->no_wait[0] ? PAWL_EAUTH : PAWL_EBACKEND;
}

void redis_prove(redis_call *call, redis_proof *proof)
{
    proof->number = call->proof;
    list_append(&call->on->proving, &proof->link);
}

/* Report the result to all proofs up to this number. */
static void proven(redis_link *link, uint64_t number, int64_t replicas)
{
    while (!list_empty(&link->proving)) {
        redis_proof *proof = list_entry(link->proving.next, redis_proof, link);

        if (proof->number > number)
            return;
        list_remove(&proof->link);
        proof->proven(proof, replicas);
    }
}

void redis_proofs_fail(redis_link *link)
{
    link->proof_wanted = link->proof_out = false;
    proven(link, UINT64_MAX, -1);
}

static int write_wait(redis_call *call, resp_buf *out)
{
    const redis_link *link = call->on;
    resp_command c = resp_begin(out, 3);

    resp_add_text(&c, "WAIT");
    resp_add_int(&c, link->settings->replicas);
    resp_add_int(&c, link->env->timeout_ms / 4 + 1);
    return resp_end(&c);
}

/* The pending WAIT has ended; redis_proof_ask sends the next WAIT before the loop polls. */
static void wait_over(redis_link *link)
{
    link->proof_out = false;
    if (link->proof_wanted)
        link->env->loop_changed(link->env);
}

static bool wait_answered(redis_call *call, const resp_node *reply)
{
    int64_t n;

    if (!resp_integer(reply, &n) || n < 0)
        return false;
    call->on->redis->no_wait[0] = 0;
    wait_over(call->on);
    proven(call->on, (uint64_t)call->tag, n);
    return true;
}

/* The server refuses WAIT: nothing is proven. */
static void wait_failed(redis_call *call, int code, const char *words)
{
    wait_over(call->on);
    if (code == PAWL_EUNKNOWN || code == PAWL_ECANCELED)
        return; /* the link drops: redis_proofs_fail */
    call->on->env->log(call->on->env, PAWL_LOG_WARNING, "replicas= can't be had: %s", words);
    if (code == PAWL_EAUTH)
        snprintf(call->on->redis->no_wait, REDIS_WORDS, "%s", words);
    proven(call->on, (uint64_t)call->tag, 0);
}

void redis_proof_ask(redis_link *link)
{
    static const redis_call_type type = {.write = write_wait, .answer = wait_answered,
        .failed = wait_failed};
    redis_call *call;

    if (link->proof_out || link->state != LINK_READY)
        return;
    call = redis_call_new(link, &type, link, (int64_t)link->proof_next);
    if (!call)
        return; /* retried with the next flush */
    link->proof_wanted = false;
    link->proof_out = true;
    link->proof_next++;
    redis_link_send(link, call);
}
