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
    size_t n, room;   /* no more than room are kept */
    int64_t elapsed;  /* ns, from the first to the last; 0: the rate means nothing */
} samples;

/* False: no memory. */
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
/* The smallest sample that `part` (0 to 1) of all don't exceed; 0: there are none. Sorted. */
int64_t samples_percentile(const samples *, double part);

/* Count, rate, percentiles and histogram. Sorted. */
void samples_print(FILE *, const samples *);
/* The same as members of a JSON object, without the braces. */
void samples_json(FILE *, const samples *);

#endif
