/* SPDX-License-Identifier: Apache-2.0
 *
 * stress.c - stress [OPTIONS] URL [SECONDS] [PROCESSES] [THREADS]: a counter in a file, guarded by
 * one lock, while processes are killed at random moments, stopped for a while, and replaced.
 *
 *     --lease=MS    lease of the lock; a killed holder delays the others by the lease, unless the
 *                   service notices the death
 *     --pause=MS    longest pause between two kills
 *     --cut=PORT    a Redis server on this machine, whose connections are cut at random meanwhile
 *
 * The file holds {value, token, intent}. A thread that has the lock reads the file, checks that its
 * own token is larger than the last one, writes its token as the intent, and then value + 1 with
 * its token in one write. If intent and token differ, a holder died in between; this must not
 * happen more often than there were kills.
 *
 * Events are counted on a page that all processes share. Each thread has a slot, and only that
 * thread writes the slot; the parent reads a slot when the process is dead. A thread sets `writing`
 * before the write and clears `writing` after it has counted the write as done, so that a kill
 * leaves exactly one increment in doubt, or none. At the end
 *
 *     done <= value <= done + in doubt
 *
 * A lease may end because the machine was too busy. This is no error of the lock as long as the
 * holder knows: a holder with less than an eighth of its lease left does not write.
 *
 * Processes 0 and 1 are never killed: each of their threads must have had the lock repeatedly. At
 * the end, when no process is left, the lock must be free and its queue empty.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "cutter.h"
#include "pawl.h"

enum { MAX_PROCESSES = 64, MAX_THREADS = 16, SPARED = 2, PATIENCE_MS = 60000, CUT_MS = 20 };

static const char lock_name[] = "stress";

struct record {
    uint64_t value, token, intent;
};

struct slot {
    _Alignas(64) atomic_ullong done;
    atomic_int writing;
    atomic_ullong gave_up;   /* short waits that ended without the lock */
    atomic_llong longest_ms; /* longest wait that ended with the lock */
};

struct board {
    atomic_int stop;
    atomic_ullong violations, unfinished;
    atomic_ullong cuts, lost, unknown; /* with --cut: leases that ended, releases not confirmed */
    struct slot slots[MAX_PROCESSES][MAX_THREADS];
};

struct child {
    pid_t pid;
    bool stopped;
};

static struct board *board;
static const char *url;
static int processes = 16, threads = 4, file;
static int64_t lease_ms = 10000, max_pause_ms = 10, cut_port;
static pid_t cutter;
static struct child children[MAX_PROCESSES];
static uint64_t in_doubt;

/* ---- A child --------------------------------------------------------------------------------- */

struct worker {
    actor actor;
    struct slot *slot;
    pawl_lock *mutex, *fair;
    unsigned seed;
};

static void violation(const char *what, uint64_t a, uint64_t b)
{
    if (atomic_fetch_add(&board->violations, 1) < 20)
        fprintf(stderr, "stress: process %d: %s (%llu, %llu)\n", (int)getpid(), what,
                (unsigned long long)a, (unsigned long long)b);
}

/* Count an error that may happen while connections are cut, and only then. */
static void excuse(atomic_ullong *counter, const char *what, int code)
{
    if (cut_port)
        atomic_fetch_add(counter, 1);
    else
        violation(what, (uint64_t)-code, 0);
}

