/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_hammer.c - the engine local under processes that are killed and stopped at random.
 *
 * Several processes acquire, share, queue, cancel and release a few names as fast as possible. A
 * parent kills one of them with SIGKILL every millisecond or so, thousands of times, and stops and
 * continues others. Besides the locks, each process writes marks for the locks that it believes to
 * hold into plain shared memory. A process that gets a lock checks these marks: the mark of another
 * process is a crime unless that process has been sent SIGKILL.
 *
 * A place is the number of a worker; a life is one process in a place, and its mark is
 * life + 1. The marks of a place are written by its worker, and by the parent once that worker has
 * ended; the mark of a name's writer is written by the process that believes to be the writer.
 *
 * $HAMMER_KILLS is the number of kills.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "local_client.h"

enum { WORKERS = 8, NAMES = 3, LIVES = 8192, PERMITS = 2 };

static const char *const names[NAMES] = {"a", "b", "c"};

static struct shared {
    atomic_bool killed[LIVES]; /* SIGKILL has been sent, or will be at once */
    _Atomic uint32_t writer[NAMES];
    _Atomic uint32_t reader[NAMES][WORKERS];
    _Atomic uint32_t permit[WORKERS]; /* how many permits the worker holds, in its life */
    _Atomic uint32_t permit_life[WORKERS];
    _Atomic uint64_t token[NAMES], writer_token[NAMES]; /* the largest of all, and of writers */
    _Atomic uint64_t grants, crimes, longest, late;
    atomic_bool finish;
} *shared;

/* ---- a worker -------------------------------------------------------------------------------- */

struct worker {
    struct client client;
    uint32_t place, life;
    uint64_t rng;
};

static uint64_t rnd(struct worker *w, uint64_t n)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return w->rng % n;
}

static void crime(struct worker *w, const char *what, int name, uint32_t other)
{
    atomic_fetch_add(&shared->crimes, 1);
    check_note("life %u in place %u: %s %d, other %u", w->life, w->place, what, name, other);
}

static bool lives(uint32_t mark)
{
    return mark && !atomic_load(&shared->killed[mark - 1]);
}

static void enter(struct worker *w, int name, int mode, uint64_t token)
{
    uint64_t last = atomic_load(&shared->token[name]);

    /* Readers get the lock together, in any order, but after every earlier writer. */
    if (token <= (mode == PAWL_MODE_EXCLUSIVE ? last : atomic_load(&shared->writer_token[name])))
        crime(w, "token not larger, name", name, (uint32_t)(last - token));
    while (token > last && !atomic_compare_exchange_weak(&shared->token[name], &last, token))
        ;
    if (mode == PAWL_MODE_EXCLUSIVE) {
        uint32_t before = atomic_exchange(&shared->writer[name], w->life + 1);

        atomic_store(&shared->writer_token[name], token);
        if (lives(before))
            crime(w, "two writers of", name, before - 1);
    } else {
        atomic_store(&shared->reader[name][w->place], w->life + 1);
        if (lives(atomic_load(&shared->writer[name])))
            crime(w, "a writer beside a reader of", name, atomic_load(&shared->writer[name]) - 1);
    }
    for (uint32_t i = 0; mode == PAWL_MODE_EXCLUSIVE && i < WORKERS; i++) {
        uint32_t reader = atomic_load(&shared->reader[name][i]);

        if (lives(reader))
            crime(w, "a reader beside a writer of", name, reader - 1);
    }
}

static void leave(struct worker *w, int name, int mode)
{
    if (mode == PAWL_MODE_EXCLUSIVE)
        atomic_store(&shared->writer[name], 0);
    else
        atomic_store(&shared->reader[name][w->place], 0);
}

static void linger_a_bit(struct worker *w)
{
    if (rnd(w, 8) == 0)
        usleep((useconds_t)rnd(w, 200));
}

/* Wait for the grant, or an error code. Some acquires are given up after a moment. */
static int get(struct worker *w, pawl_op *op)
{
    int64_t from = clock_now(), took;
    int code;

    client_start(&w->client, op);
    code = client_finish(&w->client, op, rnd(w, 6) ? 30 * SECOND : (int64_t)rnd(w, 300000));
    took = clock_now() - from;
    if (code == 0)
        atomic_fetch_add(&shared->grants, 1);
    if (took > (int64_t)atomic_load(&shared->longest))
        atomic_store(&shared->longest, (uint64_t)took);
    if (took > 10 * SECOND)
        atomic_fetch_add(&shared->late, 1);
    return code;
}

