/* SPDX-License-Identifier: Apache-2.0
 *
 * holds.c - writes the log of a free run: which owner held which name, and when (holds.h).
 *
 * A hold lasts from the return of the acquire to the last time that pawl_lock_valid_ms() was above
 * 0. The first instant is taken after the acquire, the second before the call of
 * pawl_lock_valid_ms(), so a hold in the log is never longer than the library said. Where this file
 * can't know the end (a handle that is freed, threads that share a handle), the logged hold is
 * shorter.
 *
 * A slot is one owner's hold of one name: a thread's or a handle's, exclusive or shared. One mutex
 * guards all slots; the mutex is never held during a call of Pawl. Only the thread that took a
 * record out of its slot may still write that record.
 */
#include "holds.h"

#include <string.h>

enum { SLOTS = 256, LOTS = 32, FAULT_MS = 300 };

struct slot {
    int64_t client, name, owner, mode;
    struct object *via; /* the object through which the hold was acquired */
    struct record *record;
    int count, through; /* number of acquires: all, and through a multi-lock */
};

/* The permits that were acquired through a semaphore's handle, newest last. */
struct lots {
    struct record *record[LOTS];
    int n;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[SLOTS];
static struct lots lots[MAX_OBJECTS];
static int nslots, process;
static struct log *the_log;

void holds_open(struct log *log, int number)
{
    the_log = log;
    process = number;
}

struct record *log_record(int type)
{
    static struct record rest; /* takes the records that no longer fit */
    long long n = atomic_fetch_add(&the_log->count, 1);
    struct record *r = n < LOG_RECORDS ? &the_log->records[n] : &rest;

    r->process = process;
    r->type = type;
    return r;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static int64_t owner_of(const struct object *o, int thread)
{
    return process * 1000000LL + (o->owner == PAWL_OWNER_HANDLE ? 10000 + o->id
                                                                 : o->client * 100 + thread);
}

static struct slot *slot_of(const struct object *o, int thread)
{
    int64_t owner = owner_of(o, thread), mode = o->kind == PAWL_READ;
    struct slot *s;

