/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c - Pawl behind one line in, one line out (interop/README.md has the protocol):
 * driver QUERY, where QUERY is what the URL says beside host, port and watchdog: "prefix=".
 *
 * An owner is a thread, as in Pawl and in Redisson: CLIENT.OWNER of an ID names it, and it carries
 * out the commands of its IDs in order. A wait blocks only its own owner.
 */
#include "driver.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct owner {
    struct owner *next;
    char name[64];
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct command *first, **last; /* guarded by mutex */
};

static struct owner *owners; /* the main thread's alone */
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

/* ---- lines out ------------------------------------------------------------------------------- */

static long long micros(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void say(const char *id, const char *status, const char *format, ...)
{
    va_list args;

    pthread_mutex_lock(&output);
    printf("%s %s %lld ", id, status, micros());
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

void say_code(const char *id, int code, const pawl_error *err, const char *words)
{
    if (code == PAWL_OK)
        say(id, "ok", "%s", words);
    else if (code == PAWL_EBUSY || code == PAWL_ETIMEDOUT)
        say(id, "busy", "%s", "");
    else
        say(id, "error", "%s: %s", pawl_errname(code), err->text);
}

/* ---- owners ---------------------------------------------------------------------------------- */

static void *work(void *arg)
{
    struct owner *o = arg;
    struct command *c;

    for (;;) {
        pthread_mutex_lock(&o->mutex);
        while (!(c = o->first))
            pthread_cond_wait(&o->changed, &o->mutex);
        o->first = c->next;
        if (!o->first)
            o->last = &o->first;
        pthread_mutex_unlock(&o->mutex);
        do_verb(c);
        free(c);
    }
    return NULL;
}

/* CLIENT.OWNER of CLIENT.OWNER.HANDLE. */
static void owner_name(char *ret, size_t size, const char *id)
{
    const char *dot = strchr(id, '.');
    const char *end = dot ? strchr(dot + 1, '.') : NULL;
    size_t len = end ? (size_t)(end - id) : strlen(id);

    snprintf(ret, size, "%.*s", (int)len, id);
}

static struct owner *find_owner(const char *id)
{
    struct owner *o = owners;
    char name[sizeof o->name];
    pthread_t thread;

    owner_name(name, sizeof name, id);
    while (o && strcmp(o->name, name))
        o = o->next;
    if (o)
        return o;
    o = calloc(1, sizeof *o);
    if (!o)
        exit(1);
    memcpy(o->name, name, sizeof name);
    o->last = &o->first;
    pthread_mutex_init(&o->mutex, NULL);
    pthread_cond_init(&o->changed, NULL);
    o->next = owners;
    owners = o;
    if (pthread_create(&thread, NULL, work, o))
        exit(1);
    pthread_detach(thread);
    return o;
}

static void hand_over(struct owner *o, struct command *c)
{
    pthread_mutex_lock(&o->mutex);
    *o->last = c;
    o->last = &c->next;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->mutex);
}

/* ---- lines in -------------------------------------------------------------------------------- */

static struct command *parse(const char *line)
{
    struct command *c = calloc(1, sizeof *c);
    char *rest;
    int n = 0;

    if (!c)
        exit(1);
    snprintf(c->line, sizeof c->line, "%s", line);
    rest = c->line;
    while (n < MAX_WORDS && (c->words[n] = strsep(&rest, " \n")))
        n += *c->words[n] != 0;
    if (n < MAX_WORDS)
        c->words[n] = NULL;
    return c;
}

int main(int argc, char **argv)
{
    char line[512];
    struct command *c;

    while (fgets(line, sizeof line, stdin)) {
        c = parse(line);
        if (c->words[0] && !strcmp(c->words[0], "die"))
            raise(SIGKILL);
        if (c->words[0] && c->words[1] && !strcmp(c->words[0], "open"))
            do_open(c, argc > 1 ? argv[1] : "prefix=", argc > 2 ? argv[2] : "redis");
        else if (c->words[0] && c->words[1] && !strcmp(c->words[0], "close"))
            do_close(c);
        else if (c->words[0] && c->words[1]) {
            hand_over(find_owner(c->words[1]), c);
            continue;
        }
        free(c);
    }
    _exit(0);
}
