/* SPDX-License-Identifier: Apache-2.0
 *
 * broken.h - helpers of engines for breaks: the holder's client is told who broke the lock.
 *
 * Included by engine.h; engines call pawl_events_broken there. The text that names the breaker goes from BREAK (pawl_op.by) through the
 * service to the holder's client, which reports the text by an EVENT. Not every service can carry
 * the text: etcd and ZooKeeper report that a key or node is gone, not who deleted it.
 */
#ifndef PAWL_BROKEN_H
#define PAWL_BROKEN_H

/* Breaks of this client's grants that no EVENT op has delivered yet. A part of the engine's state;
 * zeroed before first use. */
typedef struct pawl_broken {
    bool any;
    uint64_t seq;         /* as pawl_op.by_seq */
    char by[PAWL_BY_MAX]; /* "": not known */
} pawl_broken;

/* A notice of a break has come. `by` has `length` bytes, and may be empty. If two breaks with
 * different texts are undelivered, neither is reported: nobody is blamed for another's break. */
static inline void pawl_broken_note(pawl_broken *b, uint64_t seq, const char *by, size_t length)
{
    bool same = length < sizeof b->by && strlen(b->by) == length && !memcmp(b->by, by, length);

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

/* "pid 4711 pawl (deploy) on web1": a client in words, for pawl_op.by. Parts may be "". */
static inline void pawl_who_text(char text[PAWL_BY_MAX], int64_t pid, const char *program,
                                 const char *label, const char *host)
{
    snprintf(text, PAWL_BY_MAX, "pid %lld%s%.30s%s%.30s%s%s%.30s", (long long)pid,
             program[0] ? " " : "", program, label[0] ? " (" : "", label, label[0] ? ")" : "",
             host[0] ? " on " : "", host);
    pawl_text_clean(text);
}

#endif
