/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - the engine "memory:[SPACE]": locks inside one process.
 *
 * All clients of a process that open the same space share that space. A space ends with its last
 * client. A forked child inherits its parent's spaces in memory, but never uses them: the child
 * opens new spaces of its own. `memory:` is the reference for tests and for the simulator, so the
 * engine uses no event loop, no clock but env's, and nothing that depends on addresses in memory.
 *
 * A space is a store (shelf_engine.h): buckets with growing shelves, and an array of client slots.
 * The generation of a client slot rises with each client that takes the slot. An entry on a shelf
 * whose generation is not the slot's belongs to a client that has closed; the entry counts as dead.
 *
 * LOCKING. `spaces_mutex` guards the list of spaces and everything in them. The mutex of a client
 * is held when the core calls the engine, so the order is always client mutex, then
 * `spaces_mutex`; no code here takes the mutex of another client. To notify another client, the
 * engine writes a hint into that client's slot and sends the client's wake, both under
 * `spaces_mutex`, so that the client can't close in between. The other client reads the hint and
 * checks its waiters later, under its own mutex.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "shelf/shelf_engine.h"
#include "fork.h"

#define BUCKETS 256

typedef struct memory memory;

#define TOLD 32

struct client_slot {
    memory *client; /* NULL: free */
    uint32_t gen;
    uint64_t hints; /* SHELF_BIT, SHELF_EVICTED: the shelves to check */
    struct shelf_told told[TOLD]; /* the latest notices, as many as there is room for */
    size_t ntold;
    char by[PAWL_BY_MAX]; /* with SHELF_EVICTED: who broke a lock of this client; "": not known */
    char label[64];
};

typedef struct space {
    struct space *next;
    char *name;
    uint64_t generation; /* the fork generation; a space of the parent process is not ours */
    size_t clients;
    uint64_t fence;
    struct client_slot *slots;
    size_t nslots;
    lockstate_shelf shelves[BUCKETS];
} space;

struct memory {
    pawl_env *env;
    space *space;
    shelf_engine engine;
    pawl_wake wake;
    bool waking, inside; /* inside: an edit is running, and the mutex is held */
    lockstate_shelf copy; /* the copy that `read` returns */
    char label[64]; /* the text that `describe` returns */
};

static pthread_mutex_t spaces_mutex = PTHREAD_MUTEX_INITIALIZER;
static space *spaces;
static uint64_t used_tokens; /* by closed spaces: tokens of new spaces continue from here */

/* ---- the store ------------------------------------------------------------------------------- */

static bool grow(lockstate_shelf *shelf, size_t cap)
{
    unsigned char *bytes;

    if (cap <= shelf->cap)
        return true;
    cap = cap < 1024 ? 1024 : 2 * cap;
    bytes = realloc(shelf->bytes, cap);
    if (!bytes)
        return false;
    shelf->bytes = bytes;
    shelf->cap = cap;
    return true;
}

/* The edit works on a copy, because it may be given up half-way. */
static int store_edit(void *store, uint32_t bucket, shelf_edit_fn *fn, void *arg, pawl_error *err)
{
    memory *m = store;
    lockstate_shelf *shelf = &m->space->shelves[bucket];
    bool room;

    pthread_mutex_lock(&spaces_mutex);
    room = grow(shelf, shelf->used + 2 * LOCKSTATE_GROWTH) &&
           grow(&m->copy, shelf->used + 2 * LOCKSTATE_GROWTH);
    if (room) {
        memcpy(m->copy.bytes, shelf->bytes, shelf->used);
        m->copy.used = shelf->used;
        m->inside = true;
        if (fn(arg, &m->copy)) {
            memcpy(shelf->bytes, m->copy.bytes, m->copy.used);
            shelf->used = m->copy.used;
        }
        m->inside = false;
    }
    pthread_mutex_unlock(&spaces_mutex);
    return room ? 0 : pawl_error_set(err, PAWL_ENOMEM, "out of memory");
}

static lockstate_shelf *store_read(void *store, uint32_t bucket)
{
    memory *m = store;
    lockstate_shelf *shelf = &m->space->shelves[bucket];
    bool room;

    pthread_mutex_lock(&spaces_mutex);
    room = grow(&m->copy, shelf->used);
    m->copy.used = 0;
    if (room && shelf->used) {
        memcpy(m->copy.bytes, shelf->bytes, shelf->used);
        m->copy.used = shelf->used;
    }
    pthread_mutex_unlock(&spaces_mutex);
    return room ? &m->copy : NULL;
}

/* Called inside edit: the mutex is held. */
static uint64_t store_fence(void *store, uint32_t n)
{
    memory *m = store;
    uint64_t first = m->space->fence;

    m->space->fence += n;
    return first;
}

static void store_raise(void *store, uint64_t floor)
{
    memory *m = store;

    pthread_mutex_lock(&spaces_mutex);
    if (m->space->fence <= floor)
        m->space->fence = floor + 1;
    pthread_mutex_unlock(&spaces_mutex);
}

