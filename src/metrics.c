/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.c - the counters of clients as text for Prometheus: the classic format, and OpenMetrics.
 *
 * The counters are copied under each client's mutex and written without any. A family (all samples
 * of one metric) must stand together, so the outer loop is over families, then clients, then
 * series.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "core.h"

struct snapshot {
    char label[256];  /* the client's label option */
    char client[600]; /* client="...", or "" */
    pawl_stats total;
    size_t n;
    struct series series[PAWL_SERIES_MAX + 1];
};

struct text {
    char *at;
    size_t length, room;
    bool failed;
    bool open; /* write OpenMetrics */
    const struct snapshot *from;
    size_t n;
};

__attribute__((format(printf, 2, 3)))
static void put(struct text *t, const char *format, ...)
{
    char line[2048];
    va_list args;
    size_t n;

    va_start(args, format);
    n = (size_t)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    n = n < sizeof line ? n : sizeof line - 1;
    if (!t->failed && t->length + n + 1 > t->room) {
        size_t room = t->room ? t->room * 2 : 16384;
        char *at = realloc(t->at, room);

        t->failed = !at;
        if (at) {
            t->at = at;
            t->room = room;
        }
    }
    if (t->failed)
        return;
    memcpy(t->at + t->length, line, n + 1);
    t->length += n;
}

/* ---- families -------------------------------------------------------------------------------- */

static void head(struct text *t, const char *name, const char *type, const char *help)
{
    bool total = !t->open && !strcmp(type, "counter");
    const char *suffix = total ? "_total" : "";

    put(t, "# HELP pawl_%s%s %s\n# TYPE pawl_%s%s %s\n", name, suffix, help, name, suffix, type);
}

/* Write "{client="x",lock="stock:*"", without the closing brace. */
static void labels(struct text *t, const struct snapshot *s, const struct series *series)
{
    char value[2 * PAWL_TEMPLATE_SIZE];

    pawl__label_escape(value, series->template);
    put(t, "{%s%slock=\"%s\"", s->client, *s->client ? "," : "", value);
}

/* Write one number of each series; `field` is its offset in pawl_stats. */
static void by_lock(struct text *t, const char *name, const char *type, size_t field,
                    const char *help)
{
    bool counter = !strcmp(type, "counter");

    head(t, name, type, help);
    for (const struct snapshot *s = t->from; s < t->from + t->n; s++)
        for (size_t i = 0; i < s->n; i++) {
            uint64_t value;

            memcpy(&value, (const char *)&s->series[i].stats + field, sizeof value);
            put(t, "pawl_%s%s", name, counter ? "_total" : "");
            labels(t, s, &s->series[i]);
            put(t, "} %llu\n", (unsigned long long)value);
        }
}

static void by_client(struct text *t, const char *name, size_t field, const char *help)
{
    head(t, name, "counter", help);
    for (const struct snapshot *s = t->from; s < t->from + t->n; s++) {
        uint64_t value;

        memcpy(&value, (const char *)&s->total + field, sizeof value);
        put(t, *s->client ? "pawl_%s_total{%s} %llu\n" : "pawl_%s_total%s %llu\n", name, s->client,
            (unsigned long long)value);
    }
}

/* Every second bucket: 4 us, 16 us ... 18 min. A bucket does not include its upper bound. */
static void one_histogram(struct text *t, const char *name, const struct snapshot *s,
                          const struct series *series, const uint64_t *buckets, uint64_t sum_ns)
{
    uint64_t count = 0;

    for (int i = 0; i < PAWL_BUCKETS; i++) {
        count += buckets[i];
        if (i % 2 == 0 || i == PAWL_BUCKETS - 1)
            continue;
        put(t, "pawl_%s_bucket", name);
        labels(t, s, series);
        put(t, ",le=\"%.10g\"} %llu\n", (double)(1ull << (i + 1)) / 1e6,
            (unsigned long long)count);
    }
    put(t, "pawl_%s_bucket", name);
    labels(t, s, series);
    put(t, ",le=\"+Inf\"} %llu\npawl_%s_sum", (unsigned long long)count, name);
    labels(t, s, series);
    put(t, "} %.9g\npawl_%s_count", (double)sum_ns / 1e9, name);
    labels(t, s, series);
    put(t, "} %llu\n", (unsigned long long)count);
}

static void histogram(struct text *t, const char *name, bool wait, const char *help)
{
    head(t, name, "histogram", help);
    for (const struct snapshot *s = t->from; s < t->from + t->n; s++)
        for (size_t i = 0; i < s->n; i++) {
            const struct series *series = &s->series[i];

            one_histogram(t, name, s, series, wait ? series->stats.wait_us : series->stats.hold_us,
                          wait ? series->wait_ns : series->hold_ns);
        }
}

