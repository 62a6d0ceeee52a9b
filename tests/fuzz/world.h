/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h - an engine alone in an environment that the fuzzer's bytes control: a clock that
 * advances only when told, timers, no threads, and a fixed sequence of random numbers. The engine
 * runs only in calls from here, so an input does the same thing each time.
 *
 * An input is a *script*: steps that submit ops, let time pass, cancel, or give answers of the
 * service. The target reads the script; this file has the ops and the rules for each op: an op is
 * completed exactly once, a grant is not from the future, rows have all of their texts, an error
 * has a text without control characters, and when all ops are cancelled, all complete within a
 * minute even if the service is silent.
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

/* False: the URL was refused; world_close must be called all the same. */
bool world_open(world *w, const pawl_engine *engine, const char *url);
/* Cancel the ops under way, let time pass, and close the engine. */
void world_close(world *w);

/* Submit an op by its letter. False: no op has this letter.
 *     a A   acquire, wait or not          s   shared, wait        p   two permits of three, wait
 *     o     wait for a latch              r   release the latest acquire
 *     n     renew the two latest          b   break               d D latch: down, set to 2
 *     i     inspect                       L   list                c C count permits, latch */
bool world_submit(world *w, char letter);
/* Cancel the nth op, if it is under way. */
void world_cancel(world *w, size_t n);
/* Let time pass; timers fire in order of time. */
void world_pass(world *w, int64_t ms);
/* Run the timers that are due, and let the engine write. */
void world_turn(world *w);

/* Set by the target: a function that each turn calls (streams_turn), for an engine of engines.
 * NULL: none. */
extern void (*world_turned)(world *w);
extern int (*world_instance_open)(pawl_env *env, pawl_instance *ret, const char *url,
                                  pawl_error *err);
extern void (*world_instance_close)(pawl_instance *instance);

/* ---- scripts --------------------------------------------------------------------------------- */

/* A step: its letter and the text after the letter. */
typedef struct world_step {
    char letter;
    const char *text;
    size_t length;
} world_step;

/* The next step of data[*at..size); steps end with '~'. False: no step is left. */
bool world_next(const uint8_t *data, size_t size, size_t *at, world_step *step);
/* A step that is the same for every engine: '+' and '*' let 100 ms and 5 s pass, '^' and a digit
 * cancels that op, any other letter submits an op. */
void world_do(world *w, const world_step *step);

/* ---- streams: stream.c ----------------------------------------------------------------------- */

/* Replaces net/stream.c: connections open at once, and the target is the other end. */
struct net_stream;

size_t streams_open(void);
struct net_stream *stream_at(size_t i);
/* Open the connections that the engine asked for. The target is told by stream_opened. */
void streams_turn(world *w);
/* A stream that the engine has closed may be freed: only this function takes such a pointer. */
bool stream_is_open(const struct net_stream *s);
/* Pass these bytes from the service to the engine, which may close the stream meanwhile. */
void stream_says(struct net_stream *s, const void *data, size_t length);
void stream_hangs_up(struct net_stream *s);
void streams_reset(void);
/* Functions of the target: called for new connections, and for bytes that the engine wrote. */
void stream_opened(struct net_stream *s);
void stream_hears(struct net_stream *s, const void *data, size_t length);

#endif
