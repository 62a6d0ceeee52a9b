/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.c - the thread that asks the service once per interval, for all pages.
 *
 * A round is one call of pawl_list and at most INSPECTIONS calls of pawl_inspect, however many
 * pages are open. The next round begins an interval after the last one began, but not before four
 * times the length of that round has passed: a large or slow service gets a pause between rounds. A
 * service that can't be opened is tried again at each interval.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve.h"

/* ---- results of a round -----------------------------------------------------------------------
 * */

typedef struct round {
    board *board;
    bool locked; /* the rows come when the listing is complete, without I/O in between */
} round_state;

static void begin(round_state *r)
{
    if (r->locked)
        return;
    pthread_mutex_lock(&r->board->mutex);
    r->board->seq++;
    r->locked = true;
}

static int row(void *arg, const pawl_info *info)
{
    round_state *r = arg;

    begin(r);
    return table_take(r->board, info);
}

typedef struct sum {
    board *board;
    FILE *out;
    const char *comma;
    int64_t now;
    slot all;
} sum;

static void add_up(void *arg, sight *s)
{
    sum *t = arg;
    const slot one = slot_of_sight(s);
    past *p = past_of(t->board, s->info.name, s->info.waiters || t->board->npasts < PASTS);

    t->all.holders += one.holders;
    t->all.waiters += one.waiters;
    t->all.hold_ms = one.hold_ms > t->all.hold_ms ? one.hold_ms : t->all.hold_ms;
    t->all.wait_ms = one.wait_ms > t->all.wait_ms ? one.wait_ms : t->all.wait_ms;
    if (p) {
        p->seen = t->now;
        past_push(&p->h, t->now, &one);
    }
    if (!s->changed)
        return;
    s->changed = false;
    fputs(t->comma, t->out);
    put_sight(t->out, s, t->now);
    t->comma = ",";
}

static void put_changes(board *b, FILE *out)
{
    sum t = {.board = b, .out = out, .comma = "", .now = boot_ms(), .all = {0, 0, -1, -1}};

    fputs(",\"gone\":[", out);
    table_sweep(b, out);
    fputs("],\"changed\":[", out);
    table_each(b, add_up, &t);
    putc(']', out);
    past_push(&b->all, t.now, &t.all);
}

/* Publish the event of this round. Without memory there is no event, and pages load everything
 * again. */
static void publish(board *b, bool changes)
{
    note **at = &b->notes[b->seq % NOTES], *n = NULL;
    text t;

    free(*at);
    *at = NULL;
    if (!text_open(&t))
        return;
    fputs("data: {", t.out);
    put_state(t.out, b);
    if (changes)
        put_changes(b, t.out);
    fputs("}\n\n", t.out);
    if (!text_close(&t))
        return;
    n = malloc(sizeof *n + t.length);
    if (n) {
        *n = (note){.seq = b->seq, .length = t.length};
        memcpy(n->data, t.data, t.length);
    }
    free(t.data);
    *at = n;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* List the names. Returns whether the service answered. */
static bool list_names(board *b)
{
    round_state r = {.board = b};
    pawl_error err = {0};
    int64_t begun = boot_ms();
    pawl_client_options options = {.label = operator_name()};
    pawl_client *client = b->client; /* only this thread sets b->client */
    int code = client ? 0 : client_try(b->tool, &client, &options, &err);

    if (!code)
        code = pawl_list(client, NULL, row, &r, &err);
    begin(&r);
    b->client = client;
    b->ok = !code;
    b->good += !code;
    b->bad += code != 0;
    if (!code) {
        b->taken = boot_ms();
        b->round_ms = b->taken - begun;
    } else {
        const char *words = err.text[0] ? err.text : pawl_strerror(code);

        /* The library's text begins with the pattern, which is always '*': leave it out. */
        snprintf(b->error, sizeof b->error, "%s", words + (strncmp(words, "'*': ", 5) ? 0 : 5));
    }
    publish(b, !code);
    pthread_mutex_unlock(&b->mutex);
    return !code;
}

static void finish(board *b)
{
    pthread_mutex_lock(&b->mutex);
    b->done = b->seq;
    pthread_cond_broadcast(&b->news);
    pthread_mutex_unlock(&b->mutex);
}

static void pause_until(board *b, int64_t due)
{
    pthread_mutex_lock(&b->mutex);
    while (!atomic_load(&b->stop) && boot_ms() < due) {
        int64_t left = due - boot_ms();
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_sec += left / 1000;
        t.tv_nsec += left % 1000 * 1000000;
        if (t.tv_nsec >= 1000000000) {
            t.tv_sec++;
            t.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&b->news, &b->mutex, &t);
    }
    pthread_mutex_unlock(&b->mutex);
}

static void *watch(void *arg)
{
    board *b = arg;

    while (!atomic_load(&b->stop)) {
        int64_t begun = boot_ms(), took;

        if (list_names(b))
            details_refresh(b, b->seq);
        finish(b);
        took = 4 * (boot_ms() - begun);
        pause_until(b, begun + (took > b->interval_ms ? took : b->interval_ms));
    }
    for (size_t i = 0; i < NOTES; i++)
        free(b->notes[i]);
    return NULL;
}

int watch_start(board *b, pthread_t *thread)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&b->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->news, &attr);
    pthread_condattr_destroy(&attr);
    return pthread_create(thread, NULL, watch, b);
}