    for (int i = 0; i < nslots; i++) {
        s = &slots[i];
        if (s->client == o->client && s->name == o->name && s->owner == owner && s->mode == mode)
            return s;
    }
    s = &slots[nslots < SLOTS - 1 ? nslots++ : SLOTS - 1];
    *s = (struct slot){.client = o->client, .name = o->name, .owner = owner, .mode = mode};
    return s;
}

static void see(struct record *r, int64_t at, int64_t valid_ms)
{
    if (r && !r->leaving && at > r->valid) {
        r->valid = at;
        r->until = at + valid_ms * 1000000;
    }
}

/* The slot is read before and after pawl_lock_valid_ms(). If a release of this hold had begun
 * before the call, the second reading shows that. */
static void observe_lock(struct object *o, int thread)
{
    struct record *before;
    int64_t at, valid_ms;

    pthread_mutex_lock(&mutex);
    before = slot_of(o, thread)->record;
    pthread_mutex_unlock(&mutex);
    if (!before)
        return;
    at = clock_ns();
    valid_ms = pawl_lock_valid_ms(o->p);
    if (valid_ms <= 0 || pawl_lock_token(o->p) != (uint64_t)before->token)
        return;
    pthread_mutex_lock(&mutex);
    if (slot_of(o, thread)->record == before)
        see(before, at, valid_ms);
    pthread_mutex_unlock(&mutex);
}

static void fill(struct record *r, const struct op *op, const struct object *o)
{
    r->thread = op->thread;
    r->object = o->id;
    r->owner = owner_of(o, op->thread);
    r->name = o->name;
    r->client = o->client;
    r->mode = o->type == SEM ? MODE_PERMITS : o->kind == PAWL_READ ? MODE_SHARED : MODE_EXCLUSIVE;
    r->lease = o->lease ? o->lease : op->run->program->clients[o->client].watchdog;
    r->at_least = o->at_least;
    r->wait = o->type == LOCK ? o->max_hold : 0; /* of a hold: max_hold_ms */
    r->begin = op->began;
}

static void end_slot(struct slot *s, int how, int64_t left)
{
    struct record *r = s->record;

    if (!r)
        return;
    if (!r->leaving)
        r->leaving = clock_ns();
    r->how = how;
    r->left = left;
    s->record = NULL;
    s->count = 0;
}

/* The token tells holds apart: meanwhile another thread may have released this hold, and another
 * acquire may have got the lock again. The hold with the token began before `got`. The hold belongs
 * to the handle that asked first, although a re-entry may be logged before the callback of that
 * acquire. */
static void got_lock(struct op *op, struct object *o)
{
    uint64_t token = pawl_lock_token(o->p);
    int64_t got = clock_ns();
    struct slot *s;

    if (!token)
        return;
    pthread_mutex_lock(&mutex);
    s = slot_of(o, op->thread);
    if (s->record && s->record->token != (int64_t)token)
        end_slot(s, ENDED_UNKNOWN, 0);
    if (!s->record) {
        s->record = log_record(RECORD_HOLD);
        fill(s->record, op, o);
        s->record->token = (int64_t)token;
        s->record->got = got;
        s->via = o;
        s->count = s->through = 0;
    } else if (op->began < s->record->begin) {
        fill(s->record, op, o);
        s->via = o;
    }
    s->count++;
    s->through += op->object->type == MULTI;
    pthread_mutex_unlock(&mutex);
    observe_lock(o, op->thread);
}

static void leaving_lock(struct op *op, struct object *o)
{
    struct slot *s;

    observe_lock(o, op->thread);
    pthread_mutex_lock(&mutex);
    s = slot_of(o, op->thread);
    op->leaves = s->record;
    if (s->record && s->count <= 1 && !s->record->leaving)
        s->record->leaving = clock_ns();
    pthread_mutex_unlock(&mutex);
}

/* pawl_lock_hold_count() decides whether the hold is over, because another thread may use the same
 * handle. A callback can't ask for another thread's hold, and may run when the owner has acquired
 * again. */
static void left_lock(struct op *op, struct object *o)
{
    bool here = !op->async || o->owner == PAWL_OWNER_HANDLE;
    int still = o->freed || !here ? 0 : pawl_lock_hold_count(o->p);
    struct slot *s;

    pthread_mutex_lock(&mutex);
    s = slot_of(o, op->thread);
    if (op->async && op->object->type == LOCK && s->record != op->leaves) {
        pthread_mutex_unlock(&mutex);
        return;
    }
    if (s->record && (op->code == 0 || op->code == PAWL_ELOST) && s->count > 0)
        s->count--;
    still = here ? still : s->count;
    if (s->record && (!still || (op->code == 0 && !s->count))) {
        end_slot(s, op->code == 0           ? ENDED_RELEASED
                    : op->code == PAWL_ELOST ? ENDED_LOST
                                             : ENDED_UNKNOWN,
                 op->code == 0 ? op->ended : 0);
    } else if (s->record) {
        s->record->leaving = 0;
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- Permits --------------------------------------------------------------------------------- */

static void observe_permits(struct object *o)
{
    struct record *before[LOTS];
    int64_t at, valid_ms;
    int n;

    pthread_mutex_lock(&mutex);
    n = lots[o->id].n;
    memcpy(before, lots[o->id].record, sizeof before);
    pthread_mutex_unlock(&mutex);
    at = clock_ns();
    valid_ms = n ? pawl_semaphore_valid_ms(o->p) : 0;
    if (valid_ms <= 0)
        return;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < n && i < lots[o->id].n; i++)
        if (lots[o->id].record[i] == before[i])
            see(before[i], at, valid_ms);
    pthread_mutex_unlock(&mutex);
}

static void got_permits(struct op *op, struct object *o)
{
    struct lots *l = &lots[o->id];

    pthread_mutex_lock(&mutex);
    if (l->n < LOTS) {
        struct record *r = log_record(RECORD_HOLD);

        fill(r, op, o);
        r->permits = op->step.a;
        r->capacity = o->permits;
        r->token = 0; /* the handle's token may be of another thread's permits */
        r->got = op->ended;
        l->record[l->n++] = r;
    }
    pthread_mutex_unlock(&mutex);
    observe_permits(o);
}

/* From here on the log no longer claims these permits, whatever the release returns. */
static void leaving_permits(struct op *op, struct object *o)
{
    struct lots *l = &lots[o->id];
    int64_t n = op->step.a;

    observe_permits(o);
    pthread_mutex_lock(&mutex);
    for (int i = l->n - 1; i >= 0 && n > 0; i--) {
        struct record *r = l->record[i];

        if (r->leaving)
            continue;
        if (r->permits > n) {
            r->permits -= n;
            break;
        }
        n -= r->permits;
        r->leaving = clock_ns();
    }
    pthread_mutex_unlock(&mutex);
}

static void left_permits(struct op *op, struct object *o)
{
    struct lots *l = &lots[o->id];
    int kept = 0;

    pthread_mutex_lock(&mutex);
    for (int i = 0; i < l->n; i++) {
        struct record *r = l->record[i];

        if (r->leaving) {
            r->how = op->code == 0 ? ENDED_RELEASED : ENDED_UNKNOWN;
            r->left = op->code == 0 ? op->ended : 0;
        } else {
            l->record[kept++] = r;
        }
    }
    l->n = kept;
    pthread_mutex_unlock(&mutex);
}

/* ---- Hooks ----------------------------------------------------------------------------------- */

static void each_lock(struct op *op, void (*fn)(struct op *, struct object *))
{
    struct object *o = op->object;

    if (o->type == LOCK && o->p)
        fn(op, o);
    for (int i = 0; o->type == MULTI && i < o->nmembers; i++) {
        struct object *m = &op->run->program->objects[o->members[i]];

        if (pthread_rwlock_tryrdlock(&m->guard))
            continue;
        if (!m->freed)
            fn(op, m);
        pthread_rwlock_unlock(&m->guard);
    }
}

static void end_client(int64_t client, int code, int64_t at)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < nslots; i++)
        if (slots[i].client == client)
            end_slot(&slots[i], ENDED_CLOSED, code == 0 ? at : 0);
    pthread_mutex_unlock(&mutex);
}

/* From now on the service may keep the lock for the time that the renewal asks for. */
static void renewing_lock(struct op *op, struct object *o)
{
    struct record *r;

    pthread_mutex_lock(&mutex);
    r = slot_of(o, op->thread)->record;
    if (r && op->step.a > r->lease)
        r->lease = op->step.a;
    pthread_mutex_unlock(&mutex);
}

static void before(struct op *op)
{
    struct record *r = log_record(RECORD_CALL);

    op->record = r;
    op->began = clock_ns();
    r->thread = op->thread;
    r->verb = op->step.kind;
    r->wait = op->step.kind == DO_sacquire ? op->step.b : op->step.a;
    r->object = op->step.object;
    r->client = op->object ? op->object->client : op->step.object;
    r->name = op->object ? op->object->name : -1;
    r->mode = !op->object              ? -1
              : op->object->type == SEM ? MODE_PERMITS
                                        : op->object->kind == PAWL_READ;
    r->permits = op->step.a;
    r->at_least = op->object ? op->object->type : -1; /* in a call: the object's type */
    r->begin = op->began;
    if (op->step.kind == DO_release || op->step.kind == DO_rstart)
        each_lock(op, leaving_lock);
    else if (op->step.kind == DO_srelease)
        leaving_permits(op, op->object);
    else if (op->step.kind == DO_renew)
        each_lock(op, renewing_lock);
}

static void after(struct op *op)
{
    struct record *r = op->record;

    r->code = op->code;
    r->got = op->ended;
    if (op->skipped)
        r->verb = DO_sleep;
    switch (op->step.kind) {
    case DO_acquire:
    case DO_start:
        if (!op->code)
            each_lock(op, got_lock);
        break;
    case DO_release:
    case DO_rstart:
        each_lock(op, left_lock);
        break;
    case DO_sacquire:
        if (!op->code)
            got_permits(op, op->object);
        break;
    case DO_srelease:
        left_permits(op, op->object);
        break;
    case DO_inspect:
        r->token = op->waiters;
        break;
    case DO_close:
        end_client(op->step.object, op->code, op->ended);
        r->permits = op->code ? 0 : holders_left(op->run, op->step.object);
        break;
    default:
        break;
    }
}

static void done(struct op *op)
{
    op->record->dones = op->dones;
}

static void observe_one(struct op *op, struct object *o)
{
    observe_lock(o, op->thread);
}

static void hold(struct op *op)
{
    int64_t until = clock_ns() + op->step.a * 1000000;

    do {
        if (op->object->type == SEM)
            observe_permits(op->object);
        else
            each_lock(op, observe_one);
        nap_us(500);
    } while (clock_ns() < until);
}

/* Wait until the fault has begun. A fault that can't begin because another fault is under way is
 * skipped. */
static void fault(struct op *op)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    long long number;
    int64_t until = clock_ns() + FAULT_MS * 1000000LL;

