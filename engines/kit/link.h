/* SPDX-License-Identifier: Apache-2.0
 *
 * link.h - the connection of a networked engine to a server, and the calls on the connection.
 *
 *     link.c   the states of a link, attempts, time limits, drop, back-off
 *     wire.c   a link over a byte stream of ../net (Redis, ZooKeeper, etcd)
 *
 * An engine has a struct for its link that begins with KIT_LINK or KIT_WIRE, and a kit_link_type
 * with the engine's own functions: how to connect, to greet, to read answers, and to fail a call.
 * The head comment of link.c describes the states and their rules.
 *
 * Compiled into libpawl for the engines there, and once more into each module, like net.h. Nothing
 * here blocks. All calls are made under the client's mutex.
 */
#ifndef PAWL_KIT_LINK_H
#define PAWL_KIT_LINK_H

#include "kit/buf.h"
#include "list.h"
#include "net/net.h"

enum kit_link_state {
    LINK_CLOSED,     /* for good, or until kit_link_open */
    LINK_PAUSED,     /* the next attempt begins when link->timer fires */
    LINK_LOCATING,   /* the engine finds out the address of the server */
    LINK_CONNECTING,
    LINK_GREETING,   /* connected; the first exchange is under way */
    LINK_READY       /* calls can be sent */
};

typedef struct kit_link kit_link;
typedef struct kit_wire kit_wire;

/* The functions of an engine's link. A function may be NULL where its comment says so. */
typedef struct kit_link_type {
    /* An attempt begins, in state LOCATING, with link->attempt_ends and the timer set: set
     * link->peer and connect (kit_wire_open), now or later. */
    void (*attempt)(kit_link *link);
    /* State GREETING: send the first request. When the greeting is over: kit_link_ready. */
    void (*greet)(kit_link *link);
    /* State READY, before the backlog is sent. */
    void (*ready)(kit_link *link);
    /* Send a call of the backlog. NULL: the engine has no backlog. */
    void (*send)(kit_link *link, struct list *call);
    /* Fail a call, notify its maker, and free the call. PAWL_EUNKNOWN: the call was sent. */
    void (*fail)(kit_link *link, struct list *call, int code, const char *words);
    /* READY: the instant when the server has been silent for too long, PAWL_NEVER if the engine
     * expects nothing. Called when the timer fires. */
    int64_t (*limit)(kit_link *link);
    /* Free everything that belongs to this connection or attempt. */
    void (*disconnect)(kit_link *link);
    /* After disconnect: choose the server of the next attempt. Returns the pause before this
     * attempt in ms. NULL: kit_link_pause_ms. */
    int64_t (*back_off)(kit_link *link, bool was_ready);
    /* At the end of a drop, when the calls have failed. refused: 0, or a code if another attempt
     * can't help (a wrong password, another protocol). */
    void (*dropped)(kit_link *link, int refused);
    /* Called first in a drop. True: the link is not to be dropped, or not now. May be NULL. */
    bool (*keeps)(kit_link *link, int code, const char *words);
    /* The timer of a READY or GREETING link fired late: read arrived answers first. May be NULL. */
    void (*late)(kit_link *link);
    /* LOCATING has timed out: write the error text. False: there is none. May be NULL. */
    bool (*unlocated)(const kit_link *link, char words[NET_WORDS]);

    /* For wire.c: use and remove the bytes of wire->in. False: the link has dropped. */
    bool (*take)(kit_wire *wire);
    /* Add bytes to wire->out, if there are more. False: the link has dropped. May be NULL. */
    bool (*fill)(kit_wire *wire);
    /* Added to the text if the server hangs up, without TLS, before the greeting is over. */
    const char *hint;
    bool wipes; /* every request may contain a secret: wipe sent bytes */
} kit_link_type;

