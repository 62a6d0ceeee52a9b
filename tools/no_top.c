/* SPDX-License-Identifier: Apache-2.0
 *
 * no_top.c - pawl top in a build without ncurses.
 */
#include "view.h"

int view_top(tool *t, int argc, char **argv)
{
    (void)t;
    (void)argc;
    (void)argv;
    say("this pawl was built without ncurses, so it has no top; install libncurses-dev and build "
        "it again, or use 'pawl ls --watch'");
    return STATUS_USAGE;
}

const char *view_screen_library(void)
{
    return "";
}
