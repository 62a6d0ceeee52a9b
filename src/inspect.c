/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - pawl_inspect and pawl_list. The engine passes rows under the client's mutex. The rows
 * are copied, and the user's function receives the copies after the mutex is unlocked.
 */
#include <stdlib.h>

#include "core.h"

struct row {
    struct row *next;
    pawl_info info;
    char text[];
};

struct collector {
    struct request *request;
    struct row *first, **end;
    uint32_t attempt; /* only rows of the last attempt count */
    bool no_memory;
};

static void forget(struct collector *c)
{
    while (c->first) {
        struct row *row = c->first;

        c->first = row->next;
        free(row);
    }
    c->end = &c->first;
}

static char *put(char **at, const char *text)
{
    char *ret = *at;

    *at = stpcpy(ret, text ? text : "") + 1;
    return ret;
}

static size_t length(const char *text)
{
    return text ? strlen(text) + 1 : 1;
}

static int collect(void *arg, const pawl_info *info)
{
    struct collector *c = arg;
    struct row *row;
    char *at;

    if (c->attempt != c->request->attempts) {
        forget(c);
        c->no_memory = false;
    }
    c->attempt = c->request->attempts;
    row = malloc(sizeof *row + length(info->name) + length(info->host) + length(info->program) +
                 length(info->label) + length(info->owner));
    if (!row) {
        c->no_memory = true;
        return PAWL_ENOMEM;
    }
    row->next = NULL;
    row->info = *info;
    row->info.size = sizeof row->info;
    at = row->text;
    row->info.name = put(&at, info->name);
    row->info.host = put(&at, info->host);
    row->info.program = put(&at, info->program);
    row->info.label = put(&at, info->label);
    row->info.owner = put(&at, info->owner);
    *c->end = row;
    c->end = &row->next;
    return 0;
}

static int ask(pawl_client *client, int kind, const char *name, pawl_info_fn *fn, void *arg,
               pawl_error *err)
{
    struct request r;
    struct collector c = {.request = &r, .end = &c.first};
    int code;

    if (!client || !fn)
        return pawl_error_set(err, PAWL_EINVAL, "%s is NULL", client ? "fn" : "client");
    code = pawl__enter(client, true, err);
    if (code)
        return code;
    if (kind == PAWL_OP_LIST && !(client->caps & PAWL_CAP_LIST)) {
        pawl__leave(client);
        return pawl_error_set(err, PAWL_ENOTSUP, "this engine can't list names");
    }
    pawl__exchange_init(&r, client, kind, 0, name);
    r.op.row = collect;
    r.op.row_arg = &c;
    code = pawl__exchange(&r, 0, err);
    pawl__leave(client);
    if (c.attempt != r.attempts)
        forget(&c); /* the last attempt had no rows */
    if (!code && c.no_memory)
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    for (struct row *row = c.first; row && !code; row = row->next)
        code = fn(arg, &row->info);
    forget(&c);
    return code;
}

int pawl_inspect(pawl_client *client, const char *name, pawl_info_fn *fn, void *arg,
                 pawl_error *err)
{
    int code = pawl__name_check(name, err);

    return code ? code : ask(client, PAWL_OP_INSPECT, name, fn, arg, err);
}

int pawl_list(pawl_client *client, const char *pattern, pawl_info_fn *fn, void *arg,
              pawl_error *err)
{
    if (pattern && strlen(pattern) > PAWL_NAME_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the pattern is longer than %d bytes",
                              PAWL_NAME_MAX);
    return ask(client, PAWL_OP_LIST, pattern ? pattern : "*", fn, arg, err);
}
