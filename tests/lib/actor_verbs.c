/* SPDX-License-Identifier: Apache-2.0
 *
 * actor_verbs.c - the verbs of the actor, which actor.c documents: the functions, a table of verbs,
 * and the objects by their ids.
 */
#include "actor.h"
#include "pawl-observe.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum type { LOCK, SEM, LATCH };

struct object {
    struct object *next;
    enum type type;
    char id[64];
    pawl_lock *lock;
    pawl_semaphore *sem;
    pawl_latch *latch;
};

typedef void verb_fn(const char *verb, struct object *o, int n, char **words);

static struct object *objects;

/* ---- objects --------------------------------------------------------------------------------- */

static struct object *find(const char *id)
{
    struct object *o = objects;

    while (o && strcmp(o->id, id))
        o = o->next;
    return o;
}

static void free_object(struct object *o)
{
    struct object **at = &objects;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    pawl_lock_free(o->lock);
    pawl_semaphore_free(o->sem);
    pawl_latch_free(o->latch);
    free(o);
}

void free_objects(void)
{
    while (objects)
        free_object(objects);
}

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    struct object *o = arg;

    (void)lock;
    answer("lost", o->id, code, NULL, "%s", "");
}

static int64_t option(int n, char **words, const char *key, int64_t fallback)
{
    size_t len = strlen(key);

    for (int i = 3; i < n; i++)
        if (!strncmp(words[i], key, len) && words[i][len] == '=')
            return atoll(words[i] + len + 1);
    return fallback;
}

