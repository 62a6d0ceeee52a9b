/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lockstate.c - the rules of locks: each in words, then all of them at random against a model
 * that was written from the rules alone, with lists of persons instead of bytes.
 */
#include <stdlib.h>

#include "lockstate.h"

static int number, failures;
static const char *sentence;
static bool sentence_ok;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond);                                    \
            sentence_ok = false;                                                                   \
        }                                                                                          \
    } while (0)

static void begin(const char *text)
{
    sentence = text;
    sentence_ok = true;
}

static void end(void)
{
    printf("%s %d - %s\n", sentence_ok ? "ok" : "not ok", ++number, sentence);
    failures += !sentence_ok;
}

/* ---- a shelf and its surroundings ------------------------------------------------------------ */

#define MS INT64_C(1000000)
#define PEERS 8
#define TOLD 256

static _Alignas(8) unsigned char bytes[1 << 16];
static lockstate_shelf shelf;
static uint64_t fence;
static bool dead[PEERS];
static struct {
    uint64_t client, seq;
    enum lockstate_why why;
} told[TOLD];
static size_t ntold;
static int64_t now;

static uint64_t draw(void *arg, uint32_t n)
{
    uint64_t first = fence + 1;

    (void)arg;
    fence += n;
    return first;
}

static bool is_dead(void *arg, const lockstate_entry *e)
{
    (void)arg;
    return dead[e->peer];
}

static void tell(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    (void)arg;
    if (ntold < TOLD) {
        told[ntold].client = e->client;
        told[ntold].seq = e->seq;
        told[ntold++].why = why;
    }
}

static bool was_told(uint64_t seq)
{
    for (size_t i = 0; i < ntold; i++)
        if (told[i].seq == seq)
            return true;
    return false;
}

static void fresh(void)
{
    shelf = (lockstate_shelf){.bytes = bytes, .cap = sizeof bytes};
    fence = 0;
    now = 1000 * MS;
    memset(dead, 0, sizeof dead);
}

static lockstate_edit edit_of(const char *name)
{
    ntold = 0;
    return (lockstate_edit){.shelf = &shelf, .name = name, .name_len = strlen(name), .now = now,
                            .fence = draw, .dead = is_dead, .tell = tell};
}

static lockstate_entry person(uint64_t seq, uint8_t mode, uint32_t permits, int64_t lease_ms)
{
    return (lockstate_entry){.client = seq % PEERS, .seq = seq, .mode = mode, .permits = permits,
                             .lease_ms = lease_ms, .peer = (uint16_t)(seq % PEERS), .ntokens = 1};
}

static int ask(const char *name, uint64_t seq, uint8_t mode, bool queue)
{
    lockstate_edit e = edit_of(name);
    lockstate_entry want = person(seq, mode, 1, 30000);

    return lockstate_acquire(&e, &want, &(lockstate_ask){.queue = queue, .capacity = 0});
}

static int ask_permits(uint64_t seq, uint32_t permits, int64_t capacity, bool queue)
{
    lockstate_edit e = edit_of("s");
    lockstate_entry want = person(seq, PAWL_MODE_PERMITS, permits, 30000);

    return lockstate_acquire(&e, &want, &(lockstate_ask){.queue = queue, .capacity = capacity});
}

static int release(const char *name, uint64_t seq)
{
    lockstate_edit e = edit_of(name);

    return lockstate_release(&e, seq % PEERS, seq, 0, 0);
}

static int renew(const char *name, uint64_t seq, int64_t lease_ms)
{
    lockstate_edit e = edit_of(name);

    return lockstate_renew(&e, seq % PEERS, seq, lease_ms);
}

static int cancel(const char *name, uint64_t seq)
{
    lockstate_edit e = edit_of(name);

    return lockstate_cancel(&e, seq % PEERS, seq);
}

static bool settle(const char *name, uint64_t seq)
{
    lockstate_edit e = edit_of(name);

    lockstate_settle(&e, seq % PEERS, seq);
    return e.changed;
}

static bool holds(const char *name, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(&shelf, name, strlen(name));
    int64_t i = lock ? lockstate_index(lock, seq % PEERS, seq) : -1;

    return i >= 0 && i < (int64_t)lock->holders;
}

static lockstate_entry *entry_of(const char *name, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(&shelf, name, strlen(name));

    return lockstate_entries(lock) + lockstate_index(lock, seq % PEERS, seq);
}

/* ---- the rules in words ---------------------------------------------------------------------- */

