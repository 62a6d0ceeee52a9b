/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_process.c - real processes exclude each other, and inspecting shows the other processes.
 *
 * Peers are forked before this process opens a client.
 */
#include "conf.h"

#include <sys/mman.h>

static void *shared_page(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED);
    return page;
}

typedef struct sum {
    volatile uint64_t value, token;
} sum;

static void add_often(peer *parent, void *arg)
{
    sum *s = arg;
    pawl_lock *lock = lock_new(client_open(NULL), check_name("p"), NULL);

    CHECK_EQ(peer_recv(parent), 1);
    for (int i = 0; i < 200; i++) {
        uint64_t seen;

        CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
        seen = s->value;
        CHECK(newer(pawl_lock_token(lock), s->token));
        s->token = pawl_lock_token(lock);
        s->value = seen + 1;
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
}

CASE("four processes lose no increment and see tokens rise")
{
    enum { N = 4 };
    peer peers[N];
    sum *s;

    need_processes();
    s = shared_page();
    for (int i = 0; i < N; i++)
        peer_start(&peers[i], add_often, s);
    for (int i = 0; i < N; i++)
        peer_send(&peers[i], 1);
    for (int i = 0; i < N; i++)
        peer_join(&peers[i]);
    CHECK_EQ(s->value, N * 200);
}

CASE("processes are served first come first served")
{
    enum { N = 4 };
    uint64_t kind = ordered_kind(), last;
    const char *name = check_name("p");
    pawl_client *client;
    pawl_lock *lock;
    peer peers[N];

    need_processes();
    for (int i = 0; i < N; i++)
        peer_start(&peers[i], hold_until_told, &kind);
    client = client_open(NULL);
    lock = lock_new(client, name, ORDERED);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    last = pawl_lock_token(lock);
    for (int i = 0; i < N; i++) {
        peer_send(&peers[i], 1);
        await_queued(client, name, (uint64_t)i + 1);
    }
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++) {
        uint64_t token = peer_recv(&peers[i]);

        CHECK(newer(token, last));
        last = token;
        CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
        peer_send(&peers[i], 1);
        peer_join(&peers[i]);
    }
}

CASE("readers of several processes read together and keep a writer out")
{
    uint64_t kind = PAWL_READ;
    peer a, b;

    need_processes();
    need(PAWL_CAN_READ, "it has no shared locks");
    peer_start(&a, hold_until_told, &kind);
    peer_start(&b, hold_until_told, &kind);
    peer_send(&a, 1);
    peer_send(&b, 1);
    peer_recv(&a); /* neither releases before both have the lock */
    peer_recv(&b);
    CHECK_CODE(try_as_stranger(check_name("p"), PAWL_WRITE), PAWL_EBUSY);
    peer_send(&a, 1);
    peer_join(&a);
    CHECK_CODE(try_as_stranger(check_name("p"), PAWL_WRITE), PAWL_EBUSY);
    peer_send(&b, 1);
    peer_join(&b);
    CHECK_OK(try_as_stranger(check_name("p"), PAWL_WRITE));
}

/* ---- Seen from another process --------------------------------------------------------------- */

static void hold_until_broken(peer *parent, void *arg)
{
    static calls lost = CALLS_INIT;
    pawl_lock *lock = lock_new(client_open(CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE)),
                               check_name("p"),
                               LOCK_OPTIONS(.on_lost = count_call, .arg = &lost));

    (void)arg;
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_send(parent, pawl_lock_token(lock));
    event_await(&lost.event, 1);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_EQ(event_count(&lost.event), 1);
}

CASE("the holder in another process is shown with its own pid, and can be broken")
{
    const char *name = check_name("p");
    pawl_client *client;
    static rows all;
    pawl_lock *lock;
    uint64_t token;
    peer p;

    need_processes();
    peer_start(&p, hold_until_broken, NULL);
    token = peer_recv(&p);
    client = client_open(NULL);
    inspect_rows(client, name, &all);
    CHECK_EQ(all.n, 2);
    CHECK_EQ(all.row[1].info.pid, p.pid);
    CHECK_EQ(all.row[1].info.token, token);
    CHECK(strstr(all.row[1].program, "conformance"));
    lock = lock_new(client, name, NULL);
    CHECK_OK(pawl_lock_break(lock, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_join(&p);
    CHECK_EQ(pawl_lock_held(lock), 1);
}

static void wait_for_latch(peer *parent, void *arg)
{
    pawl_latch *latch = latch_new(client_open(NULL), check_name("l"));

    (void)arg;
    peer_send(parent, 1);
    CHECK_OK(pawl_latch_wait(latch, PAWL_FOREVER, NULL));
    peer_send(parent, 2);
}

CASE("a latch is counted down for waiters in other processes")
{
    pawl_latch *latch;
    peer a, b;

    need_processes();
    need(PAWL_CAN_LATCH, "it has no latches");
    peer_start(&a, wait_for_latch, NULL);
    peer_start(&b, wait_for_latch, NULL);
    latch = latch_new(client_open(NULL), check_name("l"));
    CHECK_OK(pawl_latch_set(latch, 2, NULL));
    peer_recv(&a);
    peer_recv(&b);
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    CHECK_EQ(peer_recv(&a), 2);
    CHECK_EQ(peer_recv(&b), 2);
    peer_join(&a);
    peer_join(&b);
}

static void run_job(peer *parent, void *arg)
{
    pawl_lock *lock =
        lock_new(client_open(NULL), check_name("p"), LOCK_OPTIONS(.at_least_ms = *(int64_t *)arg));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    peer_send(parent, 1);
}

CASE("at_least_ms keeps others out after the process has ended")
{
    int64_t began, at_least = 1500;
    pawl_lock *lock;
    peer p;

    need_processes();
    need_linger();
    began = now_ms();
    peer_start(&p, run_job, &at_least);
    peer_recv(&p);
    peer_join(&p);
    lock = lock_new(client_open(NULL), check_name("p"), NULL);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK(now_ms() - began >= at_least - 1);
}

static void take_once(peer *parent, void *arg)
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("p"), NULL);

    (void)arg;
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_send(parent, pawl_lock_token(lock));
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("tokens rise from process to process even if nobody has the service open in between")
{
    uint64_t last = 0;

    need_processes();
    for (int i = 0; i < 5; i++) {
        uint64_t token;
        peer p;

        peer_start(&p, take_once, NULL);
        token = peer_recv(&p);
        peer_join(&p);
        CHECK(newer(token, last));
        last = token;
    }
}
