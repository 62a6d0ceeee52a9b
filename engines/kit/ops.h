/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.h - an engine's submit and cancel, by a table with the two functions of each kind of op.
 *
 *     KIT_OPS(zk,
 *             [PAWL_OP_ACQUIRE] = {zk_acquire, zk_acquire_cancel},
 *             ...)
 *
 * makes the static functions engine_submit and engine_cancel. The state of the engine (zk) has the
 * member `events` for EVENT ops. The table names all other kinds of op.
 */
#ifndef PAWL_KIT_OPS_H
#define PAWL_KIT_OPS_H

#include "engine.h"

#define KIT_OPS(engine, ...)                                                                       \
    static const struct {                                                                          \
        void (*submit)(engine *e, pawl_op *op), (*cancel)(engine *e, pawl_op *op);                 \
    } ops[] = {__VA_ARGS__};                                                                       \
                                                                                                   \
    static void engine_submit(void *self, pawl_op *op)                                             \
    {                                                                                              \
        engine *e = self;                                                                          \
                                                                                                   \
        if (op->kind == PAWL_OP_EVENT)                                                             \
            pawl_events_submit(&e->events, op);                                                    \
        else                                                                                       \
            ops[op->kind].submit(e, op);                                                           \
    }                                                                                              \
                                                                                                   \
    static void engine_cancel(void *self, pawl_op *op)                                             \
    {                                                                                              \
        engine *e = self;                                                                          \
                                                                                                   \
        if (op->kind == PAWL_OP_EVENT)                                                             \
            pawl_events_end(&e->events);                                                           \
        else                                                                                       \
            ops[op->kind].cancel(e, op);                                                           \
    }                                                                                              \
    _Static_assert(sizeof ops / sizeof ops[0] == PAWL_OP_EXAMINE + 1, "an op is missing")

#endif
