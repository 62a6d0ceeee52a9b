/* SPDX-License-Identifier: Apache-2.0
 *
 * stale.c - messages about acquires that this client does not know.
 *
 * After a fail-over or a restart from an older snapshot a queue may name acquires that have ended
 * since, although their client still runs; a late request of a lost connection has the same effect.
 * Such a stale entry would get the lock, or the task to watch, and do nothing. The client therefore
 * answers every message about an acquire that the client does not know: the cancel script removes
 * the stale entry from the queue, or ends the entry's new claim, and passes the lock on.
 *
 * The client may still believe in a grant to the stale entry's owner (made by the old master), and
 * a renewal may have reached the new master before the answer does. cancel.lua therefore ends only
 * claims that were never renewed. For leases up to 2.1 s the script can't tell renewed claims from
 * others, so claims of such leases are left to expire.
 *
 * A stale_entry is freed when its call has ended, with or without an answer: if the answer was
 * lost, the claim expires. A user that may publish can make the client send cancels; at most
 * STALE_MAX cancels are pending.
 */
#include <stdlib.h>

#include "waiters.h"

#define STALE_MAX 256

typedef struct stale_entry {
    redis *redis;
    uint64_t seq, token;
    int64_t granted; /* server ms */
    char name[PAWL_NAME_MAX + 1];
} stale_entry;

static int write_disown(redis_call *call, resp_buf *out)
{
    const stale_entry *g = call->about;
    resp_command c = redis_begin(call, &redis_script_cancel, out, 5, 3);
    char owner[REDIS_OWNER_MAX];
    redis_keys keys;

    redis_keys_make(&keys, g->redis->settings.prefix, g->name);
    redis_owner(owner, g->redis->env->client_id, g->seq);
    redis_add_keys(&c, &keys);
    resp_add_text(&c, owner);
    if (g->token)
        resp_add_uint(&c, g->token);
    else
        resp_add_text(&c, "");
    resp_add_int(&c, g->granted);
    return resp_end(&c);
}

static void stale_entry_free(stale_entry *g)
{
    g->redis->nstale--;
    free(g);
}

static bool disowned(redis_call *call, const resp_node *reply)
{
    stale_entry *g = call->about;
    bool ours = redis_is_owner(resp_child(reply, 1), g->redis->env->client_id, g->seq);

    if (ours)
        stale_entry_free(g);
    return ours; /* else the call fails next */
}

static void disown_failed(redis_call *call, int code, const char *words)
{
    (void)code;
    (void)words;
    stale_entry_free(call->about);
}

void redis_disown(redis *r, const char *name, uint64_t seq, uint64_t token, int64_t granted)
{
    static const redis_call_type type = {.write = write_disown, .answer = disowned,
        .failed = disown_failed};
    stale_entry *g = r->nstale < STALE_MAX ? malloc(sizeof *g) : NULL;
    redis_call *call;

    if (!g)
        return;
    r->nstale++;
    *g = (stale_entry){.redis = r, .seq = seq, .token = token, .granted = granted};
    snprintf(g->name, sizeof g->name, "%s", name);
    call = redis_call_about(r, redis_slot_of(r, g->name), &type, g, 0);
    if (call)
        redis_call_send(call);
    else
        stale_entry_free(g);
}
