/* SPDX-License-Identifier: Apache-2.0
 *
 * samples.h - durations that pawl bench has measured: percentiles and a histogram.
 */
#ifndef PAWL_SAMPLES_H
#define PAWL_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct samples {
    int64_t *ns;
    size_t n, room;   /* no more than `room` samples are kept */
    int64_t elapsed;  /* ns, from the first to the last; 0: there is no meaningful rate */
} samples;

/* Returns false if there is no memory. */
bool samples_begin(samples *, size_t room);
void samples_free(samples *);
static inline bool samples_full(const samples *s)
{
    return s->n >= s->room;
}
static inline void samples_add(samples *s, int64_t ns)
{
    if (s->n < s->room)
        s->ns[s->n++] = ns;
}
void samples_sort(samples *);
/* The smallest sample that at least `part` (0 to 1) of all samples don't exceed; 0: there are no
 * samples. The samples must be sorted. */
int64_t samples_percentile(const samples *, double part);

/* Print count, rate, percentiles and histogram. The samples must be sorted. */
void samples_print(FILE *, const samples *);
/* Print the same as members of a JSON object, without the braces. */
void samples_json(FILE *, const samples *);

#endif
