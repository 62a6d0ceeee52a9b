/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_held.c - 100,000 locks (or -n) held by one client for a minute (or -s) with the default
 * lease of 30 s: the cost of renewals for client and server, the memory that each lock takes, and
 * lost locks.
 *
 * For comparison, the plain client keeps the minimum of a lock with a lease: a string with a time
 * to live, and for the renewal one script per lock that compares the owner and sets the time
 * again, pipelined 32 deep. Pawl has a second key for each name, the counter of its tokens.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "redis.h"

#define WINDOW 1000
#define DEPTH 32

struct figures {
    double client_cpu, server_cpu, scripts, server_bytes, client_bytes;
};

static struct plain *admin;
static pawl_lock **locks;
static int count, hold_s; /* how many locks, and for how long */
static atomic_long lost;
static sem_t window, finished;

/* ---- meters ---------------------------------------------------------------------------------- */

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

static double resident(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long all, pages = 0;

    if (!f || fscanf(f, "%ld %ld", &all, &pages) != 2)
        bench_die("/proc/self/statm");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static struct figures look(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (struct figures){
        .client_cpu = seconds(use.ru_utime) + seconds(use.ru_stime),
        .server_cpu = plain_info(admin, "cpu", "used_cpu_user:") +
                      plain_info(admin, "cpu", "used_cpu_sys:"),
        .scripts = (double)plain_scripts_run(admin),
        .server_bytes = plain_info(admin, "memory", "used_memory:"),
        .client_bytes = resident(),
    };
}

static struct figures since(struct figures from)
{
    struct figures now = look();

    return (struct figures){now.client_cpu - from.client_cpu, now.server_cpu - from.server_cpu,
                            now.scripts - from.scripts, now.server_bytes - from.server_bytes,
                            now.client_bytes - from.client_bytes};
}

/* ---- Pawl ------------------------------------------------------------------------------------ */

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    (void)code;
    atomic_fetch_add(&lost, 1);
}

static void done(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    bench_must(code, "acquire or release", NULL);
    sem_post(&window);
    sem_post(&finished);
}

/* Acquire or release all locks, WINDOW at a time. */
static void all(int acquire)
{
    for (int i = 0; i < count; i++) {
        sem_wait(&window);
        bench_must(acquire ? pawl_lock_acquire_start(locks[i], 0, done, NULL)
                           : pawl_lock_release_start(locks[i], done, NULL), "start", NULL);
    }
    for (int i = 0; i < count; i++)
        sem_wait(&finished);
}

static void new_locks(pawl_client *client)
{
    pawl_lock_options options = {
        .size = sizeof options, .owner = PAWL_OWNER_HANDLE, .on_lost = on_lost};
    pawl_error err;
    char name[40];

    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "held:%d", i);
        bench_must(pawl_lock_new(&locks[i], client, name, &options, &err), "pawl_lock_new", &err);
    }
}

static pawl_stats stats_of(pawl_client *client)
{
    pawl_stats stats = {.size = sizeof stats};

    bench_must(pawl_client_stats(client, &stats), "pawl_client_stats", NULL);
    return stats;
}

/* Memory is measured while the locks are acquired, all else while they are held. */
static struct figures keep_by_pawl(double *renewed)
{
    struct figures before = look(), keeping;
    pawl_client *client;
    pawl_stats stats;
    pawl_error err;

    bench_must(pawl_open(&client, setup.tcp, NULL, &err), "pawl_open", &err);
    new_locks(client);
    all(1);
    stats = stats_of(client);
    *renewed = (double)stats.renewed;
    before = since(before);
    keeping = look();
    bench_nap(hold_s * 1000000000LL);
    keeping = since(keeping);
    stats = stats_of(client);
    *renewed = (double)stats.renewed - *renewed;
    if (!setup.figures)
        printf("held       %d locks for %d s: %llu still held, %ld lost\n", count, hold_s,
               (unsigned long long)stats.held, atomic_load(&lost));
    bench_figure("held", (double)stats.held);
    bench_figure("lost", (double)atomic_load(&lost));
    all(0);
    for (int i = 0; i < count; i++)
        pawl_lock_free(locks[i]);
    pawl_close(client);
    keeping.server_bytes = before.server_bytes;
    keeping.client_bytes = before.client_bytes;
    return keeping;
}

