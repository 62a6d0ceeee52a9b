/* SPDX-License-Identifier: Apache-2.0
 *
 * modules.c - from a URL's scheme to its engine.
 *
 * A few engines are inside libpawl. Others are modules, "pawl-SCHEME.so", so that a program which
 * uses one service does not load the client libraries of all. Looked for in $PAWL_ENGINE_DIR if
 * that is set (and only there), else in "pawl" and "engines" beside libpawl itself (installed and
 * in a build folder), else in the folder it was installed to. A loaded module stays: its code may
 * be on the stack of another thread. It is remembered by its path, and loaded under a mutex that is
 * held around fork(): a child that was forked in the middle of dlopen() could load nothing.
 */
#include <dlfcn.h>
#include <glob.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <unistd.h>
#include <uv.h>

#include "core.h"
#include "fork.h"
#include "suggest.h"

#ifndef PAWL_MODULE_DIR
#define PAWL_MODULE_DIR "/usr/lib/pawl"
#endif

static const pawl_engine *const built_in[] = {
    &pawl_engine_local, &pawl_engine_memory,     &pawl_engine_redis, &pawl_engine_rediss,
    &pawl_engine_redis_unix, &pawl_engine_redis_sentinel, &pawl_engine_redis_cluster,
    &pawl_engine_trace, &pawl_engine_fault,
    &pawl_engine_quorum,
};

#define LOADED_MAX 16

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char path[600];
    const pawl_engine *engine;
} loaded[LOADED_MAX]; /* under `loading` */

static int load(const pawl_engine **ret, const char *path, const char *scheme, pawl_error *err)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    pawl_engine_module_fn *module;
    const pawl_engine *engine;
    void *symbol;

    if (!handle)
        return pawl_error_set(err, PAWL_ENOTSUP, "can't load the engine for '%s:': %.160s", scheme,
                              dlerror());
    symbol = dlsym(handle, PAWL_ENGINE_SYMBOL);
    memcpy(&module, &symbol, sizeof module);
    engine = module ? module() : NULL;
    if (!engine)
        return pawl_error_set(err, PAWL_ENOTSUP, "%.160s is not an engine of Pawl", path);
    if (engine->abi != PAWL_ENGINE_ABI || strcmp(engine->scheme, scheme))
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "%.120s is an engine for '%s:' of interface %u, not for '%s:' of %u",
                              path, engine->scheme, engine->abi, scheme, PAWL_ENGINE_ABI);
    *ret = engine;
    return 0;
}

/* The same, but only once for each path; what finds no room is loaded again, which does no harm. */
static int load_once(const pawl_engine **ret, const char *path, const char *scheme,
                     pawl_error *err)
{
    size_t i = 0;
    int code;

    while (i < LOADED_MAX && loaded[i].engine && strcmp(loaded[i].path, path))
        i++;
    if (i < LOADED_MAX && loaded[i].engine) {
        *ret = loaded[i].engine;
        return 0;
    }
    code = load(ret, path, scheme, err);
    if (!code && i < LOADED_MAX) {
        snprintf(loaded[i].path, sizeof loaded[i].path, "%s", path);
        loaded[i].engine = *ret;
    }
    return code;
}

/* The folders in which modules are looked for, in order. Returns their number. */
static size_t module_folders(char folders[3][520])
{
    const char *only = secure_getenv("PAWL_ENGINE_DIR"), *slash;
    Dl_info info;
    size_t n = 0;

    if (only && *only) {
        snprintf(folders[0], sizeof folders[0], "%s", only);
        return 1;
    }
    if (dladdr((const void *)built_in, &info) && info.dli_fname) {
        slash = strrchr(info.dli_fname, '/');
        for (size_t i = 0; i < 2; i++)
            snprintf(folders[n++], sizeof folders[0], "%.*s/%s",
                     slash ? (int)(slash - info.dli_fname) : 1, slash ? info.dli_fname : ".",
                     i ? "engines" : "pawl");
    }
    snprintf(folders[n++], sizeof folders[0], "%s", PAWL_MODULE_DIR);
    return n;
}

/* The module's path, in the first folder that has it. */
static bool module_path(char *ret, size_t size, const char *scheme)
{
    char folders[3][520];
    size_t n = module_folders(folders);

    for (size_t i = 0; i < n; i++) {
        int length = snprintf(ret, size, "%s/pawl-%s.so", folders[i], scheme);

        if (length > 0 && (size_t)length < size && access(ret, R_OK) == 0)
            return true;
    }
    return false;
}