static void work_lock(struct worker *w)
{
    int name = (int)rnd(w, NAMES), mode = rnd(w, 3) ? PAWL_MODE_EXCLUSIVE : PAWL_MODE_SHARED;
    pawl_op op = op_acquire(&w->client, names[name], mode, rnd(w, 5) > 0);
    int code = get(w, &op);

    if (code) {
        if (code != PAWL_EBUSY && code != PAWL_ECANCELED)
            crime(w, "acquire says", code, 0);
        return;
    }
    enter(w, name, mode, op.token);
    linger_a_bit(w);
    if (rnd(w, 8) == 0) {
        pawl_renewal item = {.name = op.name, .owner = op.owner, .lease_ms = 30000};
        pawl_op renew = op_of(&w->client, PAWL_OP_RENEW, op.name);

        renew.batch = &item;
        renew.batch_len = 1;
        client_start(&w->client, &renew);
        if (item.code)
            crime(w, "renew says", item.code, 0);
    }
    leave(w, name, mode);
    code = client_release(&w->client, &op);
    if (code)
        crime(w, "release says", code, 0);
}

static void work_semaphore(struct worker *w)
{
    pawl_op op = op_acquire(&w->client, "s", PAWL_MODE_PERMITS, true);
    uint32_t sum = 0;
    int code;

    op.permits = 1 + (uint32_t)rnd(w, PERMITS);
    op.count = PERMITS;
    code = get(w, &op);
    if (code)
        return;
    atomic_store(&shared->permit_life[w->place], w->life + 1);
    atomic_store(&shared->permit[w->place], op.permits);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (lives(atomic_load(&shared->permit_life[i])))
            sum += atomic_load(&shared->permit[i]);
    if (sum > PERMITS)
        crime(w, "permits", (int)sum, 0);
    linger_a_bit(w);
    atomic_store(&shared->permit[w->place], 0);
    if (client_release(&w->client, &op))
        crime(w, "release of permits failed", 0, 0);
}

static void worker(uint32_t place, uint32_t life)
{
    struct worker w = {.place = place, .life = life, .rng = 88172645463325252u + life * 7919u};

    if (client_open(&w.client))
        _exit(1);
    for (int more = 30; more > 0; more -= atomic_load(&shared->finish))
        rnd(&w, 4) ? work_lock(&w) : work_semaphore(&w);
    client_close(&w.client);
    _exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */

static struct crew {
    struct client client; /* the parent's client, which only inspects */
    pid_t pids[WORKERS];
    uint32_t lives[WORKERS], next_life;
    uint64_t rng;
    unsigned stops, unread;
} crew;

static void spawn(uint32_t place)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0)
        worker(place, crew.next_life);
    crew.pids[place] = pid;
    crew.lives[place] = crew.next_life++;
}

/* The k-th kill: kill a worker, and start another one in its place. Some workers are stopped
 * before, and continued or not. */
static void strike(int k)
{
    uint32_t i;

    crew.rng = crew.rng * 6364136223846793005u + 1442695040888963407u;
    i = (uint32_t)(crew.rng >> 33) % WORKERS;
    usleep((useconds_t)(crew.rng >> 40) % 2500);
    if (k % 7 == 0) {
        kill(crew.pids[i], SIGSTOP);
        usleep((useconds_t)(crew.rng >> 20) % 3000);
        if (k % 2)
            kill(crew.pids[i], SIGCONT);
        crew.stops++;
    }
    atomic_store(&shared->killed[crew.lives[i]], true);
    kill(crew.pids[i], SIGKILL);
    waitpid(crew.pids[i], NULL, 0);
    atomic_store(&shared->permit[i], 0);
    spawn(i);
}

static int no_row(void *arg, const pawl_info *row)
{
    (void)arg;
    return !row->name || strlen(row->name) != 1;
}

static void look_on(void)
{
    pawl_op look = op_of(&crew.client, PAWL_OP_LIST, "?");

    look.row = no_row;
    client_start(&crew.client, &look);
    crew.unread += look.code != 0;
}

static void let_them_finish(void)
{
    atomic_store(&shared->finish, true);
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status = 0;

        waitpid(crew.pids[i], &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

CASE("killed and stopped at random, processes never leave a lock broken or stuck")
{
    const char *wanted = getenv("HAMMER_KILLS");
    int kills = wanted ? atoi(wanted) : 2000;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && !client_open(&crew.client));
    crew.rng = random_number();
    for (uint32_t i = 0; i < WORKERS; i++)
        spawn(i);
    for (int k = 0; k < kills && crew.next_life < LIVES - 1; k++) {
        strike(k);
        look_on();
    }
    let_them_finish();
    check_note("%d kills, %u stops, %llu grants, longest wait %llu ms", kills, crew.stops,
               (unsigned long long)shared->grants, (unsigned long long)shared->longest / 1000000);
    CHECK(crew.unread == 0 && shared->crimes == 0 && shared->late == 0);
    for (int i = 0; i < NAMES; i++) {
        pawl_op op = op_acquire(&crew.client, names[i], PAWL_MODE_EXCLUSIVE, false);

        client_start(&crew.client, &op);
        CHECK(op.code == 0 && client_release(&crew.client, &op) == 0);
    }
    client_close(&crew.client);
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