static bool gone(const space *s, uint16_t peer, uint32_t gen)
{
    return peer >= s->nslots || !s->slots[peer].client || s->slots[peer].gen != gen;
}

/* Called inside an edit, and by read-only functions. */
static bool store_dead(void *store, uint16_t peer, uint32_t gen, bool thorough)
{
    memory *m = store;
    bool result;

    (void)thorough;
    if (m->inside)
        return gone(m->space, peer, gen);
    pthread_mutex_lock(&spaces_mutex);
    result = gone(m->space, peer, gen);
    pthread_mutex_unlock(&spaces_mutex);
    return result;
}

static void hint(space *s, uint16_t peer, uint32_t gen, uint64_t bits)
{
    if (!gone(s, peer, gen)) {
        memory *other = s->slots[peer].client;

        s->slots[peer].hints |= bits;
        other->env->wake_send(&other->wake);
    }
}

/* Record that the client `m` has broken a lock. If two clients do so before the holder reads the
 * record, neither is named. */
static void note_breaker(const memory *m, struct client_slot *slot)
{
    char by[PAWL_BY_MAX];

    pawl_client_info_text(by, getpid(), m->env->program, m->env->label, m->env->host);
    if ((slot->hints & SHELF_EVICTED) && strcmp(slot->by, by))
        by[0] = 0;
    memcpy(slot->by, by, sizeof by);
}

static void store_breaker(void *store, char by[PAWL_BY_MAX])
{
    memory *m = store;

    pthread_mutex_lock(&spaces_mutex);
    memcpy(by, m->space->slots[m->engine.peer].by, PAWL_BY_MAX);
    pthread_mutex_unlock(&spaces_mutex);
}

static void store_tell(void *store, const struct shelf_peer *to, const struct shelf_told *what)
{
    space *s = ((memory *)store)->space;
    struct client_slot *slot;

    pthread_mutex_lock(&spaces_mutex);
    if (!gone(s, to->peer, to->gen)) {
        slot = &s->slots[to->peer];
        if (to->why == LOCKSTATE_EVICTED) {
            note_breaker(store, slot);
            hint(s, to->peer, to->gen, SHELF_EVICTED);
        } else if (slot->ntold < TOLD) {
            slot->told[slot->ntold++] = *what;
            hint(s, to->peer, to->gen, 0);
        } else {
            hint(s, to->peer, to->gen, SHELF_BIT(what->bucket));
        }
    }
    pthread_mutex_unlock(&spaces_mutex);
}

static void store_describe(void *store, uint16_t peer, uint32_t gen, pawl_info *row)
{
    memory *m = store;

    m->label[0] = 0;
    pthread_mutex_lock(&spaces_mutex);
    if (!gone(m->space, peer, gen))
        memcpy(m->label, m->space->slots[peer].label, sizeof m->label);
    pthread_mutex_unlock(&spaces_mutex);
    row->pid = getpid();
    row->host = m->env->host;
    row->program = m->env->program;
    row->label = m->label;
}

static const shelf_store memory_store = {
    .edit = store_edit,
    .read = store_read,
    .fence = store_fence,
    .raise = store_raise,
    .dead = store_dead,
    .tell = store_tell,
    .breaker = store_breaker,
    .describe = store_describe,
};

/* ---- coming and going ------------------------------------------------------------------------ */

/* Find the space with this name, or make one. Called with the mutex held. NULL: out of memory. */
static space *find_space(const pawl_env *env, const char *name)
{
    uint64_t generation = pawl__fork_generation();
    space *s = spaces;

    while (s && (s->generation != generation || strcmp(s->name, name)))
        s = s->next;
    if (s)
        return s;
    s = calloc(1, sizeof *s);
    if (!s || !(s->name = strdup(name))) {
        free(s);
        return NULL;
    }
    s->generation = generation;
    s->fence = env->loop ? used_tokens + 1 : 1; /* each world of the simulator begins anew */
    s->next = spaces;
    spaces = s;
    return s;
}

static void free_space(space *s)
{
    space **at = &spaces;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->fence > used_tokens)
        used_tokens = s->fence;
    for (size_t i = 0; i < BUCKETS; i++)
        free(s->shelves[i].bytes);
    free(s->slots);
    free(s->name);
    free(s);
}

/* Take the lowest free client slot. Called with the mutex held. -1: out of memory. */
static int64_t take_slot(memory *m, space *s)
{
    size_t i = 0;
    struct client_slot *slots;

    while (i < s->nslots && s->slots[i].client)
        i++;
    if (i > UINT16_MAX)
        return -1;
    if (i == s->nslots) {
        slots = realloc(s->slots, (i + 1) * sizeof *slots);
        if (!slots)
            return -1;
        s->slots = slots;
        s->slots[s->nslots++] = (struct client_slot){0};
    }
    s->slots[i].client = m;
    s->slots[i].gen++;
    s->slots[i].hints = 0;
    s->slots[i].ntold = 0;
    snprintf(s->slots[i].label, sizeof s->slots[i].label, "%s", m->env->label);
    return (int64_t)i;
}

