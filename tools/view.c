/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c - the commands that show locks on a screen or a web page. Their code is the module
 * view.so: ncurses and libmicrohttpd bring a dozen libraries with them, and loading these would
 * take longer than everything else that `pawl run` does. The module is loaded when such a command
 * is called. It uses functions of this program, which exports them.
 *
 * The module is beside libpawl: in the folder "pawl" when installed, in "tools" in a build folder.
 */
#include <dlfcn.h>
#include <string.h>

#include "tool.h"
#include "view.h"

#define FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)

static void *load(void)
{
    static const char *const folders[] = {"pawl", "tools"};
    void *module = NULL;
    Dl_info info;

    if (dladdr((const void *)(uintptr_t)pawl_version, &info) && strrchr(info.dli_fname, '/'))
        for (size_t i = 0; i < 2 && !module; i++) {
            char path[600];
            int n = snprintf(path, sizeof path, "%.*s/%s/view.so",
                             (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname,
                             folders[i]);

            if (n > 0 && (size_t)n < sizeof path)
                module = dlopen(path, FLAGS);
        }
    return module ? module : dlopen(PAWL_MODULE_DIR "/view.so", FLAGS);
}

static int call(const char *symbol, tool *t, int argc, char **argv)
{
    void *module = load(), *address = module ? dlsym(module, symbol) : NULL;
    view_command *command;

    if (!module) {
        say("can't load the module of '%s': %s", t->verb->name, dlerror());
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

const char *view_library(void)
{
    void *module = load(), *address = module ? dlsym(module, "view_screen_library") : NULL;
    view_text *text;

    memcpy(&text, &address, sizeof text);
    return text ? text() : "";
}
