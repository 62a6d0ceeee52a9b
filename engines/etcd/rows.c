/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - finds the holders and the waiters among the keys of a name, and fills the rows of
 * pawl_info.
 *
 * The rules are the same as in requests.c, applied to all keys at once. A key of another program (a
 * Go program) has no value of ours: the lease is shown as the owner, and the token is not known.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "inspect.h"
#include "kit/hash.h"
#include "kit/rows.h"

#define DOWNGRADED_SHOWN 1000 /* rows of readers on one key; the summary counts all */

/* ---- holders --------------------------------------------------------------------------------- */

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
    if (tail.length >= sizeof e->tail) /* a latch waiter's whole key: keep the end */
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
            *exclusive = true; /* this one waits, and so do all behind */
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

static int64_t since_of(int64_t now, const etcd_inspect_entry *entry)
{
    int64_t ms = now - entry->value.since;

    return !entry->value.since ? -1 : ms > 0 ? ms : 0;
}

struct shown {
    int64_t now; /* the same for all rows, so that the summary agrees with them */
    const etcd_inspect_name *n;
    size_t downgraded; /* rows of readers on the first key, after its own row */
};

static bool fill_row(void *of, size_t i, pawl_info *info, char id[KIT_ID_MAX])
{
    const struct shown *s = of;
    bool reader = i > 0 && i <= s->downgraded;
    const etcd_inspect_entry *entry = &s->n->entries[i <= s->downgraded ? 0 : i - s->downgraded];
    uint64_t h = kit_hash_text(entry->tail);

    if (entry->value.ours)
        snprintf(id, KIT_ID_MAX, "%08x", (unsigned)(h >> 32 ^ h));
    else
        snprintf(id, KIT_ID_MAX, "%" PRIx64, (uint64_t)entry->lease);
    info->role = entry->holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
    info->shared = reader || entry->section == ETCD_READS || entry->value.shared;
    if (s->n->type == PAWL_TYPE_SEMAPHORE)
        info->permits = (uint64_t)entry->value.permits;
    info->since_ms = since_of(s->now, entry);
    info->lease_ms = entry->holder ? entry->lease_ms : -1;
    if (entry->holder)
        info->token = reader ? (uint64_t)entry->modified : token_of(entry);
    info->owner = id;
    info->pid = entry->value.pid;
    info->host = entry->value.host;
    info->program = entry->value.program;
    info->label = entry->value.label;
    return true;
}

/* Only the first key can belong to an exclusive holder, and have downgraded readers. */
int etcd_inspect_show(etcd *e, pawl_op *op, const etcd_inspect_name *n, bool all)
{
    char id[KIT_ID_MAX];
    struct shown s = {.now = e->env->wall_ms(e->env), .n = n};
    pawl_info sum = kit_summary(n->name, (uint64_t)(n->type > 0 ? n->type : 0), n->count, fill_row,
                                &s, n->n, id);

    sum.holders = n->holders;
    sum.waiters = n->waiters;
    if (n->n && n->entries[0].holder && !n->entries[0].value.shared)
        s.downgraded = (size_t)n->entries[0].value.readers;
    if (s.downgraded > DOWNGRADED_SHOWN)
        s.downgraded = DOWNGRADED_SHOWN;
    return kit_rows_show(op, &sum, fill_row, &s, all ? n->n + s.downgraded : 0);
}
