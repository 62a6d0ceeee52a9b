/* SPDX-License-Identifier: Apache-2.0
 *
 * edit.c - one edit of a shelf, from the op's name to the owners that are notified. See edit.h.
 */
#include "edit.h"

#include <stdlib.h>

uint32_t shelf_bucket(const shelf_engine *se, const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return (uint32_t)(h ^ h >> 32) & (se->nbuckets - 1);
}

bool shelf_peers_push(struct shelf_peers *peers, struct shelf_peer peer)
{
    if (peers->n == peers->room) {
        size_t room = peers->room ? 2 * peers->room : 8;
        struct shelf_peer *list = realloc(peers->list, room * sizeof *list);

        peers->missing |= !list;
        if (!list)
            return false;
        peers->list = list;
        peers->room = room;
    }
    peers->list[peers->n++] = peer;
    return true;
}

static bool same_client(const struct shelf_peer *p, const struct shelf_peer *q)
{
    return p->peer == q->peer && p->gen == q->gen && p->why == q->why;
}

static void remove_at(struct shelf_peers *peers, size_t i)
{
    memmove(&peers->list[i], &peers->list[i + 1], (--peers->n - i) * sizeof *peers->list);
}

/* An owner that is in the list already moves to the end, because its last message must come after
 * all messages to the others. A message for several owners (seq 0) makes a client look at all its
 * waiters on the shelf, so a few owners of one client get a message each: a hand-over notifies the
 * new holder and the new front, and costs the same for any number of owners that wait behind them.
 * More owners than APART get one message together. Only the last RECENT places are searched: in a
 * long list a client may be there twice, which does no harm. */
