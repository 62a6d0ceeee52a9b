/* SPDX-License-Identifier: Apache-2.0
 *
 * no_oversell.c - never sell more than the stock.
 *
 * Several shop processes sell from one stock file. Reading how many are left and writing one less
 * are two steps; a lock makes them one. With a lock per item, millions of items would need
 * millions of locks. pawl_stripe() maps the items onto a few locks (stripes), and only items of
 * the same stripe wait for each other.
 *
 *     no_oversell [URL]          the URL of the service, by default $PAWL_URL or local:
 */
#include <fcntl.h>
#include <pawl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHOPS = 4, ITEMS = 10, STRIPES = 4, PIECES = 20, CUSTOMERS = 100 };

/* Sells one piece: 1, or 0 if there is none left. */
static int sell(int stock, int item)
{
    int32_t left;
    off_t place = (off_t)item * (off_t)sizeof left;

    if (pread(stock, &left, sizeof left, place) != sizeof left || left == 0)
        return 0;
    left--;
    return pwrite(stock, &left, sizeof left, place) == sizeof left;
}

/* One shop: returns how many pieces the shop sold, or -1. */
static int run_shop(const char *url, int stock, unsigned seed)
{
    pawl_client *client;
    pawl_error err = {.text = "the stripe's name has no room"};
    int sold = 0;

    if (pawl_open(&client, url, NULL, &err))
        goto failed;
    for (int i = 0; i < CUSTOMERS; i++) {
        int item = rand_r(&seed) % ITEMS;
        char key[32], name[64];
        pawl_lock *lock;

        snprintf(key, sizeof key, "item %d", item);
        if (pawl_stripe(name, sizeof name, "stock", key, strlen(key), STRIPES) ||
            pawl_lock_new(&lock, client, name, NULL, &err) || pawl_lock_acquire(lock, 10000, &err))
            goto failed;
        sold += sell(stock, item);
        if (pawl_lock_release(lock, &err))
            goto failed;
        pawl_lock_free(lock);
    }
    pawl_close(client);
    return sold;
failed:
    fprintf(stderr, "no_oversell: %s\n", err.text);
    return -1;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    FILE *file = tmpfile();
    int sold = 0, left = 0, stock = file ? fileno(file) : -1, results[2];
    const int32_t pieces = PIECES;

    if (stock < 0 || pipe(results))
        return 1;
    for (int i = 0; i < ITEMS; i++)
        if (pwrite(stock, &pieces, sizeof pieces, (off_t)i * (off_t)sizeof pieces) < 0)
            return 1;
    for (int i = 0; i < SHOPS; i++) /* each opens its client after the fork */
        if (fork() == 0) {
            int mine = run_shop(url, stock, (unsigned)i);

            _exit(mine < 0 || write(results[1], &mine, sizeof mine) != sizeof mine);
        }
    for (int i = 0; i < SHOPS; i++) {
        int status, mine = 0;

        if (wait(&status) < 0 || status || read(results[0], &mine, sizeof mine) != sizeof mine)
            return 1;
        sold += mine;
    }
    for (int i = 0; i < ITEMS; i++) {
        int32_t n = -1;

        if (pread(stock, &n, sizeof n, (off_t)i * (off_t)sizeof n) != sizeof n || n < 0)
            return 1;
        left += n;
    }
    printf("%d shops sold %d of %d pieces, %d are left\n", SHOPS, sold, ITEMS * PIECES, left);
    return sold + left == ITEMS * PIECES ? 0 : 1;
}
