/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory.c - the spaces of "memory:" and a forked child.
 */
#include "actors.h"
#include "check.h"
#include "pawl.h"

static int take_as_child(void *arg)
{
    pawl_client *client;
    pawl_lock *lock;

    (void)arg;
    CHECK_OK(pawl_open(&client, "memory:shared", NULL, NULL));
    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_close(client));
    pawl_lock_free(lock);
    return 0;
}

CASE("a forked child opens a space of its own, in which nothing of its parent's is held")
{
    pawl_client *client;
    pawl_lock *lock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    check_skip("a sanitizer is not safe to use after such a fork");
#endif
    CHECK_OK(pawl_open(&client, "memory:shared", NULL, NULL));
    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(in_child(take_as_child, NULL), 0);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
