/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_death.c - processes that are killed or stopped while they hold or wait.
 *
 * The cases only require that the other processes go on, at the latest when the lease ends. An
 * engine may be faster.
 */
#include "conf.h"

#include <signal.h>
#include <unistd.h>

CASE("the lock of a killed process goes to a waiter, with a larger token")
{
    uint64_t kind = PAWL_MUTEX, token;
    pawl_client *client;
    peer holder;
    waiter w;

    need_processes();
    peer_start(&holder, hold_until_told, &kind);
    client = client_open(NULL);
    peer_send(&holder, 1);
    token = peer_recv(&holder);
    waiter_start(&w, lock_new(client, check_name("p"), NULL), PAWL_FOREVER);
    await_waiters(client, check_name("p"), 1);
    peer_kill(&holder);
    CHECK_OK(waiter_code(&w));
    CHECK(newer(w.token, token));
    waiter_leave(&w);
}

CASE("a killed reader lets the writer in")
{
    uint64_t kind = PAWL_READ;
    pawl_lock *lock;
    peer reader;

    need_processes();
    need(PAWL_CAN_READ, "it has no shared locks");
    peer_start(&reader, hold_until_told, &kind);
    lock = lock_new(client_open(NULL), check_name("p"), LOCK_OPTIONS(.kind = PAWL_WRITE));
    peer_send(&reader, 1);
    peer_recv(&reader);
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
    peer_kill(&reader);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
}

CASE("a killed waiter is skipped")
{
    uint64_t kind = ordered_kind();
    const char *name = check_name("p");
    pawl_client *client;
    pawl_lock *lock;
    peer dies, lives;

    need_processes();
    peer_start(&dies, hold_until_told, &kind);
    peer_start(&lives, hold_until_told, &kind);
    client = client_open(NULL);
    lock = lock_new(client, name, ORDERED);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_send(&dies, 1);
    await_queued(client, name, 1);
    peer_send(&lives, 1);
    await_queued(client, name, 2);
    peer_kill(&dies);
    CHECK_OK(pawl_lock_release(lock, NULL));
    peer_recv(&lives);
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
    peer_send(&lives, 1);
    peer_join(&lives);
    await_queued(client, name, 0);
}

static void exit_holding(peer *parent, void *arg)
{
    pawl_client *client;
    pawl_lock *lock;

    (void)arg;
    CHECK_OK(pawl_open(&client, conf_url, CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE), NULL));
    CHECK_OK(pawl_lock_new(&lock, client, check_name("p"), NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_send(parent, pawl_lock_token(lock));
    _exit(0);
}

CASE("a process that exits without closing frees its lock")
{
    pawl_lock *lock;
    peer p;

    need_processes();
    peer_start(&p, exit_holding, NULL);
    peer_recv(&p);
    peer_join(&p);
    lock = lock_new(client_open(NULL), check_name("p"), NULL);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
}

static void hold_permits(peer *parent, void *arg)
{
    pawl_semaphore *sem = sem_new(client_open(CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE)),
                                  check_name("s"), SEM_OPTIONS(.permits = 3));

    (void)arg;
    CHECK_OK(pawl_semaphore_acquire(sem, 2, 0, NULL));
    peer_send(parent, 1);
    peer_recv(parent);
}

CASE("the permits of a killed process come back")
{
    pawl_semaphore *sem;
    peer p;

    need_processes();
    need(PAWL_CAN_SEMAPHORE, "it has no semaphores");
    peer_start(&p, hold_permits, NULL);
    sem = sem_new(client_open(NULL), check_name("s"), SEM_OPTIONS(.permits = 3));
    peer_recv(&p);
    CHECK_CODE(pawl_semaphore_acquire(sem, 2, 0, NULL), PAWL_EBUSY);
    peer_kill(&p);
    CHECK_OK(pawl_semaphore_acquire(sem, 3, PAWL_FOREVER, NULL));
}

/* ---- Stopped --------------------------------------------------------------------------------- */

static void hold_through_stop(peer *parent, void *arg)
{
    static calls lost = CALLS_INIT;
    pawl_lock *lock = lock_new(client_open(CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE)),
                               check_name("p"),
                               LOCK_OPTIONS(.on_lost = count_call, .arg = &lost));

    (void)arg;
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_send(parent, pawl_lock_token(lock));
    peer_recv(parent); /* meanwhile this process was stopped and continued */
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_EQ(pawl_lock_valid_ms(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    event_await(&lost.event, 1);
    CHECK_EQ(event_count(&lost.event), 1);
}

CASE("a stopped holder loses the lock when its lease ends, and learns it when it goes on")
{
    pawl_lock *lock;
    uint64_t token;
    peer p;

    need_processes();
    peer_start(&p, hold_through_stop, NULL);
    lock = lock_new(client_open(NULL), check_name("p"), NULL);
    token = peer_recv(&p);
    peer_signal(&p, SIGSTOP);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    CHECK(newer(pawl_lock_token(lock), token));
    peer_send(&p, 1);
    peer_signal(&p, SIGCONT);
    peer_join(&p);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_CODE(try_as_stranger(check_name("p"), PAWL_MUTEX), PAWL_EBUSY);
}

CASE("a stopped waiter delays those behind it no longer than its lease")
{
    uint64_t kind = ordered_kind();
    const char *name = check_name("p");
    pawl_client *client;
    pawl_lock *lock;
    peer stopped, lives;

    need_processes();
    peer_start(&stopped, hold_until_told, &kind);
    peer_start(&lives, hold_until_told, &kind);
    client = client_open(NULL);
    lock = lock_new(client, name, ORDERED);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    peer_send(&stopped, 1);
    await_queued(client, name, 1);
    peer_send(&lives, 1);
    await_queued(client, name, 2);
    peer_signal(&stopped, SIGSTOP);
    CHECK_OK(pawl_lock_release(lock, NULL));
    peer_recv(&lives);
    peer_kill(&stopped);
    peer_send(&lives, 1);
    peer_join(&lives);
}
