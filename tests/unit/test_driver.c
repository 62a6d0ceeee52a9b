/* SPDX-License-Identifier: Apache-2.0
 *
 * test_driver.c - a client in difficult processes: few descriptors, threads that are cancelled, and
 * an unloaded library.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "check.h"
#include "pawl-observe.h"

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

/* The first client of the process is open; then the limit falls. */
static int open_second(rlim_t limit)
{
    pawl_client *first;
    int code;

    CHECK_OK(pawl_open(&first, "memory:", NULL, NULL));
    code = open_with(limit, "memory:");
    return pawl_close(first) ? 3 : code;
}

CASE("the same for the second client of a process")
{
    int opened = 0, refused = 0;

    for (rlim_t limit = 3; limit < 50; limit++) {
        int status = 0;
        pid_t pid = fork();

        if (pid == 0)
            _exit(open_second(limit));
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        opened += WEXITSTATUS(status) == 0;
        refused += WEXITSTATUS(status) == 1;
    }
    CHECK(opened && refused);
}

/* Take every free descriptor, keep the descriptors for a moment, and give them back, again and
 * again. */
static void *hog(void *arg)
{
    int fds[64];

    (void)arg;
    for (unsigned round = 0;; round++) {
        int n = 0;

        while (n < 64 && (fds[n] = dup(0)) >= 0)
            n++;
        for (volatile unsigned i = 0; i < round % 64 * 16; i++)
            ;
        while (n > 0)
            close(fds[--n]);
    }
    return NULL;
}

static int open_beside_hogs(void)
{
    struct rlimit limit;
    pthread_t thread;
    pawl_client *client;

    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 40;
    CHECK(!setrlimit(RLIMIT_NOFILE, &limit));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&thread, NULL, hog, NULL));
    if (!pawl_open(&client, "memory:", NULL, NULL))
        CHECK_OK(pawl_close(client));
    CHECK(!getrlimit(RLIMIT_NOFILE, &limit));
    CHECK_EQ(limit.rlim_cur, 40);
    return 0;
}

CASE("threads that take every free descriptor don't make the first client abort")
{
#ifdef __SANITIZE_THREAD__
    check_skip("ThreadSanitizer reports threads that get one descriptor after the other");
#endif
    for (int i = 0; i < 500; i++) {
        int status = 0;
        pid_t pid = fork();

        if (pid == 0)
            _exit(open_beside_hogs());
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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

static int ignore_row(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

static int ignore_engine(void *arg, const pawl_engine_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

static void ignore_result(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    (void)code;
}

static void use_locks(pawl_client *mine, pawl_client *yours)
{
    pawl_lock_options by_handle = {.size = sizeof by_handle, .owner = PAWL_OWNER_HANDLE};
    pawl_lock *a, *b, *both, *waits;

    CHECK_OK(pawl_lock_new(&a, mine, "a", NULL, NULL));
    CHECK_OK(pawl_lock_new(&b, mine, "b", NULL, NULL));
    CHECK_OK(pawl_lock_new(&waits, yours, "a", &by_handle, NULL));
    CHECK_OK(pawl_multi_new(&both, (pawl_lock *[]){a, b}, 2, NULL));
    CHECK_OK(pawl_lock_acquire(both, 1000, NULL));
    CHECK_CODE(pawl_lock_acquire(waits, 20, NULL), PAWL_ETIMEDOUT);
    CHECK_OK(pawl_lock_acquire_start(waits, PAWL_FOREVER, ignore_result, NULL));
    CHECK_OK(pawl_lock_renew(a, 0, NULL));
    CHECK(pawl_lock_valid_ms(both) > 0 && pawl_lock_token(b));
    CHECK_OK(pawl_lock_release(both, NULL)); /* notifies `waits` */
    CHECK(pawl_lock_break(waits, NULL) != PAWL_EINVAL);
    pawl_lock_free(waits);
    pawl_lock_free(both);
    pawl_lock_free(a);
    pawl_lock_free(b);
}

static void use_the_rest(pawl_client *client)
{
    pawl_stats stats = {.size = sizeof stats};
    pawl_semaphore *sem;
    pawl_latch *latch;
    int64_t n;

    CHECK_OK(pawl_semaphore_new(&sem, client, "s", &(pawl_semaphore_options){
                 .size = sizeof(pawl_semaphore_options), .permits = 2}, NULL));
    CHECK_OK(pawl_semaphore_acquire(sem, 2, 0, NULL));
    CHECK_OK(pawl_semaphore_release(sem, 1, NULL));
    CHECK_OK(pawl_semaphore_available(sem, &n, NULL));
    pawl_semaphore_free(sem);
    CHECK_OK(pawl_latch_new(&latch, client, "l", NULL));
    CHECK_OK(pawl_latch_set(latch, 1, NULL));
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    CHECK_OK(pawl_latch_wait(latch, 0, NULL));
    pawl_latch_free(latch);
    CHECK_OK(pawl_inspect(client, "a", ignore_row, NULL, NULL));
    CHECK_OK(pawl_list(client, "*", ignore_row, NULL, NULL));
    CHECK_OK(pawl_client_stats(client, &stats));
    CHECK(pawl_client_fd(client) >= 0);
    CHECK(pawl_client_process(client) >= 0);
    CHECK_OK(pawl_engines(ignore_engine, NULL));
}

/* Not inlined: AddressSanitizer forgets the red zones of a frame when its function returns, but not
 * when a cancelled thread unwinds its stack. So the thread must not end inside of this frame. */
__attribute__((noinline)) static void use_all(const char *url)
{
    pawl_client *mine, *yours;
    int state;

    CHECK_OK(pawl_open(&mine, url, NULL, NULL));
    CHECK_OK(pawl_open(&yours, url, NULL, NULL));
    use_locks(mine, yours);
    use_the_rest(mine);
    CHECK_OK(pawl_close(yours));
    CHECK_OK(pawl_close(mine));
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    CHECK_EQ(state, PTHREAD_CANCEL_ENABLE);
}

static bool reached_the_end;

static void *use_all_cancelled(void *url)
{
    pthread_cancel(pthread_self()); /* stays pending until a cancellation point */
    use_all(url);
    reached_the_end = true;
    pthread_testcancel();
    return NULL;
}

CASE("no call is a cancellation point, and each call leaves the cancel state as it was")
{
    char *folder = temp_dir(), url[4200];
    const char *const urls[] = {"memory:cancel", url};

    snprintf(url, sizeof url, "local:%s", folder);
    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        pthread_t thread;
        void *result;

        reached_the_end = false;
        CHECK(!pthread_create(&thread, NULL, use_all_cancelled, (void *)(uintptr_t)urls[i]));
        CHECK(!pthread_join(thread, &result));
        CHECK(reached_the_end && result == PTHREAD_CANCELED);
    }
    remove_tree(folder);
    free(folder);
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
