/* SPDX-License-Identifier: Apache-2.0
 *
 * events.h - helpers of engines for EVENT ops (rule EVENTS in engine.h), and for breaks: the
 * holder's client learns the breaker of the lock.
 *
 * Included by engine.h. The text that names the breaker goes from BREAK (pawl_op.by) through the
 * service to the holder's client, which reports the text by an EVENT. Not every service can carry
 * the text: etcd and ZooKeeper report that a key or node is gone, but not the user that deleted
 * the key or node.
 */
#ifndef PAWL_EVENTS_H
#define PAWL_EVENTS_H

/* Breaks of this client's grants that no EVENT op has delivered yet. A part of the engine's state;
 * zeroed before first use. */
typedef struct pawl_broken {
    bool any;
    uint64_t seq;         /* as pawl_op.by_seq */
    char by[PAWL_BY_MAX]; /* "": not known */
} pawl_broken;

/* A notice of a break has come. `by` has `length` bytes; NULL if length is 0. If two breaks with
 * different texts are undelivered, neither is reported, so that no client is named for another
 * client's break. */
static inline void pawl_broken_note(pawl_broken *b, uint64_t seq, const char *by, size_t length)
{
    bool same = length < sizeof b->by && strlen(b->by) == length &&
                (!length || !memcmp(b->by, by, length));

    if (b->any) {
        b->seq = b->seq == seq ? seq : 0;
        if (!same)
            b->by[0] = 0;
        return;
    }
    b->any = true;
    b->seq = seq;
    if (length >= sizeof b->by)
        length = sizeof b->by - 1;
    if (length)
        memcpy(b->by, by, length);
    b->by[length] = 0;
    pawl_text_clean(b->by);
}

/* Put the text into an EVENT op that is about to be completed. */
static inline void pawl_broken_deliver(pawl_broken *b, pawl_op *op)
{
    op->by = b->any && b->by[0] ? b->by : NULL;
    op->by_seq = b->any ? b->seq : 0;
    b->any = false;
}

/* The EVENT op of an engine, and the event that no EVENT op has delivered yet (rule EVENTS). A part
 * of the engine's state; zeroed before first use. */
typedef struct pawl_events {
    pawl_op *op;     /* submitted, or NULL */
    int pending;     /* enum pawl_event */
    uint8_t reason;  /* of the pending event */
    pawl_broken broken;
} pawl_events;

static inline void pawl_events_deliver(pawl_events *e)
{
    pawl_op *op = e->op;

    if (!op || e->pending == PAWL_EVENT_NONE)
        return;
    pawl_broken_deliver(&e->broken, op);
    op->event = e->pending;
    op->reason = e->reason;
    e->op = NULL;
    e->pending = PAWL_EVENT_NONE;
    e->reason = 0;
    pawl_op_finish(op, 0);
}

/* The engine's submit got an EVENT op. */
static inline void pawl_events_submit(pawl_events *e, pawl_op *op)
{
    e->op = op;
    pawl_events_deliver(e);
}

/* An event (enum pawl_event) has happened. `reason`: as pawl_op.reason. A reason of 0 does not
 * replace the reason of a pending event, unless the session has ended. */
static inline void pawl_events_report(pawl_events *e, int what, uint8_t reason)
{
    if (e->pending != PAWL_EVENT_LOST && (reason || what == PAWL_EVENT_LOST))
        e->reason = reason;
    if (what > e->pending)
        e->pending = what;
    pawl_events_deliver(e);
}

/* A grant of this client was broken: `seq` as pawl_op.by_seq, and the text that names the breaker,
 * which may be empty. */
static inline void pawl_events_broken(pawl_events *e, uint64_t seq, const char *by, size_t length)
{
    pawl_broken_note(&e->broken, seq, by, length);
    pawl_events_report(e, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
}

/* The EVENT op was cancelled, or the engine closes. */
static inline void pawl_events_end(pawl_events *e)
{
    pawl_op *op = e->op;

    e->op = NULL;
    if (op)
        pawl_op_finish(op, PAWL_ECANCELED);
}

/* "pid 4711 pawl (deploy) on web1": client information as text, for pawl_op.by. Parts may be "". */
static inline void pawl_client_info_text(char text[PAWL_BY_MAX], int64_t pid, const char *program,
                                         const char *label, const char *host)
{
    snprintf(text, PAWL_BY_MAX, "pid %lld%s%.30s%s%.30s%s%s%.30s", (long long)pid,
             program[0] ? " " : "", program, label[0] ? " (" : "", label, label[0] ? ")" : "",
             host[0] ? " on " : "", host);
    pawl_text_clean(text);
}

#endif
