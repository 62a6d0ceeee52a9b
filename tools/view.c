/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c - the commands that show locks on a screen or a web page. Their code is the module
 * view.so: ncurses and libmicrohttpd bring a dozen libraries with them, and loading these would
 * take longer than everything else that `pawl run` does. The module is loaded when such a command
 * is called, and uses functions that this program exports.
 *
 * The module is beside libpawl: in the folder "pawl" when installed, in "tools" in a build folder.
 */
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

#include "tool.h"
#include "view.h"

#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

#define FOLDERS 3
#define WHY_MAX 600

/* List the paths where the module may be, in the order in which they are tried. Returns their
 * number. */
static size_t places(char paths[FOLDERS][600])
{
    static const char *const folders[] = {"pawl", "tools"};
    size_t n = 0;
    Dl_info info;

    if (dladdr((const void *)(uintptr_t)pawl_version, &info) && strrchr(info.dli_fname, '/'))
        for (size_t i = 0; i < 2; i++)
            snprintf(paths[n++], sizeof paths[0], "%.*s/%s/view.so",
                     (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname,
                     folders[i]);
    snprintf(paths[n++], sizeof paths[0], "%s", PAWL_MODULE_DIR "/view.so");
    return n;
}

/* Load the module and return one of its symbols, or NULL with the reason in `why`. */
static void *load(const char *symbol, char why[WHY_MAX])
{
    char paths[FOLDERS][600];
    size_t n = places(paths), i = 0;
    void *module, *address;

    while (i < n && access(paths[i], F_OK))
        i++;
    if (i == n) {
        snprintf(why, WHY_MAX, "the module view.so is neither %.200s nor %.200s; install that file,"
                 " or build it with 'make'", paths[0], paths[n - 1]);
        return NULL;
    }
    module = dlopen(paths[i], FLAGS);
    address = module ? dlsym(module, symbol) : NULL;
    if (!address)
        snprintf(why, WHY_MAX, "can't load the module view.so: %.400s; install that file again",
                 dlerror());
    return address;
}

static int call(const char *symbol, tool *t, int argc, char **argv)
{
    char why[WHY_MAX];
    void *address = load(symbol, why);
    view_command *command;

    if (!address) {
        say("%s", why);
        return STATUS_SYSTEM;
    }
    memcpy(&command, &address, sizeof command);
    return command(t, argc, argv);
}

int cmd_top(tool *t, int argc, char **argv)
{
    return call("view_top", t, argc, argv);
}

int cmd_serve(tool *t, int argc, char **argv)
{
    return call("view_serve", t, argc, argv);
}

const char *view_library(const char *function)
{
    char why[WHY_MAX];
    void *address = load(function, why);
    view_text *text;

    memcpy(&text, &address, sizeof text);
    return text ? text() : "";
}