enum { X = PAWL_MODE_EXCLUSIVE, S = PAWL_MODE_SHARED, P = PAWL_MODE_PERMITS, L = PAWL_MODE_LATCH };

static void test_locks(void)
{
    begin("an exclusive holder excludes everybody, and leaves nothing behind");
    fresh();
    CHECK(ask("a", 1, X, false) == 0);
    CHECK(ask("a", 2, X, false) == PAWL_EBUSY && ask("a", 3, S, false) == PAWL_EBUSY);
    CHECK(ask("b", 2, X, false) == 0);
    CHECK(release("a", 1) == 0 && release("b", 2) == 0 && shelf.used == 0);
    end();

    begin("readers share; a waiting writer holds later readers back");
    fresh();
    CHECK(ask("a", 1, S, false) == 0 && ask("a", 2, S, false) == 0);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED && ask("a", 4, S, false) == PAWL_EBUSY);
    CHECK(ask("a", 4, S, true) == LOCKSTATE_QUEUED && ask("a", 5, S, true) == LOCKSTATE_QUEUED);
    CHECK(release("a", 1) == 0 && !holds("a", 3));
    CHECK(release("a", 2) == 0 && holds("a", 3) && !holds("a", 4) && was_told(3) && was_told(4));
    CHECK(release("a", 3) == 0 && holds("a", 4) && holds("a", 5) && was_told(4) && was_told(5));
    end();

    begin("tokens rise, and a range is reserved");
    fresh();
    {
        lockstate_edit e = edit_of("a");
        lockstate_entry want = person(1, X, 1, 1000);

        want.ntokens = 10;
        CHECK(lockstate_acquire(&e, &want, &(lockstate_ask){0}) == 0 && want.token == 1);
        CHECK(ask("a", 2, X, true) == LOCKSTATE_QUEUED && release("a", 1) == 0);
        CHECK(entry_of("a", 2)->token == 11);
    }
    end();

    begin("asking again with the same number changes neither grant nor place");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 1, X, false) == 0 && fence == 1);
    CHECK(ask("a", 2, X, true) == LOCKSTATE_QUEUED && ask("a", 3, X, true) == LOCKSTATE_QUEUED);
    CHECK(ask("a", 2, X, true) == LOCKSTATE_QUEUED && release("a", 1) == 0 && holds("a", 2));
    end();

    begin("a writer may read too, past the queue, and others join when it stops writing");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, S, true) == LOCKSTATE_QUEUED);
    {
        lockstate_edit e = edit_of("a");
        lockstate_entry want = person(9, S, 1, 1000);

        CHECK(lockstate_acquire(&e, &want, &(lockstate_ask){.with_seq = 1}) == 0);
    }
    CHECK(!holds("a", 2) && release("a", 1) == 0 && holds("a", 2) && holds("a", 9));
    end();

    begin("a name in use as one type is refused as another");
    fresh();
    CHECK(ask("s", 1, X, false) == 0 && ask_permits(2, 1, 3, true) == PAWL_ESTATE);
    CHECK(ask("s", 2, L, false) == PAWL_ESTATE);
    CHECK(release("s", 1) == 0 && ask_permits(2, 1, 3, true) == 0);
    CHECK(ask("s", 1, X, true) == PAWL_ESTATE);
    end();
}

