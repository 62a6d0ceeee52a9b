/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - the names of the service as the last round found them, and the changes since the
 * round before.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

#define DRIFT_MS 1500 /* precision of ages; a larger difference means another hold or waiter */

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash;
}

static void grow(board *b)
{
    size_t room = b->room ? b->room * 2 : 256;
    sight **table = calloc(room, sizeof(sight *));

    if (!table)
        return; /* no memory: keep the longer chains */
    for (size_t i = 0; i < b->room; i++)
        while (b->table[i]) {
            sight *s = b->table[i];
            sight **at = &table[hash_of(s->info.name) & (room - 1)];

            b->table[i] = s->next;
            s->next = *at;
            *at = s;
        }
    free(b->table);
    b->table = table;
    b->room = room;
}

sight *table_find(const board *b, const char *name)
{
    sight *s = b->room ? b->table[hash_of(name) & (b->room - 1)] : NULL;

    while (s && strcmp(s->info.name, name))
        s = s->next;
    return s;
}

slot slot_of_sight(const sight *s)
{
    return (slot){(int64_t)s->info.holders, (int64_t)s->info.waiters,
                  s->info.holders ? s->info.since_ms : -1, s->info.waiters ? s->info.wait_ms : -1};
}

static void sight_free(sight *s)
{
    free((char *)(uintptr_t)s->info.name);
    free((char *)(uintptr_t)s->info.host);
    free((char *)(uintptr_t)s->info.program);
    free((char *)(uintptr_t)s->info.label);
    free((char *)(uintptr_t)s->info.owner);
    free(s);
}

static sight *sight_new(board *b, const char *name)
{
    sight *s = calloc(1, sizeof *s), **at;

    if (b->names >= b->room)
        grow(b);
    if (!s || !b->room || !(s->info.name = strdup(name))) {
        free(s);
        return NULL;
    }
    at = &b->table[hash_of(name) & (b->room - 1)];
    s->next = *at;
    *at = s;
    s->changed = true;
    b->names++;
    return s;
}

/* Replace the string at `at` if it differs. Returns whether it changed. */
static bool take_string(const char **at, const char *now)
{
    char *copy;

    now = now ? now : "";
    if (*at && !strcmp(*at, now))
        return false;
    copy = strdup(now);
    if (!copy)
        return false; /* the old text stays; the next round tries again */
    free((char *)(uintptr_t)*at);
    *at = copy;
    return true;
}

/* Has this age grown by the time that has passed? -1: not known. */
static bool same_age(int64_t before, int64_t now, int64_t passed)
{
    int64_t drift = before + passed - now;

    return before < 0 || now < 0 ? before < 0 && now < 0 : drift <= DRIFT_MS && drift >= -DRIFT_MS;
}

/* Would the page show the same, once the time since the last round has been added? */
static bool same(const pawl_info *a, const pawl_info *b, int64_t passed)
{
    return same_age(a->since_ms, b->since_ms, passed) && same_age(a->wait_ms, b->wait_ms, passed) &&
           a->type == b->type && a->shared == b->shared && a->holders == b->holders &&
           a->waiters == b->waiters && a->count == b->count && a->available == b->available &&
           a->token == b->token && a->pid == b->pid;
}

int table_take(board *b, const pawl_info *info)
{
    sight *s = table_find(b, info->name);
    int64_t now = boot_ms();
    pawl_info next = *info;

    if (!s && !(s = sight_new(b, info->name)))
        return PAWL_ENOMEM;
    s->changed |= !same(&s->info, info, now - s->taken);
    s->changed |= take_string(&s->info.host, info->host);
    s->changed |= take_string(&s->info.program, info->program);
    s->changed |= take_string(&s->info.label, info->label);
    s->changed |= take_string(&s->info.owner, info->owner);
    next.name = s->info.name;
    next.host = s->info.host;
    next.program = s->info.program;
    next.label = s->info.label;
    next.owner = s->info.owner;
    s->info = next;
    s->taken = now;
    s->round = b->seq;
    return 0;
}

void table_sweep(board *b, FILE *gone)
{
    const char *comma = "";

    for (size_t i = 0; i < b->room; i++)
        for (sight **at = &b->table[i]; *at;) {
            sight *s = *at;

            if (s->round == b->seq) {
                at = &s->next;
                continue;
            }
            *at = s->next;
            fputs(comma, gone);
            put_id(gone, s->info.name);
            comma = ",";
            sight_free(s);
            b->names--;
        }
}

void table_each(const board *b, void (*fn)(void *arg, sight *), void *arg)
{
    for (size_t i = 0; i < b->room; i++)
        for (sight *s = b->table[i]; s; s = s->next)
            fn(arg, s);
}

void table_free(board *b)
{
    for (size_t i = 0; i < b->room; i++)
        while (b->table[i]) {
            sight *s = b->table[i];

            b->table[i] = s->next;
            sight_free(s);
        }
    free(b->table);
}