static bool bury_dead(void *arg, const lockstate_entry *e)
{
    return gone(((memory *)arg)->space, e->peer, e->gen);
}

static void bury_tell(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    (void)why;
    hint(((memory *)arg)->space, e->peer, e->gen, UINT64_MAX & ~SHELF_EVICTED);
}

/* Remove a closed client's grants and waiters from one lock, as if its process had died. */
static void bury(lockstate_edit *edit, lockstate_lock *lock, uint16_t peer, uint32_t gen)
{
    size_t i = 0;

    while (lock && i < (size_t)lock->holders + lock->waiters) {
        lockstate_entry e = lockstate_entries(lock)[i];

        i++;
        if (i > lock->holders && e.peer == peer && e.gen == gen &&
            !lockstate_cancel(edit, e.client, e.seq)) {
            lock = lockstate_find(edit->shelf, edit->name, edit->name_len);
            i = 0;
        }
    }
    lockstate_expire(edit, 0, 0);
}

static void bury_all(memory *m, uint16_t peer, uint32_t gen)
{
    for (size_t b = 0; b < BUCKETS; b++) {
        lockstate_shelf *shelf = &m->space->shelves[b];
        size_t at = 0;

        while (at < shelf->used) {
            lockstate_lock *lock = (void *)(shelf->bytes + at);
            char name[PAWL_NAME_MAX + 1];
            lockstate_edit edit = {.shelf = shelf, .name = name, .name_len = lock->name_len,
                                   .now = m->env->now(m->env), .fence = store_fence,
                                   .dead = bury_dead, .tell = bury_tell, .arg = m};

            memcpy(name, lockstate_name(lock), (size_t)lock->name_len + 1);
            bury(&edit, lock, peer, gen);
            lock = lockstate_find(shelf, name, edit.name_len);
            if (lock)
                at += lock->bytes;
        }
    }
}

static void woken(pawl_wake *wake)
{
    memory *m = wake->arg;
    struct shelf_told told[TOLD];
    struct client_slot *slot;
    uint64_t hints;
    size_t n;

    pthread_mutex_lock(&spaces_mutex);
    slot = &m->space->slots[m->engine.peer];
    hints = slot->hints;
    n = slot->ntold;
    memcpy(told, slot->told, n * sizeof *told);
    slot->hints = slot->ntold = 0;
    pthread_mutex_unlock(&spaces_mutex);
    for (size_t i = 0; i < n; i++)
        shelf_told(&m->engine, &told[i]);
    shelf_check(&m->engine, hints, SHELF_TOLD);
}

static int memory_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    memory *m = self;
    int64_t slot = -1;
    uint32_t gen = 0;

    m->env = env;
    m->wake.fn = woken;
    m->wake.arg = m;
    env->wake_begin(env, &m->wake);
    m->waking = true;
    pawl__fork_mutex_add(&spaces_mutex);
    pthread_mutex_lock(&spaces_mutex);
    m->space = find_space(env, url->rest ? url->rest : "");
    if (m->space) {
        slot = take_slot(m, m->space);
        if (slot >= 0) {
            m->space->clients++;
            gen = m->space->slots[slot].gen;
        } else if (!m->space->clients) {
            free_space(m->space);
        }
    }
    if (slot < 0)
        m->space = NULL;
    pthread_mutex_unlock(&spaces_mutex);
    if (slot < 0 ||
        shelf_engine_init(&m->engine, env, &memory_store, m, BUCKETS, (uint16_t)slot, gen))
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    return 0;
}

static void memory_close(void *self)
{
    memory *m = self;
    uint16_t peer = m->engine.peer;
    uint32_t gen = m->engine.gen;

    shelf_engine_end(&m->engine);
    if (m->space) {
        pthread_mutex_lock(&spaces_mutex);
        m->space->slots[peer].client = NULL;
        if (--m->space->clients)
            bury_all(m, peer, gen);
        else
            free_space(m->space);
        pthread_mutex_unlock(&spaces_mutex);
    }
    if (m->waking)
        m->env->wake_end(m->env, &m->wake);
    free(m->copy.bytes);
    *m = (memory){0};
}

static void memory_submit(void *self, pawl_op *op)
{
    shelf_engine_submit(&((memory *)self)->engine, op);
}

static void memory_cancel(void *self, pawl_op *op)
{
    shelf_engine_cancel(&((memory *)self)->engine, op);
}

static int memory_identity(void *self, char *ret, size_t size)
{
    return snprintf(ret, size, "memory %s", ((memory *)self)->space->name);
}

const pawl_engine pawl_engine_memory = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS |
            PAWL_CAP_LATCH | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_FLOOR | PAWL_CAP_HERE |
            PAWL_CAP_PRIVATE,
    .scheme = "memory",
    .state_size = sizeof(memory),
    .open = memory_open,
    .identity = memory_identity,
    .close = memory_close,
    .submit = memory_submit,
    .cancel = memory_cancel,
};