static void test_leases(void)
{
    begin("a lease that ended can't be renewed or released, and the next is admitted");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    now += 30000 * MS;
    CHECK(renew("a", 1, 1000) == PAWL_ENOTHELD && release("a", 1) == PAWL_ENOTHELD);
    CHECK(settle("a", 2) && holds("a", 2) && !holds("a", 1) && was_told(2));
    end();

    begin("a grant to a waiter lasts the claim time until it is taken up");
    CHECK(entry_of("a", 2)->expires == now + LOCKSTATE_CLAIM_MS * MS);
    CHECK(entry_of("a", 2)->flags & LOCKSTATE_CLAIM);
    CHECK(ask("a", 2, X, true) == 0 && entry_of("a", 2)->expires == now + 30000 * MS);
    CHECK(!(entry_of("a", 2)->flags & LOCKSTATE_CLAIM));
    end();

    begin("an unclaimed grant passes on after the claim time");
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED && ask("a", 4, X, true) == LOCKSTATE_QUEUED);
    CHECK(release("a", 2) == 0 && holds("a", 3) && was_told(4));
    now += LOCKSTATE_CLAIM_MS * MS;
    CHECK(settle("a", 4) && holds("a", 4) && lockstate_index(lockstate_first(&shelf), 3, 3) < 0);
    end();

    begin("a cancelled waiter lets those behind it on, and its successor is told");
    fresh();
    CHECK(ask("a", 1, S, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED && ask("a", 4, S, true) == LOCKSTATE_QUEUED);
    CHECK(cancel("a", 3) == 0 && was_told(4) && !was_told(2));
    CHECK(cancel("a", 2) == 0 && holds("a", 4) && cancel("a", 2) == PAWL_ENOTHELD);
    CHECK(cancel("a", 1) == PAWL_ESTATE);
    end();

    begin("a released lock can linger, without its process, until its time");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    {
        lockstate_edit e = edit_of("a");

        CHECK(lockstate_release(&e, 1, 1, 0, 500) == 0 && was_told(2));
        CHECK(lockstate_release(&e, 1, 1, 0, 500) == 0);
    }
    dead[1] = true;
    CHECK(!settle("a", 2) && renew("a", 1, 1000) == PAWL_ENOTHELD);
    now += 500 * MS;
    CHECK(settle("a", 2) && holds("a", 2));
    end();

    begin("a renewal lengthens a lease, and a late one never shortens it");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    CHECK(renew("a", 1, 60000) == 0 && entry_of("a", 1)->expires == now + 60000 * MS);
    CHECK(renew("a", 1, 100) == 0 && entry_of("a", 1)->expires == now + 60000 * MS);
    CHECK(ntold == 0);
    end();

    begin("records of which only expired entries are left are swept away");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("b", 2, X, false) == 0);
    CHECK(renew("b", 2, 60000) == 0);
    now += 40000 * MS;
    {
        lockstate_edit e = edit_of("c");

        lockstate_sweep(&e);
        CHECK(e.changed && !lockstate_find(&shelf, "a", 1) && lockstate_find(&shelf, "b", 1));
    }
    end();
}

static void test_death(void)
{
    begin("a dead holder is dropped and dead waiters are skipped");
    fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED);
    dead[1] = dead[2] = true;
    CHECK(settle("a", 3) && holds("a", 3));
    CHECK(lockstate_first(&shelf)->holders == 1 && lockstate_first(&shelf)->waiters == 0);
    end();

    begin("break evicts all holders, tells them, and admits the next");
    fresh();
    CHECK(ask("a", 1, S, false) == 0 && ask("a", 2, S, false) == 0);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED);
    {
        lockstate_edit e = edit_of("a");

        CHECK(lockstate_break(&e) == 0 && was_told(1) && was_told(2) && was_told(3));
        CHECK(told[0].why == LOCKSTATE_EVICTED && holds("a", 3));
        CHECK(release("a", 3) == 0 && lockstate_break(&e) == PAWL_ENOTHELD);
    }
    end();
}

static void test_semaphore(void)
{
    begin("permits are given within the capacity, first come first served");
    fresh();
    CHECK(ask_permits(1, 2, 3, false) == 0 && ask_permits(2, 2, 0, true) == LOCKSTATE_QUEUED);
    CHECK(ask_permits(3, 1, 3, false) == PAWL_EBUSY && ask_permits(3, 1, 3, true) == 1);
    CHECK(ask_permits(4, 4, 3, true) == PAWL_EINVAL && ask_permits(4, 1, 5, true) == PAWL_ESTATE);
    {
        lockstate_edit e = edit_of("s");

        CHECK(lockstate_release(&e, 1, 1, 1, 0) == 0 && holds("s", 2) && !holds("s", 3));
        CHECK(lockstate_release(&e, 1, 1, 1, 0) == 0);
        CHECK(lockstate_available(lockstate_first(&shelf)) == 0);
    }
    CHECK(release("s", 1) == 0 && holds("s", 3));
    end();

    begin("a semaphore that nobody uses has no capacity");
    CHECK(release("s", 2) == 0 && release("s", 3) == 0 && shelf.used == 0);
    CHECK(ask_permits(5, 1, 0, false) == PAWL_ESTATE && ask_permits(5, 5, 5, false) == 0);
    end();
}

