/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.c - what the commands of Pawl's driver do: clients and handles by their ids, and one
 * function for each type of handle.
 *
 * A handle is used by its owner's thread alone; the tables are guarded by one mutex. Handles are
 * never freed: a driver lives as long as its test.
 */
#include "driver.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct client {
    struct client *next;
    char name[64];
    pawl_client *client;
};

struct handle {
    struct handle *next;
    char id[64];
    char name[256];
    int64_t lease_ms;
    pawl_client *client;
    pawl_lock *lock;
    pawl_semaphore *sem;
    pawl_latch *latch;
};

static struct client *clients;
static struct handle *handles;
static pthread_mutex_t tables = PTHREAD_MUTEX_INITIALIZER;

/* ---- tables ---------------------------------------------------------------------------------- */

static pawl_client *find_client(const char *id)
{
    size_t len = strcspn(id, ".");
    pawl_client *found = NULL;

    pthread_mutex_lock(&tables);
    for (struct client *c = clients; c && !found; c = c->next)
        if (strlen(c->name) == len && !strncmp(c->name, id, len))
            found = c->client;
    pthread_mutex_unlock(&tables);
    return found;
}

static struct handle *find_handle(const char *id)
{
    struct handle *h;

    pthread_mutex_lock(&tables);
    for (h = handles; h && strcmp(h->id, id); h = h->next)
        continue;
    pthread_mutex_unlock(&tables);
    return h;
}

void do_open(const struct command *c, const char *query, const char *scheme)
{
    struct client *made = calloc(1, sizeof *made);
    pawl_error err = {0};
    char url[512];
    int code, n;

    if (!made)
        exit(1);
    snprintf(made->name, sizeof made->name, "%s", c->words[1]);
    n = snprintf(url, sizeof url, "%s://127.0.0.1:%s?%s", scheme, c->words[2] ? c->words[2] : "",
                 query);
    for (int i = 3; i < MAX_WORDS && c->words[i]; i++)
        n += snprintf(url + n, sizeof url - (size_t)n, "&%s%s",
                      strchr(c->words[i], '=') ? "" : "watchdog=", c->words[i]);
    code = pawl_open(&made->client, url, NULL, &err);
    if (code) {
        free(made);
    } else {
        pthread_mutex_lock(&tables);
        made->next = clients;
        clients = made;
        pthread_mutex_unlock(&tables);
    }
    say_code(c->words[1], code, &err, "");
}

void do_close(const struct command *c)
{
    pawl_client *client = find_client(c->words[1]);
    pawl_error err = {0};

    say_code(c->words[1], pawl_close(client), &err, "");
}

/* ---- new handles ----------------------------------------------------------------------------- */

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    const struct handle *h = arg;

    (void)lock;
    say(h->id, "event", "lost %s", pawl_errname(code));
}

static int new_sem(struct handle *h, uint64_t permits, pawl_error *err)
{
    pawl_semaphore_options options = {.size = sizeof options, .permits = permits,
                                      .lease_ms = h->lease_ms, .on_lost = on_lost, .arg = h};
    pawl_semaphore *made;
    int code = pawl_semaphore_new(&made, h->client, h->name, &options, err);

    if (code == 0) {
        pawl_semaphore_free(h->sem);
        h->sem = made;
    }
    return code;
}

