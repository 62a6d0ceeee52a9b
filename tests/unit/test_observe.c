/* SPDX-License-Identifier: Apache-2.0
 *
 * test_observe.c - metrics, trace events and the warning about long waits.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../lib/check.h"
#include "pawl-observe.h"
#include "template.h"

static void check_template(const char *name, const char *want)
{
    char have[PAWL_TEMPLATE_SIZE];

    pawl__template(have, name);
    CHECK_STR(have, want);
}

CASE("ids in names become one star each")
{
    char longest[300], starred[300];

    check_template("backup", "backup");
    check_template("stock:4711", "stock:*");
    check_template("stock:4711:item7", "stock:*:item*");
    check_template("job-3f2504e0-4f89-11d3-9a0c-0305e82c3301.lock", "job-*.lock");
    check_template("user:deadbeef01", "user:*");
    check_template("user:deadbeef", "user:deadbeef"); /* a word: no digit */
    check_template("01ARZ3NDEKTSV4RRFFQ69G5FAV", "*");
    check_template("v2", "v*");
    check_template("*7", "*");
    check_template("\xe5\xba\x93\xe5\xad\x98:9", "\xe5\xba\x93\xe5\xad\x98:*");
    check_template("a\xff""b", "a?b");
    check_template("\xe2\x80\xae""evil\xd8\x9c\xe2\x81\xa6", "???evil?????"); /* directions */
    check_template("\xe2\x80\x93", "\xe2\x80\x93");
    check_template("\xe0\x80\xaf.\xed\xa0\x80.\xf0\x80\x80\xaf.\xf4\x90\x80\x80.\xc2\x9b",
                   "???.???.????.????.??"); /* overlong, surrogate, too large, C1 */
    memset(longest, 'x', 299);
    longest[299] = '\0';
    memset(starred, 'x', 255);
    starred[255] = '\0';
    check_template(longest, starred);
}

CASE("the value of a label is escaped")
{
    char to[64];

    CHECK_EQ(pawl__label_escape(to, "a\"b\\c\nd"), 10);
    CHECK_STR(to, "a\\\"b\\\\c\\nd");
}

/* ---- metrics --------------------------------------------------------------------------------- */

static pawl_lock *new_lock(pawl_client *client, const char *name)
{
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, name, &options, NULL));
    return lock;
}

static void pair(pawl_client *client, const char *name)
{
    pawl_lock *lock = new_lock(client, name);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
}

static void check_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);

    if (!at || (at != text && at[-1] != '\n') || at[strlen(line)] != '\n')
        check_fail(__FILE__, __LINE__, "no line '%s' in\n%s", line, text);
}

CASE("counters are kept by template, and the client's are their sum")
{
    pawl_client *client;
    pawl_stats stats = {.size = sizeof stats};
    pawl_lock *held, *busy;
    char *text;

    CHECK_OK(pawl_open(&client, "memory:metrics", NULL, NULL));
    pair(client, "stock:1");
    pair(client, "stock:22");
    held = new_lock(client, "a\"b\\c");
    busy = new_lock(client, "a\"b\\c");
    CHECK_OK(pawl_lock_acquire(held, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(busy, 1, NULL), PAWL_ETIMEDOUT);
    CHECK_OK(pawl_client_stats(client, &stats));
    CHECK_EQ(stats.acquired, 3);
    CHECK_EQ(stats.released, 2);
    CHECK_EQ(stats.held, 1);
    CHECK_EQ(stats.waiting, 0);
    CHECK_EQ(stats.not_acquired, 1);
    CHECK_OK(pawl_metrics(&client, 1, PAWL_METRICS_PROMETHEUS, &text, NULL));
    check_line(text, "# TYPE pawl_acquired_total counter");
    check_line(text, "pawl_acquired_total{lock=\"stock:*\"} 2");
    check_line(text, "pawl_held{lock=\"a\\\"b\\\\c\"} 1");
    check_line(text, "pawl_not_acquired_total{lock=\"a\\\"b\\\\c\"} 1");
    check_line(text, "pawl_hold_seconds_count{lock=\"stock:*\"} 2");
    check_line(text, "pawl_wait_seconds_bucket{lock=\"stock:*\",le=\"+Inf\"} 2");
    check_line(text, "pawl_reconnects_total 0");
    CHECK(!strstr(text, "# EOF"));
    free(text);
    CHECK_OK(pawl_metrics(&client, 1, PAWL_METRICS_OPENMETRICS, &text, NULL));
    check_line(text, "# TYPE pawl_acquired counter");
    check_line(text, "pawl_acquired_total{lock=\"stock:*\"} 2");
    CHECK(strlen(text) > 6 && !strcmp(text + strlen(text) - 6, "# EOF\n"));
    free(text);
    CHECK_CODE(pawl_metrics(&client, 1, 2, &text, NULL), PAWL_EINVAL);
    pawl_lock_free(held);
    pawl_lock_free(busy);
    CHECK_OK(pawl_close(client));
}

CASE("the number of series is bounded, and a lock named other is in the series other")
{
    pawl_client *client;
    char name[32], *text, *at;
    int n = 0;

    CHECK_OK(pawl_open(&client, "memory:bounded", NULL, NULL));
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "%c%c", 'a' + i / 26, 'a' + i % 26);
        pair(client, name);
    }
    pair(client, "other");
    CHECK_OK(pawl_metrics(&client, 1, PAWL_METRICS_PROMETHEUS, &text, NULL));
    for (at = text; (at = strstr(at, "\npawl_held{")); at++)
        n++;
    CHECK_EQ(n, 65);
    check_line(text, "pawl_acquired_total{lock=\"other\"} 137");
    free(text);
    CHECK_OK(pawl_close(client));
}