static void test_latch(void)
{
    lockstate_entry one = person(1, L, 0, 0), two = person(2, L, 0, 0), three = person(3, L, 0, 0);
    lockstate_edit e;

    begin("a latch opens at 0 for all its waiters; a repeated count-down counts once");
    fresh();
    e = edit_of("l");
    CHECK(lockstate_latch_wait(&e, &one, &(lockstate_ask){0}) == 0);
    CHECK(lockstate_latch_set(&e, &one, 2) == 0 && lockstate_latch_set(&e, &one, 2) == 0);
    CHECK(lockstate_latch_set(&e, &two, 2) == PAWL_ESTATE);
    CHECK(ask("l", 4, L, false) == PAWL_EBUSY && ask("l", 4, L, true) == LOCKSTATE_QUEUED);
    CHECK(ask("l", 5, L, true) == LOCKSTATE_QUEUED && ask("l", 6, X, true) == PAWL_ESTATE);
    CHECK(lockstate_latch_down(&e, &two) == 0 && lockstate_latch_down(&e, &two) == 0);
    CHECK(lockstate_first(&shelf)->value == 1);
    e = edit_of("l");
    CHECK(lockstate_latch_down(&e, &three) == 0 && was_told(4) && was_told(5));
    CHECK(!lockstate_in_use(lockstate_first(&shelf)));
    end();

    begin("requests of an earlier round do nothing to the next one");
    CHECK(lockstate_latch_set(&e, &one, 2) == 0 && !lockstate_in_use(lockstate_first(&shelf)));
    {
        lockstate_entry four = person(4, L, 0, 0);

        CHECK(lockstate_latch_set(&e, &four, 1) == 0 && lockstate_latch_down(&e, &three) == 0);
        CHECK(lockstate_first(&shelf)->value == 1);
    }
    end();

    begin("a latch that opened is in nobody's way and is forgotten in time");
    fresh();
    e = edit_of("l");
    CHECK(lockstate_latch_set(&e, &one, 1) == 0 && lockstate_latch_down(&e, &two) == 0);
    now += LOCKSTATE_RECEIPT_MS * MS;
    e = edit_of("x");
    lockstate_sweep(&e);
    CHECK(shelf.used == 0);
    e = edit_of("l");
    CHECK(lockstate_latch_set(&e, &one, 1) == 0 && lockstate_latch_down(&e, &two) == 0);
    CHECK(ask("l", 6, X, false) == 0 && release("l", 6) == 0 && shelf.used == 0);
    end();
}

static void test_format(void)
{
    size_t used;

    begin("a full shelf refuses and stays as it was");
    fresh();
    shelf.cap = 1024;
    while (ask("name", 100 + fence, S, false) == 0)
        ;
    used = shelf.used;
    CHECK(ask("name", 9, S, true) == PAWL_ENOMEM && shelf.used == used && used <= 1024);
    CHECK(lockstate_check(bytes, used));
    end();

    begin("bytes that are no shelf are known as such");
    CHECK(!lockstate_check(bytes, used - 8) && !lockstate_check(bytes, 8));
    bytes[8]++;
    CHECK(!lockstate_check(bytes, used));
    bytes[8]--;
    bytes[0]++;
    CHECK(!lockstate_check(bytes, used));
    end();
}

/* ---- at random against a model --------------------------------------------------------------- */

#define MAX 64

struct one {
    uint64_t seq, peer;
    uint8_t mode;
    uint32_t permits;
    int64_t lease, expires;
    bool holds, claim, linger;
};

struct model {
    struct one list[MAX]; /* holders in order of grant, then the queue */
    int n;
    bool semaphore;
    int64_t capacity;
};

static uint64_t rng;

static uint64_t rnd(uint64_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng % n;
}

static void m_take(struct model *m, int i)
{
    for (m->n--; i < m->n; i++)
        m->list[i] = m->list[i + 1];
}

static int m_holders(const struct model *m)
{
    int h = 0;

    while (h < m->n && m->list[h].holds)
        h++;
    return h;
}

static bool m_compatible(const struct model *m, const struct one *want)
{
    uint64_t permits = want->permits;

    for (int i = 0; i < m_holders(m); i++) {
        if (want->mode == X || m->list[i].mode == X)
            return false;
        permits += m->list[i].permits;
    }
    return want->mode != P || permits <= (uint64_t)m->capacity;
}

static void m_admit(struct model *m)
{
    for (int h = m_holders(m); h < m->n && m_compatible(m, &m->list[h]); h = m_holders(m)) {
        struct one *o = &m->list[h];

        if (dead[o->peer]) {
            m_take(m, h);
            continue;
        }
        o->holds = o->claim = true;
        o->expires = now + (o->lease < LOCKSTATE_CLAIM_MS ? o->lease : LOCKSTATE_CLAIM_MS) * MS;
    }
}

static int m_index(const struct model *m, uint64_t seq)
{
    for (int i = 0; i < m->n; i++)
        if (m->list[i].seq == seq && !m->list[i].linger)
            return i;
    return -1;
}

