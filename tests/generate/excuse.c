/* SPDX-License-Identifier: Apache-2.0
 *
 * excuse.c - conditions that excuse different results of a sequential program (docs/testing.md:
 * disturbed).
 */
#include "sequence.h"

/* The time limit of an exchange with the service, or of a call without a limit of its own. */
static int64_t limit_ms(const struct run *run, const struct op *op)
{
    const struct step *s = &op->step;
    int64_t wait = s->kind == DO_sacquire ? s->b
                   : s->kind == DO_acquire || s->kind == DO_start || s->kind == DO_wait ? s->a
                                                                                         : 0;
    int64_t client = op->object ? op->object->client : s->object;

    return wait > 0 ? wait : run->program->clients[client].timeout;
}

/* A run is disturbed if the service did not answer within the limit of a call, which pawl.h
 * promises to report by these codes; or if half of a lease that the program lets end was over
 * before the state of the handle was read. */
bool was_disturbed(const struct run *run)
{
    for (int i = 0; i < MAX_OPS; i++) {
        const struct op *op = &run->ops[i];
        bool unanswered = op->code == PAWL_ECONN || op->code == PAWL_EUNKNOWN ||
                          op->code == PAWL_EQUORUM;
        int64_t lease = op->object && op->object->type == LOCK ? op->object->lease : 0;

        if (op->state != 2 || !op->began)
            continue;
        if (unanswered && (op->ended - op->began) / 1000000 >= limit_ms(run, op) * 9 / 10)
            return true;
        if (op->step.kind != DO_expire && lease && lease <= SHORT_LEASE && op->seen &&
            (op->seen - op->began) / 1000000 >= lease / 2)
            return true;
    }
    return false;
}

bool is_under_way(const struct op *want, const struct op *got)
{
    return got->number >= MAX_STEPS && got->code == PAWL_ESTATE && want->code == PAWL_EBUSY;
}

bool is_read(const struct op *op)
{
    return op->object && op->object->type == LOCK && op->object->kind == PAWL_READ;
}

bool is_among_readers(const struct op *op, const int *done_step)
{
    int n = 0;

    for (int i = 0; i < MAX_OPS; i++)
        n += done_step[i] == done_step[op->number] && is_read(&op->run->ops[i]);
    return is_read(op) && n > 1;
}

static bool comes_before(const struct op *a, const struct op *b)
{
    const int64_t x[] = {a->code, a->dones, a->hold_count, a->held, a->token_class, a->reason},
                  y[] = {b->code, b->dones, b->hold_count, b->held, b->token_class, b->reason};

    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        if (x[i] != y[i])
            return x[i] < y[i];
    return false;
}

/* Threads that lose one handle in the same step are told in any order, and a callback does not know
 * which thread it is called for. So these operations are compared as a set: they are sorted by
 * their results. */
void order_losses(struct run *run, const int *done_step)
{
    for (int i = 2 * MAX_STEPS; i < MAX_OPS; i++)
        for (int k = i + MAX_OBJECTS; k < MAX_OPS; k += MAX_OBJECTS)
            if (done_step[k] == done_step[i] && comes_before(&run->ops[k], &run->ops[i])) {
                struct op op = run->ops[i];

                run->ops[i] = run->ops[k];
                run->ops[k] = op;
            }
}

/* Permits that a release gives back may be granted to a wait through the same handle, in the same
 * step: on memory: before the release returns, on a service perhaps later. The state of the handle
 * at the end of the release is therefore not certain. */
bool told_beside_grant(const struct run *run, const int *done_step, int number)
{
    const struct op *op = &run->ops[number];

    if (op->step.kind != DO_srelease || !op->object)
        return false;
    for (int i = 0; i < number; i++)
        if (run->ops[i].object == op->object && run->ops[i].step.kind == DO_sacquire &&
            done_step[i] == done_step[number])
            return true;
    return false;
}
