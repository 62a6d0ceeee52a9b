/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lockstate_random.c - the rules of locks at random: every edit is made to the shelf and to a
 * model, and both must give the same answer and come to the same state.
 */
#include "check.h"
#include "lockstate_model.h"

static const char *const names[] = {"a", "bb", "sem", "a-much-longer-name-than-the-others"};

static struct run {
    int step;
    size_t name;             /* that this step is about */
    uint64_t seq, asker;     /* the latest owner; whose request this step is */
    struct model models[4], was;
    uint64_t tokens[4];      /* the largest seen */
} run;

#define CHECK_STEP(condition)                                                                      \
    ((condition) ? (void)0                                                                         \
                 : check_fail(__FILE__, __LINE__, "%s at step %d, name %s", #condition, run.step,  \
                              names[run.name]))

static uint64_t rnd(uint64_t n)
{
    static uint64_t rng = 88172645463325252u;

    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng % n;
}

static bool same(const struct model *m, const char *name)
{
    lockstate_lock *lock = lockstate_find(&world.shelf, name, strlen(name));
    const lockstate_entry *e = lock ? lockstate_entries(lock) : NULL;

    if (!lock || !m->n)
        return !lock && !m->n;
    if ((int)lock->holders != model_holders(m) || (int)(lock->holders + lock->waiters) != m->n)
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

/* Every new holder that waited before, and every new front of the queue, must have been
 * notified. */
static bool told_enough(const struct model *was, const struct model *is)
{
    int h = model_holders(is), w = model_holders(was);

    for (int i = w; i < was->n; i++) {
        int k = model_index(is, was->list[i].seq);

        if (k >= 0 && is->list[k].holds && !was_told(was->list[i].seq))
            return false;
    }
    if (h < is->n && is->list[h].seq != run.asker &&
        (w >= was->n || is->list[h].seq != was->list[w].seq))
        return was_told(is->list[h].seq);
    return true;
}

/* Holders came in the order of their tokens, and new ones have larger tokens than all before. */
static void check_tokens(const lockstate_lock *lock)
{
    uint64_t *largest = &run.tokens[run.name], newest = *largest;

    for (size_t h = 0; lock && h < lock->holders; h++) {
        const lockstate_entry *e = &lockstate_entries(lock)[h];
        int before = model_index(&run.was, e->seq);

        CHECK_STEP(h == 0 || e->token > e[-1].token);
        if (before < 0 || !run.was.list[before].holds)
            CHECK_STEP(e->token > *largest || e->flags & LOCKSTATE_LINGER);
        newest = e->token > newest ? e->token : newest;
    }
    *largest = newest;
}

/* One edit of both. Returns whether they gave the same answer. */
static bool edit_both(struct model *m, const char *name)
{
    lockstate_edit e = world_edit(name);
    uint64_t who = rnd(10) && run.seq > 12 ? run.seq - rnd(12) : ++run.seq;
    uint64_t with = rnd(3) ? 0 : who - 8;
    uint8_t mode = name[0] == 's' ? P : rnd(2) ? X : S;
    struct one o = {.seq = who, .peer = who % PEERS, .mode = mode, .lease = 1 + (int64_t)rnd(4000),
                    .permits = mode == P ? 1 + (uint32_t)rnd(4) : 1};
    lockstate_entry want = world_person(who, mode, o.permits, o.lease);
    lockstate_ask how = {.queue = rnd(4) > 0, .with_seq = with,
                         .capacity = mode == P && rnd(5) ? 3 : 0};
    uint32_t keep = mode == P ? (uint32_t)rnd(3) : 0;
    int64_t linger = rnd(4) ? 0 : (int64_t)rnd(500);

    run.asker = who;
    switch (rnd(8)) {
    case 0:
    case 1:
    case 2:
        return lockstate_acquire(&e, &want, &how) == model_acquire(m, o, &how);
    case 3:
        return lockstate_release(&e, who % PEERS, who, keep, linger) ==
               model_release(m, who, keep, linger);
    case 4:
        return lockstate_cancel(&e, who % PEERS, who) == model_cancel(m, who);
    case 5:
        return lockstate_renew(&e, who % PEERS, who, o.lease) == model_renew(m, who, o.lease);
    case 6:
        if (rnd(12) == 0)
            return lockstate_break(&e) == model_break(m);
        /* fall through */
    default:
        lockstate_expire(&e, who % PEERS, who);
        model_expire(m, who);
        return true;
    }
}

CASE("300000 random edits give what the model gives, tokens rise, the right ones are told")
{
    world_fresh();
    for (; run.step < 300000; run.step++) {
        const char *name = names[run.name = rnd(4)];
        struct model *m = &run.models[run.name];

        CHECK_STEP(m->n < MODEL_MAX - 1); /* the queue stays short, because leases are */
        run.was = *m;
        CHECK_STEP(edit_both(m, name));
        CHECK_STEP(same(m, name));
        CHECK_STEP(lockstate_check(world.shelf.bytes, world.shelf.used));
        CHECK_STEP(told_enough(&run.was, m));
        check_tokens(lockstate_find(&world.shelf, name, strlen(name)));
        if (rnd(3) == 0)
            world.now += (int64_t)rnd(300) * MS;
        if (rnd(50) == 0)
            world.dead[rnd(PEERS)] = rnd(3) == 0;
    }
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
