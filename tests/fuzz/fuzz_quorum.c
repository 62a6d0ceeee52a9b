/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_quorum.c - any bytes as the URL of a quorum.
 *
 * Rules: an accepted URL has 3 or more members, all different, and each was opened once, in order,
 * as it was written. A refused URL has an error text without control characters. A member that
 * refuses to open (here: if its URL can't be parsed, or its scheme has an 'x') makes the whole URL
 * fail.
 */
#include "core.h"
#include "quorum/quorum.h"
#include "registry.h"
#include "world.h"

static char opened[8192];
static size_t members;

/* ---- members: they do nothing ---------------------------------------------------------------- */

typedef struct member {
    pawl_op *event;
} member;

static int member_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    (void)self;
    (void)env;
    (void)url;
    (void)err;
    return 0;
}

static void member_close(void *self)
{
    member *m = self;
    pawl_op *event = m->event;

    m->event = NULL;
    if (event)
        pawl_op_finish(event, PAWL_ECANCELED);
}

static void member_submit(void *self, pawl_op *op)
{
    if (op->kind == PAWL_OP_EVENT)
        ((member *)self)->event = op;
    else
        pawl_op_finish(op, PAWL_EBUSY);
}

static void member_cancel(void *self, pawl_op *op)
{
    ((member *)self)->event = NULL;
    pawl_op_finish(op, PAWL_ECANCELED);
}

static const pawl_engine engine_of_member = {.scheme = "m", .state_size = sizeof(member),
    .open = member_open, .close = member_close, .submit = member_submit, .cancel = member_cancel,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_FLOOR | PAWL_CAP_QUEUE};
static member pool[QUORUM_MOST];

static int instance_open(pawl_env *env, pawl_instance *ret, const char *text, pawl_error *err)
{
    pawl_url url;
    size_t length = strlen(opened);
    int code = pawl__url_parse(&url, text, err);

    (void)env;
    DEMAND(members < QUORUM_MOST && length + strlen(text) + 2 < sizeof opened);
    snprintf(opened + length, sizeof opened - length, "%s%s", members ? "|" : "", text);
    if (code)
        return code;
    code = strchr(url.scheme, 'x') ? pawl_error_set(err, PAWL_EINVAL, "no such engine: %s",
                                                    url.scheme) : 0;
    pawl__url_free(&url);
    if (!code) {
        pool[members] = (member){0};
        *ret = (pawl_instance){&engine_of_member, &pool[members++]};
    }
    return code;
}

static void instance_close(pawl_instance *inner)
{
    if (inner->engine)
        inner->engine->close(inner->state);
    inner->engine = NULL;
}

/* ---- the URL --------------------------------------------------------------------------------- */

static void check_opened(const char *url)
{
    const char *rest = strchr(url, ':') + 1, *settle = strstr(rest, "settle=");

    if (settle == rest)
        rest = strchr(rest, '|') + 1;
    DEMAND(members >= 3 && members <= QUORUM_MOST);
    DEMAND(!strcmp(rest, opened));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char scheme[] = "quorum:";
    static world w;
    char url[1100];

    if (size > 1000 || memchr(data, 0, size))
        return 0;
    memcpy(url, scheme, sizeof scheme);
    memcpy(url + sizeof scheme - 1, data, size);
    url[sizeof scheme - 1 + size] = 0;
    opened[0] = 0;
    members = 0;
    world_instance_open = instance_open;
    world_instance_close = instance_close;
    if (world_open(&w, &pawl_engine_quorum, url)) {
        if (!strchr(url, '?'))
            check_opened(url);
        for (const char *letter = "aAirnX"; *letter; letter++)
            world_submit(&w, *letter);
    }
    world_close(&w);
    return 0;
}
