/* SPDX-License-Identifier: Apache-2.0
 *
 * net.h - code that networked engines share: parsing URLs, resolving names, TLS, and connections.
 *
 * Compiled into libpawl for the built-in engines, and once more into each module that needs this
 * code: a module sees none of libpawl's symbols. Nothing here blocks. All calls run under the
 * client's mutex.
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
    void (*done)(void *arg, int error, struct addrinfo *addresses); /* done() frees them */
    void *arg;
} net_resolve;

/* Begin to resolve. Returns 0 if done() will be called, perhaps inside net_resolve_start, unless
 * net_resolve_cancel comes first. */
int net_resolve_start(net_resolve *r, pawl_env *env, const char *host, uint16_t port);
/* May be called at any time, also when nothing is being resolved. */
void net_resolve_cancel(net_resolve *r);

/* ---- socket.c -------------------------------------------------------------------------------- */

/* Begin to connect to an address. Returns 0 or an errno. The caller closes *fd and *poll, also
 * after a failure. */
int net_connect(pawl_env *env, const struct sockaddr *to, socklen_t length, int *fd,
                uv_poll_t **poll);

/* ---- settings.c ------------------------------------------------------------------------------ */

#define NET_HOST_MAX 254
#define NET_ADDRESSES_MAX 64

typedef struct net_login {
    char *user, *password; /* NULL: none */
} net_login;

typedef struct net_address {
    char *host;
    uint16_t port;
    char where[NET_HOST_MAX + 8]; /* "host:port", for error texts */
} net_address;

typedef struct net_addresses {
    net_address *list;
    size_t n;
} net_addresses;

struct net_tls_settings;

/* Functions with an `err` return 0, or a code with an error text in `err`. */
int net_copy(char **ret, const char *text, pawl_error *err);
/* Decode the escapes in text[0..length). */
int net_decode(char **ret, const char *text, size_t length, const char *what, pawl_error *err);
/* Read [user][:password], the part of the URL before '@'. */
int net_read_login(net_login *login, const char *text, size_t length, pawl_error *err);
/* Fill in a missing user or password from the program's options or the environment. */
int net_add_login(net_login *login, const pawl_env *env, pawl_error *err);
/* The same, for a service that wants both or neither. */
int net_add_login_both(net_login *login, const pawl_env *env, const char *service,
                       pawl_error *err);
/* Wipes the secrets. */
void net_login_free(net_login *login);
/* Read host, host:port, [v6] or [v6]:port; without a host: localhost. `port` is the default
 * port. */
int net_read_address(net_address *ret, const char *text, size_t length, uint16_t port,
                     pawl_error *err);
/* Read several addresses, separated by commas. */
int net_read_addresses(net_addresses *ret, const char *text, size_t length, uint16_t port,
                       pawl_error *err);
void net_addresses_free(net_addresses *addresses);
/* For pawl_engine.identity: the service, the hosts sorted and in lower case (localhost is the same
 * as 127.0.0.1 and ::1), and `more`, the other settings that separate names, such as a prefix. */
int net_identity(char *ret, size_t size, const char *service, const net_addresses *at,
                 const char *more);
/* Read tls=1 or tls=0, for schemes that don't imply TLS. */
int net_read_tls_wanted(bool *ret, const pawl_url *url, pawl_error *err);
/* Read cafile, cert, key and verify. */
int net_read_tls(struct net_tls_settings *s, const pawl_url *url, pawl_error *err);
void net_tls_settings_free(struct net_tls_settings *s);

/* The pause before the next attempt: 10 ms, doubled `doublings` times, at most 1 s; half of the
 * pause is random. */
static inline int64_t net_pause_ms(pawl_env *env, uint32_t doublings)
{
    int64_t ms = doublings < 7 ? INT64_C(10) << doublings : 1000;

    return ms / 2 + (int64_t)(env->random(env) % (uint64_t)(ms / 2 + 1));
}

/* ---- tls.c ----------------------------------------------------------------------------------- */

