/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - from the keys of a name to who holds it and who waits, and to the rows of pawl_info.
 *
 * The rules are those of requests.c, applied to all keys at once. A stranger's key (a Go program's)
 * has no value of ours: it is shown by its lease, and its token is not known.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "inspect.h"

#define DOWNGRADED_SHOWN 1000 /* rows of those who read through one key; the summary counts all */

/* ---- who holds ------------------------------------------------------------------------------- */

static bool begins(pb_span text, const char *with)
{
    return text.length >= strlen(with) && !memcmp(text.data, with, strlen(with));
}

bool etcd_inspect_add(etcd_inspect_name *n, const etcd_kv *kv, pb_span tail)
{
    etcd_inspect_entry *e;

    if (etcd_same(tail, etcd_span("~latch"))) {
        n->count = etcd_latch_left(kv);
        n->type = n->count ? PAWL_TYPE_LATCH : n->type;
        return true;
    }
    if (n->n >= INSPECT_KEYS_MAX) {
        n->too_many = true;
        return true;
    }
    if (n->n == n->room) {
        size_t room = n->room ? 2 * n->room : 8;
        etcd_inspect_entry *grown = realloc(n->entries, room * sizeof *grown);

        if (!grown)
            return false;
        n->entries = grown;
        n->room = room;
    }
    e = &n->entries[n->n++];
    *e = (etcd_inspect_entry){.section = ETCD_LOCKS, .created = kv->created,
                              .modified = kv->modified, .lease = kv->lease, .lease_ms = -1};
    if (begins(tail, "~permit-"))
        e->section = ETCD_PERMITS;
    else if (begins(tail, "~read-"))
        e->section = ETCD_READS;
    etcd_value_read(kv->value, &e->value);
    if (tail.length >= sizeof e->tail) /* a latch waiter's whole key: its end tells */
        tail = (pb_span){tail.data + tail.length - sizeof e->tail + 1, sizeof e->tail - 1};
    snprintf(e->tail, sizeof e->tail, "%.*s", (int)tail.length, (const char *)tail.data);
    if (n->type < 0)
        n->type = e->section == ETCD_PERMITS ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LOCK;
    return true;
}

static int by_creation(const void *a, const void *b)
{
    const etcd_inspect_entry *x = a, *y = b;

    return x->created < y->created ? -1 : x->created > y->created;
}

static bool holds(etcd_inspect_name *n, const etcd_inspect_entry *e, size_t i, bool *exclusive)
{
    if (n->type == PAWL_TYPE_SEMAPHORE) {
        if (*exclusive || n->used + e->value.permits > n->count) {
            *exclusive = true; /* it waits, and so do all behind it */
            return false;
        }
        n->used += e->value.permits;
        return true;
    }
    if (n->type == PAWL_TYPE_LATCH)
        return false;
    if (e->section == ETCD_READS)
        return !*exclusive;
    *exclusive |= !e->value.shared;
    return i == 0;
}

void etcd_inspect_complete(etcd_inspect_name *n)
{
    bool exclusive = false;

    if (n->n)
        qsort(n->entries, n->n, sizeof *n->entries, by_creation);
    if (n->type == PAWL_TYPE_SEMAPHORE)
        n->count = n->entries[0].value.capacity;
    for (size_t i = 0; i < n->n; i++) {
        etcd_inspect_entry *e = &n->entries[i];

        e->holder = holds(n, e, i, &exclusive);
        n->holders += e->holder;
        n->waiters += !e->holder;
        if (e->holder && e->value.readers && !e->value.shared)
            n->holders += (size_t)e->value.readers;
    }
}

void etcd_inspect_clear(etcd_inspect_name *n)
{
    free(n->entries);
    *n = (etcd_inspect_name){.type = -1};
}

/* ---- showing --------------------------------------------------------------------------------- */

static uint64_t token_of(const etcd_inspect_entry *e)
{
    return !e->value.ours ? 0 : e->value.token ? e->value.token : (uint64_t)e->modified;
}

static int64_t since_of(etcd *e, const etcd_inspect_entry *entry)
{
    int64_t ms = e->env->wall_ms(e->env) - entry->value.since;

    return !entry->value.since ? -1 : ms > 0 ? ms : 0;
}

/* Tells owners apart without showing what a release would need. */
static void describe(pawl_info *info, const etcd_inspect_entry *e, char id[24])
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (const char *c = e->tail; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    if (e->value.ours)
        snprintf(id, 24, "%08x", (unsigned)(h >> 32 ^ h));
    else
        snprintf(id, 24, "%" PRIx64, (uint64_t)e->lease);
    info->owner = id;
    info->pid = e->value.pid;
    info->host = e->value.host;
    info->program = e->value.program;
    info->label = e->value.label;
}

static int show_summary(etcd *e, pawl_op *op, const etcd_inspect_name *n)
{
    char id[24];
    pawl_info info = {.size = sizeof info, .name = n->name, .role = PAWL_ROLE_SUMMARY,
                      .type = (uint64_t)(n->type > 0 ? n->type : 0), .holders = n->holders,
                      .waiters = n->waiters, .count = n->count, .shared = n->holders > 0,
                      .since_ms = -1, .lease_ms = -1, .wait_ms = -1, .host = "", .program = "",
                      .label = "", .owner = ""};

    if (n->type == PAWL_TYPE_SEMAPHORE) {
        info.available = n->count > n->used ? n->count - n->used : 0;
        info.shared = 0;
    }
    for (size_t i = 0; i < n->n; i++) {
        const etcd_inspect_entry *entry = &n->entries[i];

        if (!entry->holder) {
            info.wait_ms = since_of(e, entry) > info.wait_ms ? since_of(e, entry) : info.wait_ms;
            continue;
        }
        info.shared &= entry->section == ETCD_READS || entry->value.shared;
        info.token = token_of(entry) > info.token ? token_of(entry) : info.token;
        if (since_of(e, entry) > info.since_ms)
            info.since_ms = since_of(e, entry);
    }
    if (n->holders) {
        info.lease_ms = n->entries[0].lease_ms;
        describe(&info, &n->entries[0], id);
    }
    return op->row(op->row_arg, &info);
}

static int show_entry(etcd *e, pawl_op *op, const etcd_inspect_name *n,
                      const etcd_inspect_entry *entry, bool guest)
{
    char id[24];
    pawl_info info = {.size = sizeof info, .name = n->name, .type = (uint64_t)n->type,
                      .role = entry->holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER,
                      .shared = guest || entry->section == ETCD_READS || entry->value.shared,
                      .permits = n->type == PAWL_TYPE_SEMAPHORE ? (uint64_t)entry->value.permits
                                                                : 0,
                      .since_ms = since_of(e, entry),
                      .lease_ms = entry->holder ? entry->lease_ms : -1, .wait_ms = -1};

    if (entry->holder)
        info.token = guest ? (uint64_t)entry->modified : token_of(entry);
    describe(&info, entry, id);
    return op->row(op->row_arg, &info);
}

int etcd_inspect_show(etcd *e, pawl_op *op, const etcd_inspect_name *n, bool all)
{
    int code = show_summary(e, op, n);

    for (size_t i = 0; all && !code && i < n->n; i++) {
        const etcd_inspect_entry *entry = &n->entries[i];
        int64_t downgraded = entry->holder && !entry->value.shared ? entry->value.readers : 0;

        downgraded = downgraded < DOWNGRADED_SHOWN ? downgraded : DOWNGRADED_SHOWN;

        code = show_entry(e, op, n, entry, false);
        for (int64_t g = 0; !code && g < downgraded; g++)
            code = show_entry(e, op, n, entry, true);
    }
    return code;
}
