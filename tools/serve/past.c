/* SPDX-License-Identifier: Apache-2.0
 *
 * past.c - the last hour in slots of ten seconds: one history for all names together, and one each
 * for up to a thousand names. A slot keeps the maximum of its rounds.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

static const slot unknown = {-1, -1, -1, -1};

/* The number of the slot of an instant. The numbers begin at SLOTS, not at 0: the clock begins at
 * the machine's start, and the numbers of the hour before `now` must not be negative. */
static int64_t slot_of(int64_t now)
{
    return now / SLOT_MS + SLOTS;
}

static int64_t more(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void past_push(history *h, int64_t now, const slot *s)
{
    int64_t number = slot_of(now);
    slot *at = &h->slots[number % SLOTS];

    if (!h->last || number - h->last >= SLOTS)
        h->last = number - SLOTS; /* all slots are too old */
    while (h->last < number)
        h->slots[++h->last % SLOTS] = unknown;
    at->holders = more(at->holders, s->holders);
    at->waiters = more(at->waiters, s->waiters);
    at->hold_ms = more(at->hold_ms, s->hold_ms);
    at->wait_ms = more(at->wait_ms, s->wait_ms);
}

static unsigned bucket_of(const char *name)
{
    unsigned hash = 5381;

    for (; *name; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash % 1024;
}

/* Make room: drop the history that has not been seen for the longest time, if that is ten minutes
 * or more. */
static bool forget_one(board *b)
{
    past **oldest = NULL, *p;

    for (size_t i = 0; i < 1024; i++)
        for (past **at = &b->pasts[i]; *at; at = &(*at)->next)
            if (!oldest || (*at)->seen < (*oldest)->seen)
                oldest = at;
    if (!oldest || boot_ms() - (*oldest)->seen < 600000)
        return false;
    p = *oldest;
    *oldest = p->next;
    free(p);
    b->npasts--;
    return true;
}

past *past_of(board *b, const char *name, bool make)
{
    unsigned bucket = bucket_of(name);
    size_t length = strlen(name) + 1;
    past *p = b->pasts[bucket];

    while (p && strcmp(p->name, name))
        p = p->next;
    if (p || !make || (b->npasts >= PASTS && !forget_one(b)))
        return p;
    p = calloc(1, sizeof *p + length);
    if (!p)
        return NULL;
    memcpy(p->name, name, length);
    p->next = b->pasts[bucket];
    b->pasts[bucket] = p;
    b->npasts++;
    return p;
}

static int64_t field(const history *h, int64_t number, int which)
{
    const slot *s = &h->slots[number % SLOTS];

    if (!h->last || number > h->last || number <= h->last - SLOTS)
        return -1;
    return which == 0 ? s->holders : which == 1 ? s->waiters : which == 2 ? s->hold_ms : s->wait_ms;
}

void past_json(const history *h, FILE *out, int64_t now)
{
    static const char *const names[] = {"holders", "waiters", "hold_ms", "wait_ms"};
    int64_t last = slot_of(now), first = last - SLOTS + 1;

    fprintf(out, "\"slot_ms\":%d", SLOT_MS);
    for (int which = 0; which < 4; which++) {
        fprintf(out, ",\"%s\":[", names[which]);
        for (int64_t number = first; number <= last; number++) {
            int64_t value = h ? field(h, number, which) : -1;

            if (number > first)
                putc(',', out);
            if (value < 0)
                fputs("null", out);
            else
                fprintf(out, "%lld", (long long)value);
        }
        putc(']', out);
    }
}

void past_free(board *b)
{
    for (size_t i = 0; i < 1024; i++)
        while (b->pasts[i]) {
            past *p = b->pasts[i];

            b->pasts[i] = p->next;
            free(p);
        }
}