/* Results of reading and writing other than a number of bytes. */
enum net_io { NET_IO_AGAIN = -1, NET_IO_CLOSED = -2, NET_IO_FAILED = -3 };

enum net_verify { NET_VERIFY_FULL, NET_VERIFY_CHAIN, NET_VERIFY_NONE };

typedef struct net_tls_settings {
    const char *host;          /* the name to verify; for net_tls_new only */
    char *cafile, *cert, *key; /* NULL: not given */
    const char *alpn;          /* the one protocol to offer, "h2"; NULL: none */
    enum net_verify verify;
} net_tls_settings;

typedef struct net_tls net_tls;

/* The TLS state that all connections of a client share. Returns 0 or a code with an error text. A
 * new connection reads the files again if they have changed. */
int net_tls_context(void **ret, pawl_env *env, const net_tls_settings *s, pawl_error *err);
void net_tls_context_free(void *context);
net_tls *net_tls_new(void *context, const net_tls_settings *s, int fd);
void net_tls_free(net_tls *tls);
/* Returns 0 when finished, NET_IO_AGAIN, NET_IO_CLOSED, or NET_IO_FAILED with an error text. */
int net_tls_handshake(net_tls *tls, char words[NET_WORDS]);
/* Both return a number of bytes, or enum net_io. */
ptrdiff_t net_tls_read(net_tls *tls, char *data, size_t length, char words[NET_WORDS]);
ptrdiff_t net_tls_write(net_tls *tls, const char *data, size_t length, char words[NET_WORDS]);
/* Must the socket become writable before TLS can continue? Unlike net_tls_free, takes no NULL. */
bool net_tls_wants_write(const net_tls *tls);
/* The TLS library, "OpenSSL 3.0.19"; "" if there is none. */
const char *net_tls_library(void);

/* The same functions, as exported by the module tls.so to libpawl (tls_module.c). */
#define NET_TLS_SYMBOL "pawl_tls"
typedef struct net_tls_module {
    int (*context)(void **ret, pawl_env *env, const net_tls_settings *s, pawl_error *err);
    void (*context_free)(void *context);
    net_tls *(*open)(void *context, const net_tls_settings *s, int fd);
    void (*free)(net_tls *tls);
    int (*handshake)(net_tls *tls, char words[NET_WORDS]);
    ptrdiff_t (*read)(net_tls *tls, char *data, size_t length, char words[NET_WORDS]);
    ptrdiff_t (*write)(net_tls *tls, const char *data, size_t length, char words[NET_WORDS]);
    bool (*wants_write)(const net_tls *tls);
    const char *(*library)(void);
} net_tls_module;

/* ---- stream.c -------------------------------------------------------------------------------- */

enum net_state { NET_CLOSED, NET_RESOLVING, NET_CONNECTING, NET_SECURING, NET_OPEN };

/* A connection to a host. The caller sets all fields above the line before net_stream_open. The
 * three callbacks may close the stream. */
typedef struct net_stream {
    pawl_env *env;
    void *tls_context;                     /* NULL: plain */
    const net_tls_settings *tls;
    int64_t limit_ms;                      /* time limit for opening; 0: env->timeout_ms */
    const char *path;                      /* a Unix socket, used instead of the host; NULL: none */
    void *arg;
    void (*opened)(struct net_stream *s);  /* data can be sent */
    void (*failed)(struct net_stream *s, int code, const char *words); /* the stream is closed */
    void (*ready)(struct net_stream *s, bool readable, bool writable); /* called while open */
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

/* Begin to connect: tries all addresses of the host, one after the other. */
void net_stream_open(net_stream *s, const char *host, uint16_t port);
/* May be called at any time, also twice, and on zeroes. */
void net_stream_close(net_stream *s);
/* Both return a number of bytes, or enum net_io with an error text. */
ptrdiff_t net_stream_read(net_stream *s, void *data, size_t room, char words[NET_WORDS]);
ptrdiff_t net_stream_write(net_stream *s, const void *data, size_t length, char words[NET_WORDS]);
/* Watch for bytes to read, and for room to write if `writes`. */
void net_stream_watch(net_stream *s, bool writes);

#endif