CASE("samples of several clients differ by the label client")
{
    pawl_client_options options = {.size = sizeof options, .label = "shop"};
    pawl_client *clients[3];
    char *text;

    CHECK_OK(pawl_open(&clients[0], "memory:m1", &options, NULL));
    CHECK_OK(pawl_open(&clients[1], "memory:m2", &options, NULL));
    CHECK_OK(pawl_open(&clients[2], "memory:m3", NULL, NULL));
    for (int i = 0; i < 3; i++)
        pair(clients[i], "x");
    CHECK_OK(pawl_metrics(clients, 3, PAWL_METRICS_PROMETHEUS, &text, NULL));
    check_line(text, "pawl_acquired_total{client=\"shop\",lock=\"x\"} 1");
    check_line(text, "pawl_acquired_total{client=\"shop#2\",lock=\"x\"} 1");
    check_line(text, "pawl_acquired_total{lock=\"x\"} 1");
    check_line(text, "pawl_repeated_total{client=\"shop#2\"} 0");
    free(text);
    CHECK_OK(pawl_close(clients[0]));
    CHECK_CODE(pawl_metrics(clients + 1, 0, 0, &text, NULL), PAWL_EINVAL);
    for (int i = 1; i < 3; i++)
        CHECK_OK(pawl_close(clients[i]));
}

/* ---- trace events ---------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char traced[64][100]; /* in order of time */
static int64_t traced_at[64];
static int ntraced;

/* Any thread may deliver an event, and one that is preempted delivers late: sort by time. */
static void trace(void *arg, const pawl_trace *e)
{
    static const char *const names[] = {"", "wait", "waited", "hold", "held"};
    int at;

    (void)arg;
    pthread_mutex_lock(&mutex);
    CHECK(ntraced < 64 && e->size == sizeof *e && e->id && e->at_ns > 0 && e->lasted_ns >= 0);
    for (at = ntraced++; at > 0 && traced_at[at - 1] > e->at_ns; at--) {
        memcpy(traced[at], traced[at - 1], sizeof traced[0]);
        traced_at[at] = traced_at[at - 1];
    }
    traced_at[at] = e->at_ns;
    snprintf(traced[at], sizeof traced[0], "%s %s %s%s%s", e->name, names[e->event],
             e->code ? pawl_errname((int)e->code) : "ok", e->token ? " token" : "",
             e->type == PAWL_TYPE_SEMAPHORE ? " permits" : "");
    pthread_mutex_unlock(&mutex);
}

/* Wait until so many events were delivered, and no more. */
static void await_traced(int want)
{
    int n = 0;

    for (int i = 0; i < 10000 && n < want; i++) {
        pthread_mutex_lock(&mutex);
        n = ntraced;
        pthread_mutex_unlock(&mutex);
        if (n < want)
            usleep(1000);
    }
    CHECK_EQ(n, want);
}

static void check_traced(int at, const char *want)
{
    pthread_mutex_lock(&mutex);
    CHECK(at < ntraced);
    CHECK_STR(traced[at], want);
    pthread_mutex_unlock(&mutex);
}