    pthread_mutex_lock(&one);
    the_log->which = op->step.a;
    number = atomic_fetch_add(&the_log->asked, 1) + 1;
    while (the_log->begun < number && clock_ns() < until)
        nap_us(100);
    pthread_mutex_unlock(&one);
}

/* Freeing a multi-lock releases the locks that were acquired through the multi-lock. */
static bool ends_with(const struct slot *s, const struct object *o)
{
    for (int i = 0; o->type == MULTI && i < o->nmembers; i++)
        if (s->record && s->via->id == o->members[i] && s->through >= s->count)
            return true;
    return s->via == o;
}

/* Log an action that is no step, or that a callback did, so that the judge knows of the action. */
static void note(const struct object *o, int verb)
{
    struct record *r = log_record(RECORD_CALL);

    r->thread = -1;
    r->verb = verb;
    r->object = o->id;
    r->client = o->client;
    r->name = o->name;
    r->at_least = o->type;
    r->begin = clock_ns();
    r->got = clock_ns();
}

static void cancelling(struct object *o)
{
    note(o, DO_cancel);
}

static void freeing(struct object *o)
{
    note(o, DO_free);
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < nslots; i++)
        if (ends_with(&slots[i], o))
            end_slot(&slots[i], ENDED_FREED, 0);
    for (int i = 0; i < lots[o->id].n; i++) {
        lots[o->id].record[i]->leaving = clock_ns();
        lots[o->id].record[i]->how = ENDED_FREED;
    }
    lots[o->id].n = 0;
    pthread_mutex_unlock(&mutex);
}

/* Several threads may have holds through one handle: the token tells which hold is lost. */
static void lost(struct object *o)
{
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < nslots; i++)
        if (slots[i].via == o && slots[i].record && !slots[i].record->lost &&
            slots[i].record->token == o->last_token) {
            slots[i].record->lost = clock_ns();
            slots[i].record->code = o->last_reason; /* of a hold: the reason of the loss */
        }
    for (int i = 0; o->type == SEM && i < lots[o->id].n; i++)
        if (!lots[o->id].record[i]->lost) {
            lots[o->id].record[i]->lost = clock_ns();
            lots[o->id].record[i]->code = o->last_reason;
        }
    pthread_mutex_unlock(&mutex);
}

const struct hooks holds_hooks = {before, after, done, hold, fault, freeing, cancelling, lost};
