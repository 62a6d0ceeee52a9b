/* SPDX-License-Identifier: Apache-2.0
 *
 * top_state.c - the state of `pawl top`: rows from the service, filtered and sorted, and how old
 * they are.
 *
 * Each interval sends one request: for the list, or for the open lock alone. A break sends two
 * more: one for the holder, which the user confirms, and one for the break itself. After an error
 * the old rows stay, and the screen shows how old they are.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "top.h"

int64_t top_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- The list ------------------------------------------------------------------------------ */

/* A filter with * ? or [ is a glob pattern for the name. Any other filter is a part of the name,
 * the host or the holder. */
static bool passes(const top *t, const pawl_info *info)
{
    char text[TEXT_MAX];

    if (!*t->filter)
        return true;
    if (strpbrk(t->filter, "*?["))
        return !fnmatch(t->filter, info->name, 0);
    return strcasestr(info->name, t->filter) || strcasestr(info->host, t->filter) ||
           strcasestr(row_cell(info, CELL_HOLDER, text, sizeof text), t->filter);
}

static void reverse(row **r, size_t n)
{
    for (size_t i = 0; i < n / 2; i++) {
        row *other = r[n - 1 - i];

        r[n - 1 - i] = r[i];
        r[i] = other;
    }
}

/* Keep the bar on the same name; if the name is gone, on the same row. */
static void follow(top *t)
{
    for (size_t i = 0; i < t->nshown; i++)
        if (!strcmp(t->shown[i]->info.name, t->chosen)) {
            t->at = i;
            return;
        }
    top_move(t, 0);
}

void top_arrange(top *t)
{
    row **shown = realloc(t->shown, (t->all.n + 1) * sizeof(row *));

    if (!shown)
        return;
    t->shown = shown;
    t->nshown = 0;
    for (size_t i = 0; i < t->all.n; i++)
        if (passes(t, &t->all.row[i]->info))
            t->shown[t->nshown++] = t->all.row[i];
    rows_sort(t->shown, t->nshown, t->order);
    if (t->reversed)
        reverse(t->shown, t->nshown);
    for (size_t k = 0; k < TOP_COLUMNS; k++) {
        t->columns[k].width = 0;
        column_widen(&t->columns[k], NULL);
        for (size_t i = 0; i < t->nshown; i++)
            column_widen(&t->columns[k], &t->shown[i]->info);
    }
    follow(t);
}

static size_t moved(size_t at, int64_t n, size_t count)
{
    int64_t to = (int64_t)at + n;

    return to < 0 || !count ? 0 : to >= (int64_t)count ? count - 1 : (size_t)to;
}

void top_move(top *t, int64_t n)
{
    if (t->mode == MODE_LOCK) {
        t->scroll = moved(t->scroll, n, t->open.n > top_page(t) ? t->open.n - top_page(t) : 1);
        return;
    }
    t->at = moved(t->at, n, t->nshown);
    if (t->nshown)
        snprintf(t->chosen, sizeof t->chosen, "%s", t->shown[t->at]->info.name);
}

/* ---- Answers ------------------------------------------------------------------------------- */

static const char *words(const pawl_error *err)
{
    return err->text[0] ? err->text : pawl_strerror(err->code);
}

/* Take an answer about the list or the open lock. If the lock was closed in the meantime, drop
 * it. */
static void take_rows(top *t)
{
    feed *f = &t->feed;
    bool list = f->question == ASK_LIST;

    if (f->err.code) {
        if (!t->failing)
            t->failing_since = t->asked;
        t->failing = true;
        t->trouble_code = f->err.code;
        snprintf(t->trouble, sizeof t->trouble, "%s", words(&f->err));
        return;
    }
    t->failing = false;
    if (list) {
        t->listed = top_now();
        rows_free(&t->all);
        t->all = f->rows;
        f->rows = (rows){0};
        top_arrange(t);
    } else if (!strcmp(f->name, t->name)) {
        rows_free(&t->open);
        t->open = f->rows;
        f->rows = (rows){0};
        t->opened = top_now();
    }
}

static const pawl_info *first_holder(const rows *r)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->row[i]->info.role == PAWL_ROLE_HOLDER)
            return &r->row[i]->info;
    return NULL;
}

/* "pid 4711 (make) on box for 12 s and 2 more" */
static const char *victims(const rows *r, char *buf, size_t size)
{
    const pawl_info *holder = first_holder(r);
    uint64_t n = r->n ? r->row[0]->info.holders : 0;
    char text[400], more[48] = "";

    if (n > 1)
        snprintf(more, sizeof more, " and %llu more", (unsigned long long)n - 1);
    snprintf(buf, size, "%s%s",
             holder ? client_info_text(holder, text, sizeof text) : "an unknown holder", more);
    return buf;
}

static void take_victim(top *t)
{
    const rows *r = &t->feed.rows;
    char holders[500];

    if (t->feed.err.code) {
        snprintf(t->notice, sizeof t->notice, "can't tell who holds it: %s", words(&t->feed.err));
    } else if (!r->n || !r->row[0]->info.holders) {
        snprintf(t->notice, sizeof t->notice, "nobody holds '%.255s'", t->victim);
    } else {
        snprintf(t->prompt, sizeof t->prompt, "Break '%.255s', held by %s? [y/N] ", t->victim,
                 victims(r, holders, sizeof holders));
        rows_free(&t->shown_victim);
        t->shown_victim = t->feed.rows;
        t->feed.rows = (rows){0};
        t->before = t->mode == MODE_LOCK ? MODE_LOCK : MODE_LIST;
        t->mode = MODE_CONFIRM;
    }
}

static void take_break(top *t)
{
    char holders[500];

    if (t->feed.err.code == PAWL_ENOTHELD)
        snprintf(t->notice, sizeof t->notice, "not broken: nobody holds '%.255s' any more",
                 t->feed.name);
    else if (t->feed.err.code)
        snprintf(t->notice, sizeof t->notice, "'%.255s' not broken: %s", t->feed.name,
                 words(&t->feed.err));
    else
        snprintf(t->notice, sizeof t->notice, "broke '%.255s', held by %s", t->feed.name,
                 victims(&t->feed.rows, holders, sizeof holders));
    t->next = 0; /* show the new state */
}

void top_take(top *t)
{
    if (!feed_take(&t->feed))
        return;
    if (t->feed.question == ASK_VICTIM)
        take_victim(t);
    else if (t->feed.question == ASK_BREAK)
        take_break(t);
    else
        take_rows(t);
}

/* ---- Questions ----------------------------------------------------------------------------- */

void top_ask(top *t)
{
    bool lock = top_is_open(t);

    if (t->feed.busy)
        return;
    if (t->want_victim || t->want_break) {
        feed_ask(&t->feed, t->want_break ? ASK_BREAK : ASK_VICTIM, t->victim,
                 t->want_break ? &t->shown_victim.row[0]->info : NULL);
        t->want_victim = t->want_break = false;
    } else if (top_now() >= t->next) {
        t->asked = top_now();
        t->next = t->asked + t->interval_ms;
        feed_ask(&t->feed, lock ? ASK_LOCK : ASK_LIST, lock ? t->name : t->pattern, NULL);
    }
}