/* Names of engines, and those that other clients use for the same services. */
static const char *meant(const char *scheme)
{
    static const char *const schemes[] = {
        "local", "memory", "redis", "rediss", "redis+unix", "redis+sentinel", "redis+cluster",
        "valkey", "valkeys", "etcd", "zk", "postgres", "postgresql", "mysql", "mariadb", "quorum",
        "trace", "fault"};

    return pawl__suggest(scheme, schemes, sizeof schemes / sizeof schemes[0]);
}

static int no_engine(const char *scheme, pawl_error *err)
{
    const char *near = meant(scheme);

    if (near && strcmp(near, scheme))
        return pawl_error_set(err, PAWL_ENOTSUP, "no engine for '%s:'; did you mean '%s:'?", scheme,
                              near);
    return pawl_error_set(err, PAWL_ENOTSUP,
                          "no engine for '%s:' (built in: local, memory, redis; others are "
                          "modules in %s or $PAWL_ENGINE_DIR)", scheme, PAWL_MODULE_DIR);
}

int pawl__engine_find(const pawl_engine **ret, const char *scheme, pawl_error *err)
{
    char path[600];
    int code;

    for (size_t i = 0; i < sizeof built_in / sizeof built_in[0]; i++)
        if (!strcmp(built_in[i]->scheme, scheme)) {
            *ret = built_in[i];
            return 0;
        }
    if (strchr(scheme, '/') || !module_path(path, sizeof path, scheme))
        return no_engine(scheme, err);
    pawl__fork_mutex_add(&loading);
    pthread_mutex_lock(&loading);
    code = load_once(ret, path, scheme, err);
    pthread_mutex_unlock(&loading);
    return code;
}

/* ---- What is there? -------------------------------------------------------------------------- */

static const char *libraries_of(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    void *symbol = handle ? dlsym(handle, PAWL_LIBRARIES_SYMBOL) : NULL;
    pawl_engine_libraries_fn *fn;

    memcpy(&fn, &symbol, sizeof fn);
    if (handle)
        dlclose(handle); /* it stays: RTLD_NODELETE */
    return fn ? fn() : "";
}

static int report_module(const char *path, const char *scheme, pawl_engine_info_fn *fn, void *arg)
{
    pawl_engine_info info = {.size = sizeof info, .scheme = scheme, .module = path,
                             .libraries = "", .trouble = ""};
    const pawl_engine *engine;
    pawl_error err = {0};

    pthread_mutex_lock(&loading);
    if (load_once(&engine, path, scheme, &err))
        info.trouble = err.text;
    else
        info.libraries = libraries_of(path);
    pthread_mutex_unlock(&loading);
    return fn(arg, &info);
}

/* The scheme of "FOLDER/pawl-SCHEME.so". Returns false if an earlier folder has that module. */
static bool is_first(const char *path, char scheme[64])
{
    const char *name = strrchr(path, '/') + sizeof "/pawl-" - 1;
    char first[600];

    snprintf(scheme, 64, "%.*s", (int)(strlen(name) - strlen(".so")), name);
    return module_path(first, sizeof first, scheme) && !strcmp(first, path);
}

int pawl_engines(pawl_engine_info_fn *fn, void *arg)
{
    char folders[3][520], pattern[600], scheme[64];
    size_t n = module_folders(folders);
    int code = fn ? 0 : PAWL_EINVAL;

    pawl__fork_mutex_add(&loading);
    for (size_t i = 0; !code && i < sizeof built_in / sizeof built_in[0]; i++)
        code = fn(arg, &(pawl_engine_info){.size = sizeof(pawl_engine_info),
                                           .scheme = built_in[i]->scheme, .module = "",
                                           .libraries = "", .trouble = ""});
    for (size_t i = 0; !code && i < n; i++) {
        glob_t found = {0};

        snprintf(pattern, sizeof pattern, "%.519s/pawl-*.so", folders[i]);
        if (!glob(pattern, 0, NULL, &found))
            for (size_t k = 0; !code && k < found.gl_pathc; k++)
                if (is_first(found.gl_pathv[k], scheme))
                    code = report_module(found.gl_pathv[k], scheme, fn, arg);
        globfree(&found);
    }
    return code;
}

const char *pawl_libraries(void)
{
    static _Thread_local char text[96];

    snprintf(text, sizeof text, "libuv %s, %.60s", uv_version_string(),
             OpenSSL_version(OPENSSL_VERSION));
    return text;
}
