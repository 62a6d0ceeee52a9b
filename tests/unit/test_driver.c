/* SPDX-License-Identifier: Apache-2.0
 *
 * test_driver.c - a client in difficult processes: few descriptors, threads that are cancelled, and
 * an unloaded library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "pawl.h"

/* Runs in a separate child: libuv opens descriptors once and keeps them until the process ends. */
static int open_with(rlim_t limit, const char *url)
{
    struct rlimit rlimit = {limit, limit};
    pawl_error err = {0};
    pawl_client *client;
    int code;

    setrlimit(RLIMIT_NOFILE, &rlimit);
    code = pawl_open(&client, url, NULL, &err);
    if (!code)
        return pawl_close(client) ? 3 : 0;
    return err.text[0] && err.code == code ? 1 : 2;
}

CASE("a client that finds too few descriptors says so, whatever their number: nothing aborts")
{
    static const char *const urls[] = {"memory:", "redis://127.0.0.1:1", "trace:memory:"};

    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        int opened = 0, refused = 0;

        for (rlim_t limit = 3; limit < 40; limit++) {
            int status = 0;
            pid_t pid = fork();

            if (pid == 0)
                _exit(open_with(limit, urls[i]));
            CHECK(waitpid(pid, &status, 0) == pid);
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 2);
            opened += WEXITSTATUS(status) == 0;
            refused += WEXITSTATUS(status) == 1;
        }
        CHECK(opened && refused);
    }
}

static void *acquire_for_ever(void *arg)
{
    pawl_lock_acquire(arg, PAWL_FOREVER, NULL);
    pthread_testcancel();
    return NULL;
}

CASE("a thread that is cancelled in a call that blocks leaves the others their limits")
{
    pawl_client *mine, *yours;
    pawl_lock *taken, *waits, *other;
    pthread_t thread;
    pawl_stats stats = {.size = sizeof stats};
    void *result;

    CHECK_OK(pawl_open(&mine, "memory:cancel", NULL, NULL));
    CHECK_OK(pawl_open(&yours, "memory:cancel", NULL, NULL));
    CHECK_OK(pawl_lock_new(&taken, mine, "x", NULL, NULL));
    CHECK_OK(pawl_lock_new(&waits, yours, "x", NULL, NULL));
    CHECK_OK(pawl_lock_new(&other, yours, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK(!pthread_create(&thread, NULL, acquire_for_ever, waits));
    while (CHECK_OK(pawl_client_stats(yours, &stats)), !stats.waiting)
        usleep(1000);
    usleep(20000); /* the thread waits by now */
    CHECK(!pthread_cancel(thread));
    usleep(20000);
    CHECK_CODE(pawl_lock_acquire(other, 100, NULL), PAWL_ETIMEDOUT);
    CHECK_OK(pawl_lock_release(taken, NULL));
    CHECK(!pthread_join(thread, &result));
    CHECK(result == PTHREAD_CANCELED);
    pawl_lock_free(taken);
    pawl_lock_free(waits);
    pawl_lock_free(other);
    CHECK_OK(pawl_close(yours));
    CHECK_OK(pawl_close(mine));
}

static pthread_barrier_t loaded, unloaded;

static void *use_and_stay(void *arg)
{
    void *library = arg;
    int (*open_it)(pawl_client **, const char *, const pawl_client_options *, pawl_error *) =
        (int (*)(pawl_client **, const char *, const pawl_client_options *,
                 pawl_error *))(uintptr_t)dlsym(library, "pawl_open");
    int (*new_lock)(pawl_lock **, pawl_client *, const char *, const pawl_lock_options *,
                    pawl_error *) =
        (int (*)(pawl_lock **, pawl_client *, const char *, const pawl_lock_options *,
                 pawl_error *))(uintptr_t)dlsym(library, "pawl_lock_new");
    int (*acquire)(pawl_lock *, int64_t, pawl_error *) =
        (int (*)(pawl_lock *, int64_t, pawl_error *))(uintptr_t)dlsym(library,
                                                                      "pawl_lock_acquire");
    void (*free_lock)(pawl_lock *) =
        (void (*)(pawl_lock *))(uintptr_t)dlsym(library, "pawl_lock_free");
    int (*close_it)(pawl_client *) =
        (int (*)(pawl_client *))(uintptr_t)dlsym(library, "pawl_close");
    pawl_client *client;
    pawl_lock *lock;

    CHECK_OK(open_it(&client, "memory:", NULL, NULL));
    CHECK_OK(new_lock(&lock, client, "x", NULL, NULL));
    CHECK_OK(acquire(lock, 0, NULL));
    free_lock(lock);
    CHECK_OK(close_it(client));
    pthread_barrier_wait(&loaded);
    pthread_barrier_wait(&unloaded);
    return NULL; /* the thread's destructor is in the library */
}

CASE("a thread that ends after dlclose does no harm")
{
    const char *path = getenv("PAWL_LIB");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    pthread_t thread;

    CHECK(library != NULL);
    pthread_barrier_init(&loaded, NULL, 2);
    pthread_barrier_init(&unloaded, NULL, 2);
    CHECK(!pthread_create(&thread, NULL, use_and_stay, library));
    pthread_barrier_wait(&loaded);
    CHECK(!dlclose(library));
    pthread_barrier_wait(&unloaded);
    CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
