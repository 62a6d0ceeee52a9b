/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.h - the parts of the engine "fault:" (fault.c describes the engine): options.c reads the
 * options, request.c stores the ops that are on their way, fault.c moves them.
 */
#ifndef PAWL_FAULT_H
#define PAWL_FAULT_H

#include "engine.h"

/* ---- Options: "drop=5,delay=20;INNER-URL" ---------------------------------------------------- */

#define FAULT_ALWAYS 1000000u /* chances are in millionths, so that 0.01 % is possible */

typedef struct fault_options {
    uint32_t drop, lose, repeat, refuse, evict;
    int64_t delay_ms;
    int64_t for_ms; /* 0: always */
    uint64_t seed;
    bool seeded;
    uint32_t only; /* a bit per enum pawl_op_kind */
} fault_options;

/* Read `text` up to the ';' and return the start of the inner URL, or NULL with a text in err. */
const char *fault_options_read(fault_options *options, const char *text, pawl_error *err);

/* ---- Requests -------------------------------------------------------------------------------- */

typedef struct fault fault;

enum fault_stage { TRAVELS, DROPPED, INSIDE, RETURNS, PARKED, HELD };

typedef struct fault_request {
    struct fault_request *next, **link;
    fault *fault;   /* NULL: closed, while the inner engine still has the request */
    pawl_op *outer; /* the op to answer; NULL: a repeat, or an EVENT between two ops */
    pawl_op inner;
    pawl_timer timer;
    pawl_error err;
    enum fault_stage stage;
    bool lose, again, canceled;
    int64_t way_out; /* the delay of the answer, ns */
    int64_t later;   /* the delay of the repeat, ns */
    pawl_renewal batch[];
} fault_request;

struct fault {
    pawl_env *env;
    pawl_instance inner;
    fault_options options;
    uint64_t random;
    int64_t until; /* faults are injected until this instant */
    bool evicted; /* report RECONNECT to the next EVENT op */
    fault_request *requests;
};

/* Draw a random number: is a fault of this chance to be injected? */
bool fault_chance(fault *f, uint32_t millionths);

/* The delay of a message, drawn at random, ns. */
int64_t fault_delay(fault *f);

/* A request like `op`, in stage TRAVELS, with its own copies of all data; `done` is called when the
 * inner engine has answered. The request keeps no pointer to `op`. NULL: no memory. */
fault_request *fault_request_new(fault *f, const pawl_op *op, void (*done)(pawl_op *inner));

/* Clear the timer, remove the request from its list, and free it. */
void fault_request_free(fault_request *r);

/* Call `fire` with the request's timer (arg: the request) after this many ns. */
void fault_request_later(fault_request *r, int64_t ns, void (*fire)(pawl_timer *));

/* Find another ACQUIRE of the same owner in stage `stage`, or NULL. */
fault_request *fault_request_twin(const fault_request *of, enum fault_stage stage);

#endif