static bool m_held(const struct model *m, int i)
{
    return i >= 0 && m->list[i].holds && m->list[i].expires > now;
}

static void m_claim(struct one *o, int64_t lease)
{
    o->expires = now + lease * MS > o->expires ? now + lease * MS : o->expires;
    o->claim = false;
}

static int m_acquire(struct model *m, struct one want, bool queue, uint64_t with, int64_t capacity)
{
    int i, w, h;
    bool pass;

    if (m->n && m->semaphore != (want.mode == P))
        return PAWL_ESTATE;
    i = m_index(m, want.seq);
    if (i >= 0 && !m->list[i].holds)
        return LOCKSTATE_QUEUED;
    if (m_held(m, i)) {
        m_claim(&m->list[i], m->list[i].lease);
        return 0;
    }
    if (i >= 0) {
        m_take(m, i);
        m_admit(m);
    }
    if (want.mode == P) {
        int64_t c = m->n ? m->capacity : capacity;

        if (!c || (capacity && capacity != c))
            return PAWL_ESTATE;
        if (want.permits > c)
            return PAWL_EINVAL;
    }
    if (!m->n) {
        m->semaphore = want.mode == P;
        m->capacity = capacity;
    }
    w = with ? m_index(m, with) : -1;
    h = m_holders(m);
    pass = want.mode == S && m_held(m, w) && m->list[w].mode == X &&
           m->list[w].peer == want.peer;
    want.holds = pass || (h == m->n && m_compatible(m, &want));
    if (!want.holds && !queue)
        return PAWL_EBUSY;
    want.expires = want.holds ? now + want.lease * MS : 0;
    for (i = m->n++; want.holds && i > h; i--)
        m->list[i] = m->list[i - 1];
    m->list[i] = want;
    return want.holds ? 0 : LOCKSTATE_QUEUED;
}

static int m_release(struct model *m, uint64_t seq, uint32_t keep, int64_t linger)
{
    int i = m_index(m, seq);

    if (!m_held(m, i)) {
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
        m->list[i].expires = now + linger * MS;
    } else {
        m_take(m, i);
    }
    m_admit(m);
    return 0;
}

static int m_cancel(struct model *m, uint64_t seq)
{
    int i = m_index(m, seq);

    if (i < 0)
        return PAWL_ENOTHELD;
    if (m->list[i].holds && !m->list[i].claim)
        return PAWL_ESTATE;
    m_take(m, i);
    m_admit(m);
    return 0;
}

static void m_drop_holders(struct model *m)
{
    for (int i = 0; i < m->n && m->list[i].holds;)
        if (m->list[i].expires <= now || (!m->list[i].linger && dead[m->list[i].peer]))
            m_take(m, i);
        else
            i++;
}

static void m_settle(struct model *m, uint64_t seq)
{
    int self, i;

    m_drop_holders(m);
    self = m_index(m, seq);
    i = m_holders(m);
    if (self < i) { /* not in the queue: only the front is looked at */
        while (i < m->n && dead[m->list[i].peer])
            m_take(m, i);
    } else {
        for (; m->list[i].seq != seq;)
            if (dead[m->list[i].peer])
                m_take(m, i);
            else
                i++;
    }
    m_admit(m);
}

static int m_break(struct model *m)
{
    bool had, any = m->n && m->list[0].holds;

    m_drop_holders(m);
    had = m_holders(m) > 0;
    while (m_holders(m))
        m_take(m, 0);
    if (any)
        m_admit(m);
    return had ? 0 : PAWL_ENOTHELD;
}

static bool same(const struct model *m, const char *name)
{
    lockstate_lock *lock = lockstate_find(&shelf, name, strlen(name));
    const lockstate_entry *e = lock ? lockstate_entries(lock) : NULL;

    if (!lock || !m->n)
        return !lock && !m->n;
    if ((int)lock->holders != m_holders(m) || (int)(lock->holders + lock->waiters) != m->n)
        return false;
    for (int i = 0; i < m->n; i++) {
        const struct one *o = &m->list[i];

        if (e[i].seq != o->seq || e[i].mode != o->mode || e[i].permits != o->permits ||
            e[i].expires != o->expires || !(e[i].flags & LOCKSTATE_CLAIM) == o->claim ||
            !(e[i].flags & LOCKSTATE_LINGER) == o->linger)
            return false;
    }
    return true;
}

static uint64_t asker;

