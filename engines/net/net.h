/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h - what engines on a network share: names to addresses, and TLS on a socket of ours.
 *
 * Compiled into libpawl for the engines there, and once more into each module that needs it: a
 * module sees none of libpawl's symbols. Nothing here blocks. All calls under the client's mutex.
 */
#ifndef PAWL_NET_H
#define PAWL_NET_H

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

#endif
