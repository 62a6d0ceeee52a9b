/* SPDX-License-Identifier: Apache-2.0
 *
 * testmod.c - the smallest engine that can be loaded: "pawl-testmod.so" for URLs "testmod:".
 *
 * The engine keeps no locks. COUNT returns 42, INSPECT gives one summary row, and every other op is
 * refused with PAWL_ENOTSUP; the EVENT op stays submitted until it is cancelled or the engine is
 * closed. The module proves that an engine needs only engine.h: the module is not linked with
 * libpawl.
 */
#include "engine.h"

typedef struct testmod {
    pawl_op *event;
} testmod;

static int testmod_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    const char *fail = pawl_url_param(url, "fail");

    (void)self;
    (void)env;
    if (fail)
        return pawl_error_set(err, PAWL_ECONN, "testmod: asked to fail: %s", fail);
    return 0;
}

static void end_event(testmod *t)
{
    pawl_op *op = t->event;

    t->event = NULL;
    if (op)
        pawl_op_finish(op, PAWL_ECANCELED);
}

static void testmod_close(void *self)
{
    end_event(self);
}

static int inspect(const pawl_op *op)
{
    pawl_info info = {.size = sizeof info,
                      .name = op->name,
                      .role = PAWL_ROLE_SUMMARY,
                      .since_ms = -1,
                      .lease_ms = -1,
                      .host = "",
                      .program = "testmod",
                      .label = "",
                      .owner = ""};

    return op->row(op->row_arg, &info);
}

static void testmod_submit(void *self, pawl_op *op)
{
    testmod *t = self;

    switch (op->kind) {
    case PAWL_OP_EVENT:
        t->event = op;
        break;
    case PAWL_OP_COUNT:
        op->value = 42;
        pawl_op_finish(op, 0);
        break;
    case PAWL_OP_INSPECT:
        pawl_op_finish(op, inspect(op));
        break;
    default:
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOTSUP, "testmod: keeps no locks"));
    }
}

static void testmod_cancel(void *self, pawl_op *op)
{
    testmod *t = self;

    if (t->event == op)
        end_event(t);
}

static const pawl_engine testmod_engine = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_PERMITS | PAWL_CAP_LATCH,
    .scheme = "testmod",
    .state_size = sizeof(testmod),
    .open = testmod_open,
    .close = testmod_close,
    .submit = testmod_submit,
    .cancel = testmod_cancel,
};

PAWL_API pawl_engine_module_fn pawl_engine_module;

PAWL_API const pawl_engine *pawl_engine_module(void)
{
    return &testmod_engine;
}