/* Whoever holds now and waited before must have been told, and whoever is newly in front. */
static bool told_enough(const struct model *was, const struct model *is)
{
    int h = m_holders(is), w = m_holders(was);

    for (int i = w; i < was->n; i++) {
        int k = m_index(is, was->list[i].seq);

        if (k >= 0 && is->list[k].holds && !was_told(was->list[i].seq))
            return false;
    }
    if (h < is->n && is->list[h].seq != asker &&
        (w >= was->n || is->list[h].seq != was->list[w].seq))
        return was_told(is->list[h].seq);
    return true;
}

static int step(struct model *m, const char *name, uint64_t *seq)
{
    lockstate_edit e = edit_of(name);
    uint64_t who = rnd(10) && *seq > 12 ? *seq - rnd(12) : ++*seq, with = rnd(3) ? 0 : who - 8;
    uint8_t mode = name[0] == 's' ? P : rnd(2) ? X : S;
    struct one o = {.seq = who, .peer = who % PEERS, .mode = mode, .lease = 1 + (int64_t)rnd(4000),
                    .permits = mode == P ? 1 + (uint32_t)rnd(4) : 1};
    lockstate_entry want = person(who, mode, o.permits, o.lease);
    lockstate_ask how = {.queue = rnd(4) > 0, .with_seq = with,
                         .capacity = mode == P && rnd(5) ? 3 : 0};
    uint32_t keep = mode == P ? (uint32_t)rnd(3) : 0;
    int64_t linger = rnd(4) ? 0 : (int64_t)rnd(500);

    asker = who;
    switch (rnd(8)) {
    case 0:
    case 1:
    case 2:
        return lockstate_acquire(&e, &want, &how) ==
               m_acquire(m, o, how.queue, with, how.capacity);
    case 3:
        return lockstate_release(&e, who % PEERS, who, keep, linger) ==
               m_release(m, who, keep, linger);
    case 4:
        return lockstate_cancel(&e, who % PEERS, who) == m_cancel(m, who);
    case 5: {
        int i = m_index(m, who), code = m_held(m, i) ? 0 : PAWL_ENOTHELD;

        if (!code) {
            m_claim(&m->list[i], o.lease);
            m->list[i].lease = o.lease;
        }
        return lockstate_renew(&e, who % PEERS, who, o.lease) == code;
    }
    case 6:
        if (rnd(12) == 0)
            return lockstate_break(&e) == m_break(m);
        /* fall through */
    default:
        lockstate_settle(&e, who % PEERS, who);
        m_settle(m, who);
        return 1;
    }
}

static void test_random(void)
{
    static const char *const names[] = {"a", "bb", "sem", "a-much-longer-name-than-the-others"};
    static struct model models[4], was;
    uint64_t tokens[4] = {0}, seq = 0;

    begin("300000 random edits give what the model gives, tokens rise, the right ones are told");
    fresh();
    rng = 88172645463325252u;
    for (int i = 0; i < 300000 && sentence_ok; i++) {
        size_t k = rnd(4);
        lockstate_lock *lock;
        uint64_t newest = tokens[k];

        if (models[k].n >= MAX - 1) {
            CHECK(!"the queue stays short, because leases are");
            break;
        }
        was = models[k];
        CHECK(step(&models[k], names[k], &seq));
        CHECK(same(&models[k], names[k]) && lockstate_check(bytes, shelf.used));
        CHECK(told_enough(&was, &models[k]));
        lock = lockstate_find(&shelf, names[k], strlen(names[k]));
        for (size_t h = 0; lock && h < lock->holders; h++) {
            uint64_t t = lockstate_entries(lock)[h].token;

            int before = m_index(&was, lockstate_entries(lock)[h].seq);

            CHECK(h == 0 || t > lockstate_entries(lock)[h - 1].token);
            if (before < 0 || !was.list[before].holds)
                CHECK(t > tokens[k] || lockstate_entries(lock)[h].flags & LOCKSTATE_LINGER);
            newest = t > newest ? t : newest;
        }
        tokens[k] = newest;
        if (rnd(3) == 0)
            now += (int64_t)rnd(300) * MS;
        if (rnd(50) == 0)
            dead[rnd(PEERS)] = rnd(3) == 0;
        if (!sentence_ok)
            printf("# at step %d, name %s\n", i, names[k]);
    }
    end();
}

int main(void)
{
    test_locks();
    test_leases();
    test_death();
    test_semaphore();
    test_latch();
    test_format();
    test_random();
    printf("1..%d\n", number);
    return failures ? 1 : 0;
}
