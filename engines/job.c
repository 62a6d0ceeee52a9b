/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c - one edit of a shelf, from the op's name to those who are told of it. See job.h.
 */
#include "job.h"

#include <stdlib.h>

uint32_t desk_bucket(const desk *d, const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return (uint32_t)(h ^ h >> 32) & (d->nbuckets - 1);
}

bool desk_push(struct desk_peers *peers, struct desk_peer peer)
{
    if (peers->n == peers->room) {
        size_t room = peers->room ? 2 * peers->room : 8;
        struct desk_peer *list = realloc(peers->list, room * sizeof *list);

        peers->missing |= !list;
        if (!list)
            return false;
        peers->list = list;
        peers->room = room;
    }
    peers->list[peers->n++] = peer;
    return true;
}

static bool same_client(const struct desk_peer *p, const struct desk_peer *q)
{
    return p->peer == q->peer && p->gen == q->gen && p->why == q->why;
}

static void remove_at(struct desk_peers *peers, size_t i)
{
    memmove(&peers->list[i], &peers->list[i + 1], (--peers->n - i) * sizeof *peers->list);
}

/* An owner that is in the list already moves to the end, because its last message must come after
 * all messages to the others. A message for several owners (seq 0) makes a client look at all its
 * waits on the shelf, so a few owners of one client get a message each: a hand-over tells the new
 * holder and the new front, and costs the same however many owners of that client wait behind them.
 * More owners than APART get one message together. Only the last RECENT places are searched: in a
 * long list a client may be there twice, which does no harm. */
void desk_add(struct desk_peers *peers, const lockstate_entry *e, enum lockstate_why why)
{
    enum { RECENT = 16, APART = 4 };
    struct desk_peer new = {.peer = e->peer, .gen = e->gen, .why = why, .seq = e->seq};
    size_t oldest = peers->n > RECENT ? peers->n - RECENT : 0, apart = 0;

    for (size_t i = peers->n; i-- > oldest;) {
        const struct desk_peer *p = &peers->list[i];

        if (!same_client(p, &new))
            continue;
        if (!p->seq || p->seq == new.seq) {
            new.seq = p->seq;
            remove_at(peers, i);
            apart = 0;
            break;
        }
        apart++;
    }
    for (size_t i = peers->n; apart >= APART && i-- > oldest;)
        if (same_client(&peers->list[i], &new)) {
            new.seq = 0;
            remove_at(peers, i);
        }
    desk_push(peers, new);
}

/* ---- one edit -------------------------------------------------------------------------------- */

static uint64_t draw(void *arg, uint32_t n)
{
    desk_job *job = arg;
    uint64_t token = job->desk->store->fence(job->desk->arg, n ? n : 1);

    job->last = token;
    if (!job->first)
        job->first = token;
    return token;
}

static bool is_dead(void *arg, const lockstate_entry *e)
{
    desk_job *job = arg;
    desk *d = job->desk;

    if (e->peer == d->peer && e->gen == d->gen)
        return false;
    return d->store->dead(d->arg, e->peer, e->gen, job->thorough);
}

/* The owner the job is for knows already. */
static void note(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    desk_job *job = arg;

    if (why == LOCKSTATE_LOOK && e->client == job->owner.client && e->seq == job->owner.seq)
        return;
    desk_add(&job->desk->tells, e, why);
}

/* Keep for desk_words what it ran into. */
static void look_why(desk_job *job)
{
    const lockstate_lock *lock = lockstate_find(job->edit.shelf, job->edit.name,
                                                job->edit.name_len);

    job->type = lock ? lock->type : -1;
    job->value = lock ? lock->value : 0;
}

