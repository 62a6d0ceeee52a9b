/* SPDX-License-Identifier: Apache-2.0
 *
 * detail.c - holders and waiters, in order: for the names that pages look at, and for the
 * names with the most waiters, whose waiting times go into the history.
 *
 * At most INSPECTIONS names per round. Names that pages look at come first, in order of the age of
 * their data, oldest first.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

#define WANTED_MS 10000 /* a page that asked longer ago is considered closed */

typedef struct collector {
    board *board;
    FILE *out;
    int64_t wait_ms;
    int phase; /* 0: nothing yet, 1: in holders, 2: in waiters */
    bool any;
} collector;

/* Holders come before waiters. */
static void in_phase(collector *c, int phase)
{
    if (c->phase < phase && c->phase < 1) {
        fputs(",\"holders\":[", c->out);
        c->phase = 1;
        c->any = false;
    }
    if (c->phase < phase) {
        fputs("],\"waiters\":[", c->out);
        c->phase = 2;
        c->any = false;
    }
}

static int row(void *arg, const pawl_info *info)
{
    collector *c = arg;

    if (info->role == PAWL_ROLE_SUMMARY) {
        json_row(c->out, info);
        /* as a string: numbers in JavaScript have 53 bits */
        fprintf(c->out, ",\"holder_token\":\"%llu\"", (unsigned long long)info->token);
        return 0;
    }
    in_phase(c, info->role == PAWL_ROLE_WAITER ? 2 : 1);
    if (info->role == PAWL_ROLE_WAITER && info->since_ms > c->wait_ms)
        c->wait_ms = info->since_ms;
    fputs(c->any ? ",{" : "{", c->out);
    c->any = true;
    json_row(c->out, info);
    putc('}', c->out);
    return 0;
}

int lock_json(board *b, const char *name, char **ret, int64_t *wait_ms, pawl_error *err)
{
    text t;
    collector c = {.board = b, .wait_ms = -1};
    int code;

    c.out = text_open(&t);
    if (!c.out)
        return PAWL_ENOMEM;
    fputs("{\"id\":", c.out);
    put_id(c.out, name);
    putc(',', c.out);
    code = pawl_inspect(b->client, name, row, &c, err);
    in_phase(&c, 2);
    fputs("]}", c.out);
    if (!text_close(&t))
        return PAWL_ENOMEM;
    if (code)
        free(t.data);
    else
        *ret = t.data;
    *wait_ms = c.wait_ms;
    return code;
}

/* ---- which ----------------------------------------------------------------------------------- */

static bool is_wanted(const detail *d, int64_t now)
{
    return d->name[0] && (d->watchers || (d->wanted && now - d->wanted < WANTED_MS));
}

detail *detail_want(board *b, const char *name)
{
    int64_t now = boot_ms();
    detail *unused = NULL;

    if (strlen(name) >= sizeof unused->name)
        return NULL;
    for (detail *d = b->details; d < b->details + DETAILS; d++) {
        if (!strcmp(d->name, name)) {
            d->wanted = now;
            return d;
        }
        if (!is_wanted(d, now) && (!unused || d->seq < unused->seq))
            unused = d;
    }
    if (!unused)
        return NULL;
    free(unused->json);
    *unused = (detail){.wanted = now};
    strcpy(unused->name, name);
    return unused;
}

typedef struct choice {
    char names[INSPECTIONS][256];
    uint64_t waiters[INSPECTIONS];
    size_t n, wanted; /* the first `wanted` names are from pages */
} choice;

static bool chosen(const choice *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->names[i], name))
            return true;
    return false;
}

static void choose_wanted(board *b, choice *c)
{
    while (c->n < INSPECTIONS) {
        detail *next = NULL;

        for (detail *d = b->details; d < b->details + DETAILS; d++)
            if (is_wanted(d, boot_ms()) && !chosen(c, d->name) && (!next || d->seq < next->seq))
                next = d;
        if (!next)
            break;
        strcpy(c->names[c->n++], next->name);
    }
    c->wanted = c->n;
}

/* Insert a name into the part of the choice that is sorted by the number of waiters. */
static void choose_contended(void *arg, sight *s)
{
    choice *c = arg;
    size_t at;

    if (!s->info.waiters || strlen(s->info.name) > 255 || chosen(c, s->info.name))
        return;
    for (at = c->wanted; at < c->n && c->waiters[at] >= s->info.waiters; at++)
        ;
    if (at == INSPECTIONS)
        return;
    c->n += c->n < INSPECTIONS;
    memmove(c->names[at + 1], c->names[at], (c->n - at - 1) * sizeof c->names[0]);
    memmove(&c->waiters[at + 1], &c->waiters[at], (c->n - at - 1) * sizeof c->waiters[0]);
    strcpy(c->names[at], s->info.name);
    c->waiters[at] = s->info.waiters;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static char *error_json(const char *name, const char *words)
{
    text t;

    if (!text_open(&t))
        return NULL;
    fputs("{\"id\":", t.out);
    put_id(t.out, name);
    fputs(",\"name\":", t.out);
    json_string(t.out, name);
    fputs(",\"type\":\"lock\",\"held\":false,\"holder_count\":0,\"waiter_count\":0,\"token\":0,"
          "\"holders\":[],\"waiters\":[],\"error\":", t.out);
    json_string(t.out, words);
    putc('}', t.out);
    return text_close(&t) ? t.data : NULL;
}

static void put_past(board *b, const char *name, int64_t wait_ms)
{
    const sight *s = table_find(b, name);
    past *p = past_of(b, name, true);
    slot now = {0, 0, -1, wait_ms};

    if (s) {
        now.holders = (int64_t)s->info.holders;
        now.waiters = (int64_t)s->info.waiters;
        now.hold_ms = s->info.since_ms;
    }
    if (p) {
        p->seen = boot_ms();
        past_push(&p->h, p->seen, &now);
    }
    now = (slot){-1, -1, -1, wait_ms};
    past_push(&b->all, boot_ms(), &now);
}

/* Returns whether the service answered. */
static bool refresh_one(board *b, const char *name, uint64_t seq)
{
    pawl_error err = {0};
    char *json = NULL;
    int64_t wait_ms = -1;
    int code = lock_json(b, name, &json, &wait_ms, &err);
    bool refused = code == PAWL_EINVAL || code == PAWL_ENOTSUP || code == PAWL_ESTATE;
    detail *d = NULL;

    if (refused) /* a listed name that is not valid in Pawl, or has another use */
        json = error_json(name, err.text[0] ? err.text : pawl_strerror(code));
    pthread_mutex_lock(&b->mutex);
    b->inspections++;
    if (!code)
        put_past(b, name, wait_ms);
    for (detail *i = b->details; i < b->details + DETAILS; i++)
        if (!strcmp(i->name, name))
            d = i;
    if (d && json) {
        free(d->json);
        d->json = json;
        d->seq = seq;
        json = NULL;
    }
    pthread_mutex_unlock(&b->mutex);
    free(json);
    return !code || refused;
}

void details_refresh(board *b, uint64_t seq)
{
    choice c = {0};

    pthread_mutex_lock(&b->mutex);
    choose_wanted(b, &c);
    table_each(b, choose_contended, &c);
    pthread_mutex_unlock(&b->mutex);
    for (size_t i = 0; i < c.n && !atomic_load(&b->stop); i++)
        if (!refresh_one(b, c.names[i], seq))
            break; /* the next round reports the error */
}
