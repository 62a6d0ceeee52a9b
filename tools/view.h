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

/* These functions are in the module. */
view_command view_top, view_serve;
view_text view_screen_library;

/* Name and version of the library that draws the screen of `pawl top`, such as
 * "ncurses 6.4.20221231"; "" if the module can't be loaded. */
const char *view_library(void);

#endif
