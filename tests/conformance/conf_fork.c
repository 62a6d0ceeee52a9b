/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_fork.c - a forked child affects no lock of its parent, wherever the fork happened, and can
 * open clients of its own.
 */
#include "conf.h"

#include <sys/wait.h>
#include <unistd.h>

typedef struct family {
    pawl_client *client;
    pawl_lock *lock;
    pawl_semaphore *sem;
    pawl_latch *latch;
    pawl_lock *multi[2]; /* with members owned by a thread, and by a handle */
    calls *done;
} family;

static int call_as_child(void *arg)
{
    family *f = arg;
    pawl_lock *lock;
    int64_t n;

    CHECK_CODE(pawl_lock_release(f->lock, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_acquire(f->lock, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_acquire(f->lock, PAWL_FOREVER, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_renew(f->lock, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_break(f->lock, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_acquire_start(f->lock, 0, count_call, f->done), PAWL_EFORK);
    CHECK_CODE(pawl_lock_release_start(f->lock, count_call, f->done), PAWL_EFORK);
    CHECK_CODE(pawl_lock_new(&lock, f->client, "x", NULL, NULL), PAWL_EFORK);
    for (int i = 0; i < 2; i++) {
        CHECK_CODE(pawl_lock_acquire(f->multi[i], 0, NULL), PAWL_EFORK);
        CHECK_CODE(pawl_lock_release(f->multi[i], NULL), PAWL_EFORK);
        CHECK_CODE(pawl_lock_acquire_start(f->multi[i], 0, count_call, f->done), PAWL_EFORK);
        CHECK_CODE(pawl_lock_release_start(f->multi[i], count_call, f->done), PAWL_EFORK);
    }
    CHECK_CODE(pawl_semaphore_release(f->sem, 1, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_semaphore_acquire(f->sem, 1, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_latch_count(f->latch, &n, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_latch_wait(f->latch, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_list(f->client, NULL, collect_row, NULL, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_client_process(f->client), PAWL_EFORK);
    CHECK_CODE(pawl_client_fd(f->client), PAWL_EFORK);
    CHECK_EQ(pawl_lock_held(f->lock), 0);
    CHECK_EQ(pawl_lock_valid_ms(f->lock), 0);
    CHECK_CODE(pawl_close(f->client), PAWL_EFORK);
    pawl_lock_free(f->lock);
    pawl_semaphore_free(f->sem);
    return 0;
}

CASE("a forked child's calls are refused, and the parent keeps its locks")
{
    static calls done = CALLS_INIT;
    const char *name = check_name("f");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    family f = {.client = client, .lock = lock_new(client, name, NULL),
                .sem = sem_new(client, check_name("s"), SEM_OPTIONS(.permits = 1)),
                .latch = latch_new(client, check_name("l")), .done = &done};
    uint64_t token;

    f.multi[0] = multi_new(lock_new(client, check_name("m"), NULL), NULL, NULL);
    f.multi[1] = multi_new(lock_new(client, check_name("n"),
                                    LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE)), NULL, NULL);
    CHECK_OK(pawl_lock_acquire(f.lock, 0, NULL));
    CHECK_OK(pawl_semaphore_acquire(f.sem, 1, 0, NULL));
    token = pawl_lock_token(f.lock);
    CHECK_EQ(in_child(call_as_child, &f), 0);
    CHECK_EQ(pawl_lock_held(f.lock), 1);
    CHECK_EQ(pawl_lock_token(f.lock), token);
    CHECK(pawl_semaphore_valid_ms(f.sem) > 0);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    pause_ms(RENEWED_PAUSE); /* the parent's renewals go on */
    check_held(f.lock);
    CHECK_OK(pawl_semaphore_release(f.sem, 1, NULL));
    CHECK_OK(pawl_lock_release(f.lock, NULL));
    CHECK_EQ(event_count(&done.event), 0);
}

/* ThreadSanitizer allows no new threads in a forked child. Locks of AddressSanitizer's allocator
 * that another thread of the parent held stay locked in the child. */
static void need_memory_after_fork(void)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    check_skip("a sanitizer is not safe to use after such a fork");
#endif
}

static int open_as_child(void *arg)
{
    const char *name = arg;
    pawl_client *client;
    pawl_lock *lock;

    CHECK_OK(pawl_open(&client, conf_url, NULL, NULL));
    CHECK_OK(pawl_lock_new(&lock, client, name, NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    return 0;
}

CASE("a forked child can open a client of its own")
{
    char name[64];
    pawl_lock *lock;

    need_memory_after_fork();
    lock = lock_new(client_open(NULL), check_name("f"), NULL);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    snprintf(name, sizeof name, "%s", check_name("g"));
    CHECK_EQ(in_child(open_as_child, name), 0);
    CHECK_EQ(pawl_lock_held(lock), 1);
}

/* ---- Forks at any moment --------------------------------------------------------------------- */

typedef struct hasty {
    actor actor;
    const char *name;
    atomic_bool stop;
} hasty;

/* Acquire and release all the time, so that a fork finds this thread anywhere in the library. */
static void come_and_go(void *arg)
{
    hasty *h = arg;

    while (!atomic_load(&h->stop)) {
        pawl_client *client;
        pawl_lock *lock;

        CHECK_OK(pawl_open(&client, conf_url, NULL, NULL));
        CHECK_OK(pawl_lock_new(&lock, client, h->name, NULL, NULL));
        for (int i = 0; i < 50; i++) {
            CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
            CHECK_OK(pawl_lock_release(lock, NULL));
        }
        pawl_lock_free(lock);
        CHECK_OK(pawl_close(client));
    }
}

CASE("a child that was forked while other threads were inside calls can open a client of its own")
{
    hasty all[2] = {{.name = check_name("a")}, {.name = check_name("b")}};
    char name[64];

    need_memory_after_fork();
    snprintf(name, sizeof name, "%s", check_name("g"));
    for (int i = 0; i < 2; i++)
        actor_start(&all[i].actor, come_and_go, &all[i]);
    for (int i = 0; i < 100; i++)
        CHECK_EQ(in_child(open_as_child, name), 0);
    for (int i = 0; i < 2; i++) {
        atomic_store(&all[i].stop, true);
        actor_join(&all[i].actor);
    }
}

/* ---- Forks inside callbacks ------------------------------------------------------------------ */

typedef struct fork_calls {
    pid_t child;
    int calls;
} fork_calls;

static void fork_at_first(void *arg, pawl_lock *lock, int code)
{
    fork_calls *f = arg;

    (void)lock;
    CHECK_OK(code);
    if (f->calls++ == 0)
        f->child = fork();
}

CASE("a child that was forked inside a callback runs no callbacks of its parent's")
{
    static const char *const names[] = {"a", "b"};
    pawl_client *client = client_open(NULL);
    fork_calls f = {.child = -1};
    rows seen;
    int code, status;

    CHECK(pawl_client_fd(client) >= 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(pawl_lock_acquire_start(lock_new(client, check_name(names[i]), NULL),
                                         PAWL_FOREVER, fork_at_first, &f));
    while (stats_of(client).acquired < 2) /* a call that blocks drives, and runs no callbacks */
        inspect_rows(client, check_name("a"), &seen);
    code = pawl_client_process(client);
    if (f.child == 0)
        _exit(code != PAWL_EFORK || f.calls != 1);
    CHECK(f.child > 0);
    CHECK(waitpid(f.child, &status, 0) == f.child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQ(code, 2);
    CHECK_EQ(f.calls, 2);
}

static void fork_for_each_line(void *arg, int level, const char *text)
{
    pid_t child = fork();

    (void)level;
    (void)text;
    CHECK(child >= 0);
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == child);
    event_raise(arg);
}

static int take_and_end(void *arg)
{
    return pawl_lock_acquire(arg, 0, NULL);
}

CASE("the log may fork when it is told that a thread has ended while it held a lock")
{
    event told = EVENT_INIT;
    pawl_client *client = client_open(CLIENT_OPTIONS(.log = fork_for_each_line, .log_arg = &told));
    pawl_lock *lock = lock_new(client, check_name("x"), NULL);

    CHECK_OK(in_thread(take_and_end, lock));
    event_await(&told, 1);
    CHECK_EQ(stats_of(client).orphaned, 1);
    client_close(client);
}
