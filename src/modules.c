/* SPDX-License-Identifier: Apache-2.0
 *
 * modules.c - finds the engine for the scheme of a URL.
 *
 * The registry (registry.h) lists the engines that are linked in. Other engines are modules,
 * "pawl-SCHEME.so", so that a program that uses one service does not load the client libraries of
 * all services. Pawl looks for a module in $PAWL_ENGINE_DIR if that variable is set (and only
 * there), else in the folders "pawl" and "engines" beside libpawl itself (installed and in a build
 * folder), else in the folder that libpawl was installed to. A loaded module is never unloaded,
 * because its code may be on the stack of another thread. Loaded modules are remembered by path.
 * They are loaded under a mutex that is locked around fork(): a child that was forked in the middle
 * of dlopen() could not load anything.
 */
#include <dlfcn.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "core.h"
#include "fork.h"
#include "registry.h"
#include "suggest.h"

#ifndef PAWL_MODULE_DIR
#define PAWL_MODULE_DIR "/usr/lib/pawl"
#endif

/* NULL: a module whose code is not linked in. */
#define ENTRY(scheme, alias, how, symbol) {(scheme), &(symbol)},
static const struct {
    const char *scheme;
    const pawl_engine *engine;
} linked[] = {PAWL_ENGINES(ENTRY, ENTRY)};
#undef ENTRY

#define LINKED (sizeof linked / sizeof linked[0])
#define LOADED_MAX 16
#define LOAD_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char path[600];
    const pawl_engine *engine;
} loaded[LOADED_MAX]; /* under `loading` */

