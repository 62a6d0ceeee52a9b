/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h - what engines on a network share: names to addresses, TLS, and connections.
 *
 * Compiled into libpawl for the engines there, and once more into each module that needs it: a
 * module sees none of libpawl's symbols. Nothing here blocks. All calls under the client's mutex.
 */
#ifndef PAWL_NET_H
#define PAWL_NET_H

#include <sys/socket.h>
#include <uv.h>

#include "engine.h"

#define NET_WORDS 224

/* ---- resolve.c ------------------------------------------------------------------------------- */

struct addrinfo;

typedef struct net_resolve {
    pawl_env *env;
    pawl_wake wake;
    struct resolve_box *box;
    void (*done)(void *arg, int error, struct addrinfo *addresses); /* addresses: to be freed */
    void *arg;
} net_resolve;

/* 0: done() will be called, if it is not cancelled before. */
int net_resolve_start(net_resolve *r, pawl_env *env, const char *host, uint16_t port);
/* At any time, also when nothing is under way. */
void net_resolve_cancel(net_resolve *r);

/* ---- socket.c -------------------------------------------------------------------------------- */

/* Begin to connect to an address. 0 or an errno; what was made is in *fd and *poll also after a
 * failure, the caller's to close. */
int net_connect(pawl_env *env, const struct sockaddr *to, socklen_t length, int *fd,
                uv_poll_t **poll);

/* ---- tls.c ----------------------------------------------------------------------------------- */

/* What reading and writing return instead of a number of bytes. */
enum net_io { NET_IO_AGAIN = -1, NET_IO_CLOSED = -2, NET_IO_FAILED = -3 };

enum net_verify { NET_VERIFY_FULL, NET_VERIFY_CHAIN, NET_VERIFY_NONE };

typedef struct net_tls_settings {
    const char *host;                /* who the server must be; for net_tls_new only */
    const char *cafile, *cert, *key; /* NULL: not given */
    const char *alpn;                /* the one protocol that is offered, "h2"; NULL: none */
    enum net_verify verify;
} net_tls_settings;

typedef struct net_tls net_tls;

/* What all connections of a client share. 0 or a code with words. */
int net_tls_context(void **ret, pawl_env *env, const net_tls_settings *s, pawl_error *err);
void net_tls_context_free(void *context);
net_tls *net_tls_new(void *context, const net_tls_settings *s, int fd);
void net_tls_free(net_tls *tls);
/* 0: done. NET_IO_AGAIN, or NET_IO_FAILED with words. */
int net_tls_handshake(net_tls *tls, char words[NET_WORDS]);
/* Bytes, or enum net_io. */
ptrdiff_t net_tls_read(net_tls *tls, char *data, size_t length, char words[NET_WORDS]);
ptrdiff_t net_tls_write(net_tls *tls, const char *data, size_t length, char words[NET_WORDS]);
/* Must the socket be writable before anything goes on? */
bool net_tls_wants_write(const net_tls *tls);

/* ---- stream.c -------------------------------------------------------------------------------- */

enum net_state { NET_CLOSED, NET_RESOLVING, NET_CONNECTING, NET_SECURING, NET_OPEN };

/* A connection to a host. All fields above the line are the user's to set before net_stream_open.
 * Closing inside any of the three callbacks is fine. */
typedef struct net_stream {
    pawl_env *env;
    void *tls_context;                     /* NULL: plain */
    const net_tls_settings *tls;
    int64_t limit_ms;                      /* until it is open; 0: env->timeout_ms */
    const char *path;                      /* a unix socket, whatever the host; NULL: none */
    void *arg;
    void (*opened)(struct net_stream *s);  /* bytes may go */
    void (*failed)(struct net_stream *s, int code, const char *words); /* it is closed again */
    void (*ready)(struct net_stream *s, bool readable, bool writable); /* once it is open */
    /* ---- */
    enum net_state state;
    int fd, events;
    uv_poll_t *poll;
    net_tls *secure;
    net_resolve resolve;
    struct addrinfo *addresses, *next_address;
    pawl_timer timer;
    int64_t ends;
    char words[NET_WORDS];
} net_stream;

/* Begin to connect: all addresses of the host, one after the other. */
void net_stream_open(net_stream *s, const char *host, uint16_t port);
/* At any time, also twice, and on zeroes. */
void net_stream_close(net_stream *s);
/* Bytes, or enum net_io with words. */
ptrdiff_t net_stream_read(net_stream *s, void *data, size_t room, char words[NET_WORDS]);
ptrdiff_t net_stream_write(net_stream *s, const void *data, size_t length, char words[NET_WORDS]);
/* Watch for bytes to read, and for room to write if `writes`. */
void net_stream_watch(net_stream *s, bool writes);

#endif
