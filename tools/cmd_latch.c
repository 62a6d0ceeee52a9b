/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_latch.c - pawl latch: set, count down, wait for or read a count-down latch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "await.h"
#include "tool.h"

typedef struct latch_call {
    call call; /* must be first: wait_call casts a call to a latch_call */
    tool *tool;
    pawl_client *client;
    pawl_latch *latch;
    const char *name;
    int64_t wait_ms;
    int64_t count;
    bool all; /* `down -a`: count down to 0 */
    pawl_error err;
} latch_call;

static void print_json(const char *name, const char *key, const char *value)
{
    fputs("{\"name\":", stdout);
    json_string(stdout, name);
    printf(",\"%s\":%s}\n", key, value);
}

/* If the name is in use as a lock or semaphore, say so instead of printing the general error. */
static int latch_failed(latch_call *l, const char *what)
{
    if (l->err.code == PAWL_ESTATE && say_misfit(l->client, l->name, PAWL_TYPE_LATCH, 0))
        return STATUS_USAGE;
    return failed(l->tool, what, &l->err);
}

/* A latch that is already set is reported with its count; the status is "no", not an error. */
static int latch_is_set(latch_call *l)
{
    name_info now = {0};

    if (inspect_name(l->client, l->name, &now, NULL) || !now.used || now.type != PAWL_TYPE_LATCH)
        return latch_failed(l, "can't set it");
    say("'%s' is already set, %lld to go", l->name, (long long)now.count);
    return STATUS_NO;
}

static int latch_set(latch_call *l)
{
    char value[24];
    int code = pawl_latch_set(l->latch, l->count, &l->err);

    snprintf(value, sizeof value, "%lld", (long long)l->count);
    if (!code && l->tool->json)
        print_json(l->name, "count", value);
    if (code)
        return code == PAWL_ESTATE ? latch_is_set(l) : failed(l->tool, "can't set it", &l->err);
    return STATUS_OK;
}

static int latch_get(latch_call *l)
{
    char value[24];
    int code = pawl_latch_count(l->latch, &l->count, &l->err);

    if (code)
        return latch_failed(l, "can't read it");
    snprintf(value, sizeof value, "%lld", (long long)l->count);
    if (l->tool->json)
        print_json(l->name, "count", value);
    else
        puts(value);
    return STATUS_OK;
}

/* The loop reads the count before each step, because other clients may count down too. When this
 * client has taken the last count, the loop ends: if somebody sets the latch again afterwards, the
 * new count is not for this command to end. */
static int count_to_zero(latch_call *l)
{
    int code;

    while (!(code = pawl_latch_count(l->latch, &l->count, &l->err)) && l->count > 0)
        if ((code = pawl_latch_count_down(l->latch, &l->err)) || l->count == 1)
            return code;
    return code;
}

static int latch_down(latch_call *l)
{
    int code = l->all ? count_to_zero(l) : pawl_latch_count_down(l->latch, &l->err);

    if (code)
        return latch_failed(l, "can't count it down");
    if (l->tool->json)
        print_json(l->name, l->all ? "count" : "counted", l->all ? "0" : "true");
    return STATUS_OK;
}

static int wait_call(call *c)
{
    latch_call *l = (latch_call *)c;

    return pawl_latch_wait(l->latch, l->wait_ms, &l->err);
}

static void wait_cancel(task *t)
{
    pawl_latch_cancel(((latch_call *)t)->latch);
}

static int latch_wait(latch_call *l, const signals *s)
{
    int error, code, signal;
    char limit[32];

    l->call.fn = wait_call;
    l->call.task.cancel = wait_cancel;
    error = call_start(&l->call);
    if (error) {
        say("can't start a thread: %s", strerror(error));
        return STATUS_SYSTEM;
    }
    signal = await(&l->call.task, s);
    code = call_end(&l->call);
    if (signal && code)
        return STATUS_SIGNAL + signal;
    if (code && status_of(code) != STATUS_NO)
        return latch_failed(l, "can't wait for it");
    if (l->tool->json)
        print_json(l->name, "reached", code ? "false" : "true");
    else if (code == PAWL_ETIMEDOUT)
        say("the latch '%s' did not open within %s", l->name,
            duration_text(limit, sizeof limit, l->wait_ms));
    return status_of(code);
}

/* The sub-commands, and the number of arguments that each one takes. */
enum latch_verb { LATCH_SET, LATCH_DOWN, LATCH_WAIT, LATCH_GET, LATCH_VERBS };
static const struct {
    const char *name;
    int args;
} latch_verbs[] = {{"set", 2}, {"down", 1}, {"wait", 1}, {"get", 1}};

static int perform(latch_call *l, enum latch_verb v, const signals *s)
{
    int status = client_open(l->tool, &l->client, NULL);

    if (status)
        return status;
    l->err.code = pawl_latch_new(&l->latch, l->client, l->name, &l->err);
    if (l->err.code)
        status = failed(l->tool, "can't use it", &l->err);
    else
        status = v == LATCH_SET    ? latch_set(l)
                 : v == LATCH_DOWN ? latch_down(l)
                 : v == LATCH_WAIT ? latch_wait(l, s)
                                   : latch_get(l);
    pawl_latch_free(l->latch);
    pawl_close(l->client);
    return status;
}

static bool parse_count(const char *text, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *ret > 0;
}

static int parse_options(tool *t, latch_call *l, int argc, char **argv, bool *waits)
{
    static const struct option longs[] = {COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, COMMON_SHORT "anw:", longs)) != OPT_DONE) {
        if (c == OPT_BAD || c == OPT_HELP)
            return c;
        if (c == 'a') {
            l->all = true;
            continue;
        }
        *waits = true;
        if (c == 'n')
            l->wait_ms = 0;
        else if (!duration_parse(optarg, &l->wait_ms)) {
            usage_error(t, "'%s' is no duration; write 5, 0.25, 250ms, 5s, 2m or 1h", optarg);
            return OPT_BAD;
        }
    }
    return OPT_DONE;
}

int cmd_latch(tool *t, int argc, char **argv)
{
    latch_call l = {.tool = t, .wait_ms = PAWL_FOREVER};
    signals s;
    bool waits = false;
    int v = 0, status, opt = parse_options(t, &l, argc, argv, &waits);

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    argc -= optind;
    argv += optind;
    while (argc && v < LATCH_VERBS && strcmp(argv[0], latch_verbs[v].name))
        v++;
    if (!argc || v == LATCH_VERBS)
        return usage_error(t, "say set, down, wait or get%s%s", argc ? ", not " : "",
                           argc ? argv[0] : "");
    if (argc - 1 != latch_verbs[v].args)
        return usage_error(t, "%s takes NAME%s", argv[0], v == LATCH_SET ? " and N" : " alone");
    if (waits && v != LATCH_WAIT)
        return usage_error(t, "-n and -w are for 'wait'");
    if (l.all && v != LATCH_DOWN)
        return usage_error(t, "-a is for 'down'");
    l.name = argv[1];
    if (v == LATCH_SET && !parse_count(argv[2], &l.count))
        return usage_error(t, "'%s' is no count; N is 1 or more", argv[2]);
    if (v != LATCH_WAIT)
        return perform(&l, (enum latch_verb)v, NULL);
    signals_open(&s);
    status = perform(&l, LATCH_WAIT, &s);
    signals_close(&s);
    return status;
}
