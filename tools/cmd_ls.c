/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_ls.c - pawl ls: the names in use, as a table for people or as JSON.
 *
 * The table goes to the standard output; the summary, or the message that there are no names, goes
 * to the standard error, so that a script that counts lines is not misled. On a terminal the table
 * is cut to the terminal's width. Elsewhere the table is cut only if COLUMNS gives a width.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "table.h"

enum { OPT_WATCH = OPT_OWN };

#define CLEAR_SCREEN "\033[H\033[2J"
#define WATCH_MS 2000
#define LEAST_INTERVAL_MS 100

typedef struct ls {
    const tool *tool;
    const char *pattern;
    int64_t watch_ms; /* 0: print once */
} ls;

static const column columns[] = {
    {"NAME", CELL_NAME, false, 12, 0},   {"TYPE", CELL_TYPE, false, 0, 0},
    {"STATE", CELL_STATE, false, 0, 0},  {"WAITING", CELL_WAITERS, true, 0, 0},
    {"SINCE", CELL_SINCE, true, 0, 0},   {"LEASE", CELL_LEASE, true, 0, 0},
    {"HOST", CELL_HOST, false, 6, 0},    {"HOLDER", CELL_HOLDER, false, 8, 0},
};
#define NCOLUMNS (sizeof columns / sizeof columns[0])

/* Returns the number of columns; 0: no limit. */
static size_t table_width(void)
{
    const char *text = getenv("COLUMNS");
    struct winsize size;

    if (isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return text ? (size_t)strtoul(text, NULL, 10) : 0;
}

/* Print one line of the table; if info is NULL, the titles. The last column is not padded. */
static void print_line(const column *c, const pawl_info *info)
{
    char text[600], cell[CELL_MAX];

    for (size_t i = 0; i < NCOLUMNS; i++) {
        const char *raw = info ? row_cell(info, c[i].cell, text, sizeof text) : c[i].title;
        size_t width = text_width(raw), most = c[i].width;

        if (i + 1 == NCOLUMNS && width < most)
            most = width;
        printf("%s%s", i ? " " : "", text_fit(cell, sizeof cell, raw, most, c[i].right));
    }
    putchar('\n');
}

static void print_table(const rows *all)
{
    column c[NCOLUMNS];

    if (!all->n)
        return;
    memcpy(c, columns, sizeof c);
    for (size_t k = 0; k < NCOLUMNS; k++) {
        column_widen(&c[k], NULL);
        for (size_t i = 0; i < all->n; i++)
            column_widen(&c[k], &all->row[i]->info);
    }
    if (table_width())
        columns_fit(c, NCOLUMNS, table_width());
    print_line(c, NULL);
    for (size_t i = 0; i < all->n; i++)
        print_line(c, &all->row[i]->info);
}

static void print_json(const rows *all)
{
    putchar('[');
    for (size_t i = 0; i < all->n; i++) {
        fputs(i ? ",{" : "{", stdout);
        json_row(stdout, &all->row[i]->info);
        putchar('}');
    }
    puts("]");
}

/* Flush stdout before writing to stderr: both may be the same terminal. */
static void say_summary(const ls *l, const rows *all)
{
    char text[128];

    fflush(stdout);
    if (all->n)
        say("%s", rows_summary(all, text, sizeof text));
    else if (l->pattern)
        say("no name in use matches '%s'", l->pattern);
    else
        say("no names in use");
}

static void print_time(void)
{
    time_t now = time(NULL);
    struct tm tm;
    char text[64];

    if (isatty(STDOUT_FILENO))
        fputs(CLEAR_SCREEN, stdout);
    if (localtime_r(&now, &tm) && strftime(text, sizeof text, "%F %T", &tm))
        puts(text);
}

static int list_once(const ls *l, pawl_client *client)
{
    pawl_error err = {0};
    rows all = {0};

    err.code = pawl_list(client, l->pattern, rows_add, &all, &err);
    if (!err.code) {
        rows_sort(all.row, all.n, BY_NAME);
        if (l->watch_ms && !l->tool->json)
            print_time();
        if (l->tool->json)
            print_json(&all);
        else
            print_table(&all);
        if (!l->tool->json)
            say_summary(l, &all);
    }
    rows_free(&all);
    return err.code ? failed(l->tool, "can't list", &err) : STATUS_OK;
}

/* Print the table every watch_ms, until a signal ends the process or the output is closed. If the
 * service does not answer, try again; a request that can't be fulfilled is not repeated. */
static int watch(const ls *l, pawl_client *client)
{
    struct timespec pause = {.tv_sec = l->watch_ms / 1000,
                             .tv_nsec = l->watch_ms % 1000 * 1000000};
    int status;

    for (;;) {
        status = list_once(l, client);
        if ((status && status != STATUS_SERVICE) || output_end(STATUS_OK))
            return status ? status : STATUS_SYSTEM;
        while (nanosleep(&pause, &pause) && errno == EINTR)
            ;
        pause = (struct timespec){.tv_sec = l->watch_ms / 1000,
                                  .tv_nsec = l->watch_ms % 1000 * 1000000};
    }
}

static int parse_options(tool *t, ls *l, int argc, char **argv)
{
    static const struct option longs[] = {{"watch", optional_argument, NULL, OPT_WATCH},
                                          COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, COMMON_SHORT, longs)) != OPT_DONE) {
        if (c == OPT_BAD || c == OPT_HELP)
            return c;
        l->watch_ms = WATCH_MS;
        if (optarg && (!duration_parse(optarg, &l->watch_ms) || l->watch_ms < LEAST_INTERVAL_MS)) {
            usage_error(t, "'%s' is no interval of 100ms or more; write for example --watch=5s",
                        optarg);
            return OPT_BAD;
        }
    }
    return OPT_DONE;
}

int cmd_ls(tool *t, int argc, char **argv)
{
    ls l = {.tool = t};
    pawl_client *client;
    int opt = parse_options(t, &l, argc, argv), status;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc - optind > 1)
        return usage_error(t, "one PATTERN at a time, in quotes");
    l.pattern = argv[optind]; /* NULL, after the last argument: all names */
    text_locale(true);
    status = client_open(t, &client, NULL);
    if (status)
        return status;
    status = l.watch_ms ? watch(&l, client) : list_once(&l, client);
    pawl_close(client);
    return status;
}
