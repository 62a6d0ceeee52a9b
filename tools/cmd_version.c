/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_version.c - pawl version: the versions of this command, of the library and of the libraries
 * of its engines.
 */
#include <string.h>

#include "tool.h"
#include "view.h"

static int print_engine(void *arg, const pawl_engine_info *info)
{
    (void)arg;
    printf("engine    %-15s ", info->scheme);
    text_put(stdout, *info->trouble     ? info->trouble
                     : *info->libraries ? info->libraries
                                        : "-");
    if (*info->module) {
        fputs("  ", stdout);
        text_put(stdout, info->module);
    }
    putchar('\n');
    return 0;
}

static void member(const char *key, const char *value)
{
    printf(",\"%s\":", key);
    json_string(stdout, value);
}

static int json_engine(void *arg, const pawl_engine_info *info)
{
    bool *any = arg;

    fputs(*any ? ",{\"scheme\":" : "{\"scheme\":", stdout);
    json_string(stdout, info->scheme);
    member("module", info->module);
    member("libraries", info->libraries);
    member("trouble", info->trouble);
    putchar('}');
    *any = true;
    return 0;
}

int cmd_version(tool *t, int argc, char **argv)
{
    int opt = options_common(t, argc, argv);
    const char *screen, *web;
    bool any = false;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc > optind)
        return usage_error(t, "takes no argument");
    /* These calls load the module, so not before the options are read. */
    screen = view_library("view_screen_library");
    web = view_library("view_web_library");
    if (t->json) {
        fputs("{\"version\":", stdout);
        json_string(stdout, pawl_version());
        member("libraries", pawl_libraries());
        member("screen", screen);
        member("web", web);
        fputs(",\"engines\":[", stdout);
        pawl_engines(json_engine, &any);
        puts("]}");
        return STATUS_OK;
    }
    printf("pawl      %s\nlibraries %s%s%s%s%s\n", pawl_version(), pawl_libraries(),
           *screen ? ", " : "", screen, *web ? ", " : "", web);
    pawl_engines(print_engine, NULL);
    return STATUS_OK;
}
