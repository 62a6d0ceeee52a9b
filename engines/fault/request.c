/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c - an op on its way through "fault:". A request is one block of memory with copies of
 * the name, the batch and the names in the batch, because a repeat outlives the original op.
 *
 * Invariant: a request is in the engine's list from new to free, unless the engine has been closed
 * (fault == NULL); the request's timer is armed only while the request is in the list.
 */
#include "fault.h"

#include <stdlib.h>

static char *put_text(char **room, const char *text)
{
    size_t size = strlen(text) + 1;
    char *to = memcpy(*room, text, size);

    *room += size;
    return to;
}

fault_request *fault_request_new(fault *f, const pawl_op *op, void (*done)(pawl_op *inner))
{
    size_t n = op->kind == PAWL_OP_RENEW ? op->batch_len : 0;
    size_t text = op->name ? strlen(op->name) + 1 : 0;

    for (size_t i = 0; i < n; i++)
        text += strlen(op->batch[i].name) + 1;
    fault_request *r = calloc(1, sizeof *r + n * sizeof *r->batch + text);
    if (!r)
        return NULL;
    char *room = (char *)(r->batch + n);
    r->inner = *op;
    memset(r->inner.engine, 0, sizeof r->inner.engine);
    r->inner.name = op->name ? put_text(&room, op->name) : NULL;
    for (size_t i = 0; i < n; i++) {
        r->batch[i] = op->batch[i];
        r->batch[i].name = put_text(&room, op->batch[i].name);
    }
    r->inner.batch = n ? r->batch : NULL;
    r->inner.err = &r->err;
    r->inner.done = done;
    r->inner.arg = r;
    r->inner.outer = NULL;
    r->fault = f;
    r->next = f->requests;
    r->link = &f->requests;
    if (r->next)
        r->next->link = &r->next;
    f->requests = r;
    return r;
}

void fault_request_free(fault_request *r)
{
    if (r->fault) {
        r->fault->env->timer_clear(r->fault->env, &r->timer);
        *r->link = r->next;
        if (r->next)
            r->next->link = r->link;
    }
    free(r);
}

void fault_request_later(fault_request *r, int64_t ns, void (*fire)(pawl_timer *))
{
    pawl_env *env = r->fault->env;

    r->timer.fire = fire;
    r->timer.arg = r;
    env->timer_set(env, &r->timer, env->now(env) + ns);
}

static bool is_twin(const fault_request *a, const fault_request *b)
{
    return a != b && a->inner.kind == PAWL_OP_ACQUIRE && b->inner.kind == PAWL_OP_ACQUIRE &&
           a->inner.owner.client == b->inner.owner.client &&
           a->inner.owner.seq == b->inner.owner.seq && !strcmp(a->inner.name, b->inner.name);
}

fault_request *fault_request_twin(const fault_request *of, enum fault_stage stage)
{
    for (fault_request *r = of->fault->requests; r; r = r->next)
        if (r->stage == stage && is_twin(of, r))
            return r;
    return NULL;
}
