/* SPDX-License-Identifier: Apache-2.0
 *
 * test_oom.c - every allocation of Pawl fails once.
 *
 * A case repeats the same calls ("play") in rounds: in round n the n-th allocation fails, or the
 * n-th and all later ones (failing_memory.h). In every round a call returns PAWL_ENOMEM or does its
 * work, promised callbacks are called, nothing hangs or crashes, and no block is left at the end.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "actors.h"
#include "check.h"
#include "failing_memory.h"
#include "pawl.h"

/* ---- Parts of the play ----------------------------------------------------------------------- */

enum { LEASE = 600000 };
enum { MAY_WAIT = 1, MAY_BE_BUSY = 2, MAY_BE_LOST = 4 };

typedef struct stage {
    const char *url;
    pawl_client *client;
    pawl_lock *handle[2], *lock, *reads, *multi;
    pawl_semaphore *sem;
    pawl_latch *latch;
    event done;
} stage;

static bool of_many; /* a quorum: some of its members may have memory, or not */

/* Check that a code is one that a call may return without memory; others end the case. */
static int fine(const char *what, int code, int also)
{
    bool ok = (of_many && (code == PAWL_EQUORUM || code == PAWL_EUNKNOWN ||
                           code == PAWL_ENOTSUP)) ||
              code == 0 || code == PAWL_ENOMEM ||
              /* PAWL_ECONN: on a crowded machine no answer came within a short limit */
              ((also & MAY_WAIT) && (code == PAWL_EBUSY || code == PAWL_ETIMEDOUT ||
                                     code == PAWL_ECONN)) ||
              ((also & MAY_BE_BUSY) && code == PAWL_ESTATE) ||
              ((also & MAY_BE_LOST) && code == PAWL_ELOST);

    if (!ok)
        check_fail(__FILE__, __LINE__, "%s: %s is %s", memory_words(), what, pawl_errname(code));
    return code;
}

static void count_done(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    (void)code;
    event_raise(arg);
}

