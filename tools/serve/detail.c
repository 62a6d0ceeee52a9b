/* SPDX-License-Identifier: Apache-2.0
 *
 * detail.c - holders and waiters, in order, for the names that pages look at.
 *
 * At most INSPECTIONS names per round, in order of the age of their data, oldest first.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

#define WANTED_MS 10000 /* a page that asked longer ago is considered closed */

typedef struct collector {
    FILE *out;
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
    fputs(c->any ? ",{" : "{", c->out);
    c->any = true;
    json_row(c->out, info);
    putc('}', c->out);
    return 0;
}

/* Inspect a lock once and write it as JSON. Returns a Pawl code; the caller frees *ret. */
static int lock_json(const board *b, const char *name, char **ret, pawl_error *err)
{
    text t;
    collector c = {.any = false};
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
    size_t n;
} choice;

static bool chosen(const choice *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->names[i], name))
            return true;
    return false;
}

static void choose(board *b, choice *c)
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
}

/* ---- asking ---------------------------------------------------------------------------------- */

static char *error_json(const char *name, const char *words)
{
    const pawl_info nothing = {.name = name, .role = PAWL_ROLE_SUMMARY, .since_ms = -1,
                               .lease_ms = -1, .wait_ms = -1};
    text t;

    if (!text_open(&t))
        return NULL;
    fputs("{\"id\":", t.out);
    put_id(t.out, name);
    putc(',', t.out);
    json_row(t.out, &nothing);
    fputs(",\"holder_token\":\"0\",\"holders\":[],\"waiters\":[],\"error\":", t.out);
    json_string(t.out, words);
    putc('}', t.out);
    return text_close(&t) ? t.data : NULL;
}

/* A name on a page has a history also if the listing gives it none: it is free, or one of too many
 * names (watch.c). */
static void put_past(board *b, const char *name)
{
    const sight *s = table_find(b, name);
    past *p = past_of(b, name, true);
    slot now = s ? slot_of_sight(s) : (slot){0, 0, -1, -1};

    if (!p)
        return;
    p->seen = boot_ms();
    past_push(&p->h, p->seen, &now);
}

/* Returns whether the service answered. */
static bool refresh_one(board *b, const char *name, uint64_t seq)
{
    pawl_error err = {0};
    char *json = NULL;
    int code = lock_json(b, name, &json, &err);
    bool refused = code == PAWL_EINVAL || code == PAWL_ENOTSUP || code == PAWL_ESTATE;
    detail *d = NULL;

    if (refused) /* a listed name that is not valid in Pawl, or has another use */
        json = error_json(name, err.text[0] ? err.text : pawl_strerror(code));
    pthread_mutex_lock(&b->mutex);
    b->inspections++;
    if (!code)
        put_past(b, name);
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
    choose(b, &c);
    pthread_mutex_unlock(&b->mutex);
    for (size_t i = 0; i < c.n && !atomic_load(&b->stop); i++)
        if (!refresh_one(b, c.names[i], seq))
            break; /* the next round reports the error */
}
