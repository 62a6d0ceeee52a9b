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

/* Whoever is there already moves to the end: of all that he is told, the last counts, when all who
 * come before have been told. In a long list he may be there twice. */
void desk_add(struct desk_peers *peers, const lockstate_entry *e, enum lockstate_why why)
{
    struct desk_peer new = {.peer = e->peer, .gen = e->gen, .why = why, .seq = e->seq};

    for (size_t i = peers->n; i-- > 0 && peers->n - i <= 16;)
        if (peers->list[i].peer == e->peer && peers->list[i].gen == e->gen &&
            peers->list[i].why == why) {
            new.seq = peers->list[i].seq == e->seq ? e->seq : 0;
            memmove(&peers->list[i], &peers->list[i + 1],
                    (--peers->n - i) * sizeof *peers->list);
            break;
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
