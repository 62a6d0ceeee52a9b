/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.c - counters of a client, one set for each template of names, and histograms of durations
 * with buckets that double in width.
 *
 * A name belongs to one series for its whole life (name_state->series), so counting costs only one
 * more pointer than counters of the client would. pawl_client_stats adds all series up. The
 * client's mutex guards everything.
 */
#include <stdlib.h>

#include "core.h"

void pawl__stats_init(pawl_client *client)
{
    strcpy(client->counters.other.template, PAWL_TEMPLATE_OTHER);
}

void pawl__stats_free(pawl_client *client)
{
    for (size_t i = 0; i < client->counters.n; i++)
        free(client->counters.series[i]);
    client->counters.n = 0;
}

static uint64_t hash_text(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

struct series *pawl__series_of(pawl_client *client, const char *name)
{
    struct counters *c = &client->counters;
    char template[PAWL_TEMPLATE_SIZE];
    struct series *series;
    uint64_t hash;

    pawl__template(template, name);
    if (!strcmp(template, PAWL_TEMPLATE_OTHER))
        return &c->other;
    hash = hash_text(template);
    for (size_t i = 0; i < c->n; i++)
        if (c->hash[i] == hash && !strcmp(c->series[i]->template, template))
            return c->series[i];
    series = c->n < PAWL_SERIES_MAX ? calloc(1, sizeof *series) : NULL;
    if (!series)
        return &c->other;
    strcpy(series->template, template);
    c->hash[c->n] = hash;
    c->series[c->n++] = series;
    return series;
}

/* ---- counting -------------------------------------------------------------------------------- */

uint64_t pawl__histogram_add(uint64_t *buckets, int64_t ns)
{
    uint64_t us = ns > 0 ? (uint64_t)ns / 1000 : 0;
    int bucket = us ? 63 - __builtin_clzll(us) : 0;

    buckets[bucket < PAWL_BUCKETS ? bucket : PAWL_BUCKETS - 1]++;
    return ns > 0 ? (uint64_t)ns : 0;
}

void pawl__wait_begins(struct hold *hold)
{
    hold->name_state->series->stats.waiting++;
    if (hold->client->options.trace)
        pawl__trace(hold, PAWL_TRACE_WAIT_BEGIN, 0, 0);
}

void pawl__wait_ends(struct hold *hold, int code)
{
    struct series *series = hold->name_state->series;
    int64_t now = code ? pawl__now(hold->client) : hold->since;

    series->stats.waiting--;
    if (code) {
        series->stats.not_acquired++;
    } else {
        series->stats.held++;
        series->stats.acquired++;
        series->stats.waited += hold->waited;
        series->stats.orphaned += hold->orphan;
        series->wait_ns += pawl__histogram_add(series->stats.wait_us, now - hold->asked);
    }
    if (!hold->client->options.trace)
        return;
    pawl__trace(hold, PAWL_TRACE_WAIT_END, now - hold->asked, code);
    if (!code)
        pawl__trace(hold, PAWL_TRACE_HOLD_BEGIN, 0, 0);
}

void pawl__hold_ends(struct hold *hold, int code)
{
    struct series *series = hold->name_state->series;
    int64_t lasted = pawl__now(hold->client) - hold->since;

    series->stats.held--;
    series->hold_ns += pawl__histogram_add(series->stats.hold_us, lasted);
    if (hold->client->options.trace)
        pawl__trace(hold, PAWL_TRACE_HOLD_END, lasted, code);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* All fields but the size are counts. */
static void add(pawl_stats *to, const pawl_stats *from)
{
    uint64_t *sum = (uint64_t *)to;
    const uint64_t *n = (const uint64_t *)from;

    for (size_t i = 1; i < sizeof *to / sizeof *sum; i++)
        sum[i] += n[i];
}

int pawl_client_stats(pawl_client *client, pawl_stats *ret)
{
    pawl_stats sum;
    int code;

    if (!client || !ret || ret->size < sizeof ret->size || ret->size % 8)
        return PAWL_EINVAL;
    code = pawl__enter(client, false, NULL);
    if (code)
        return code;
    sum = client->counters.other.stats;
    for (size_t i = 0; i < client->counters.n; i++)
        add(&sum, &client->counters.series[i]->stats);
    pawl__leave(client);
    sum.size = ret->size < sizeof sum ? ret->size : sizeof sum;
    memcpy(ret, &sum, sum.size);
    return 0;
}
