/* SPDX-License-Identifier: Apache-2.0
 *
 * view.h - the interface between the tool and its module view.so (view.c), which has `pawl top` and
 * `pawl serve`.
 */
#ifndef PAWL_VIEW_H
#define PAWL_VIEW_H

#include "tool.h"

typedef int view_command(tool *, int argc, char **argv);

typedef const char *view_text(void);

/* These functions are in the module. The texts are the name and the version of the library that
 * draws the screen of `pawl top`, "ncurses 6.4.20221231", and of the library that serves the page
 * of `pawl serve`, "libmicrohttpd 0.9.75"; "" if the module was built without that library. */
view_command view_top, view_serve;
view_text view_screen_library, view_web_library;

/* The text of one of these functions of the module; "" if the module can't be loaded. */
const char *view_library(const char *function);

#endif