CASE("each wait and each hold is traced at its start and end")
{
    pawl_client_options options = {.size = sizeof options, .trace = trace};
    pawl_client *client;
    pawl_lock *a, *b;

    CHECK_OK(pawl_open(&client, "memory:traced", &options, NULL));
    a = new_lock(client, "x");
    b = new_lock(client, "x");
    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    await_traced(3);
    CHECK_CODE(pawl_lock_acquire(b, 5, NULL), PAWL_ETIMEDOUT);
    CHECK_OK(pawl_lock_release(a, NULL));
    await_traced(6);
    check_traced(0, "x wait ok");
    check_traced(1, "x waited ok");
    check_traced(2, "x hold ok token");
    check_traced(3, "x wait ok");
    check_traced(4, "x waited PAWL_ETIMEDOUT");
    check_traced(5, "x held ok token");
    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_break(b, NULL));
    CHECK_CODE(pawl_lock_renew(a, 0, NULL), PAWL_ELOST);
    await_traced(10);
    check_traced(9, "x held PAWL_ELOST token");
    pawl_lock_free(a);
    pawl_lock_free(b);
    CHECK_OK(pawl_close(client));
}

CASE("permits are traced, too")
{
    pawl_client_options options = {.size = sizeof options, .trace = trace};
    pawl_semaphore_options sem = {.size = sizeof sem, .permits = 2};
    pawl_client *client;
    pawl_semaphore *s;

    CHECK_OK(pawl_open(&client, "memory:permits", &options, NULL));
    CHECK_OK(pawl_semaphore_new(&s, client, "p", &sem, NULL));
    CHECK_OK(pawl_semaphore_acquire(s, 1, 0, NULL));
    CHECK_OK(pawl_semaphore_release(s, 1, NULL));
    await_traced(4);
    check_traced(2, "p hold ok token permits");
    check_traced(3, "p held ok token permits");
    pawl_semaphore_free(s);
    CHECK_OK(pawl_close(client));
}

/* ---- long waits ------------------------------------------------------------------------------ */

static char logged[8][600];
static int nlogged;

static void log_line(void *arg, int level, const char *text)
{
    (void)arg;
    pthread_mutex_lock(&mutex);
    if (nlogged < 8)
        snprintf(logged[nlogged++], sizeof logged[0], "%d %s", level, text);
    pthread_mutex_unlock(&mutex);
}

static void *wait_here(void *arg)
{
    CHECK_CODE(pawl_lock_acquire(arg, 1500, NULL), PAWL_ETIMEDOUT);
    return NULL;
}

/* Waits by threads of one process, of which one is at the engine and one in the process's queue. */
static void wait_slowly(const char *space, int64_t slow_ms, int want)
{
    pawl_client_options holds = {.size = sizeof holds, .label = "the holder"};
    pawl_client_options waits = {.size = sizeof waits, .log = log_line, .slow_wait_ms = slow_ms};
    pawl_client *one, *two;
    pawl_lock *held, *wanted[2];
    pthread_t threads[2];

    CHECK_OK(pawl_open(&one, space, &holds, NULL));
    CHECK_OK(pawl_open(&two, space, &waits, NULL));
    held = new_lock(one, "slow");
    CHECK_OK(pawl_lock_acquire(held, 0, NULL));
    for (int i = 0; i < 2; i++) {
        wanted[i] = new_lock(two, "slow");
        CHECK(!pthread_create(&threads[i], NULL, wait_here, wanted[i]));
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        pawl_lock_free(wanted[i]);
    }
    CHECK_EQ(nlogged, want);
    pawl_lock_free(held);
    CHECK_OK(pawl_close(two));
    CHECK_OK(pawl_close(one));
}

CASE("a long wait is logged once, with the holder")
{
    wait_slowly("memory:slow", 300, 1);
    CHECK(!strncmp(logged[0], "4 waiting for 'slow' for 0 s: held by pid ", 42));
    CHECK(strstr(logged[0], "(the holder)"));
}

CASE("a wait is not logged before its time, nor if the program wants no warning")
{
    wait_slowly("memory:slower", 60000, 0);
    wait_slowly("memory:never", PAWL_FOREVER, 0);
}

CASE("the limit of long waits is checked")
{
    pawl_client_options options = {.size = sizeof options, .slow_wait_ms = -2};
    pawl_client *client;
    pawl_error err;

    CHECK_CODE(pawl_open(&client, "memory:", &options, &err), PAWL_EINVAL);
    CHECK(strstr(err.text, "slow_wait_ms"));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
