/* SPDX-License-Identifier: Apache-2.0
 *
 * absent.c - pawl serve in a build without libmicrohttpd.
 */
#include "../view.h"

int view_serve(tool *t, int argc, char **argv)
{
    int opt = options_common(t, argc, argv);

    if (opt == OPT_HELP)
        return STATUS_OK;
    say("this pawl was built without libmicrohttpd, which 'pawl serve' needs; install it (Debian: "
        "libmicrohttpd-dev) and build pawl anew");
    return STATUS_USAGE;
}

const char *view_web_library(void)
{
    return "";
}
