/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate_model.c - a second implementation of the rules of locks, see lockstate_model.h.
 */
#include "lockstate_model.h"

static void take(struct model *m, int i)
{
    for (m->n--; i < m->n; i++)
        m->list[i] = m->list[i + 1];
}

int model_holders(const struct model *m)
{
    int h = 0;

    while (h < m->n && m->list[h].holds)
        h++;
    return h;
}

static bool compatible(const struct model *m, const struct one *want)
{
    uint64_t permits = want->permits;

    for (int i = 0; i < model_holders(m); i++) {
        if (want->mode == X || m->list[i].mode == X)
            return false;
        permits += m->list[i].permits;
    }
    return want->mode != P || permits <= (uint64_t)m->capacity;
}

static void admit(struct model *m)
{
    for (int h = model_holders(m); h < m->n && compatible(m, &m->list[h]); h = model_holders(m)) {
        struct one *o = &m->list[h];
        int64_t ms = o->lease < LOCKSTATE_CLAIM_MS ? o->lease : LOCKSTATE_CLAIM_MS;

        if (world.dead[o->peer]) {
            take(m, h);
            continue;
        }
        o->holds = o->claim = true;
        o->expires = world.now + ms * MS;
    }
}

int model_index(const struct model *m, uint64_t seq)
{
    for (int i = 0; i < m->n; i++)
        if (m->list[i].seq == seq && !m->list[i].linger)
            return i;
    return -1;
}

static bool held(const struct model *m, int i)
{
    return i >= 0 && m->list[i].holds && m->list[i].expires > world.now;
}

static void claim(struct one *o, int64_t lease)
{
    int64_t end = world.now + lease * MS;

    o->expires = end > o->expires ? end : o->expires;
    o->claim = false;
}

/* Does the owner also write, so that it may read without queueing? */
static bool may_pass(const struct model *m, const struct one *want, uint64_t with)
{
    int w = with ? model_index(m, with) : -1;

    return want->mode == S && held(m, w) && m->list[w].mode == X && m->list[w].peer == want->peer;
}

/* Do the permits fit into the capacity, and do all users of the semaphore agree on the capacity? */
static int fits_capacity(const struct model *m, const struct one *want, int64_t capacity)
{
    int64_t c = m->n ? m->capacity : capacity;

    if (!c || (capacity && capacity != c))
        return PAWL_ESTATE;
    return want->permits > c ? PAWL_EINVAL : 0;
}

/* Enter behind the holders, or at the end of the queue, or not at all. */
static int enter(struct model *m, struct one want, const lockstate_ask *ask)
{
    int h = model_holders(m), i;

    want.holds = may_pass(m, &want, ask->with_seq) || (h == m->n && compatible(m, &want));
    if (!want.holds && !ask->queue)
        return PAWL_EBUSY;
    want.expires = want.holds ? world.now + want.lease * MS : 0;
    for (i = m->n++; want.holds && i > h; i--)
        m->list[i] = m->list[i - 1];
    m->list[i] = want;
    return want.holds ? 0 : LOCKSTATE_QUEUED;
}

int model_acquire(struct model *m, struct one want, const lockstate_ask *ask)
{
    int i, code;

    if (m->n && m->semaphore != (want.mode == P))
        return PAWL_ESTATE;
    i = model_index(m, want.seq);
    if (i >= 0 && !m->list[i].holds)
        return LOCKSTATE_QUEUED;
    if (held(m, i)) {
        claim(&m->list[i], m->list[i].lease);
        return 0;
    }
    if (i >= 0) {
        take(m, i);
        admit(m);
    }
    code = want.mode == P ? fits_capacity(m, &want, ask->capacity) : 0;
    if (code)
        return code;
    if (!m->n) {
        m->semaphore = want.mode == P;
        m->capacity = ask->capacity;
    }
    return enter(m, want, ask);
}

int model_release(struct model *m, uint64_t seq, uint32_t keep, int64_t linger)
{
    int i = model_index(m, seq);

    if (!held(m, i)) {
        for (int k = 0; linger && k < m->n; k++)
            if (m->list[k].seq == seq && m->list[k].linger)
                return 0;
        return PAWL_ENOTHELD;
    }
    if (keep && keep >= m->list[i].permits)
        return 0;
    if (keep) {
        m->list[i].permits = keep;
    } else if (linger) {
        m->list[i].linger = true;
        m->list[i].claim = false;
        m->list[i].expires = world.now + linger * MS;
    } else {
        take(m, i);
    }
    admit(m);
    return 0;
}

int model_renew(struct model *m, uint64_t seq, int64_t lease)
{
    int i = model_index(m, seq);

    if (!held(m, i))
        return PAWL_ENOTHELD;
    claim(&m->list[i], lease);
    m->list[i].lease = lease;
    return 0;
}

int model_cancel(struct model *m, uint64_t seq)
{
    int i = model_index(m, seq);

    if (i < 0)
        return PAWL_ENOTHELD;
    if (m->list[i].holds && !m->list[i].claim)
        return PAWL_ESTATE;
    take(m, i);
    admit(m);
    return 0;
}

static void drop_holders(struct model *m)
{
    for (int i = 0; i < m->n && m->list[i].holds;)
        if (m->list[i].expires <= world.now || (!m->list[i].linger && world.dead[m->list[i].peer]))
            take(m, i);
        else
            i++;
}

void model_expire(struct model *m, uint64_t seq)
{
    int self, i;

    drop_holders(m);
    self = model_index(m, seq);
    i = model_holders(m);
    if (self < i) { /* not in the queue: only the front is checked */
        while (i < m->n && world.dead[m->list[i].peer])
            take(m, i);
    } else {
        for (; m->list[i].seq != seq;)
            if (world.dead[m->list[i].peer])
                take(m, i);
            else
                i++;
    }
    admit(m);
}

int model_break(struct model *m)
{
    bool had, any = m->n && m->list[0].holds;

    drop_holders(m);
    had = model_holders(m) > 0;
    while (model_holders(m))
        take(m, 0);
    if (any)
        admit(m);
    return had ? 0 : PAWL_ENOTHELD;
}