/* The fields of every link. */
#define KIT_LINK_FIELDS                                                                            \
    const kit_link_type *type;                                                                     \
    pawl_env *env;                                                                                 \
    enum kit_link_state state;                                                                     \
    const char *peer;      /* the server, for texts: "localhost:6379" */                           \
    struct list calls;     /* sent and not answered, in order */                                   \
    struct list backlog;   /* not sent yet */                                                      \
    pawl_timer timer;      /* PAUSED: the next attempt. READY: limit(). Else: the attempt ends */  \
    int64_t limit_ms;      /* for an attempt, and for an answer */                                 \
    int64_t attempt_ends;                                                                          \
    uint32_t failures;     /* attempts since a call was answered; the engine resets the count */   \
    uint64_t epochs;       /* how often the link was ready */                                      \
    bool quiet;            /* no log line "connected again" */                                     \
    int last_code;         /* why the link is not ready; 0: ready, or not tried yet */             \
    char words[NET_WORDS]; /* the reason as a text */

struct kit_link {
    KIT_LINK_FIELDS
};

/* The first member of an engine's link: the fields by their own names, and all of them as `kit`. */
#define KIT_LINK                                                                                   \
    union {                                                                                        \
        kit_link kit;                                                                              \
        struct {                                                                                   \
            KIT_LINK_FIELDS                                                                        \
        };                                                                                         \
    }

/* Set up a link, in state CLOSED. */
void kit_link_init(kit_link *link, const kit_link_type *type, pawl_env *env);
/* Begin to connect; a no-op if the link is not CLOSED. */
void kit_link_open(kit_link *link);
/* Disconnect, and fail the calls and the backlog with PAWL_ECANCELED. Accepts zeroes. */
void kit_link_close(kit_link *link);
/* The attempt may take limit_ms from now. */
void kit_link_limit_attempt(kit_link *link);
/* The link is connected: greet, until the attempt ends. */
void kit_link_connected(kit_link *link);
/* The greeting is over: send the backlog. */
void kit_link_ready(kit_link *link);
/* A call was sent, and its answer must come by `limit`. */
static inline void kit_link_expect(kit_link *link, int64_t limit)
{
    if (!link->timer.armed || link->timer.due > limit)
        link->env->timer_set(link->env, &link->timer, limit);
}
/* The connection is of no use: disconnect, fail the calls as unknown, and retry after a pause.
 * A no-op if the link is CLOSED or PAUSED. */
__attribute__((format(printf, 3, 4)))
void kit_link_drop(kit_link *link, int code, const char *format, ...);
/* Start the next attempt at once instead of after the pause. */
void kit_link_hurry(kit_link *link);
/* Fail all calls of a list. Calls that are added meanwhile don't fail. */
void kit_link_fail(kit_link *link, struct list *calls, int code, const char *words);
/* The usual pause before the next attempt: grows with the number of failed rounds, of `servers`
 * attempts each. */
static inline int64_t kit_link_pause_ms(const kit_link *link, size_t servers)
{
    return net_pause_ms(link->env, link->failures / (uint32_t)servers);
}

/* ---- wire.c ---------------------------------------------------------------------------------- */

#define KIT_WIRE_FIELDS                                                                            \
    KIT_LINK;                                                                                      \
    net_stream stream;                                                                             \
    net_tls_settings tls;                                                                          \
    kit_buf in, out;

struct kit_wire {
    KIT_WIRE_FIELDS
};

#define KIT_WIRE                                                                                   \
    union {                                                                                        \
        kit_wire wire;                                                                             \
        struct {                                                                                   \
            KIT_WIRE_FIELDS                                                                        \
        };                                                                                         \
    }

static inline kit_wire *kit_wire_of(kit_link *link)
{
    return list_entry(link, kit_wire, kit);
}

/* For `attempt`: connect to a host. `tls`: the settings, without the host; context NULL: plain. */
void kit_wire_open(kit_wire *wire, const net_tls_settings *tls, void *context, const char *host,
                   uint16_t port);
/* Write wire->out. Engines call this before the loop polls, so that the requests of many threads
 * leave together. */
void kit_wire_flush(kit_wire *wire);
/* Read and use the bytes that have arrived. */
void kit_wire_receive(kit_wire *wire);
/* For `disconnect`. */
void kit_wire_close(kit_wire *wire);

#endif
