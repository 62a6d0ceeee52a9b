/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - pawl_examine: facts and defects of the service. As with rows in inspect.c, the engine
 * passes findings under the client's mutex. The findings are copied, and the user's function
 * receives the copies after the mutex is unlocked.
 */
#include <stdlib.h>

#include "core.h"

struct found {
    struct found *next;
    pawl_finding finding;
    char text[];
};

struct findings {
    struct request *request;
    struct found *first, **end;
    uint32_t attempt; /* only findings of the last attempt count */
    bool no_memory;
};

static void forget(struct findings *f)
{
    while (f->first) {
        struct found *found = f->first;

        f->first = found->next;
        free(found);
    }
    f->end = &f->first;
}

static const char *put(char **at, const char *text)
{
    char *ret = *at;

    *at = stpcpy(ret, text ? text : "") + 1;
    pawl_text_clean(ret);
    return ret;
}

static size_t length(const char *text)
{
    return text ? strlen(text) + 1 : 1;
}

static int collect(void *arg, const pawl_finding *from)
{
    struct findings *f = arg;
    struct found *found;
    char *at;

    if (f->attempt != f->request->attempts) {
        forget(f);
        f->no_memory = false;
    }
    f->attempt = f->request->attempts;
    found = malloc(sizeof *found + length(from->id) + length(from->where) + length(from->what) +
                   length(from->why) + length(from->remedy));
    if (!found) {
        f->no_memory = true;
        return PAWL_ENOMEM;
    }
    found->next = NULL;
    found->finding = *from;
    at = found->text;
    found->finding.id = put(&at, from->id);
    found->finding.where = put(&at, from->where);
    found->finding.what = put(&at, from->what);
    found->finding.why = put(&at, from->why);
    found->finding.remedy = put(&at, from->remedy);
    *f->end = found;
    f->end = &found->next;
    return 0;
}

static int ask(pawl_client *client, struct request *r, struct findings *f, pawl_error *err)
{
    int code = pawl__enter(client, true, err);

    if (code)
        return code;
    if (client->caps & PAWL_CAP_EXAMINE) {
        pawl__exchange_init(r, client, PAWL_OP_EXAMINE, 0, NULL);
        r->op.finding = collect;
        r->op.row_arg = f;
        code = pawl__exchange(r, 0, err);
    } else {
        code = pawl_error_set(err, PAWL_ENOTSUP, "this engine does not examine its service");
    }
    pawl__leave(client);
    return code;
}

int pawl_examine(pawl_client *client, pawl_finding_fn *fn, void *arg, pawl_error *err)
{
    struct request r = {.attempts = 0};
    struct findings f = {.request = &r, .end = &f.first};
    int code;

    if (!client || !fn)
        return pawl_error_set(err, PAWL_EINVAL, "%s is NULL", client ? "fn" : "client");
    code = ask(client, &r, &f, err);
    if (f.attempt != r.attempts)
        forget(&f); /* the last attempt found nothing */
    if (!code && f.no_memory)
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    for (struct found *found = f.first; found && !code; found = found->next)
        code = fn(arg, &found->finding);
    forget(&f);
    return code;
}
