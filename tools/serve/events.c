/* SPDX-License-Identifier: Apache-2.0
 *
 * events.c - server-sent events: one stream per page, on the thread of its connection.
 *
 * The first event of an overview has "full": the page then loads everything, and later applies the
 * changes of the following events. A reader that is more than NOTES rounds behind gets "full"
 * again. A stream of one lock sends the lock once per round. After ten seconds without an event a
 * comment is sent, which keeps the connection open and detects pages that are gone.
 */
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve.h"

#define QUIET_S 10

typedef struct stream {
    board *board;
    detail *detail;    /* the detail of one lock, or NULL for the overview */
    uint64_t seq;      /* the last round that was sent */
    bool begun;
    char *data;        /* the text that is being sent */
    size_t length, at;
} stream;

/* Write {state,"full":true}, or {state,"lock":{...}}. Called with the mutex locked. */
static void make(stream *s, bool full)
{
    const detail *d = s->detail;
    text t;

    s->at = s->length = 0;
    s->data = NULL;
    if (!text_open(&t))
        return;
    fputs("data: {", t.out);
    put_state(t.out, s->board);
    if (full)
        fputs(",\"full\":true", t.out);
    if (d && d->json && (!s->begun || d->seq > s->seq))
        fprintf(t.out, ",\"lock\":%s", d->json);
    else if (d)
        fputs(",\"lock\":null", t.out);
    fputs("}\n\n", t.out);
    if (text_close(&t)) {
        s->data = t.data;
        s->length = t.length;
    }
}

static void make_copy(stream *s, const char *data, size_t length)
{
    s->at = 0;
    s->data = malloc(length);
    s->length = s->data ? length : 0;
    if (s->data)
        memcpy(s->data, data, length);
}

/* Write the next event. Called with the mutex locked. */
static void next_event(stream *s)
{
    board *b = s->board;
    const note *n = b->notes[(s->seq + 1) % NOTES];

    if (!s->begun || s->detail || !n || n->seq != s->seq + 1) {
        make(s, !s->detail);
        s->seq = s->detail ? b->done : b->seq;
    } else {
        make_copy(s, n->data, n->length);
        s->seq = n->seq;
    }
    s->begun = true;
}

/* Wait for a new round. Returns false if none came for a while. Called with the mutex locked. */
static bool wait_news(stream *s)
{
    board *b = s->board;
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += QUIET_S;
    while (s->begun && b->done <= s->seq && !atomic_load(&b->stop))
        if (pthread_cond_timedwait(&b->news, &b->mutex, &until))
            return false;
    return true;
}

static ssize_t read_stream(void *arg, uint64_t pos, char *buf, size_t max)
{
    stream *s = arg;
    size_t n;

    (void)pos;
    if (s->at == s->length) {
        free(s->data);
        s->data = NULL;
        pthread_mutex_lock(&s->board->mutex);
        if (!wait_news(s))
            make_copy(s, ":\n\n", 3);
        else if (!atomic_load(&s->board->stop))
            next_event(s);
        pthread_mutex_unlock(&s->board->mutex);
        if (!s->data) /* stopped, or no memory: the page connects again */
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    n = s->length - s->at < max ? s->length - s->at : max;
    memcpy(buf, s->data + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

static void end_stream(void *arg)
{
    stream *s = arg;

    pthread_mutex_lock(&s->board->mutex);
    s->board->watchers--;
    if (s->detail)
        s->detail->watchers--;
    pthread_mutex_unlock(&s->board->mutex);
    free(s->data);
    free(s);
}

/* Open a stream. Returns NULL if there are too many, or no memory. */
static stream *begin_stream(board *b, const char *name)
{
    stream *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->board = b;
    pthread_mutex_lock(&b->mutex);
    if (b->watchers < WATCHERS && (!name || (s->detail = detail_want(b, name)))) {
        b->watchers++;
        if (s->detail)
            s->detail->watchers++;
    } else {
        free(s);
        s = NULL;
    }
    pthread_mutex_unlock(&b->mutex);
    return s;
}

int http_events(board *b, struct MHD_Connection *connection, const char *name)
{
    stream *s = begin_stream(b, name);
    struct MHD_Response *response;
    int result;

    if (!s)
        return http_message(connection, 503, "too many pages are open; close some");
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, s,
                                                 end_stream);
    if (!response) {
        end_stream(s);
        return MHD_NO;
    }
    http_headers(response, "text/event-stream; charset=utf-8");
    result = (int)MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}
