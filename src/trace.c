/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c - delivers log lines and trace events to the program's functions. Both functions are user
 * code, so lines and events are collected in one list under the client's mutex, and delivered in
 * order when the mutex has been unlocked (pawl__unlock, in client.c).
 */
#include <stdarg.h>
#include <stdlib.h>

#include "core.h"

struct log_line {
    struct log_line *next;
    int level; /* of a line of the log; 0: a trace event */
    pawl_trace event;
    char text[]; /* the line, or the name of the lock */
};

static struct log_line *keep(pawl_client *client, int level, const char *text)
{
    struct log_line *line = malloc(sizeof *line + strlen(text) + 1);

    if (!line)
        return NULL;
    line->next = NULL;
    line->level = level;
    strcpy(line->text, text);
    if (!client->log.lines)
        client->log.end = &client->log.lines;
    *client->log.end = line;
    client->log.end = &line->next;
    return line;
}

void pawl__log_args(pawl_client *client, int level, const char *format, va_list args)
{
    char text[512];

    if (!client->log.fn || level > client->log.level)
        return;
    vsnprintf(text, sizeof text, format, args);
    pawl_text_clean(text);
    keep(client, level, text);
}

void pawl__log(pawl_client *client, int level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pawl__log_args(client, level, format, args);
    va_end(args);
}

void pawl__trace(struct hold *hold, int event, int64_t lasted_ns, int code)
{
    struct log_line *line = keep(hold->client, 0, hold->name_state->name);
    bool held = event == PAWL_TRACE_HOLD_BEGIN || event == PAWL_TRACE_HOLD_END;
    bool permits = hold->terms.mode == PAWL_MODE_PERMITS;

    if (!line)
        return;
    line->event = (pawl_trace){.size = sizeof line->event,
                               .event = (uint64_t)event,
                               .id = hold->id,
                               .name = line->text,
                               .handle = hold->lock ? (void *)hold->lock : (void *)hold->sem,
                               .type = permits ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LOCK,
                               .kind = hold->terms.kind,
                               .at_ns = pawl__now(hold->client),
                               .lasted_ns = lasted_ns,
                               .code = code,
                               .token = held ? hold->token : 0};
}

void pawl__unlock_and_deliver(pawl_client *client)
{
    struct log_line *line = client->log.lines, *next;
    pawl_log_fn *log = client->log.fn;
    pawl_trace_fn *trace = client->options.trace;
    void *log_arg = client->log.arg, *trace_arg = client->options.trace_arg;

    client->log.lines = NULL;
    pthread_mutex_unlock(&client->mu); /* another thread may free the client from here on */
    for (; line; line = next) {
        next = line->next;
        if (line->level)
            log(log_arg, line->level, line->text);
        else
            trace(trace_arg, &line->event);
        free(line);
    }
}