/* ---- one key, one script for each ------------------------------------------------------------ */

static const char renew_script[] =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2])"
    " end\nreturn 0\n";

static void pipelined(int n, const char *const *args, int key)
{
    struct plain_request r;
    char name[40];
    size_t len;

    for (int sent = 0, got = 0; got < count; got++) {
        for (; sent < count && sent - got < DEPTH; sent++) {
            snprintf(name, sizeof name, "pawl:held:%d", sent);
            plain_begin(&r, n);
            for (int i = 0; i < n; i++)
                plain_arg(&r, i == key ? name : args[i]);
            plain_send(admin, r.data, r.len);
        }
        plain_reply(admin, &len);
    }
}

static struct figures keep_plainly(void)
{
    static const char owner[] = "0000000000000001:00000001";
    const char *const load[] = {"SCRIPT", "LOAD", renew_script};
    struct figures before = look(), keeping;
    char sha[41];
    size_t len;

    snprintf(sha, sizeof sha, "%s", plain_do(admin, 3, load, &len) + strlen("$40\r\n"));
    pipelined(6, (const char *const[]){"SET", NULL, owner, "NX", "PX", "30000"}, 1);
    before = since(before);
    keeping = look();
    pipelined(6, (const char *const[]){"EVALSHA", sha, "1", NULL, owner, "30000"}, 3);
    keeping = since(keeping);
    keeping.server_bytes = before.server_bytes;
    return keeping;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void sentences(const struct figures *mine, const struct figures *theirs, double renewed)
{
    printf("held       %.0f renewals in %.0f scripts   client %.2f s CPU, server %.2f s CPU in the "
           "whole minute\n", renewed, mine->scripts, mine->client_cpu, mine->server_cpu);
    printf("held       one renewal: pawl %.2f us server CPU, %.2f us client CPU   one script each "
           "%.2f, %.2f   ratio %.2f, %.2f\n", mine->server_cpu * 1e6 / renewed,
           mine->client_cpu * 1e6 / renewed, theirs->server_cpu * 1e6 / count,
           theirs->client_cpu * 1e6 / count,
           mine->server_cpu / renewed / (theirs->server_cpu / count),
           mine->client_cpu / renewed / (theirs->client_cpu / count));
    printf("held       one lock: pawl %.0f bytes in the server, %.0f in the client   one key with "
           "a time to live %.0f bytes   ratio %.2f\n", mine->server_bytes / count,
           mine->client_bytes / count, theirs->server_bytes / count,
           mine->server_bytes / theirs->server_bytes);
}

static void figures(const struct figures *mine, const struct figures *theirs, double renewed)
{
    bench_figure("renewed", renewed);
    bench_figure("scripts", mine->scripts);
    bench_figure("client_bytes", mine->client_bytes / count);
    bench_figure("server_bytes", mine->server_bytes / count);
    bench_figure("client_percent", mine->client_cpu * 100 / hold_s);
    bench_figure("server_percent", mine->server_cpu * 100 / hold_s);
    bench_figure("plain_server_bytes", theirs->server_bytes / count);
    bench_figure("plain_client_us", theirs->client_cpu * 1e6 / count);
    bench_figure("plain_server_us", theirs->server_cpu * 1e6 / count);
}

void bench_held(void)
{
    const char *const flush[] = {"FLUSHALL"};
    struct figures mine, theirs;
    double renewed;
    size_t len;

    count = setup.count ? setup.count : 100000;
    hold_s = setup.seconds ? setup.seconds : 60;
    locks = calloc((size_t)count, sizeof *locks);
    if (!locks)
        bench_die("calloc");
    sem_init(&window, 0, WINDOW);
    sem_init(&finished, 0, 0);
    admin = plain_open(&setup.by_tcp);
    mine = keep_by_pawl(&renewed);
    plain_do(admin, 1, flush, &len);
    theirs = keep_plainly();
    if (setup.figures)
        figures(&mine, &theirs, renewed);
    else
        sentences(&mine, &theirs, renewed);
    plain_close(admin);
    if (atomic_load(&lost))
        exit(1);
}
