/* SPDX-License-Identifier: Apache-2.0
 *
 * screen.h - the terminal of `pawl top`, drawn by ncurses.
 *
 * Only the main thread uses ncurses. The terminal is given back on every exit: by screen_close,
 * which also runs at exit(3), and, if the process crashes, by a signal handler that writes the
 * terminal's own sequences, which screen_open has looked up, and restores its modes.
 */
#ifndef PAWL_SCREEN_H
#define PAWL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* Styles; without colours some of them are bold, dim or reverse. */
enum style {
    STYLE_PLAIN, STYLE_TITLE, STYLE_HEAD, STYLE_HOT, STYLE_STALE, STYLE_ALARM, STYLE_CHOSEN
};

/* A process that was started in the background (`pawl top &`) stops here until a shell brings the
 * process to the foreground. Signals must not be blocked yet, so that they can end the process. */
void screen_await(void);
/* Take over the terminal. Returns NULL, or the reason why this failed. */
const char *screen_open(void);
void screen_close(void);

/* Give the terminal back and stop this process, by SIGTSTP as ^Z does or by SIGTTOU. Returns when
 * the process is continued, or at once if no shell could continue the process. */
void screen_stop(int number);
/* After screen_stop, a SIGCONT or a SIGWINCH: take the terminal again, read its size and redraw.
 * Returns false if the process is in the background and must not touch the terminal. */
bool screen_again(void);

size_t screen_width(void);
size_t screen_height(void);

/* Draw: screen_begin, then texts of any content, each cut or padded to `width` columns and to the
 * edge, then screen_end. */
void screen_begin(void);
void screen_text(size_t y, size_t x, size_t width, enum style, const char *text, bool right);
void screen_cursor(size_t y, size_t x);
void screen_end(void);

/* The next key that was pressed, or KEY_NONE. Keys without a constant are returned as the
 * character. */
enum {
    KEY_NONE = -1, KEY_IS_UP = -100, KEY_IS_DOWN, KEY_IS_PAGE_UP, KEY_IS_PAGE_DOWN, KEY_IS_HOME,
    KEY_IS_END, KEY_IS_ENTER, KEY_IS_BACK, KEY_IS_ESCAPE, KEY_IS_OTHER
};
int screen_key(void);

#endif