static int load(const pawl_engine **ret, const char *path, const char *scheme, pawl_error *err)
{
    void *handle = dlopen(path, LOAD_FLAGS);
    pawl_engine_module_fn *module;
    const pawl_engine *engine;
    void *symbol;

    if (!handle)
        return pawl_error_set(err, PAWL_ENOTSUP, "can't load the engine for '%s:': %.160s; install "
                              "that file again", scheme, dlerror());
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

/* Load a module, but only once for each path. If the table is full, the module is loaded again,
 * which is harmless. */
static int load_once(const pawl_engine **ret, const char *path, const char *scheme,
                     pawl_error *err)
{
    const pawl_engine *engine = NULL;
    size_t i = 0;
    int code;

    while (i < LOADED_MAX && loaded[i].engine && strcmp(loaded[i].path, path))
        i++;
    if (i < LOADED_MAX && loaded[i].engine) {
        *ret = loaded[i].engine;
        return 0;
    }
    code = load(&engine, path, scheme, err);
    if (code)
        return code;
    if (i < LOADED_MAX) {
        snprintf(loaded[i].path, sizeof loaded[i].path, "%s", path);
        loaded[i].engine = engine;
    }
    *ret = engine;
    return 0;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;

    return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

/* The folders of Pawl's own modules, in order, each once. Returns their number. */
static size_t own_folders(char folders[3][520])
{
    const char *slash;
    Dl_info info;
    size_t n = 0;

    if (dladdr((const void *)&loading, &info) && info.dli_fname) {
        slash = strrchr(info.dli_fname, '/');
        for (size_t i = 0; i < 2; i++)
            snprintf(folders[n++], sizeof folders[0], "%.*s/%s",
                     slash ? (int)(slash - info.dli_fname) : 1, slash ? info.dli_fname : ".",
                     i ? "engines" : "pawl");
    }
    if (!n || !is_same_file(folders[0], PAWL_MODULE_DIR))
        snprintf(folders[n++], sizeof folders[0], "%s", PAWL_MODULE_DIR);
    return n;
}

/* The folders in which engines are looked for, in order. Returns their number. */
static size_t module_folders(char folders[3][520])
{
    const char *only = secure_getenv("PAWL_ENGINE_DIR");

    if (!only || !*only)
        return own_folders(folders);
    snprintf(folders[0], sizeof folders[0], "%s", only);
    return 1;
}

/* Find a file in the first of the folders that has it. Writes the path. */
static bool find_file(char *ret, size_t size, char folders[3][520], size_t n, const char *file)
{
    for (size_t i = 0; i < n; i++) {
        int length = snprintf(ret, size, "%s/%s", folders[i], file);

        if (length > 0 && (size_t)length < size && access(ret, R_OK) == 0)
            return true;
    }
    return false;
}

void *pawl__module_symbol(const char *file, const char *symbol, pawl_error *err)
{
    char folders[3][520], path[600];
    void *handle, *found = NULL;

    if (!find_file(path, sizeof path, folders, own_folders(folders), file)) {
        pawl_error_set(err, PAWL_ENOTSUP, "the module %s is not in %.80s or %.80s; install that "
                       "file", file, folders[0], PAWL_MODULE_DIR);
        return NULL;
    }
    pawl__fork_mutex_add(&loading);
    pthread_mutex_lock(&loading);
    handle = dlopen(path, LOAD_FLAGS);
    if (handle)
        found = dlsym(handle, symbol);
    if (!found)
        pawl_error_set(err, PAWL_ENOTSUP, "can't load the module %s: %.160s; install that file "
                       "again", file, dlerror());
    pthread_mutex_unlock(&loading);
    return found;
}

/* Find the module in the first folder that has it. Writes the path. */
static bool module_path(char *ret, size_t size, const char *scheme)
{
    char folders[3][520], file[80];
    int length = snprintf(file, sizeof file, "pawl-%s.so", scheme);

    return length > 0 && (size_t)length < sizeof file &&
           find_file(ret, size, folders, module_folders(folders), file);
}

/* "local, memory, redis": the engines that need no module. */
static void linked_text(char *ret, size_t size)
{
    size_t used = 0;

    ret[0] = 0;
    for (size_t i = 0; i < LINKED && used < size; i++)
        if (linked[i].engine)
            used += (size_t)snprintf(ret + used, size - used, "%s%s", used ? ", " : "",
                                     linked[i].scheme);
}

static int no_engine(const char *scheme, pawl_error *err)
{
#define NAMES(scheme, alias, how, symbol) scheme, alias,
    static const char *const names[] = {PAWL_ENGINES(NAMES, NAMES)};
#undef NAMES
    const char *near = pawl__suggest(scheme, names, sizeof names / sizeof names[0]);
    char known[160];

    if (pawl__registry_find(scheme, strlen(scheme)))
        return pawl_error_set(err, PAWL_ENOTSUP, "the module pawl-%s.so is not in %s or "
                              "$PAWL_ENGINE_DIR; install it, or build Pawl with the client library "
                              "that it needs", scheme, PAWL_MODULE_DIR);
    if (near)
        return pawl_error_set(err, PAWL_ENOTSUP, "no engine for '%s:'; did you mean '%s:'?", scheme,
                              near);
    linked_text(known, sizeof known);
    return pawl_error_set(err, PAWL_ENOTSUP, "no engine for '%.20s:'; a URL looks like "
                          "redis://host:port (built in: %s; modules are in %.40s or "
                          "$PAWL_ENGINE_DIR)", scheme, known, PAWL_MODULE_DIR);
}

int pawl__engine_find(const pawl_engine **ret, const char *scheme, pawl_error *err)
{
    char path[600];
    int code;

    for (size_t i = 0; i < LINKED; i++)
        if (linked[i].engine && !strcmp(linked[i].scheme, scheme)) {
            *ret = linked[i].engine;
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

/* ---- pawl_engines ---------------------------------------------------------------------------- */

static const char *libraries_of(const pawl_engine *engine)
{
    return engine && engine->libraries ? engine->libraries() : "";
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
        info.libraries = libraries_of(engine);
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

    pawl__cancellation_off();
    pawl__fork_mutex_add(&loading);
    for (size_t i = 0; !code && i < LINKED; i++)
        if (linked[i].engine)
            code = fn(arg, &(pawl_engine_info){.size = sizeof(pawl_engine_info),
                                               .scheme = linked[i].scheme, .module = "",
                                               .libraries = libraries_of(linked[i].engine),
                                               .trouble = ""});
    for (size_t i = 0; !code && i < n; i++) {
        glob_t found = {0};

        snprintf(pattern, sizeof pattern, "%.519s/pawl-*.so", folders[i]);
        if (!glob(pattern, 0, NULL, &found))
            for (size_t k = 0; !code && k < found.gl_pathc; k++)
                if (is_first(found.gl_pathv[k], scheme))
                    code = report_module(found.gl_pathv[k], scheme, fn, arg);
        globfree(&found);
    }
    pawl__cancellation_back();
    return code;
}

const char *pawl_libraries(void)
{
    static _Thread_local char text[96];

    snprintf(text, sizeof text, "libuv %s", uv_version_string());
    return text;
}
