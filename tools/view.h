/* SPDX-License-Identifier: Apache-2.0
 *
 * view.h - between the tool and its module view.so (view.c).
 */
#ifndef PAWL_VIEW_H
#define PAWL_VIEW_H

#include "tool.h"

typedef int view_command(tool *, int argc, char **argv);

typedef const char *view_text(void);

/* The module's. */
view_command view_top, view_serve;
view_text view_screen_library;

/* The library that draws on the screen, as in "ncurses 6.4.20221231"; "" if there is none. */
const char *view_library(void);

#endif
