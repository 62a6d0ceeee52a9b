/* SPDX-License-Identifier: Apache-2.0
 *
 * watches.c - the watch stream: one for all watches of the client, opened with the first.
 *
 * etcd serves a watch that begins at a past revision only every 100 ms, until the watch has caught
 * up. So a waiter watches the key ahead from *now on*, and reads the keys again if the server's
 * revision has changed since the last read (`started` reports the revision).
 *
 * After each reconnect all watches begin again: where they left off, or from now on; then `started`
 * is called again.
 */
#include "etcd.h"

static struct list *bucket_of(etcd *e, uint64_t id)
{
    return &e->watches[id % ETCD_WATCH_BUCKETS];
}

static etcd_watch *find(etcd *e, int64_t id)
{
    struct list *bucket = bucket_of(e, (uint64_t)id);

    list_each(etcd_watch, w, bucket, link) {
        if (w->id == (uint64_t)id)
            return w;
    }
    return NULL;
}

static void forget(etcd_watch *w)
{
    list_remove(&w->link);
    w->id = 0;
}

/* ---- messages from the server ---------------------------------------------------------------- */

static void tell_events(etcd *e, int64_t id, etcd_watch_answer *answer)
{
    etcd_event event;
    etcd_watch *w;

    while (etcd_next_event(answer, &event) && (w = find(e, id))) { /* the callback may end w */
        if (event.kv.modified >= w->next)
            w->next = event.kv.modified + 1;
        w->event(w, &event);
    }
}

static bool answer_watch(etcd_call *call, pb_span message)
{
    etcd *e = call->about;
    etcd_watch_answer answer;
    etcd_watch *w;

    if (!etcd_read_watch(message, &answer))
        return false;
    w = find(e, answer.id);
    if (!w)
        return true; /* the watch was stopped */
    if (answer.canceled) {
        if (!answer.compacted)
            e->env->log(e->env, PAWL_LOG_WARNING, "etcd has ended a watch: %.*s",
                        (int)(answer.reason.length < 100 ? answer.reason.length : 100),
                        (const char *)answer.reason.data);
        forget(w);
        w->missed(w);
        return true;
    }
    if (answer.created && !w->next) {
        w->next = answer.revision + 1;
        w->started(w, answer.revision);
    }
    tell_events(e, answer.id, &answer);
    return true;
}

static void watch_failed(etcd_call *call, int code, const char *words)
{
    etcd *e = call->about;

    (void)code;
    (void)words;
    e->watching = NULL;
}

/* ---- messages to the server ------------------------------------------------------------------ */

/* The stream's buffer for one more message; NULL: out of memory. */
static pb_buf *begin(etcd *e, bool *first)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Watch/Watch", .streams = true,
        .answer = answer_watch, .failed = watch_failed};

    *first = !e->watching;
    if (e->watching)
        return etcd_call_begin(e->watching);
    e->watching = etcd_call_new(e, &type, e);
    return e->watching ? &e->watching->body : NULL;
}

static void send_message(etcd *e, bool first)
{
    bool sent = first ? etcd_call_send(e->watching) : etcd_call_more(e->watching);

    if (sent)
        return;
    if (first)
        e->watching = NULL;
    etcd_link_drop(&e->link, PAWL_ENOMEM, "out of memory");
}

static void send_create(etcd_watch *w)
{
    bool first;
    pb_buf *b = begin(w->e, &first);
    size_t mark;

    if (!b) {
        etcd_link_drop(&w->e->link, PAWL_ENOMEM, "out of memory");
        return;
    }
    mark = etcd_pb_begin(b, 1);
    etcd_pb_bytes(b, 1, w->key, strlen(w->key));
    if (w->end[0])
        etcd_pb_bytes(b, 2, w->end, strlen(w->end));
    etcd_pb_uint(b, 3, (uint64_t)w->next);
    if (w->deletes_only)
        etcd_pb_bytes(b, 5, "", 1); /* a list with the filter 0: no puts */
    etcd_pb_uint(b, 7, w->id);
    etcd_pb_end(b, mark);
    send_message(w->e, first);
}

static void send_cancel(etcd *e, uint64_t id)
{
    bool first;
    pb_buf *b;
    size_t mark;

    if (!e->watching || !etcd_link_ready(&e->link))
        return;
    b = begin(e, &first);
    mark = etcd_pb_begin(b, 2);
    etcd_pb_uint(b, 1, id);
    etcd_pb_end(b, mark);
    send_message(e, first);
}

void etcd_watch_start(etcd_watch *w, etcd *e, const char *key, const char *end, int64_t from)
{
    etcd_watch_stop(w);
    w->e = e;
    w->id = ++e->last_watch;
    w->next = from;
    w->key = key;
    w->end = end;
    list_append(bucket_of(e, w->id), &w->link);
    if (etcd_link_ready(&e->link))
        send_create(w);
}

void etcd_watch_stop(etcd_watch *w)
{
    uint64_t id = w->id;

    if (!id)
        return;
    forget(w);
    send_cancel(w->e, id);
}

void etcd_watches_connected(etcd *e)
{
    for (size_t i = 0; i < ETCD_WATCH_BUCKETS; i++)
        list_each(etcd_watch, l, &e->watches[i], link)
            if (etcd_link_ready(&e->link))
                send_create(l);
}

void etcd_watches_dropped(etcd *e)
{
    for (size_t i = 0; i < ETCD_WATCH_BUCKETS; i++)
        list_each(etcd_watch, w, &e->watches[i], link) {
            if (w->from_now)
                w->next = 0;
        }
}
