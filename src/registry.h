/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h - the engines that Pawl knows by name. This list is the only one: the URL parser, the
 * loader of modules and the texts of errors read the list.
 *
 * An engine that is not listed needs no entry: Pawl finds its module by the scheme of the URL
 * (modules.c). An entry is needed for an engine inside libpawl, for an alias, and for a wrapper,
 * because the URL is parsed before the module is loaded.
 */
#ifndef PAWL_REGISTRY_H
#define PAWL_REGISTRY_H

#include "engine.h"

/* BUILT_IN(scheme, alias, how, symbol): the engine is inside libpawl.
 * MODULE(scheme, alias, how, symbol): the engine is a module, unless its code is linked into the
 * program or library that contains this file; then the linked code is used.
 *
 * scheme, alias: the word before the first ':' of a URL, and another word for the same engine (the
 * scheme that other clients of the service use) or NULL. how: PLAIN, or WRAPS if the text behind
 * the scheme contains whole URLs of other engines, so that a '?' belongs to an inner URL. symbol:
 * the pawl_engine. */
#define PAWL_ENGINES(BUILT_IN, MODULE)                                                             \
    BUILT_IN("local", NULL, PLAIN, pawl_engine_local)                                              \
    BUILT_IN("memory", NULL, PLAIN, pawl_engine_memory)                                            \
    BUILT_IN("redis", "valkey", PLAIN, pawl_engine_redis)                                          \
    BUILT_IN("rediss", "valkeys", PLAIN, pawl_engine_rediss)                                       \
    BUILT_IN("redis+unix", NULL, PLAIN, pawl_engine_redis_unix)                                    \
    BUILT_IN("redis+sentinel", NULL, PLAIN, pawl_engine_redis_sentinel)                            \
    BUILT_IN("redis+cluster", NULL, PLAIN, pawl_engine_redis_cluster)                              \
    BUILT_IN("quorum", NULL, WRAPS, pawl_engine_quorum)                                            \
    BUILT_IN("trace", NULL, WRAPS, pawl_engine_trace)                                              \
    BUILT_IN("fault", NULL, WRAPS, pawl_engine_fault)                                              \
    MODULE("etcd", NULL, PLAIN, pawl_engine_etcd)                                                  \
    MODULE("zk", NULL, PLAIN, pawl_engine_zk)                                                      \
    MODULE("postgres", "postgresql", PLAIN, pawl_engine_postgres)                                  \
    MODULE("mysql", "mariadb", PLAIN, pawl_engine_mysql)

#define PAWL_DECLARE(scheme, alias, how, symbol) extern const pawl_engine symbol;
#define PAWL_DECLARE_WEAK(scheme, alias, how, symbol)                                              \
    extern const pawl_engine symbol __attribute__((weak, visibility("hidden")));
PAWL_ENGINES(PAWL_DECLARE, PAWL_DECLARE_WEAK)
#undef PAWL_DECLARE
#undef PAWL_DECLARE_WEAK

/* How the text behind the scheme is read. */
enum pawl_url_form { PAWL_URL_PLAIN, PAWL_URL_WRAPS };

struct engine_entry {
    const char *scheme;
    const char *alias; /* or NULL */
    enum pawl_url_form form;
};

/* The entry of the engine with this scheme or alias, or NULL. */
const struct engine_entry *pawl__registry_find(const char *word, size_t length);

/* A symbol of a module that is not an engine, in a folder of Pawl's own modules ($PAWL_ENGINE_DIR
 * is for engines only). NULL and an error: there is no such module, or it can't be loaded. */
void *pawl__module_symbol(const char *file, const char *symbol, pawl_error *err);

#endif