void shelf_peers_add(struct shelf_peers *peers, const lockstate_entry *e, enum lockstate_why why)
{
    enum { RECENT = 16, APART = 4 };
    struct shelf_peer new = {.peer = e->peer, .gen = e->gen, .why = why, .seq = e->seq};
    size_t oldest = peers->n > RECENT ? peers->n - RECENT : 0, apart = 0;

    for (size_t i = peers->n; i-- > oldest;) {
        const struct shelf_peer *p = &peers->list[i];

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
    shelf_peers_push(peers, new);
}

/* ---- one edit -------------------------------------------------------------------------------- */

static uint64_t draw(void *arg, uint32_t n)
{
    shelf_edit *edit = arg;
    uint64_t token = edit->engine->store->fence(edit->engine->arg, n ? n : 1);

    edit->last = token;
    if (!edit->first)
        edit->first = token;
    return token;
}

static bool is_dead(void *arg, const lockstate_entry *e)
{
    shelf_edit *edit = arg;
    shelf_engine *se = edit->engine;

    if (e->peer == se->peer && e->gen == se->gen)
        return false;
    return se->store->dead(se->arg, e->peer, e->gen, edit->thorough);
}

/* The owner of this edit needs no notice. */
static void note(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    shelf_edit *edit = arg;

    if (why == LOCKSTATE_CHECK && e->client == edit->owner.client && e->seq == edit->owner.seq)
        return;
    shelf_peers_add(&edit->engine->tells, e, why);
}

/* Keep the cause of a refusal for shelf_edit_error. */
static void note_refusal(shelf_edit *edit)
{
    const lockstate_lock *lock = lockstate_find(edit->state.shelf, edit->state.name,
                                                edit->state.name_len);

    edit->type = lock ? lock->type : -1;
    edit->value = lock ? lock->value : 0;
}

static bool run(void *arg, lockstate_shelf *shelf)
{
    shelf_edit *edit = arg;
    shelf_engine *se = edit->engine;

    se->tells.n = se->blockers.n = 0;
    se->tells.missing = se->blockers.missing = false;
    edit->due = PAWL_NEVER;
    edit->first = edit->last = 0;
    edit->state.shelf = shelf;
    edit->state.changed = false;
    lockstate_sweep(&edit->state);
    edit->work(edit);
    edit->full = edit->code == PAWL_ENOMEM;
    if (edit->code == PAWL_ESTATE || edit->code == PAWL_EINVAL)
        note_refusal(edit);
    if (se->tells.missing) { /* change nothing rather than lose a notice */
        edit->code = PAWL_ENOMEM;
        edit->full = false;
        return false;
    }
    if (edit->state.changed && edit->announce && se->store->announce)
        for (size_t i = 0; i < se->tells.n; i++)
            se->store->announce(se->arg, se->tells.list[i].peer, se->tells.list[i].gen);
    return edit->state.changed;
}

static void deliver(const shelf_edit *edit, uint32_t bucket)
{
    shelf_engine *se = edit->engine;
    struct shelf_told what = {.first = edit->first, .last = edit->last, .bucket = bucket};

    for (size_t i = 0; i < se->tells.n; i++) {
        struct shelf_peer *p = &se->tells.list[i];

        what.seq = p->seq;
        if (p->peer != se->peer || p->gen != se->gen)
            se->store->tell(se->arg, p, &what);
        else if (p->why == LOCKSTATE_EVICTED)
            pawl_events_broken(&se->events, 0, edit->op->by,
                               edit->op->by ? strlen(edit->op->by) : 0);
        else
            shelf_told(se, &what);
    }
    se->tells.n = 0;
}

void shelf_edit_run(shelf_edit *edit, const char *name)
{
    shelf_engine *se = edit->engine;
    uint32_t bucket = shelf_bucket(se, name);
    int code;

    edit->state.name = name;
    edit->state.name_len = strlen(name);
    edit->state.now = se->env->now(se->env);
    edit->state.fence = draw;
    edit->state.dead = is_dead;
    edit->state.tell = note;
    edit->state.arg = edit;
    if (edit->op->floor && se->store->raise)
        se->store->raise(se->arg, edit->op->floor);
    code = se->store->edit(se->arg, bucket, run, edit, edit->op->err);
    if (code)
        edit->code = code;
    else
        deliver(edit, bucket);
}

/* ---- ops and entries ------------------------------------------------------------------------- */

lockstate_entry shelf_entry(const shelf_engine *se, const pawl_op *op)
{
    return (lockstate_entry){.client = op->owner.client, .seq = op->owner.seq,
                             .lease_ms = op->lease_ms, .permits = op->permits,
                             .ntokens = op->tokens ? op->tokens : 1, .peer = se->peer,
                             .gen = se->gen, .mode = op->mode};
}

static int wrong_type(const shelf_edit *edit)
{
    static const char *const types[] = {"a lock", "a semaphore", "a latch"};

    return pawl_error_set(edit->op->err, PAWL_ESTATE, "it is in use as %s", types[edit->type]);
}

/* Why the rules refused the op. */
int shelf_edit_error(const shelf_edit *edit)
{
    const pawl_op *op = edit->op;
    bool permits = op->mode == PAWL_MODE_PERMITS, latch = op->mode == PAWL_MODE_LATCH;
    int wanted = permits ? PAWL_TYPE_SEMAPHORE : latch ? PAWL_TYPE_LATCH : PAWL_TYPE_LOCK;

    if (edit->full)
        return pawl_error_set(op->err, PAWL_EBACKEND, "too many owners and waiters");
    if (edit->code == PAWL_ESTATE && edit->type >= 0 && edit->type != wanted)
        return wrong_type(edit);
    if (edit->code == PAWL_ESTATE && latch)
        return pawl_error_set(op->err, PAWL_ESTATE, "the latch is set already, %lld to go",
                              (long long)edit->value);
    if (edit->code == PAWL_ESTATE && edit->type < 0)
        return pawl_error_set(op->err, PAWL_ESTATE, "nobody has set how many permits there are; "
                              "give the capacity");
    if (edit->code == PAWL_ESTATE)
        return pawl_error_set(op->err, PAWL_ESTATE, "the semaphore has %lld permits, not %lld",
                              (long long)edit->value, (long long)op->count);
    if (edit->code == PAWL_EINVAL && permits)
        return pawl_error_set(op->err, PAWL_EINVAL, "%u permits are more than the %lld there are",
                              op->permits, (long long)(edit->type < 0 ? op->count : edit->value));
    return edit->code;
}
