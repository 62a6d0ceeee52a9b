/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h - rows of locks in columns, for `pawl ls` and `pawl top`.
 *
 * rows.c copies the rows of pawl_list or pawl_inspect, sorts the copies, and writes each value as
 * the text of a cell. table.c escapes such texts, measures them in columns of a terminal and finds
 * the widths with which a table fits. None of these functions does any I/O.
 */
#ifndef PAWL_TABLE_H
#define PAWL_TABLE_H

#include <stddef.h>

#include "tool.h"

/* ---- rows.c -------------------------------------------------------------------------------- */

/* A copy of a pawl_info; the strings are in `text`. */
typedef struct row {
    pawl_info info;
    char text[];
} row;

typedef struct rows {
    row **row;
    size_t n, room;
} rows;

/* A pawl_info_fn whose arg is the `rows`. Returns 0 or PAWL_ENOMEM. */
int rows_add(void *arg, const pawl_info *);
void rows_free(rows *);

/* Orders: by name; by number of waiters, longest wait or age of the hold, largest first; by
 * remaining lease, shortest first. Equal rows are ordered by waiters, longest wait and name. */
enum row_order { BY_NAME, BY_WAITERS, BY_WAIT, BY_SINCE, BY_LEASE, ROW_ORDERS };
extern const char *const row_order_names[ROW_ORDERS];
void rows_sort(row **rows, size_t n, enum row_order);

/* "12 names, 9 held, 30 waiting, longest wait 3m05s". Returns buf. */
const char *rows_summary(const rows *, char *buf, size_t size);

/* The texts of a row. A text may contain escape sequences of an attacker: show the text through
 * text_fit only. */
enum cell {
    CELL_NAME, CELL_TYPE, CELL_STATE, CELL_WAITERS, CELL_WAIT, CELL_SINCE, CELL_LEASE, CELL_TOKEN,
    CELL_HOST, CELL_HOLDER
};
const char *row_cell(const pawl_info *, enum cell, char *buf, size_t size);

/* "pid 4711 (make) on box for 12 s": a holder, or a summary's first holder. Returns buf. */
const char *client_info_text(const pawl_info *, char *buf, size_t size);

/* An age or a time that is left in at most six columns: "350ms", "12s", "3m05s", "2h10m", "3d04h",
 * "120d"; "-" if below 0 (unknown). Returns buf. */
const char *age_text(char *buf, size_t size, int64_t ms);

/* ---- table.c ------------------------------------------------------------------------------- */

/* Set up the character set of the environment. If that is not UTF-8: false, and characters outside
 * ASCII are shown as escapes; with `always` UTF-8 is used in spite of the environment. */
bool text_locale(bool always);

/* The number of columns that the escaped form of `text` takes. */
size_t text_width(const char *text);

/* Write the escaped form of `text`, cut or padded to exactly `width` columns; a text that was cut
 * ends with a tilde. `size` is at least CELL_MAX, or a text that does not fit is cut earlier.
 * Returns buf. */
const char *text_fit(char *buf, size_t size, const char *text, size_t width, bool right);

#define CELL_MAX 2200 /* bytes: a text_fit of the longest name, escaped, fits */

typedef struct column {
    const char *title;
    enum cell cell;
    bool right;    /* align to the right (numbers) */
    size_t least;  /* 0: never narrower than the contents; else the least width */
    size_t width;  /* set by column_widen and columns_fit */
} column;

/* Widen a column for its title (info NULL) or for a row. */
void column_widen(column *, const pawl_info *);

/* Shrink columns until all of them, with one blank between, fit `total` columns as far as they may
 * shrink. */
void columns_fit(column *, size_t n, size_t total);

#endif
