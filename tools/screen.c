/* SPDX-License-Identifier: Apache-2.0
 *
 * screen.c - see screen.h. The only file that knows ncurses.
 */
#include "screen.h"
#include "view.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>
#undef columns /* a macro of term.h */

#include "table.h"

static SCREEN *terminal;
static bool taken;           /* ncurses has the terminal at this moment */
static bool colours;
static int cursor_y = -1, cursor_x;

/* ---- Giving the terminal back after a crash ------------------------------------------------ */

static struct termios modes;  /* the modes before screen_open */
static char farewell[128];    /* ends the full screen and shows the cursor */

static void crashed(int number)
{
    ssize_t n = write(STDOUT_FILENO, farewell, strlen(farewell));

    (void)n;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    raise(number); /* SA_RESETHAND has removed this handler: the process ends */
}

static void add_farewell(const char *capability)
{
    const char *text = tigetstr(capability);
    size_t used = strlen(farewell);

    if (text && text != (char *)-1)
        snprintf(farewell + used, sizeof farewell - used, "%s", text);
}

static void watch_crashes(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_handler = crashed,
                               .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};

    farewell[0] = '\0';
    add_farewell("sgr0");
    add_farewell("rmcup");
    add_farewell("cnorm");
    add_farewell("rmkx");
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &action, NULL);
}

/* ---- Taking it ----------------------------------------------------------------------------- */

static void set_colours(void)
{
    const char *no = getenv("NO_COLOR");

    colours = has_colors() && !(no && *no);
    if (!colours)
        return;
    start_color();
    use_default_colors();
    init_pair(STYLE_TITLE, COLOR_CYAN, -1);
    init_pair(STYLE_HOT, COLOR_YELLOW, -1);
    init_pair(STYLE_ALARM, COLOR_WHITE, COLOR_RED);
}

static void take_size(void)
{
    struct winsize size;

    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_row && size.ws_col &&
        (size.ws_row != LINES || size.ws_col != COLS))
        resizeterm(size.ws_row, size.ws_col);
}

/* newterm() sets handlers for these signals. Here the signals are blocked and read as events, and
 * ^Z must have the usual effect once unblocked; a signal that the caller ignores stays ignored. */
static SCREEN *open_terminal(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
    struct sigaction before[sizeof signals / sizeof signals[0]];
    SCREEN *screen;

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], NULL, &before[i]);
    screen = newterm(NULL, stdout, stdin);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &before[i], NULL);
    return screen;
}

/* A process in the background may not touch the terminal: the kernel would stop the process in the
 * middle of tcsetattr(), where a blocked SIGTERM can't end it. */
static bool in_background(void)
{
    pid_t group = tcgetpgrp(STDIN_FILENO);

    return group >= 0 && group != getpgrp();
}

void screen_await(void)
{
    if (in_background())
        raise(SIGTTOU);
}

const char *screen_open(void)
{
    const char *term = getenv("TERM"), *move;
    bool moves;
    int found;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return "needs a terminal for its input and output; 'pawl ls' works without";
    if (tcgetattr(STDIN_FILENO, &modes))
        return strerror(errno);
    if (setupterm(NULL, STDOUT_FILENO, &found) != OK)
        return term && *term ? "can't use this terminal: TERM names an unknown type"
                             : "can't use this terminal: TERM is not set";
    move = tigetstr("cup");
    moves = move && move != (char *)-1;
    del_curterm(cur_term); /* asked before newterm: a newterm that fails leaks memory */
    if (!moves)
        return "needs a terminal that can move its cursor; 'pawl ls --watch' works without";
    terminal = open_terminal();
    if (!terminal)
        return "can't use this terminal";
    taken = true;
    atexit(screen_close);
    watch_crashes();
    set_escdelay(50);
    set_colours();
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    curs_set(0);
    take_size();
    return NULL;
}

/* The cursor is left in the last line, where a shell writes its prompt: on a terminal that does not
 * restore its earlier contents, the last line must be empty. */
void screen_close(void)
{
    if (!taken || in_background())
        return;
    taken = false;
    move(LINES - 1, 0);
    clrtoeol();
    refresh();
    curs_set(1);
    endwin();
}

void screen_stop(int number)
{
    sigset_t set, old;

    screen_close();
    sigemptyset(&set);
    sigaddset(&set, number);
    raise(number);
    pthread_sigmask(SIG_UNBLOCK, &set, &old); /* stopped here, until SIGCONT */
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

bool screen_again(void)
{
    if (in_background())
        return false;
    taken = true;
    reset_prog_mode();
    take_size();
    clearok(curscr, TRUE);
    refresh();
    curs_set(cursor_y >= 0);
    return true;
}

/* ---- Drawing ------------------------------------------------------------------------------- */

size_t screen_width(void)
{
    return COLS > 0 ? (size_t)COLS : 80;
}

size_t screen_height(void)
{
    return LINES > 0 ? (size_t)LINES : 24;
}

void screen_begin(void)
{
    erase();
    cursor_y = -1;
}

static void set_style(enum style style)
{
    static const attr_t plain[] = {A_NORMAL, A_BOLD, A_REVERSE, A_BOLD, A_DIM, A_REVERSE | A_BOLD,
                                   A_REVERSE};
    static const attr_t coloured[] = {A_NORMAL, A_BOLD, A_REVERSE, A_NORMAL, A_DIM, A_BOLD,
                                      A_REVERSE};
    bool pair = style == STYLE_TITLE || style == STYLE_HOT || style == STYLE_ALARM;

    attr_set(colours ? coloured[style] : plain[style], (short)(colours && pair ? style : 0), NULL);
}

void screen_text(size_t y, size_t x, size_t width, enum style style, const char *text, bool right)
{
    char cell[CELL_MAX];

    if (y >= screen_height() || x >= screen_width())
        return;
    if (width > screen_width() - x)
        width = screen_width() - x;
    set_style(style);
    mvaddstr((int)y, (int)x, text_fit(cell, sizeof cell, text, width, right));
    set_style(STYLE_PLAIN);
}

void screen_cursor(size_t y, size_t x)
{
    cursor_y = (int)y;
    cursor_x = (int)x;
}

void screen_end(void)
{
    curs_set(cursor_y >= 0);
    if (cursor_y >= 0)
        move(cursor_y, cursor_x);
    refresh();
}

/* ---- Keys ---------------------------------------------------------------------------------- */

static int special(wint_t key)
{
    switch (key) {
    case KEY_UP:
        return KEY_IS_UP;
    case KEY_DOWN:
        return KEY_IS_DOWN;
    case KEY_PPAGE:
        return KEY_IS_PAGE_UP;
    case KEY_NPAGE:
        return KEY_IS_PAGE_DOWN;
    case KEY_HOME:
        return KEY_IS_HOME;
    case KEY_END:
        return KEY_IS_END;
    case KEY_ENTER:
    case KEY_RIGHT:
        return KEY_IS_ENTER;
    case KEY_BACKSPACE:
        return KEY_IS_BACK;
    case KEY_LEFT:
        return KEY_IS_ESCAPE;
    default:
        return KEY_IS_OTHER;
    }
}

int screen_key(void)
{
    wint_t key;
    int got = get_wch(&key);

    if (got == ERR)
        return KEY_NONE;
    if (got == KEY_CODE_YES)
        return special(key);
    return key == '\r' || key == '\n'    ? KEY_IS_ENTER
           : key == 0x7f || key == '\b' ? KEY_IS_BACK
           : key == 0x1b                 ? KEY_IS_ESCAPE
                                         : (int)key;
}

const char *view_screen_library(void)
{
    return curses_version();
}
