/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - rows of pawl_inspect and pawl_list for machines.
 *
 * The members are documented in pawl(1). Scripts rely on them: members may be added, but not
 * changed.
 */
#include "tool.h"

const char *type_text(const pawl_info *info)
{
    return info->type == PAWL_TYPE_SEMAPHORE ? "semaphore"
           : info->type == PAWL_TYPE_LATCH   ? "latch"
                                             : "lock";
}

/* Unknown numbers are -1 in pawl_info and null in JSON. */
static void member(FILE *out, const char *key, int64_t value)
{
    if (value < 0)
        fprintf(out, ",\"%s\":null", key);
    else
        fprintf(out, ",\"%s\":%lld", key, (long long)value);
}

static void string_member(FILE *out, const char *key, const char *value)
{
    fprintf(out, ",\"%s\":", key);
    json_string(out, value ? value : "");
}

static void summary(FILE *out, const pawl_info *info)
{
    bool latch = info->type == PAWL_TYPE_LATCH;

    fputs("\"name\":", out);
    json_string(out, info->name);
    fprintf(out, ",\"type\":\"%s\",\"held\":%s,\"shared\":%s", type_text(info),
            info->holders || (latch && info->count > 0) ? "true" : "false",
            info->shared ? "true" : "false");
    if (latch)
        member(out, "count", info->count);
    if (info->type == PAWL_TYPE_SEMAPHORE) {
        member(out, "capacity", info->count);
        member(out, "available", info->available);
    }
    member(out, "holder_count", (int64_t)info->holders);
    member(out, "waiter_count", (int64_t)info->waiters);
    fprintf(out, ",\"token\":%llu", (unsigned long long)info->token);
    member(out, "since_ms", info->since_ms);
    member(out, "lease_ms", info->lease_ms);
    member(out, "wait_ms", info->wait_ms);
}

void json_row(FILE *out, const pawl_info *info)
{
    if (info->role == PAWL_ROLE_SUMMARY) {
        summary(out, info);
    } else {
        fputs("\"owner\":", out);
        json_string(out, info->owner ? info->owner : "");
        fprintf(out, ",\"shared\":%s", info->shared ? "true" : "false");
        if (info->type == PAWL_TYPE_SEMAPHORE)
            member(out, "permits", (int64_t)info->permits);
        if (info->role == PAWL_ROLE_HOLDER) {
            fprintf(out, ",\"token\":%llu", (unsigned long long)info->token);
            member(out, "lease_ms", info->lease_ms);
        }
        member(out, "since_ms", info->since_ms);
    }
    member(out, "pid", info->pid ? info->pid : -1);
    string_member(out, "host", info->host);
    string_member(out, "program", info->program);
    string_member(out, "label", info->label);
}
