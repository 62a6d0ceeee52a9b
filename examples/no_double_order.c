/* SPDX-License-Identifier: Apache-2.0
 *
 * no_double_order.c - one order, however often the button is pressed.
 *
 * The same request reaches several servers at once, because a customer clicks twice or a proxy
 * retries. Each server checks whether the order exists and creates the order if not; the lock on
 * the request's id makes the two one step. Requests with other ids do not wait.
 *
 *     no_double_order [URL]      the URL of the service, by default $PAWL_URL or local:
 */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SERVERS = 8 };

static const char request_id[] = "request 7f3a";

/* The orders are lines of a file: slow, and not atomic at all. */
static int order_exists(const char *path)
{
    FILE *orders = fopen(path, "r");
    char line[128];
    int found = 0;

    while (orders && fgets(line, sizeof line, orders))
        found |= !strncmp(line, request_id, strlen(request_id));
    if (orders)
        fclose(orders);
    return found;
}

static int create_order(const char *path, uint64_t token)
{
    FILE *orders = fopen(path, "a");

    if (!orders)
        return 1;
    fprintf(orders, "%s: one bicycle, token %llu\n", request_id, (unsigned long long)token);
    return fclose(orders);
}

static int handle_request(const char *url, const char *path)
{
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    int failed = 0;

    if (pawl_open(&client, url, NULL, &err) ||
        pawl_lock_new(&lock, client, request_id, NULL, &err) ||
        pawl_lock_acquire(lock, 10000, &err)) {
        fprintf(stderr, "no_double_order: %s\n", err.text);
        return 1;
    }
    if (!order_exists(path))
        failed = create_order(path, pawl_lock_token(lock));
    if (pawl_lock_release(lock, &err)) {
        fprintf(stderr, "no_double_order: %s\n", err.text);
        failed = 1;
    }
    pawl_lock_free(lock);
    pawl_close(client);
    return failed;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    char path[] = "/tmp/pawl-orders-XXXXXX", line[128];
    int orders = 0, file = mkstemp(path);
    FILE *text;

    if (file < 0)
        return 1;
    for (int i = 0; i < SERVERS; i++)
        if (fork() == 0)
            _exit(handle_request(url, path));
    for (int i = 0; i < SERVERS; i++) {
        int status;

        if (wait(&status) < 0 || status)
            orders = -SERVERS;
    }
    text = fdopen(file, "r");
    while (text && fgets(line, sizeof line, text))
        orders++;
    unlink(path);
    printf("%d servers got the request, %d order was made\n", SERVERS, orders);
    return orders == 1 ? 0 : 1;
}