static void build_info(struct text *t)
{
    const char *name = t->open ? "build" : "build_info";

    put(t, "# HELP pawl_%s The version of the library.\n# TYPE pawl_%s %s\n", name, name,
        t->open ? "info" : "gauge");
    put(t, "pawl_build_info{version=\"%s\"} 1\n", pawl_version());
}

#define FIELD(name) offsetof(pawl_stats, name)

static void all_families(struct text *t)
{
    by_lock(t, "held", "gauge", FIELD(held), "Locks and permits that are held.");
    by_lock(t, "waiting", "gauge", FIELD(waiting), "Acquires that wait.");
    by_lock(t, "acquired", "counter", FIELD(acquired), "Grants.");
    by_lock(t, "not_acquired", "counter", FIELD(not_acquired),
            "Acquires that ended without a grant.");
    by_lock(t, "waited", "counter", FIELD(waited), "Grants that were not given at the first try.");
    by_lock(t, "handed_over", "counter", FIELD(handed_over),
            "Grants passed on inside the process.");
    by_lock(t, "released", "counter", FIELD(released), "Releases.");
    by_lock(t, "renewed", "counter", FIELD(renewed), "Leases confirmed by renewal.");
    by_lock(t, "lost", "counter", FIELD(lost), "Holds that were lost.");
    by_lock(t, "orphaned", "counter", FIELD(orphaned), "Holds whose thread ended.");
    histogram(t, "wait_seconds", true, "Time from the call to the grant.");
    histogram(t, "hold_seconds", false, "Time from the grant to the release or loss.");
    by_client(t, "reconnects", FIELD(reconnects), "Connections made again.");
    by_client(t, "failovers", FIELD(failovers), "Times that another server took over.");
    by_client(t, "unanswered", FIELD(unknown), "Requests that got no answer.");
    by_client(t, "repeated", FIELD(repeated), "Requests sent again for that reason.");
    build_info(t);
    if (t->open)
        put(t, "# EOF\n");
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static bool in_use(const pawl_stats *s)
{
    return s->acquired || s->not_acquired || s->waiting || s->held;
}

static int take(struct snapshot *s, pawl_client *client, pawl_error *err)
{
    int code;

    if (!client)
        return pawl_error_set(err, PAWL_EINVAL, "a client is NULL");
    code = pawl__enter(client, false, err);
    if (code)
        return code;
    for (size_t i = 0; i < client->counters.n; i++)
        if (in_use(&client->counters.series[i]->stats))
            s->series[s->n++] = *client->counters.series[i];
    if (in_use(&client->counters.other.stats))
        s->series[s->n++] = client->counters.other;
    s->total = client->counters.other.stats; /* counters without a name are only in `other` */
    snprintf(s->label, sizeof s->label, "%s", client->label);
    pawl__leave(client);
    return 0;
}

/* Number clients with equal labels: samples of two clients must differ by a label. */
static void name_client(struct snapshot *all, size_t i)
{
    char text[sizeof all->label], value[2 * sizeof text], number[32] = "";
    size_t before = 0;

    for (size_t k = 0; k < i; k++)
        before += !strcmp(all[k].label, all[i].label);
    strcpy(text, all[i].label);
    pawl_text_clean(text);
    pawl__label_escape(value, text);
    if (before)
        snprintf(number, sizeof number, "#%zu", before + 1);
    if (*value || before)
        snprintf(all[i].client, sizeof all[i].client, "client=\"%s%s\"", value, number);
}

int pawl_metrics(pawl_client *const *clients, size_t n, uint64_t format, char **ret,
                 pawl_error *err)
{
    struct snapshot *all;
    struct text t = {.open = format == PAWL_METRICS_OPENMETRICS, .n = n};
    int code = 0;

    if (!clients || !n || !ret || format > PAWL_METRICS_OPENMETRICS)
        return pawl_error_set(err, PAWL_EINVAL, "pawl_metrics needs a client, a format of "
                              "enum pawl_metrics_format and a place for the text");
    all = calloc(n, sizeof *all);
    for (size_t i = 0; all && i < n && !code; i++) {
        code = take(&all[i], clients[i], err);
        name_client(all, i);
    }
    t.from = all;
    if (all && !code)
        all_families(&t);
    free(all);
    if (!code && (!all || t.failed))
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    if (code)
        free(t.at);
    else
        *ret = t.at;
    return code;
}