static void ignore_line(void *arg, int level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static int ignore_row(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

/* Only "b" has a lease that is renewed; on a busy machine the lease may be lost. */
static int set_up(stage *s)
{
    pawl_client_options options = {.size = sizeof options, .log = ignore_line,
                                   .log_level = PAWL_LOG_DEBUG, .label = "label", .user = "user",
                                   .password = "password", .watchdog_ms = 45};
    pawl_lock_options a = {.size = sizeof a, .owner = PAWL_OWNER_HANDLE, .lease_ms = LEASE};
    pawl_lock_options b = {.size = sizeof b, .owner = PAWL_OWNER_HANDLE};
    pawl_lock_options c = {.size = sizeof c, .lease_ms = LEASE};
    pawl_lock_options shared = {.size = sizeof shared, .kind = PAWL_READ, .lease_ms = LEASE};
    pawl_semaphore_options permits = {.size = sizeof permits, .permits = 3, .lease_ms = LEASE};

    if (fine("open", pawl_open(&s->client, s->url, &options, NULL), 0))
        return -1;
    fine("new", pawl_lock_new(&s->handle[0], s->client, "a", &a, NULL), 0);
    fine("new", pawl_lock_new(&s->handle[1], s->client, "b", &b, NULL), 0);
    fine("new", pawl_lock_new(&s->lock, s->client, "c", &c, NULL), 0);
    fine("new", pawl_lock_new(&s->reads, s->client, "c", &shared, NULL), 0);
    if (s->handle[0] && s->handle[1])
        fine("multi", pawl_multi_new(&s->multi, s->handle, 2, NULL), 0);
    fine("semaphore", pawl_semaphore_new(&s->sem, s->client, "s", &permits, NULL), 0);
    fine("latch", pawl_latch_new(&s->latch, s->client, "l", NULL), 0);
    return 0;
}

static void take_and_give(void *arg)
{
    if (fine("acquire behind", pawl_lock_acquire(arg, 5, NULL), MAY_WAIT) == 0)
        fine("release behind", pawl_lock_release(arg, NULL), 0);
}

/* A writer also acquires the read lock, while another thread waits. */
static void play_lock(stage *s)
{
    actor behind;
    int reads;

    if (!s->lock || fine("acquire", pawl_lock_acquire(s->lock, 5, NULL), MAY_WAIT))
        return;
    reads = s->reads ? fine("read", pawl_lock_acquire(s->reads, 0, NULL), 0) : -1;
    actor_start(&behind, take_and_give, s->lock);
    fine("release", pawl_lock_release(s->lock, NULL), 0);
    if (reads == 0)
        fine("stop reading", pawl_lock_release(s->reads, NULL), 0);
    actor_join(&behind);
}

/* Hold a lock past its first renewal, by the background thread and by pawl_lock_renew. */
static void play_renewal(stage *s)
{
    if (!s->handle[1] || fine("acquire b", pawl_lock_acquire(s->handle[1], 5, NULL), MAY_WAIT))
        return;
    pause_ms(18);
    fine("renew", pawl_lock_renew(s->handle[1], LEASE, NULL), MAY_BE_LOST);
    fine("release b", pawl_lock_release(s->handle[1], NULL), MAY_BE_LOST);
}

static void play_started(stage *s, pawl_lock *lock)
{
    int n = event_count(&s->done);

    if (!lock)
        return;
    if (fine("start", pawl_lock_acquire_start(lock, 5, count_done, &s->done), MAY_BE_BUSY) == 0)
        event_await(&s->done, ++n);
    if (pawl_lock_held(lock) &&
        fine("start to release", pawl_lock_release_start(lock, count_done, &s->done),
             MAY_BE_LOST) == 0)
        event_await(&s->done, ++n);
    if (pawl_lock_held(lock))
        fine("release after that", pawl_lock_release(lock, NULL), MAY_BE_LOST);
}

static void play_semaphore(stage *s)
{
    int64_t n;

    if (!s->sem || fine("permits", pawl_semaphore_acquire(s->sem, 2, 5, NULL), MAY_WAIT))
        return;
    fine("available", pawl_semaphore_available(s->sem, &n, NULL), 0);
    fine("release one", pawl_semaphore_release(s->sem, 1, NULL), 0);
    fine("release another", pawl_semaphore_release(s->sem, 1, NULL), 0);
}

static void play_latch(stage *s)
{
    if (!s->latch || fine("set", pawl_latch_set(s->latch, 1, NULL), 0))
        return;
    fine("wait", pawl_latch_wait(s->latch, 2, NULL), MAY_WAIT);
    fine("count down", pawl_latch_count_down(s->latch, NULL), 0);
    fine("wait again", pawl_latch_wait(s->latch, 2, NULL), MAY_WAIT);
}

/* Some handles are freed before the client is closed, some afterwards, one while it holds a
 * lock. */
static void strike(stage *s)
{
    if (s->lock)
        fine("acquire at last", pawl_lock_acquire(s->lock, 5, NULL), MAY_WAIT);
    pawl_lock_free(s->multi);
    pawl_lock_free(s->handle[0]);
    pawl_semaphore_free(s->sem);
    pawl_latch_free(s->latch);
    fine("close", pawl_close(s->client), 0);
    pawl_lock_free(s->handle[1]);
    pawl_lock_free(s->lock);
    pawl_lock_free(s->reads);
}

static void play(const char *url)
{
    stage s = {.url = url, .done = EVENT_INIT};

    if (set_up(&s))
        return;
    play_lock(&s);
    play_renewal(&s);
    play_started(&s, s.handle[0]);
    play_started(&s, s.multi);
    play_semaphore(&s);
    play_latch(&s);
    fine("inspect", pawl_inspect(s.client, "c", ignore_row, NULL, NULL), 0);
    fine("list", pawl_list(s.client, NULL, ignore_row, NULL, NULL), 0);
    strike(&s);
}

/* ---- Cases ----------------------------------------------------------------------------------- */

/* Run one round; returns the number of allocations. */
static long round_of(const char *url, long n, bool all_after)
{
    memory_fails(n, all_after);
    play(url);
    return memory_is_back();
}

static void rounds(const char *url, bool all_after)
{
    long n = 1;

    play(url); /* makes the allocations that stay until the process ends */
    CHECK(round_of(url, 0, all_after) > 20);
    while (round_of(url, n, all_after) >= n)
        n++;
    check_note("%ld requests", n - 1);
}

static void rounds_local(bool all_after)
{
    char *dir = temp_dir(), url[256];

    CHECK(dir);
    snprintf(url, sizeof url, "local:%s?cohort=4", dir);
    rounds(url, all_after);
    remove_tree(dir);
    free(dir);
}

CASE("memory: survives that any one request for memory fails")
{
    rounds("memory:space?cohort=4", false);
}

CASE("memory: survives that all requests for memory fail from any one on")
{
    rounds("memory:space?cohort=4", true);
}

CASE("local: survives that any one request for memory fails")
{
    rounds_local(false);
}

CASE("local: survives that all requests for memory fail from any one on")
{
    rounds_local(true);
}

CASE("fault: survives that any one request for memory fails")
{
    rounds("fault:delay=1;memory:", false);
}

CASE("fault: survives that all requests for memory fail from any one on")
{
    rounds("fault:delay=1;memory:", true);
}

CASE("trace: survives that any one request for memory fails")
{
    rounds("trace:memory:", false);
}

CASE("quorum: survives that any one request for memory fails")
{
    of_many = true;
    rounds("quorum:memory:a|memory:b|memory:c?cohort=4", false);
}

CASE("quorum: survives that all requests for memory fail from any one on")
{
    of_many = true;
    rounds("quorum:memory:a|memory:b|memory:c?cohort=4", true);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
