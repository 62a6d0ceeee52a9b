/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pawl.h>
#include <stdio.h>

static int done, result;

static void acquired(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    done = 1;
    result = code;
}

int main(void)
{
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    struct pollfd fd = {.events = POLLIN};

    if (pawl_open(&client, "memory:", NULL, &err) ||
        pawl_lock_new(&lock, client, "stock:42", &options, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    fd.fd = pawl_client_fd(client);
    if (fd.fd < 0 || pawl_lock_acquire_start(lock, 5000, acquired, NULL))
        return 1;
    while (!done) { /* your event loop */
        poll(&fd, 1, -1);
        pawl_client_process(client);
    }
    puts(result ? pawl_strerror(result) : "acquired");
    pawl_lock_free(lock); /* releases the lock in the background */
    return pawl_close(client) != 0;
}