static void add_one(struct worker *w, pawl_lock *lock)
{
    uint64_t token = pawl_lock_token(lock);
    struct record r;

    if (pread(file, &r, sizeof r, 0) != sizeof r)
        violation("the file can't be read", (uint64_t)errno, 0);
    if (token <= r.token || token <= r.intent)
        violation("the token did not rise", token, r.token > r.intent ? r.token : r.intent);
    if (r.intent != r.token)
        atomic_fetch_add(&board->unfinished, 1);
    if (pwrite(file, &token, sizeof token, offsetof(struct record, intent)) != sizeof token)
        violation("the file can't be written", (uint64_t)errno, 0);
    if (pawl_lock_valid_ms(lock) < lease_ms / 8) {
        excuse(&board->lost, "the lock is not held any more", PAWL_ELOST);
        return;
    }
    r.value++;
    r.token = token;
    atomic_store(&w->slot->writing, 1);
    if (pwrite(file, &r, offsetof(struct record, intent), 0) !=
        (ssize_t)offsetof(struct record, intent))
        violation("the file can't be written", (uint64_t)errno, 0);
    atomic_fetch_add(&w->slot->done, 1);
    atomic_store(&w->slot->writing, 0);
}

/* Most acquires wait until they get the lock; some give up soon, which tests leaving the queue. */
static void one_round(struct worker *w)
{
    int dice = rand_r(&w->seed) % 16;
    pawl_lock *lock = dice == 0 ? w->fair : w->mutex;
    bool hasty = dice < 3;
    int64_t began = now_ms(), waited;
    pawl_error err = {0};
    int code = pawl_lock_acquire(lock, hasty ? dice : PATIENCE_MS, &err);

    if (code && hasty && (code == PAWL_EBUSY || code == PAWL_ETIMEDOUT || /* or nothing said yet: */
                          code == PAWL_ECONN || code == PAWL_EUNKNOWN || code == PAWL_EQUORUM)) {
        atomic_fetch_add(&w->slot->gave_up, 1);
        return;
    }
    if (code) {
        fprintf(stderr, "stress: acquire: %s: %s\n", pawl_errname(code), err.text);
        violation("acquire failed", (uint64_t)-code, 0);
        return;
    }
    waited = now_ms() - began;
    if (waited > atomic_load(&w->slot->longest_ms))
        atomic_store(&w->slot->longest_ms, waited);
    add_one(w, lock);
    code = pawl_lock_release(lock, &err);
    if (code == PAWL_ELOST)
        excuse(&board->lost, "release failed", code);
    else if (code == PAWL_EUNKNOWN || code == PAWL_ECONN)
        excuse(&board->unknown, "release failed", code);
    else if (code)
        violation("release failed", (uint64_t)-code, 0);
}

static void work(void *arg)
{
    while (!atomic_load(&board->stop))
        one_round(arg);
}

static _Noreturn void run_child(int number)
{
    pawl_client_options options = {.size = sizeof options, .watchdog_ms = lease_ms,
                                   .label = number < SPARED ? "spared" : "mortal"};
    pawl_lock_options fair = {.size = sizeof fair, .kind = PAWL_FAIR};
    struct worker workers[MAX_THREADS];
    pawl_client *client;
    pawl_lock *m, *f;
    pawl_error err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pawl_open(&client, url, &options, &err) ||
        pawl_lock_new(&m, client, lock_name, NULL, &err) ||
        pawl_lock_new(&f, client, lock_name, &fair, &err)) {
        fprintf(stderr, "stress: %s\n", err.text);
        _exit(1);
    }
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.slot = &board->slots[number][i], .mutex = m, .fair = f,
                                     .seed = (unsigned)getpid() * 16 + (unsigned)i};
        actor_start(&workers[i].actor, work, &workers[i]);
    }
    for (int i = 0; i < threads; i++)
        actor_join(&workers[i].actor);
    pawl_lock_free(m);
    pawl_lock_free(f);
    exit(pawl_close(client) && !cut_port ? 1 : 0);
}

/* ---- The parent, which opens no client while it forks ---------------------------------------- */

static void start_child(int number)
{
    pid_t pid;

    fflush(NULL);
    pid = fork();
    if (pid == 0)
        run_child(number);
    if (pid < 0) {
        perror("stress: fork");
        exit(1);
    }
    children[number] = (struct child){.pid = pid};
}

