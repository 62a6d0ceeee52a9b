/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c - /metrics: the locks of the service by the template of their names, and counters of
 * pawl serve itself. Each metric family has at most SERIES templates; the rest are "other".
 */
#include <string.h>

#include "../../src/template.h"
#include "serve.h"

#define SERIES 64 /* without "other" */

typedef struct series {
    char lock[PAWL_TEMPLATE_SIZE];
    int64_t holders, waiters;
    int64_t hold_ms, wait_ms; /* of the oldest; -1: none, or not known */
} series;

typedef struct tally {
    series all[SERIES + 1]; /* [0] is "other" */
    size_t n;
    size_t types[3];
    bool open;
    FILE *out;
} tally;

static series *series_of(tally *t, const char *name)
{
    char lock[PAWL_TEMPLATE_SIZE];

    pawl__template(lock, name);
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->all[i].lock, lock))
            return &t->all[i];
    if (t->n > SERIES)
        return &t->all[0];
    t->all[t->n] = (series){.hold_ms = -1, .wait_ms = -1};
    strcpy(t->all[t->n].lock, lock);
    return &t->all[t->n++];
}

static void count(void *arg, sight *s)
{
    tally *t = arg;
    series *one = series_of(t, s->info.name);
    const slot now = slot_of_sight(s);

    t->types[s->info.type < 3 ? s->info.type : 0]++;
    one->holders += now.holders;
    one->waiters += now.waiters;
    one->hold_ms = now.hold_ms > one->hold_ms ? now.hold_ms : one->hold_ms;
    one->wait_ms = now.wait_ms > one->wait_ms ? now.wait_ms : one->wait_ms;
}

static void head(const tally *t, const char *name, const char *type, const char *help)
{
    const char *suffix = !t->open && !strcmp(type, "counter") ? "_total" : "";

    fprintf(t->out, "# HELP pawl_service_%s%s %s\n# TYPE pawl_service_%s%s %s\n", name, suffix,
            help, name, suffix, type);
}

static void plain(const tally *t, const char *name, const char *type, const char *help,
                  double value)
{
    head(t, name, type, help);
    fprintf(t->out, "pawl_service_%s%s %.10g\n", name, strcmp(type, "counter") ? "" : "_total",
            value);
}

enum value { HOLDERS, WAITERS, OLDEST_HOLD, OLDEST_WAIT };

static int64_t value_of(const series *s, enum value which)
{
    return which == HOLDERS       ? s->holders
           : which == WAITERS     ? s->waiters
           : which == OLDEST_HOLD ? s->hold_ms
                                  : s->wait_ms;
}

static void by_lock(const tally *t, const char *name, enum value which, const char *help)
{
    head(t, name, "gauge", help);
    for (size_t i = 0; i < t->n; i++) {
        int64_t value = value_of(&t->all[i], which);
        char lock[2 * PAWL_TEMPLATE_SIZE];

        pawl__label_escape(lock, t->all[i].lock);
        if (which >= OLDEST_HOLD && value >= 0)
            fprintf(t->out, "pawl_service_%s{lock=\"%s\"} %.3f\n", name, lock,
                    (double)value / 1000);
        else if (which < OLDEST_HOLD)
            fprintf(t->out, "pawl_service_%s{lock=\"%s\"} %lld\n", name, lock, (long long)value);
    }
}

static void write_all(tally *t, const board *b)
{
    static const char *const types[] = {"lock", "semaphore", "latch"};

    plain(t, "up", "gauge", "1 if the service answered the last round.", b->ok);
    if (b->taken)
        plain(t, "data_age_seconds", "gauge", "Age of the data below.",
              (double)(boot_ms() - b->taken) / 1000);
    head(t, "names", "gauge", "Names in use.");
    for (int i = 0; i < 3; i++)
        fprintf(t->out, "pawl_service_names{type=\"%s\"} %zu\n", types[i], t->types[i]);
    by_lock(t, "holders", HOLDERS, "Holders.");
    by_lock(t, "waiters", WAITERS, "Waiters.");
    by_lock(t, "oldest_hold_seconds", OLDEST_HOLD, "Age of the oldest hold.");
    by_lock(t, "oldest_wait_seconds", OLDEST_WAIT, "How long the oldest waiter has been waiting.");
    plain(t, "rounds", "counter", "Rounds that the service answered.", (double)b->good);
    plain(t, "failed_rounds", "counter", "Rounds without an answer.", (double)b->bad);
    plain(t, "inspections", "counter", "Names inspected in these rounds.",
          (double)b->inspections);
    plain(t, "breaks", "counter", "Locks broken through this server.", (double)b->breaks);
    plain(t, "round_seconds", "gauge", "How long the last listing took.",
          (double)b->round_ms / 1000);
    plain(t, "watchers", "gauge", "Open event streams: pages that are watched.", b->watchers);
    if (t->open)
        fputs("# EOF\n", t->out);
}

bool metrics_text(board *b, bool openmetrics, text *ret)
{
    tally t = {.n = 1, .open = openmetrics, .all = {{.lock = PAWL_TEMPLATE_OTHER}}};

    t.all[0].hold_ms = t.all[0].wait_ms = -1;
    t.out = text_open(ret);
    if (!t.out)
        return false;
    pthread_mutex_lock(&b->mutex);
    table_each(b, count, &t);
    write_all(&t, b);
    pthread_mutex_unlock(&b->mutex);
    return text_close(ret);
}
