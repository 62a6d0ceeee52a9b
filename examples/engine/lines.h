/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.h - an example engine: locks of lockd.py, "lines://127.0.0.1:PORT".
 *
 * The engine has two parts. link.c is the connection: lines go out, lines come in. lines.c makes a
 * line of each op and an answer of each line. All functions run under the client's mutex
 * (src/engine.h, THREADS), so there are no other locks.
 *
 * A link is in one of these states:
 *
 *     PAUSED --timer--> CONNECTING --connected--> GREETING --"hello"--> READY
 *
 * In every state but PAUSED a failure or silence leads to PAUSED, and the next attempt follows
 * after a pause that doubles. Calls are in one list, in the order of their submission. The calls
 * that were sent are its first part, and the server answers in this order, so an answer belongs to
 * the first call. After a failure the calls that were sent end with PAWL_EUNKNOWN; the others stay
 * for the next connection, unless the server speaks another protocol (PAWL_EPROTO).
 */
#ifndef LINES_H
#define LINES_H

#include <netinet/in.h>
#include <uv.h>

#include "engine.h"

enum link_state { LINK_PAUSED, LINK_CONNECTING, LINK_GREETING, LINK_READY };

/* One request and its answer. */
typedef struct call {
    struct call *next;
    pawl_op *op;    /* NULL: the op has ended without an answer, which is dropped */
    int64_t sent;   /* now() before the request was sent; 0: not sent */
    int64_t ends;   /* cancelled: when the op ends if there is no answer; else 0 */
    bool rows;      /* a row has been delivered */
    int row_code;   /* what op->row returned */
    size_t length;
    char *text;     /* the line */
} call;

typedef struct lines {
    pawl_env *env;
    struct sockaddr_in at;
    char where[64];            /* "127.0.0.1:7000" */
    char hello[1024];          /* the greeting */
    pawl_events events;
    pawl_timer cancel_timer;   /* the first `ends` of a call */

    enum link_state state;
    struct connection *connection; /* NULL: PAUSED */
    unsigned failures;         /* attempts since the last READY */
    unsigned connections;      /* how many times READY */
    pawl_timer timer;          /* PAUSED: the next attempt; else the limit of the oldest exchange */
    char why[160];             /* why the last connection ended, or "" */
    call *calls;
} lines;

/* link.c */
void link_open(lines *l);
void link_close(lines *l);
/* Send the call, now or when there is a connection. The link frees the call. */
void link_send(lines *l, call *c);
/* Forget a call that was not sent, and free it. */
void link_withdraw(lines *l, call *c);
/* Drop the connection; `why` is for error texts. */
void link_fail(lines *l, const char *why);

/* lines.c: a line from the server, without its newline; true: the line ends the call. */
bool lines_answer(lines *l, call *c, char *line);
/* A line that is no answer. */
void lines_message(lines *l, const char *line);
/* The call ended without an answer. */
void lines_unanswered(call *c, int code, const char *why);
void lines_ready(lines *l);

#endif
