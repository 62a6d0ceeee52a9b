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
    int64_t holders, waiters, hold_ms;
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
    t->all[t->n] = (series){.hold_ms = -1};
    strcpy(t->all[t->n].lock, lock);
    return &t->all[t->n++];
}

static void count(void *arg, sight *s)
{
    tally *t = arg;
    series *one = series_of(t, s->info.name);

    t->types[s->info.type < 3 ? s->info.type : 0]++;
    one->holders += (int64_t)s->info.holders;
    one->waiters += (int64_t)s->info.waiters;
    if (s->info.holders && s->info.since_ms > one->hold_ms)
        one->hold_ms = s->info.since_ms;
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

static void by_lock(const tally *t, const char *name, int which, const char *help)
{
    head(t, name, "gauge", help);
    for (size_t i = 0; i < t->n; i++) {
        const series *s = &t->all[i];
        char lock[2 * PAWL_TEMPLATE_SIZE];

        pawl__label_escape(lock, s->lock);
        if (which == 2 && s->hold_ms >= 0)
            fprintf(t->out, "pawl_service_%s{lock=\"%s\"} %.3f\n", name, lock,
                    (double)s->hold_ms / 1000);
        else if (which < 2)
            fprintf(t->out, "pawl_service_%s{lock=\"%s\"} %lld\n", name, lock,
                    (long long)(which ? s->waiters : s->holders));
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
    by_lock(t, "holders", 0, "Holders.");
    by_lock(t, "waiters", 1, "Waiters.");
    by_lock(t, "oldest_hold_seconds", 2, "Age of the oldest hold.");
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
    tally t = {.n = 1, .open = openmetrics, .all = {{.lock = PAWL_TEMPLATE_OTHER, .hold_ms = -1}}};

    t.out = text_open(ret);
    if (!t.out)
        return false;
    pthread_mutex_lock(&b->mutex);
    table_each(b, count, &t);
    write_all(&t, b);
    pthread_mutex_unlock(&b->mutex);
    return text_close(ret);
}
