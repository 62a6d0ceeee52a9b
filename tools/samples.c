/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.c - durations that pawl bench has measured. The histogram has a line for each power of
 * two of microseconds between the fastest and the slowest sample.
 */
#include "samples.h"

#include <stdlib.h>

#define BUCKETS 40
#define BAR 40

bool samples_begin(samples *s, size_t room)
{
    *s = (samples){.ns = malloc(room * sizeof *s->ns), .room = room};
    return s->ns != NULL;
}

void samples_free(samples *s)
{
    free(s->ns);
    *s = (samples){0};
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

void samples_sort(samples *s)
{
    if (s->n)
        qsort(s->ns, s->n, sizeof *s->ns, by_size);
}

int64_t samples_percentile(const samples *s, double part)
{
    size_t at = (size_t)(part * (double)s->n);

    if (!s->n)
        return 0;
    return s->ns[at < s->n ? at : s->n - 1];
}

static double per_second(const samples *s)
{
    return s->elapsed > 0 ? (double)s->n * 1e9 / (double)s->elapsed : 0;
}

/* Bucket i counts the samples from 2^(i-1) up to, not including, 2^i microseconds. */
static size_t bucket_of(int64_t ns)
{
    size_t i = 0;

    for (int64_t limit = 1000; ns >= limit && i < BUCKETS - 1; limit *= 2)
        i++;
    return i;
}

static void count(const samples *s, size_t buckets[BUCKETS], size_t *first, size_t *last)
{
    for (size_t i = 0; i < s->n; i++)
        buckets[bucket_of(s->ns[i])]++;
    *first = s->n ? bucket_of(s->ns[0]) : 1;
    *last = s->n ? bucket_of(s->ns[s->n - 1]) : 0;
}

/* Write a time with three digits and a unit of a fixed width. */
static const char *time_text(char buf[24], int64_t ns)
{
    double us = (double)ns / 1000;

    if (us < 1000)
        snprintf(buf, 24, "%.3g us", us);
    else if (us < 1e6)
        snprintf(buf, 24, "%.3g ms", us / 1000);
    else
        snprintf(buf, 24, "%.3g s", us / 1e6);
    return buf;
}

static void print_bars(FILE *out, const samples *s)
{
    size_t buckets[BUCKETS] = {0}, first, last, most = 1;
    char text[24];

    count(s, buckets, &first, &last);
    for (size_t i = first; i <= last; i++)
        most = buckets[i] > most ? buckets[i] : most;
    for (size_t i = first; i <= last; i++) {
        size_t bar = (buckets[i] * BAR + most - 1) / most;

        fprintf(out, "  < %8s  ", time_text(text, INT64_C(1000) << i));
        for (size_t k = 0; k < BAR; k++)
            putc(k < bar ? '#' : ' ', out);
        fprintf(out, " %zu\n", buckets[i]);
    }
}

void samples_print(FILE *out, const samples *s)
{
    char a[24], b[24], c[24], d[24];

    if (s->elapsed)
        fprintf(out, "  %zu in %.1f s: %.0f per second\n", s->n, (double)s->elapsed / 1e9,
                per_second(s));
    else
        fprintf(out, "  %zu measured\n", s->n);
    if (!s->n)
        return;
    fprintf(out, "  median %s, 90 %% within %s, 99 %% within %s, slowest %s\n",
            time_text(a, samples_percentile(s, 0.5)), time_text(b, samples_percentile(s, 0.9)),
            time_text(c, samples_percentile(s, 0.99)), time_text(d, s->ns[s->n - 1]));
    print_bars(out, s);
}

static void json_us(FILE *out, const char *key, int64_t ns)
{
    fprintf(out, ",\"%s\":%lld.%03lld", key, (long long)(ns / 1000), (long long)(ns % 1000));
}

void samples_json(FILE *out, const samples *s)
{
    size_t buckets[BUCKETS] = {0}, first, last;

    count(s, buckets, &first, &last);
    fprintf(out, "\"count\":%zu", s->n);
    if (s->elapsed)
        fprintf(out, ",\"seconds\":%.3f,\"per_second\":%.1f", (double)s->elapsed / 1e9,
                per_second(s));
    json_us(out, "p50_us", samples_percentile(s, 0.5));
    json_us(out, "p90_us", samples_percentile(s, 0.9));
    json_us(out, "p99_us", samples_percentile(s, 0.99));
    json_us(out, "p999_us", samples_percentile(s, 0.999));
    json_us(out, "max_us", s->n ? s->ns[s->n - 1] : 0);
    fputs(",\"histogram\":[", out);
    for (size_t i = first; i <= last; i++)
        fprintf(out, "%s{\"below_us\":%lld,\"count\":%zu}", i == first ? "" : ",",
                1LL << i, buckets[i]);
    putc(']', out);
}