static void reap(int number, bool killed)
{
    int status;

    while (waitpid(children[number].pid, &status, 0) < 0 && errno == EINTR)
        ;
    children[number].pid = 0;
    if (!killed && (!WIFEXITED(status) || WEXITSTATUS(status)))
        violation("a child ended badly", (uint64_t)status, 0);
    for (int i = 0; i < threads; i++)
        in_doubt += atomic_exchange(&board->slots[number][i].writing, 0) != 0;
}

static void resume_all(void)
{
    for (int i = 0; i < processes; i++)
        if (children[i].stopped) {
            children[i].stopped = false;
            kill(children[i].pid, SIGCONT);
        }
}

static void start_cutter(void)
{
    fflush(NULL);
    cutter = fork();
    if (cutter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(cut_connections((int)cut_port, CUT_MS, &board->stop, &board->cuts));
    }
}

static void end_cutter(void)
{
    int status = 1;

    if (waitpid(cutter, &status, 0) != cutter || status || !atomic_load(&board->cuts))
        violation("connections could not be cut", (uint64_t)status, 0);
}

/* Kill and stop processes until the time is over; returns the number of kills. */
static uint64_t torment(int64_t ms, uint64_t *stops)
{
    int64_t end = now_ms() + ms, resume_at = 0;
    unsigned seed = (unsigned)getpid();
    uint64_t kills = 0;

    for (int64_t now = now_ms(); now < end; now = now_ms()) {
        int victim = SPARED + rand_r(&seed) % (processes - SPARED);

        if (now >= resume_at)
            resume_all();
        if (rand_r(&seed) % 16 == 0) { /* also a process that is never killed */
            victim = rand_r(&seed) % processes;
            children[victim].stopped = true;
            kill(children[victim].pid, SIGSTOP);
            resume_at = now + rand_r(&seed) % 100;
            ++*stops;
        } else {
            kill(children[victim].pid, SIGKILL);
            reap(victim, true);
            start_child(victim);
            kills++;
        }
        pause_ms(rand_r(&seed) % max_pause_ms);
    }
    resume_all();
    return kills;
}

static int count_row(void *arg, const pawl_info *info)
{
    uint64_t *left = arg;

    if (info->role == PAWL_ROLE_SUMMARY)
        *left = info->holders + info->waiters;
    return 0;
}

static void check_nothing_left(void)
{
    uint64_t left = UINT64_MAX;
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;

    if (pawl_open(&client, url, NULL, &err) ||
        pawl_lock_new(&lock, client, lock_name, NULL, &err) ||
        pawl_lock_acquire(lock, lease_ms * 2 + PATIENCE_MS, &err) ||
        pawl_lock_release(lock, &err) ||
        pawl_inspect(client, lock_name, count_row, &left, &err)) {
        fprintf(stderr, "stress: %s\n", err.text);
        violation("the lock can't be had afterwards", 0, 0);
        return;
    }
    if (left)
        violation("somebody is left at the lock", left, 0);
    pawl_lock_free(lock);
    pawl_close(client);
}

