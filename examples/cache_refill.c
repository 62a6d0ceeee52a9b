/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_refill.c - one process refills the cache; the others wait and find the entry.
 *
 * When a popular entry expires, all servers notice at once, and each would ask the database. With
 * a lock only the first server asks; the others wait for the lock, look into the cache again, and
 * find the entry. The second look, after the wait, is essential.
 *
 *     cache_refill [URL]         the URL of the service, by default $PAWL_URL or local:
 */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SERVERS = 6, HIT = 10, REFILLED = 11, FAILED = 1 };

static int cache_is_full(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && st.st_size > 0;
}

/* The expensive query, which must not run twice. */
static int refill(const char *path)
{
    const struct timespec slow = {.tv_nsec = 50 * 1000 * 1000};
    FILE *cache;

    nanosleep(&slow, NULL);
    cache = fopen(path, "w");
    if (!cache)
        return FAILED;
    fputs("<html>front page</html>\n", cache);
    return fclose(cache) ? FAILED : REFILLED;
}

static int serve(const char *url, const char *path)
{
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    int outcome = HIT;

    if (cache_is_full(path))
        return HIT;
    if (pawl_open(&client, url, NULL, &err) ||
        pawl_lock_new(&lock, client, "refill:front page", NULL, &err) ||
        pawl_lock_acquire(lock, 10000, &err)) {
        fprintf(stderr, "cache_refill: %s\n", err.text);
        return FAILED;
    }
    if (!cache_is_full(path))
        outcome = refill(path);
    if (pawl_lock_release(lock, &err)) {
        fprintf(stderr, "cache_refill: %s\n", err.text);
        outcome = FAILED;
    }
    pawl_lock_free(lock);
    pawl_close(client);
    return outcome;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    char path[] = "/tmp/pawl-cache-XXXXXX";
    int refills = 0, hits = 0, file = mkstemp(path); /* empty */

    if (file < 0)
        return 1;
    for (int i = 0; i < SERVERS; i++)
        if (fork() == 0)
            _exit(serve(url, path));
    for (int status; wait(&status) > 0;) {
        refills += WIFEXITED(status) && WEXITSTATUS(status) == REFILLED;
        hits += WIFEXITED(status) && WEXITSTATUS(status) == HIT;
    }
    unlink(path);
    printf("%d servers: %d refilled the cache, %d found it full\n", SERVERS, refills, hits);
    return refills == 1 && hits == SERVERS - 1 ? 0 : 1;
}