static bool run(void *arg, lockstate_shelf *shelf)
{
    desk_job *job = arg;
    desk *d = job->desk;

    d->tells.n = d->blockers.n = 0;
    d->tells.missing = d->blockers.missing = false;
    job->due = PAWL_NEVER;
    job->first = job->last = 0;
    job->edit.shelf = shelf;
    job->edit.changed = false;
    lockstate_sweep(&job->edit);
    job->work(job);
    job->full = job->code == PAWL_ENOMEM;
    if (job->code == PAWL_ESTATE || job->code == PAWL_EINVAL)
        look_why(job);
    if (d->tells.missing) { /* rather change nothing than forget somebody */
        job->code = PAWL_ENOMEM;
        job->full = false;
        return false;
    }
    if (job->edit.changed && job->announce && d->store->announce)
        for (size_t i = 0; i < d->tells.n; i++)
            d->store->announce(d->arg, d->tells.list[i].peer, d->tells.list[i].gen);
    return job->edit.changed;
}

static void deliver(const desk_job *job, uint32_t bucket)
{
    desk *d = job->desk;
    struct desk_told what = {.first = job->first, .last = job->last, .bucket = bucket};

    for (size_t i = 0; i < d->tells.n; i++) {
        struct desk_peer *p = &d->tells.list[i];

        what.seq = p->seq;
        if (p->peer != d->peer || p->gen != d->gen)
            d->store->tell(d->arg, p, &what);
        else if (p->why == LOCKSTATE_EVICTED)
            desk_broken(d);
        else
            desk_told(d, &what);
    }
    d->tells.n = 0;
}

void desk_perform(desk_job *job, const char *name)
{
    desk *d = job->desk;
    uint32_t bucket = desk_bucket(d, name);
    int code;

    job->edit.name = name;
    job->edit.name_len = strlen(name);
    job->edit.now = d->env->now(d->env);
    job->edit.fence = draw;
    job->edit.dead = is_dead;
    job->edit.tell = note;
    job->edit.arg = job;
    if (job->op->floor && d->store->raise)
        d->store->raise(d->arg, job->op->floor);
    code = d->store->edit(d->arg, bucket, run, job, job->op->err);
    if (code)
        job->code = code;
    else
        deliver(job, bucket);
}

/* ---- ops and entries ------------------------------------------------------------------------- */

lockstate_entry desk_entry(const desk *d, const pawl_op *op)
{
    return (lockstate_entry){.client = op->owner.client, .seq = op->owner.seq,
                             .lease_ms = op->lease_ms, .permits = op->permits,
                             .ntokens = op->tokens ? op->tokens : 1, .peer = d->peer,
                             .gen = d->gen, .mode = op->mode};
}

static int wrong_type(const desk_job *job)
{
    static const char *const types[] = {"a lock", "a semaphore", "a latch"};

    return pawl_error_set(job->op->err, PAWL_ESTATE, "it is in use as %s", types[job->type]);
}

/* Say in words why the rules refused it. */
int desk_words(const desk_job *job)
{
    const pawl_op *op = job->op;
    bool permits = op->mode == PAWL_MODE_PERMITS, latch = op->mode == PAWL_MODE_LATCH;
    int wanted = permits ? PAWL_TYPE_SEMAPHORE : latch ? PAWL_TYPE_LATCH : PAWL_TYPE_LOCK;

    if (job->full)
        return pawl_error_set(op->err, PAWL_EBACKEND, "too many owners and waiters");
    if (job->code == PAWL_ESTATE && job->type >= 0 && job->type != wanted)
        return wrong_type(job);
    if (job->code == PAWL_ESTATE && latch)
        return pawl_error_set(op->err, PAWL_ESTATE, "the latch is set already, %lld to go",
                              (long long)job->value);
    if (job->code == PAWL_ESTATE && job->type < 0)
        return pawl_error_set(op->err, PAWL_ESTATE, "nobody has set how many permits there are; "
                              "give the capacity");
    if (job->code == PAWL_ESTATE)
        return pawl_error_set(op->err, PAWL_ESTATE, "the semaphore has %lld permits, not %lld",
                              (long long)job->value, (long long)op->count);
    if (job->code == PAWL_EINVAL && permits)
        return pawl_error_set(op->err, PAWL_EINVAL, "%u permits are more than the %lld there are",
                              op->permits, (long long)(job->type < 0 ? op->count : job->value));
    return job->code;
}
