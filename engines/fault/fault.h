/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.h - the parts of the engine "fault:" (fault.c says what it does): options.c reads what it
 * is told, request.c keeps the ops that are on their way, fault.c moves them.
 */
#ifndef PAWL_FAULT_H
#define PAWL_FAULT_H

#include "engine.h"

/* ---- Options: "drop=5,delay=20;INNER-URL" ---------------------------------------------------- */

#define FAULT_ALWAYS 1000000u /* chances are in millionths, so that 0.01 % can be said */

typedef struct fault_options {
    uint32_t drop, lose, repeat, refuse, evict;
    int64_t delay_ms;
    int64_t for_ms; /* 0: always */
    uint64_t seed;
    bool seeded;
    uint32_t only; /* a bit per enum pawl_op_kind */
} fault_options;

/* Read `text` up to the ';' and return where the inner URL begins, or NULL with words in err. */
const char *fault_options_read(fault_options *options, const char *text, pawl_error *err);

/* ---- Requests -------------------------------------------------------------------------------- */

typedef struct fault fault;

enum fault_stage { TRAVELS, DROPPED, INSIDE, RETURNS, PARKED, HELD };

typedef struct fault_request {
    struct fault_request *next, **link;
    fault *fault;   /* NULL: the engine is closed and this is still in the inner one */
    pawl_op *outer; /* who waits for the answer; NULL: a repeat, or an EVENT between two ops */
    pawl_op inner;
    pawl_timer timer;
    pawl_error err;
    enum fault_stage stage;
    bool lose, again, canceled;
    int64_t way_out; /* how long the answer will take, ns */
    int64_t later;   /* how much later the repeat arrives, ns */
    pawl_renewal batch[];
} fault_request;

struct fault {
    pawl_env *env;
    pawl_instance inner;
    fault_options options;
    uint64_t random;
    int64_t until; /* faults strike before this instant */
    bool evicted; /* tell the next EVENT op */
    fault_request *requests;
};

/* Does a fault of this chance strike now? */
bool fault_chance(fault *f, uint32_t millionths);

/* How long some message takes, ns. */
int64_t fault_delay(fault *f);

/* A request like `op`, TRAVELS, with its own copies of everything; `done` is called when the inner
 * engine has answered. Not linked to op in any way. NULL: no memory. */
fault_request *fault_request_new(fault *f, const pawl_op *op, void (*done)(pawl_op *inner));

/* Clear the timer, leave the list, free. */
void fault_request_free(fault_request *r);

/* Call `fire` with the request's timer (arg: the request) in ns from now. */
void fault_request_later(fault_request *r, int64_t ns, void (*fire)(pawl_timer *));

/* Another ACQUIRE of the same owner in that stage, or NULL. */
fault_request *fault_request_twin(const fault_request *of, enum fault_stage stage);

#endif
