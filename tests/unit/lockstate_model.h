/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate_model.h - a model of one lock, written from the rules alone: a list of owners instead
 * of bytes, without storing or notifying. The model uses the clock and the dead processes of
 * lockstate_world.h. Every function returns the right result of the function of lockstate.h with
 * the same name.
 */
#ifndef PAWL_TEST_LOCKSTATE_MODEL_H
#define PAWL_TEST_LOCKSTATE_MODEL_H

#include "lockstate_world.h"

#define MODEL_MAX 64

struct one {
    uint64_t seq, peer;
    uint8_t mode;
    uint32_t permits;
    int64_t lease, expires;
    bool holds, claim, linger;
};

struct model {
    struct one list[MODEL_MAX]; /* holders in order of grant, then the queue */
    int n;
    bool semaphore;
    int64_t capacity;
};

int model_holders(const struct model *m);
int model_index(const struct model *m, uint64_t seq); /* -1: none, lingering ones apart */

int model_acquire(struct model *m, struct one want, const lockstate_ask *ask);
int model_release(struct model *m, uint64_t seq, uint32_t keep, int64_t linger);
int model_renew(struct model *m, uint64_t seq, int64_t lease);
int model_cancel(struct model *m, uint64_t seq);
void model_expire(struct model *m, uint64_t seq);
int model_break(struct model *m);

#endif