static int new_lock(struct handle *h, const char *kind, pawl_error *err)
{
    static const char *const kinds[] = {"mutex", "fair", "read", "write", "spin"};
    pawl_lock_options options = {.size = sizeof options, .lease_ms = h->lease_ms,
                                 .on_lost = on_lost, .arg = h};

    if (!strcmp(kind, "permits") || !strcmp(kind, "semaphore"))
        return new_sem(h, 0, err);
    if (!strcmp(kind, "latch"))
        return pawl_latch_new(&h->latch, h->client, h->name, err);
    for (uint64_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (!strcmp(kind, kinds[k]))
            options.kind = k;
    return pawl_lock_new(&h->lock, h->client, h->name, &options, err);
}

/* lock ID KIND NAME [LEASE_MS [renew]] */
static void verb_lock(const struct command *c)
{
    struct handle *h = calloc(1, sizeof *h);
    pawl_error err = {0};
    int renew = c->words[4] && c->words[5] && !strcmp(c->words[5], "renew");
    int code;

    if (!h || !c->words[2] || !c->words[3] || !(h->client = find_client(c->words[1])))
        exit(1);
    snprintf(h->id, sizeof h->id, "%s", c->words[1]);
    snprintf(h->name, sizeof h->name, "%s", c->words[3]);
    h->lease_ms = c->words[4] && !renew ? atoll(c->words[4]) : 0;
    code = new_lock(h, c->words[2], &err);
    pthread_mutex_lock(&tables);
    h->next = handles;
    handles = h;
    pthread_mutex_unlock(&tables);
    say_code(h->id, code, &err, "");
}

/* ---- verbs of each type ---------------------------------------------------------------------- */

static int64_t number(const struct command *c, int i, int64_t otherwise)
{
    return c->words[i] ? atoll(c->words[i]) : otherwise;
}

/* PAWL_ENOTSUP: no such verb. */
static int lock_verb(struct handle *h, const struct command *c, char *words, size_t size,
                     pawl_error *err)
{
    const char *verb = c->words[0];
    int grab = !strcmp(verb, "grab"), code;

    if (!strcmp(verb, "try"))
        return pawl_lock_acquire(h->lock, 0, err);
    if (grab || !strcmp(verb, "acquire")) {
        code = pawl_lock_acquire(h->lock, number(c, 2, PAWL_FOREVER), err);
        if (grab)
            snprintf(words, size, "%" PRIu64, pawl_lock_token(h->lock));
        return code;
    }
    if (!strcmp(verb, "release"))
        return pawl_lock_release(h->lock, err);
    if (!strcmp(verb, "extend"))
        return pawl_lock_renew(h->lock, number(c, 2, 0), err);
    if (!strcmp(verb, "force")) {
        code = pawl_lock_break(h->lock, err);
        return code == PAWL_ENOTHELD ? PAWL_EBUSY : code;
    }
    if (!strcmp(verb, "count"))
        snprintf(words, size, "%d", pawl_lock_hold_count(h->lock));
    else if (!strcmp(verb, "held"))
        snprintf(words, size, "%d", pawl_lock_held(h->lock));
    else if (!strcmp(verb, "ttl"))
        snprintf(words, size, "%" PRId64, pawl_lock_valid_ms(h->lock));
    else if (!strcmp(verb, "token"))
        snprintf(words, size, "%" PRIu64, pawl_lock_token(h->lock));
    else
        return PAWL_ENOTSUP;
    return 0;
}

static int sem_verb(struct handle *h, const struct command *c, char *words, size_t size,
                    pawl_error *err)
{
    const char *verb = c->words[0];
    int64_t value = 0;
    int code;

    if (!strcmp(verb, "set"))
        return new_sem(h, (uint64_t)number(c, 2, 1), err);
    if (!strcmp(verb, "try"))
        return pawl_semaphore_acquire(h->sem, (uint32_t)number(c, 2, 1), 0, err);
    if (!strcmp(verb, "acquire"))
        return pawl_semaphore_acquire(h->sem, c->words[2] ? (uint32_t)number(c, 3, 1) : 1,
                                      number(c, 2, PAWL_FOREVER), err);
    if (!strcmp(verb, "release"))
        return pawl_semaphore_release(h->sem, (uint32_t)number(c, 2, 1), err);
    if (!strcmp(verb, "held") || !strcmp(verb, "ttl")) {
        value = pawl_semaphore_valid_ms(h->sem);
        snprintf(words, size, "%" PRId64, *verb == 'h' ? value > 0 : value);
        return 0;
    }
    if (strcmp(verb, "available"))
        return PAWL_ENOTSUP;
    code = pawl_semaphore_available(h->sem, &value, err);
    snprintf(words, size, "%" PRId64, value);
    return code;
}

static int latch_verb(struct handle *h, const struct command *c, char *words, size_t size,
                      pawl_error *err)
{
    const char *verb = c->words[0];
    int64_t value = 0;
    int code;

    if (!strcmp(verb, "set")) {
        code = pawl_latch_set(h->latch, number(c, 2, 1), err);
        return code == PAWL_ESTATE ? PAWL_EBUSY : code;
    }
    if (!strcmp(verb, "down"))
        return pawl_latch_count_down(h->latch, err);
    if (!strcmp(verb, "await"))
        return pawl_latch_wait(h->latch, number(c, 2, PAWL_FOREVER), err);
    if (strcmp(verb, "count"))
        return PAWL_ENOTSUP;
    code = pawl_latch_count(h->latch, &value, err);
    snprintf(words, size, "%" PRId64, value);
    return code;
}

void do_verb(const struct command *c)
{
    struct handle *h = find_handle(c->words[1]);
    pawl_error err = {0};
    char words[64] = "";
    int code;

    if (!strcmp(c->words[0], "lock")) {
        verb_lock(c);
        return;
    }
    if (!h) {
        say(c->words[1], "error", "no such handle");
        return;
    }
    code = h->lock    ? lock_verb(h, c, words, sizeof words, &err)
           : h->sem   ? sem_verb(h, c, words, sizeof words, &err)
           : h->latch ? latch_verb(h, c, words, sizeof words, &err)
                      : PAWL_ENOTSUP;
    say_code(c->words[1], code, &err, words);
}
