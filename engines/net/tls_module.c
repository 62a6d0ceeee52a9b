/* SPDX-License-Identifier: Apache-2.0
 *
 * tls_module.c - TLS for the engines inside libpawl. OpenSSL is large, and loading OpenSSL takes
 * longer than a local lock does, so only programs that use TLS load it: tls.c is the module tls.so.
 * Engines that are modules themselves contain tls.c.
 *
 * net_tls_context() loads the module. Contexts and connections come from the module, so every
 * function that takes one finds the module loaded.
 */
#include <stdatomic.h>

#include "net.h"
#include "registry.h"

static _Atomic(const net_tls_module *) loaded;

static const net_tls_module *load(pawl_error *err)
{
    const net_tls_module *m = atomic_load(&loaded);

    if (!m) {
        m = pawl__module_symbol("tls.so", NET_TLS_SYMBOL, err);
        atomic_store(&loaded, m);
    }
    return m;
}

static const net_tls_module *module(void)
{
    pawl_error err;

    return load(&err);
}

int net_tls_context(void **ret, pawl_env *env, const net_tls_settings *s, pawl_error *err)
{
    const net_tls_module *m = load(err);

    return m ? m->context(ret, env, s, err) : PAWL_ENOTSUP;
}

void net_tls_context_free(void *context)
{
    if (context)
        module()->context_free(context);
}

net_tls *net_tls_new(void *context, const net_tls_settings *s, int fd)
{
    return module()->open(context, s, fd);
}

void net_tls_free(net_tls *tls)
{
    if (tls)
        module()->free(tls);
}

int net_tls_handshake(net_tls *tls, char words[NET_WORDS])
{
    return module()->handshake(tls, words);
}

ptrdiff_t net_tls_read(net_tls *tls, char *data, size_t length, char words[NET_WORDS])
{
    return module()->read(tls, data, length, words);
}

ptrdiff_t net_tls_write(net_tls *tls, const char *data, size_t length, char words[NET_WORDS])
{
    return module()->write(tls, data, length, words);
}

bool net_tls_wants_write(const net_tls *tls)
{
    return module()->wants_write(tls);
}

const char *net_tls_library(void)
{
    return module() ? module()->library() : "";
}
