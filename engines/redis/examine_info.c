/* SPDX-License-Identifier: Apache-2.0
 *
 * examine_info.c - findings from INFO: memory, persistence, replicas and role.
 */
#include <stdlib.h>

#include "exam.h"

/* The value in a line "key:value"; "": there is no such line. */
static const char *value_of(const char *info, const char *key, char value[160])
{
    size_t length = strlen(key);

    value[0] = 0;
    for (const char *at = info; (at = strstr(at, key)); at += length)
        if ((at == info || at[-1] == '\n') && at[length] == ':') {
            snprintf(value, 160, "%.*s", (int)strcspn(at + length + 1, "\r\n"), at + length + 1);
            break;
        }
    return value;
}

static int64_t number_of(const char *info, const char *key)
{
    char value[160];

    return strtoll(value_of(info, key, value), NULL, 10);
}

static void look_at_memory(const redis_call *call, const char *info)
{
    int64_t limit = number_of(info, "maxmemory"), used = number_of(info, "used_memory");
    char policy[160], what[240];

    value_of(info, "maxmemory_policy", policy);
    if (policy[0] && strcmp(policy, "noeviction")) {
        snprintf(what, sizeof what, "maxmemory-policy is %.40s%s", policy,
                 limit ? "" : "; maxmemory is not set, so nothing is evicted yet");
        redis_found(call, limit ? PAWL_FINDING_DANGER : PAWL_FINDING_WARNING,
                    "redis-eviction", what,
                    "A server that runs out of memory deletes keys, among them locks that somebody "
                    "holds; the next client gets the same lock.",
                    "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; keep "
                    "caches on another server.");
    } else if (limit && used > limit / 10 * 9) {
        snprintf(what, sizeof what, "%lld of %lld MB are used (maxmemory)",
                 (long long)(used >> 20), (long long)(limit >> 20));
        redis_found(call, PAWL_FINDING_WARNING, "redis-memory", what,
                    "A full server refuses every write: locks can be neither taken nor renewed.",
                    "Raise maxmemory, or remove other data.");
    }
}

static void look_at_errors(const redis_call *call, const char *info)
{
    char aof[160], rdb[160];

    value_of(info, "aof_last_write_status", aof);
    value_of(info, "rdb_last_bgsave_status", rdb);
    if (strcmp(aof, "err") && strcmp(rdb, "err"))
        return;
    redis_found(call, PAWL_FINDING_DANGER, "redis-disk",
                "the server's latest write to disk has failed",
                "By default the server then refuses all writes, so locks can be neither taken nor "
                "renewed; and a restart forgets them.",
                "Look at the server's log, and at the free space and permissions of its folder.");
}

static void look_at_persistence(const redis_call *call, const char *info)
{
    const part *p = call->about;
    bool aof = number_of(info, "aof_enabled") == 1;

    look_at_errors(call, info);
    if (aof && !p->settings)
        redis_found(call, PAWL_FINDING_SKIPPED, "redis-persistence",
                    "appendfsync was not checked",
                    "", "The check needs the right +config|get.");
    else if (!aof && p->settings && !p->saves)
        redis_found(call, PAWL_FINDING_DANGER, "redis-persistence",
                    "the server stores nothing on disk (appendonly no, save \"\")",
                    "A restarted server has forgotten all locks: locks that are held are granted "
                    "again.",
                    "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in "
                    "redis.conf; or use a quorum of servers.");
    else if (!aof)
        redis_found(call, PAWL_FINDING_DANGER, "redis-persistence",
                    "the server has no append-only file (appendonly no)",
                    "A restarted server goes back to its latest snapshot: locks that were taken "
                    "since then are granted again.",
                    "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in "
                    "redis.conf; or use a quorum of servers.");
    else if (strcmp(p->appendfsync, "always"))
        redis_found(call, PAWL_FINDING_WARNING, "redis-fsync",
                    !strcmp(p->appendfsync, "no") ? "appendfsync is no" : "appendfsync is everysec",
                    "After a power failure the server has forgotten the latest grants, and grants "
                    "these locks again.",
                    "CONFIG SET appendfsync always, and the same in redis.conf. Each grant then "
                    "waits for the disk.");
}

/* "slave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=1" */
static void look_at_replica(const redis_call *call, const char *line)
{
    const char *lag = strstr(line, ",lag="), *state = strstr(line, ",state=");
    int64_t seconds = lag ? strtoll(lag + 5, NULL, 10) : 0;
    char what[240], name[100];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(line, ","), line);
    if (state && strncmp(state, ",state=online", 13))
        snprintf(what, sizeof what, "the replica at %s is not in step (%.*s)", name,
                 (int)strcspn(state + 1, ","), state + 1);
    else if (seconds >= 3)
        snprintf(what, sizeof what, "the replica at %s is %lld s behind", name,
                 (long long)seconds);
    else
        return;
    redis_found(call, PAWL_FINDING_WARNING, "redis-lag", what,
                "If this replica takes over, locks that were granted meanwhile are granted again.",
                "Find out what keeps the replica: its load, its disk, the network.");
}

static void look_at_replicas(const redis_call *call, const char *info)
{
    const redis_settings *s = &call->on->redis->settings;
    int64_t n = number_of(info, "connected_slaves");
    char value[160], key[24], what[120];

    for (int64_t i = 0; i < n && i < 64; i++) {
        snprintf(key, sizeof key, "slave%d", (int)i);
        look_at_replica(call, value_of(info, key, value));
    }
    snprintf(what, sizeof what, "the server has %lld replica%s, and nothing makes a grant wait for "
             "them", (long long)n, n == 1 ? "" : "s");
    if (n > 0 && !s->replicas && !number_of(info, "min_slaves_good_slaves"))
        redis_found(call, PAWL_FINDING_WARNING, "redis-replicas", what,
                    "If the server fails right after a grant, the replica that takes over does not "
                    "know the lock, and grants it again.",
                    "Add replicas=1 to the URL: a grant then counts when a replica has it. Set "
                    "min-replicas-to-write 1 as well, so that a server that is cut off grants "
                    "nothing.");
    if (!n && s->service != REDIS_ONE)
        redis_found(call, PAWL_FINDING_WARNING, "redis-no-replica",
                    "this master has no replica",
                    "Nobody can take over when this server fails: its locks can't be used until "
                    "it is back.", "Start a replica, or find out why it is not connected.");
}

static void look_at_role(const redis_call *call, const char *info)
{
    char role[160], version[160], what[200];

    value_of(info, "valkey_version", version);
    snprintf(what, sizeof what, "Valkey %.40s", version);
    if (!version[0])
        snprintf(what, sizeof what, "Redis %.40s", value_of(info, "redis_version", version));
    if (((part *)call->about)->exam->op) {
        pawl_op *op = ((part *)call->about)->exam->op;

        pawl_op_fact(op, "server", call->on->where, what, 0);
        pawl_op_fact(op, "run", call->on->where, value_of(info, "run_id", version), 0);
    }
    if (!strcmp(value_of(info, "role", role), "slave"))
        redis_found(call, PAWL_FINDING_DANGER, "redis-role", "this server is a replica",
                    "A replica takes no writes: no lock can be taken here.",
                    "Name the master in the URL, or use redis+sentinel:// to follow it.");
}

void redis_exam_info(const redis_call *call, const char *info)
{
    look_at_role(call, info);
    look_at_memory(call, info);
    look_at_persistence(call, info);
    look_at_replicas(call, info);
}
