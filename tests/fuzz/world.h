/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h - an engine alone in a world that the fuzzer's bytes decide: a clock that stands still
 * unless it is told to go on, timers, no threads, and no random numbers that differ. Everything
 * happens in calls from here, so an input does the same thing each time.
 *
 * An input is a *script*: steps that submit ops, let time pass, cancel, or say what the service
 * answers. The target reads the script; here are the ops and what must hold for each of them: an
 * op is completed exactly once, a grant is not from the future, rows have all of their texts, an
 * error has words without control characters, and when all ops are cancelled all complete within a
 * minute although the service is silent.
 */
#ifndef PAWL_TEST_FUZZ_WORLD_H
#define PAWL_TEST_FUZZ_WORLD_H

#include <uv.h>

#include "engine.h"
#include "fuzz.h"

enum { WORLD_OPS = 24, WORLD_CLIENT = 1, WORLD_RANDOM = 5, WORLD_TIMEOUT_MS = 1000 };

typedef struct world_op {
    pawl_op op;
    pawl_error err;
    pawl_renewal items[2];
    bool out;
} world_op;

typedef struct world {
    pawl_env env; /* first */
    const pawl_engine *engine;
    void *self;
    uv_loop_t loop;
    pawl_timer *timers;
    int64_t now;
    world_op ops[WORLD_OPS]; /* the first is the EVENT */
    size_t nops;
    bool closing;
} world;

/* False: the URL was refused; world_close all the same. */
bool world_open(world *w, const pawl_engine *engine, const char *url);
/* Cancels what is out, lets time pass, closes. */
void world_close(world *w);

/* Submit an op by its letter; false: it is none.
 *     a A   acquire, wait or not          s   shared, wait        p   two permits of three, wait
 *     o     wait for a latch              r   release the latest acquire
 *     n     renew the two latest          b   break               d D latch: down, set to 2
 *     i     inspect                       L   list                c C count permits, latch */
bool world_submit(world *w, char letter);
/* Cancel the nth op, if it is out. */
void world_cancel(world *w, size_t n);
/* Let so much time pass, timers first come, first served. */
void world_pass(world *w, int64_t ms);
/* Do what is due now and what the engine has left to write. */
void world_turn(world *w);

/* The target's: what else a turn does (streams_turn); for an engine of engines. NULL: nothing. */
extern void (*world_turned)(world *w);
extern int (*world_instance_open)(pawl_env *env, pawl_instance *ret, const char *url,
                                  pawl_error *err);
extern void (*world_instance_close)(pawl_instance *instance);

/* ---- scripts --------------------------------------------------------------------------------- */

/* A step: its letter and what stands behind it. */
typedef struct world_step {
    char letter;
    const char *text;
    size_t length;
} world_step;

/* The next step of data[*at..size); steps end with '~'. False: there is none. */
bool world_next(const uint8_t *data, size_t size, size_t *at, world_step *step);
/* A step that is the same for every engine: '+' and '*' let 100 ms and 5 s pass, '^' and a digit
 * cancels that op, any other letter submits an op. */
void world_do(world *w, const world_step *step);

/* ---- streams: stream.c ----------------------------------------------------------------------- */

/* Instead of net/stream.c: connections that open at once, and whose other end is the target. */
struct net_stream;

size_t streams_open(void);
struct net_stream *stream_at(size_t i);
/* Open those that want to. The target is told by stream_opened. */
void streams_turn(world *w);
/* A stream that the engine has closed may be freed: only this function takes such a pointer. */
bool stream_is_open(const struct net_stream *s);
/* The service says this. The engine may close the stream meanwhile. */
void stream_says(struct net_stream *s, const void *data, size_t length);
void stream_hangs_up(struct net_stream *s);
void streams_reset(void);
/* The target's: what the engine has written, and new connections. */
void stream_opened(struct net_stream *s);
void stream_hears(struct net_stream *s, const void *data, size_t length);

#endif
