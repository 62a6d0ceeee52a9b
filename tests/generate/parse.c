/* SPDX-License-Identifier: Apache-2.0
 *
 * parse.c - reads a program from its text. Each line declares a client, an object or a step;
 * "key=value" words may come in any order:
 *
 *     program 12345
 *     after 9000
 *     client 0 loop=0 cohort=0 watchdog=30000 timeout=2000
 *     lock 0 client=0 name=0 kind=1 owner=0 lease=0 max=0 atleast=0 lost=0 done=0
 *     multi 1 members=0,2
 *     sem 2 client=0 name=1 permits=3 lease=0
 *     latch 3 client=0 name=2
 *     step THREAD VERB OBJECT A B
 *     end
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

static const char *const step_names[] = {
#define X(name) #name,
    STEP_KINDS(X)
#undef X
};

const char *step_name(int kind)
{
    return step_names[kind];
}

static _Noreturn void bad(const char *line)
{
    fprintf(stderr, "generate: can't read the line '%s'\n", line);
    exit(64);
}

static int64_t field(const char *line, const char *key, int64_t otherwise)
{
    char word[32];
    const char *at;

    snprintf(word, sizeof word, " %s=", key);
    at = strstr(line, word);
    return at ? strtoll(at + strlen(word), NULL, 10) : otherwise;
}

static void read_client(struct program *p, const char *line, int id)
{
    struct client *c = &p->clients[id];

    if (id < 0 || id >= MAX_CLIENTS)
        bad(line);
    c->present = true;
    c->loop = field(line, "loop", 0);
    c->cohort = field(line, "cohort", 0);
    c->watchdog = field(line, "watchdog", 30000);
    c->timeout = field(line, "timeout", 0);
    if (p->nclients <= id)
        p->nclients = id + 1;
}

static void read_members(struct object *o, const char *line)
{
    const char *at = strstr(line, "members=");
    char *end;

    for (at = at ? at + 8 : ""; *at && o->nmembers < MAX_MEMBERS; at = end + (*end == ',')) {
        o->members[o->nmembers++] = (int)strtol(at, &end, 10);
        if (end == at)
            bad(line);
    }
}

static void read_object(struct program *p, const char *line, int type, int id)
{
    struct object *o = &p->objects[id];

    if (id < 0 || id >= MAX_OBJECTS)
        bad(line);
    o->present = true;
    o->id = id;
    o->type = type;
    o->client = field(line, "client", 0);
    o->name = field(line, "name", 0);
    o->kind = field(line, "kind", 0);
    o->owner = field(line, "owner", 0);
    o->lease = field(line, "lease", 0);
    o->max_hold = field(line, "max", 0);
    o->at_least = field(line, "atleast", 0);
    o->lost = field(line, "lost", 0);
    o->done = field(line, "done", 0);
    o->permits = field(line, "permits", 0);
    if (type == MULTI)
        read_members(o, line);
    if (p->nobjects <= id)
        p->nobjects = id + 1;
}

static void read_step(struct program *p, const char *line)
{
    struct step *s = &p->steps[p->nsteps];
    char verb[16];
    long long a = 0, b = 0;

    if (p->nsteps == MAX_STEPS ||
        sscanf(line, "step %d %15s %d %lld %lld", &s->thread, verb, &s->object, &a, &b) < 3 ||
        s->thread < 0 || s->thread >= MAX_THREADS || s->object < 0 || s->object >= MAX_OBJECTS)
        bad(line);
    s->a = a;
    s->b = b;
    for (s->kind = 0; s->kind < STEP_KIND_COUNT; s->kind++)
        if (!strcmp(verb, step_names[s->kind]))
            break;
    if (s->kind == STEP_KIND_COUNT)
        bad(line);
    snprintf(s->text, sizeof s->text, "%.63s", line);
    if (p->nthreads <= s->thread)
        p->nthreads = s->thread + 1;
    p->nsteps++;
}

static void read_line(struct program *p, const char *line)
{
    static const char *const types[] = {"lock", "multi", "sem", "latch"};
    char word[16];
    long long number;

    if (sscanf(line, "%15s %lld", word, &number) < 2)
        bad(line);
    if (!strcmp(word, "program"))
        p->seed = (uint64_t)number;
    else if (!strcmp(word, "process"))
        p->process = (int)number;
    else if (!strcmp(word, "run"))
        p->run_ms = number;
    else if (!strcmp(word, "after"))
        p->after = number;
    else if (!strcmp(word, "client"))
        read_client(p, line, (int)number);
    else if (!strcmp(word, "step"))
        read_step(p, line);
    else
        for (int type = LOCK;; type++) {
            if (type > LATCH)
                bad(line);
            if (!strcmp(word, types[type])) {
                read_object(p, line, type, (int)number);
                break;
            }
        }
}

int parse_program(struct program *ret, void *file)
{
    char line[256];

    memset(ret, 0, sizeof *ret);
    ret->after = -1;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(line, "end"))
            return 0;
        if (*line && *line != '#')
            read_line(ret, line);
    }
    return -1;
}