static uint64_t kind_option(int n, char **words)
{
    static const char *const kinds[] = {"kind=mutex", "kind=fair", "kind=read", "kind=write",
                                        "kind=spin"};

    for (int i = 3; i < n; i++)
        for (uint64_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (!strcmp(words[i], kinds[k]))
                return k;
    return PAWL_MUTEX;
}

static int make(struct object *o, int n, char **words, pawl_error *err)
{
    pawl_lock_options lock = {.size = sizeof lock, .kind = kind_option(n, words),
                              .lease_ms = option(n, words, "lease", 0),
                              .max_hold_ms = option(n, words, "max_hold", 0),
                              .at_least_ms = option(n, words, "at_least", 0),
                              .owner = option(n, words, "thread", 0) ? PAWL_OWNER_THREAD
                                                                     : PAWL_OWNER_HANDLE,
                              .on_lost = on_lost, .arg = o};
    pawl_semaphore_options sem = {.size = sizeof sem, .lease_ms = lock.lease_ms,
                                  .permits = (uint64_t)option(n, words, "permits", 0),
                                  .on_lost = on_lost, .arg = o};

    if (o->type == LOCK)
        return pawl_lock_new(&o->lock, client, words[2], &lock, err);
    if (o->type == SEM)
        return pawl_semaphore_new(&o->sem, client, words[2], &sem, err);
    return pawl_latch_new(&o->latch, client, words[2], err);
}

static void verb_new(const char *verb, enum type type, int n, char **words)
{
    struct object *o = calloc(1, sizeof *o);
    pawl_error err = {0};
    int code = PAWL_ENOMEM;

    if (o) {
        o->type = type;
        snprintf(o->id, sizeof o->id, "%s", words[1]);
        o->next = objects;
        objects = o;
        from_word(words[2]);
        code = make(o, n, words, &err);
        if (code)
            free_object(o);
    }
    answer(verb, words[1], code, &err, "%s", "");
}

static void verb_free(const char *verb, struct object *o, int n, char **words)
{
    (void)n;
    free_object(o);
    answer(verb, words[1], 0, NULL, "%s", "");
}

/* ---- acquiring and releasing ----------------------------------------------------------------- */

static long long token_of(const struct object *o)
{
    return (long long)(o->lock ? pawl_lock_token(o->lock)
                       : o->sem ? pawl_semaphore_token(o->sem) : 0);
}

static long long valid_of(const struct object *o)
{
    return (long long)(o->lock ? pawl_lock_valid_ms(o->lock)
                       : o->sem ? pawl_semaphore_valid_ms(o->sem) : 0);
}

static void acquired(void *arg, pawl_lock *lock, int code)
{
    struct object *o = arg;

    (void)lock;
    answer("acquire", o->id, code, NULL, " token=%lld valid=%lld", token_of(o), valid_of(o));
}

static void released(void *arg, pawl_lock *lock, int code)
{
    struct object *o = arg;

    (void)lock;
    answer("release", o->id, code, NULL, "%s", "");
}

static void verb_acquire(const char *verb, struct object *o, int n, char **words)
{
    int code = o->lock ? pawl_lock_acquire_start(o->lock, n > 2 ? atoll(words[2]) : PAWL_FOREVER,
                                                 acquired, o)
                       : PAWL_EINVAL;

    if (code)
        answer(verb, o->id, code, NULL, " token=0 valid=0");
}

static void verb_release(const char *verb, struct object *o, int n, char **words)
{
    int code = o->lock ? pawl_lock_release_start(o->lock, released, o) : PAWL_EINVAL;

    (void)n, (void)words;
    if (code)
        answer(verb, o->id, code, NULL, "%s", "");
}

static void take(const char *verb, struct object *o, int64_t wait, uint32_t permits)
{
    pawl_error err = {0};
    int code = o->lock ? pawl_lock_acquire(o->lock, wait, &err)
               : o->sem ? pawl_semaphore_acquire(o->sem, permits, wait, &err)
                        : pawl_latch_wait(o->latch, wait, &err);

    answer(verb, o->id, code, &err, " token=%lld valid=%lld", token_of(o), valid_of(o));
}

static void verb_take(const char *verb, struct object *o, int n, char **words)
{
    take(verb, o, n > 2 ? atoll(words[2]) : PAWL_FOREVER, n > 3 ? (uint32_t)atoi(words[3]) : 1);
}

static void verb_try(const char *verb, struct object *o, int n, char **words)
{
    take(verb, o, 0, n > 2 ? (uint32_t)atoi(words[2]) : 1);
}

static void verb_drop(const char *verb, struct object *o, int n, char **words)
{
    uint32_t permits = n > 2 ? (uint32_t)atoi(words[2]) : 1;
    pawl_error err = {0};
    int code = o->lock ? pawl_lock_release(o->lock, &err)
               : o->sem ? pawl_semaphore_release(o->sem, permits, &err) : PAWL_EINVAL;

    answer(verb, o->id, code, &err, "%s", "");
}

static void verb_renew(const char *verb, struct object *o, int n, char **words)
{
    pawl_error err = {0};
    int code = o->lock ? pawl_lock_renew(o->lock, n > 2 ? atoll(words[2]) : 0, &err) : PAWL_EINVAL;

    answer(verb, o->id, code, &err, " valid=%lld", valid_of(o));
}

static void verb_break(const char *verb, struct object *o, int n, char **words)
{
    pawl_error err = {0};
    int code = o->lock ? pawl_lock_break(o->lock, &err) : PAWL_EINVAL;

    (void)n, (void)words;
    answer(verb, o->id, code, &err, "%s", "");
}

static void verb_cancel(const char *verb, struct object *o, int n, char **words)
{
    int asked = o->lock ? pawl_lock_cancel(o->lock)
                : o->sem ? pawl_semaphore_cancel(o->sem) : pawl_latch_cancel(o->latch);

    (void)n, (void)words;
    answer(verb, o->id, asked < 0 ? asked : 0, NULL, " n=%d", asked);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void verb_state(const char *verb, struct object *o, int n, char **words)
{
    long long valid, held;

    (void)n, (void)words;
    if (!strcmp(verb, "stopself"))
        raise(SIGSTOP);
    valid = valid_of(o);
    held = o->lock ? pawl_lock_held(o->lock) : valid > 0;
    answer(verb, o->id, 0, NULL, " valid=%lld held=%lld token=%lld", valid, held, token_of(o));
}

static void verb_number(const char *verb, struct object *o, int n, char **words)
{
    int64_t arg = n > 2 ? atoll(words[2]) : 0, value = 0;
    pawl_error err = {0};
    int code = PAWL_EINVAL;

    if (!strcmp(verb, "available"))
        code = o->sem ? pawl_semaphore_available(o->sem, &value, &err) : PAWL_EINVAL;
    else if (!o->latch)
        code = PAWL_EINVAL;
    else if (!strcmp(verb, "set"))
        code = pawl_latch_set(o->latch, arg, &err);
    else if (!strcmp(verb, "down"))
        code = pawl_latch_count_down(o->latch, &err);
    else
        code = pawl_latch_count(o->latch, &value, &err);
    answer(verb, o->id, code, &err, " n=%lld", (long long)value);
}

static int row(void *arg, const pawl_info *i)
{
    static const char *const roles[] = {"holder", "waiter", "summary"};
    static const char *const types[] = {"lock", "semaphore", "latch"};

    (void)arg;
    answer("row", as_word(i->name), 0, NULL,
           " role=%s type=%s shared=%d holders=%llu waiters=%llu count=%lld available=%lld"
           " permits=%llu token=%llu since=%lld lease=%lld pid=%lld"
           " host=%s program=%s label=%s owner=%s",
           roles[i->role], types[i->type], (int)i->shared, (unsigned long long)i->holders,
           (unsigned long long)i->waiters, (long long)i->count, (long long)i->available,
           (unsigned long long)i->permits, (unsigned long long)i->token, (long long)i->since_ms,
           (long long)i->lease_ms, (long long)i->pid, as_word(i->host), as_word(i->program),
           as_word(i->label), as_word(i->owner));
    return 0;
}

static void verb_show(const char *verb, int n, char **words)
{
    pawl_error err = {0};
    int code = PAWL_EINVAL;
    char given[1024];

    snprintf(given, sizeof given, "%s", n > 1 ? words[1] : "-");
    if (n > 1)
        from_word(words[1]);
    if (!strcmp(verb, "ls"))
        code = pawl_list(client, n > 1 ? words[1] : NULL, row, NULL, &err);
    else if (n > 1)
        code = pawl_inspect(client, words[1], row, NULL, &err);
    answer(verb, given, code, &err, "%s", "");
}

static void verb_stats(const char *verb)
{
    pawl_stats s = {.size = sizeof s};
    int code = pawl_client_stats(client, &s);

    answer(verb, "-", code, NULL,
           " acquired=%llu waited=%llu handed_over=%llu released=%llu renewed=%llu lost=%llu"
           " unknown=%llu repeated=%llu reconnects=%llu failovers=%llu orphaned=%llu held=%llu"
           " waiting=%llu",
           (unsigned long long)s.acquired, (unsigned long long)s.waited,
           (unsigned long long)s.handed_over, (unsigned long long)s.released,
           (unsigned long long)s.renewed, (unsigned long long)s.lost,
           (unsigned long long)s.unknown, (unsigned long long)s.repeated,
           (unsigned long long)s.reconnects, (unsigned long long)s.failovers,
           (unsigned long long)s.orphaned, (unsigned long long)s.held,
           (unsigned long long)s.waiting);
}

/* The client's metrics, into a file. */
static void verb_metrics(const char *verb, char **words)
{
    uint64_t format = strcmp(words[1], "openmetrics") ? PAWL_METRICS_PROMETHEUS
                                                      : PAWL_METRICS_OPENMETRICS;
    char *text = NULL;
    int code = pawl_metrics(&client, 1, format, &text, NULL);
    FILE *f = code ? NULL : fopen(words[2], "w");

    if (!code && (!f || fputs(text, f) < 0))
        code = PAWL_EINVAL;
    if (f && fclose(f))
        code = PAWL_EINVAL;
    free(text);
    answer(verb, words[1], code, NULL, "%s", "");
}

/* ---- another identity ------------------------------------------------------------------------ */

/* In the child, calls on the parent's client must be refused. The child may free its copies. */
static void verb_fork(const char *verb, struct object *o, int n, char **words)
{
    int status = -1;
    pid_t pid = fork();

    (void)n, (void)words;
    if (pid == 0) {
        pawl_error err = {0};
        int code = o->lock ? pawl_lock_acquire(o->lock, 0, &err) : PAWL_EFORK;

        pawl_lock_free(o->lock);
        pawl_close(client);
        _exit(code == PAWL_EFORK ? 0 : 1);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    answer(verb, o->id, 0, NULL, " n=%d", pid < 0 ? 0 : status);
}

static void verb_identity(const char *verb, char **words)
{
    int error = !strcmp(verb, "chroot") ? chroot(words[1]) || chdir("/")
                                        : setresuid((uid_t)atoi(words[1]), (uid_t)atoi(words[1]),
                                                    (uid_t)atoi(words[1]));

    answer(verb, words[1], error ? PAWL_EINVAL : 0, NULL, "%s", "");
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    verb_fn *fn;
} verbs[] = {
    {"acquire", verb_acquire}, {"release", verb_release}, {"take", verb_take},
    {"try", verb_try},         {"drop", verb_drop},       {"renew", verb_renew},
    {"break", verb_break},     {"cancel", verb_cancel},   {"valid", verb_state},
    {"held", verb_state},      {"token", verb_state},     {"stopself", verb_state},
    {"available", verb_number}, {"set", verb_number},     {"down", verb_number},
    {"count", verb_number},    {"free", verb_free},       {"fork", verb_fork},
};

static bool do_general(const char *verb, int n, char **words)
{
    static const char *const types[] = {"lock", "sem", "latch"};

    for (int t = LOCK; t <= LATCH; t++)
        if (n > 2 && !strcmp(verb, types[t]) && !find(words[1])) {
            verb_new(verb, (enum type)t, n, words);
            return true;
        }
    if (!strcmp(verb, "show") || !strcmp(verb, "ls")) {
        verb_show(verb, n, words);
    } else if (!strcmp(verb, "stats")) {
        verb_stats(verb);
    } else if (n == 3 && !strcmp(verb, "metrics")) {
        verb_metrics(verb, words);
    } else if (!strcmp(verb, "sync")) {
        pawl_client_process(client);
        answer(verb, "-", 0, NULL, "%s", "");
    } else if (n == 2 && (!strcmp(verb, "chroot") || !strcmp(verb, "become"))) {
        verb_identity(verb, words);
    } else if (!strcmp(verb, "die")) {
        raise(SIGKILL);
    } else {
        return false;
    }
    return true;
}

bool do_verb(int n, char **words)
{
    struct object *o = n > 1 ? find(words[1]) : NULL;

    for (size_t i = 0; o && i < sizeof verbs / sizeof verbs[0]; i++)
        if (!strcmp(words[0], verbs[i].name)) {
            verbs[i].fn(verbs[i].name, o, n, words);
            return true;
        }
    return do_general(words[0], n, words);
}