static int verdict(int64_t seconds, uint64_t kills, uint64_t stops)
{
    uint64_t done = 0, gave_up = 0, fewest = UINT64_MAX;
    int64_t longest = 0;
    struct record r = {0};

    for (int i = 0; i < processes; i++)
        for (int k = 0; k < threads; k++) {
            struct slot *s = &board->slots[i][k];
            uint64_t mine = atomic_load(&s->done);

            done += mine;
            gave_up += atomic_load(&s->gave_up);
            longest = atomic_load(&s->longest_ms) > longest ? atomic_load(&s->longest_ms) : longest;
            if (i < SPARED && mine < fewest)
                fewest = mine;
        }
    if (pread(file, &r, sizeof r, 0) != sizeof r || r.value < done || r.value > done + in_doubt)
        violation("increments were lost or made up", r.value, done);
    if (atomic_load(&board->unfinished) > kills + atomic_load(&board->lost))
        violation("more sections were cut short than processes killed",
                  atomic_load(&board->unfinished), kills);
    if (atomic_load(&board->lost) > stops + done / 100 + 1)
        violation("leases are lost too often", atomic_load(&board->lost), done);
    if (fewest < 2)
        violation("a thread was starved", fewest, 0);
    printf("stress %s: %lld s, %d x %d threads, %llu kills, %llu stops, %llu acquisitions "
           "(%llu in doubt, %llu cut short, %llu gave up), counter %llu, longest wait %lld ms, "
           "fewest per spared thread %llu, %llu violations\n",
           url, (long long)seconds, processes, threads, (unsigned long long)kills,
           (unsigned long long)stops, (unsigned long long)done, (unsigned long long)in_doubt,
           (unsigned long long)atomic_load(&board->unfinished), (unsigned long long)gave_up,
           (unsigned long long)r.value, (long long)longest, (unsigned long long)fewest,
           (unsigned long long)atomic_load(&board->violations));
    if (cut_port)
        printf("stress: %llu connections cut, %llu leases lost, %llu releases unconfirmed\n",
               (unsigned long long)atomic_load(&board->cuts),
               (unsigned long long)atomic_load(&board->lost),
               (unsigned long long)atomic_load(&board->unknown));
    return atomic_load(&board->violations) ? 1 : 0;
}

static int run(int64_t seconds, const char *dir)
{
    const struct record zero = {0};
    uint64_t kills, stops = 0;
    char path[4200];

    snprintf(path, sizeof path, "%s/counter", dir);
    file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (file < 0 || board == MAP_FAILED || pwrite(file, &zero, sizeof zero, 0) != sizeof zero) {
        perror("stress");
        return 1;
    }
    for (int i = 0; i < processes; i++)
        start_child(i);
    if (cut_port)
        start_cutter();
    kills = torment(seconds * 1000, &stops);
    atomic_store(&board->stop, 1);
    for (int i = 0; i < processes; i++)
        reap(i, false);
    if (cut_port)
        end_cutter();
    check_nothing_left();
    return verdict(seconds, kills, stops);
}

/* Options go before the URL; returns how many there are. */
static int take_options(int argc, char **argv)
{
    static const struct {
        const char *name;
        int64_t *value;
    } known[] = {{"--lease=", &lease_ms}, {"--pause=", &max_pause_ms}, {"--cut=", &cut_port}};
    int n = 0;

    for (; n + 1 < argc && argv[n + 1][0] == '-'; n++)
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (!strncmp(argv[n + 1], known[i].name, strlen(known[i].name)))
                *known[i].value = atoll(argv[n + 1] + strlen(known[i].name));
    return n;
}

int main(int argc, char **argv)
{
    char full[4200];
    char *dir = temp_dir();
    int options = take_options(argc, argv);
    int64_t seconds;
    const char *mark;
    int status;

    argc -= options;
    argv += options;
    seconds = argc > 2 ? atoll(argv[2]) : 10;
    processes = argc > 3 ? atoi(argv[3]) : processes;
    threads = argc > 4 ? atoi(argv[4]) : threads;
    if (argc < 2 || !dir || processes <= SPARED || processes > MAX_PROCESSES || threads < 1 ||
        threads > MAX_THREADS || lease_ms < 100 || max_pause_ms < 1) {
        fprintf(stderr, "usage: stress [--lease=MS] [--pause=MS] [--cut=PORT] URL [SECONDS] "
                        "[PROCESSES 3..64] [THREADS 1..16]\n"
                        "       @TMP@ in the URL stands for a new folder\n");
        return 64;
    }
    mark = strstr(argv[1], "@TMP@");
    if (mark)
        snprintf(full, sizeof full, "%.*s%s%s", (int)(mark - argv[1]), argv[1], dir, mark + 5);
    url = mark ? full : argv[1];
    status = run(seconds, dir);
    remove_tree(dir);
    free(dir);
    return status;
}
