/* SPDX-License-Identifier: Apache-2.0
 *
 * top_view.c - draws the screen of `pawl top`.
 *
 *     0        the service, the interval and the time of day
 *     1        the sums, or that the service does not answer and how old the data are
 *     2        the columns' titles
 *     3 ...    rows
 *     last     keys, a notice or a question
 */
#include <string.h>
#include <time.h>

#include "screen.h"
#include "top.h"

#define HEAD_LINES 3
#define NAME_COLUMNS 20 /* at least, if there is room: short names must not crowd the columns */

size_t top_page(const top *t)
{
    size_t height = screen_height();

    (void)t;
    return height > HEAD_LINES + 1 ? height - HEAD_LINES - 1 : 1;
}

static void whole_line(size_t y, enum style style, const char *text)
{
    screen_text(y, 0, screen_width(), style, text, false);
}

/* Draw `left` at the left edge, and `right` at the right edge if there is room for both. */
static void both_ends(size_t y, enum style style, const char *left, const char *right)
{
    size_t width = text_width(right);

    whole_line(y, style, left);
    if (text_width(left) + width + 2 <= screen_width())
        screen_text(y, screen_width() - width, width, style, right, false);
}

static void draw_title(const top *t)
{
    char left[300], right[64], clock[16] = "", interval[32];
    time_t now = time(NULL);
    struct tm tm;

    if (localtime_r(&now, &tm))
        strftime(clock, sizeof clock, "%T", &tm);
    snprintf(left, sizeof left, "pawl top  %s", t->service);
    snprintf(right, sizeof right, "every %s  %s",
             age_text(interval, sizeof interval, t->interval_ms), clock);
    both_ends(0, STYLE_TITLE, left, right);
}

/* No answer came. Other codes are errors that the service returned. */
static bool is_silence(int code)
{
    return code == PAWL_ECONN || code == PAWL_EUNKNOWN || code == PAWL_EQUORUM;
}

/* Are the data old, because the service failed or its answer takes too long? Writes how old into
 * `buf`. */
static bool is_stale(const top *t, char *buf, size_t size)
{
    int64_t now = top_now(), waiting = t->feed.busy ? now - t->asked : 0;
    int64_t answered = top_is_open(t) ? t->opened : t->listed;
    char since[16], age[16], data[64] = "no data yet";

    if (answered)
        snprintf(data, sizeof data, "data are %s old", age_text(age, sizeof age, now - answered));
    if (t->failing)
        snprintf(buf, size, "%s for %s, %s: %s",
                 is_silence(t->trouble_code) ? "NO ANSWER" : "FAILS",
                 age_text(since, sizeof since, now - t->failing_since), data, t->trouble);
    else if (waiting > 1000 && waiting > t->interval_ms)
        snprintf(buf, size, "NO ANSWER yet after %s, %s", age_text(since, sizeof since, waiting),
                 data);
    else
        return false;
    return true;
}

static bool draw_sums(const top *t)
{
    char left[TEXT_MAX + 128], right[400] = "";
    bool stale = is_stale(t, left, sizeof left);

    if (stale) {
        whole_line(1, STYLE_ALARM, left);
        return true;
    }
    if (!t->listed)
        snprintf(left, sizeof left, "asking the service ...");
    else
        rows_summary(&t->all, left, sizeof left);
    snprintf(right, sizeof right, "by %s%s%s%s%s", row_order_names[t->order],
             t->reversed ? ", reversed" : "", *t->filter ? ", only '" : "", t->filter,
             *t->filter ? "'" : "");
    both_ends(1, STYLE_PLAIN, left, right);
    return false;
}

/* ---- The list ------------------------------------------------------------------------------ */

static void draw_row(const top *t, const column *c, size_t y, const pawl_info *info,
                     enum style style)
{
    char text[TEXT_MAX];
    size_t x = 0;

    (void)t;
    if (style != STYLE_PLAIN)
        whole_line(y, style, "");
    for (size_t k = 0; k < TOP_COLUMNS; k++) {
        const char *raw = info ? row_cell(info, c[k].cell, text, sizeof text) : c[k].title;

        screen_text(y, x, c[k].width, style, raw, c[k].right);
        x += c[k].width + 1;
    }
}

static void draw_nothing(const top *t)
{
    char text[400];

    if (!t->listed)
        return;
    if (t->all.n)
        snprintf(text, sizeof text, "no name passes the filter '%s'", t->filter);
    else if (*t->pattern)
        snprintf(text, sizeof text, "no name in use matches '%.255s'", t->pattern);
    else
        snprintf(text, sizeof text, "no names in use");
    whole_line(HEAD_LINES, STYLE_PLAIN, text);
}

static void draw_list(top *t, bool stale)
{
    size_t page = top_page(t);
    column c[TOP_COLUMNS];

    memcpy(c, t->columns, sizeof c);
    c[0].width = c[0].width < NAME_COLUMNS ? NAME_COLUMNS : c[0].width;
    columns_fit(c, TOP_COLUMNS, screen_width());
    draw_row(t, c, 2, NULL, STYLE_HEAD);
    if (t->at < t->first)
        t->first = t->at;
    if (t->at >= t->first + page)
        t->first = t->at - page + 1;
    if (t->first + page > t->nshown)
        t->first = t->nshown > page ? t->nshown - page : 0;
    for (size_t i = 0; i < page && t->first + i < t->nshown; i++) {
        const pawl_info *info = &t->shown[t->first + i]->info;

        draw_row(t, c, HEAD_LINES + i, info,
                 t->first + i == t->at ? STYLE_CHOSEN
                 : stale               ? STYLE_STALE
                 : info->waiters       ? STYLE_HOT
                                       : STYLE_PLAIN);
    }
    if (!t->nshown)
        draw_nothing(t);
}

/* ---- One lock ------------------------------------------------------------------------------ */

/* Draw a holder or waiter: place, owner, host, since, lease, token. */
static void draw_person(size_t y, const pawl_info *info, uint64_t place, enum style style)
{
    static const struct {
        enum cell cell;
        size_t width;
        const char *title;
    } cells[] = {{CELL_SINCE, 6, " SINCE"}, {CELL_LEASE, 6, " LEASE"}, {CELL_TOKEN, 16, "TOKEN"}};
    size_t width = screen_width(), fixed = 8 + 3 * 1 + 6 + 6 + 16;
    size_t rest = width > fixed + 20 ? width - fixed - 2 : 20, host = rest / 3, x = 8;
    char text[TEXT_MAX];

    if (style == STYLE_HEAD)
        whole_line(y, style, "");
    snprintf(text, sizeof text, place ? "%6llu." : "holds", (unsigned long long)place);
    screen_text(y, 0, 7, style, info ? text : "QUEUE", false);
    screen_text(y, x, rest - host, style,
                info ? row_cell(info, CELL_HOLDER, text, sizeof text) : "HOLDER, WAITER", false);
    x += rest - host + 1;
    screen_text(y, x, host, style, info ? row_cell(info, CELL_HOST, text, sizeof text) : "HOST",
                false);
    x += host + 1;
    for (size_t i = 0; i < 3; x += cells[i++].width + 1)
        screen_text(y, x, cells[i].width, style,
                    info ? row_cell(info, cells[i].cell, text, sizeof text) : cells[i].title, true);
}

static void lock_line(const top *t, char *buf, size_t size)
{
    const pawl_info *sum = t->opened && t->open.n ? &t->open.row[0]->info : NULL;
    char state[TEXT_MAX], age[16];

    if (!sum) {
        snprintf(buf, size, "'%s': asking the service ...", t->name);
        return;
    }
    snprintf(buf, size, "'%s': %s %s, %llu waiting, longest wait %s", t->name, type_text(sum),
             row_cell(sum, CELL_STATE, state, sizeof state), (unsigned long long)sum->waiters,
             age_text(age, sizeof age, sum->wait_ms));
}

static void draw_lock(top *t)
{
    char text[TEXT_MAX + 128];
    bool stale = is_stale(t, text, sizeof text);
    uint64_t place = 0;

    if (!stale)
        lock_line(t, text, sizeof text);
    whole_line(1, stale ? STYLE_ALARM : STYLE_PLAIN, text);
    draw_person(2, NULL, 0, STYLE_HEAD);
    for (size_t i = 1; t->opened && i < t->open.n; i++) {
        const pawl_info *info = &t->open.row[i]->info;
        bool holder = info->role == PAWL_ROLE_HOLDER;

        place += !holder;
        if (i > t->scroll && i - t->scroll - 1 < top_page(t))
            draw_person(HEAD_LINES + i - t->scroll - 1, info, holder ? 0 : place,
                        stale ? STYLE_STALE : holder ? STYLE_PLAIN : STYLE_HOT);
    }
    if (t->opened && t->open.n <= 1)
        whole_line(HEAD_LINES, STYLE_PLAIN, "nobody holds it, nobody waits");
}

/* ---- The rest ------------------------------------------------------------------------------ */

static void draw_help(void)
{
    static const char *const lines[] = {
        "up, down, page up, page down, home, end   move",
        "Enter, right     open the lock: its holders, and its waiters in order",
        "Esc, left        back to the list",
        "/                filter: a part of a name, host or holder, or a glob",
        "s                next order: name, waiters, longest wait, held since, lease",
        "n w l a e        order by name, waiters, longest wait, age, end of the lease",
        "r                reverse the order",
        "b                break the lock: shows the holder and asks first",
        "+ -              longer or shorter interval",
        "space            ask the service now",
        "q                quit",
        "",
        "WAIT is the number of waiters, OLDEST how long the longest of them has waited,",
        "SINCE the age of the hold, LEASE what is left of it if nobody renews it."};

    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        whole_line(HEAD_LINES + i, STYLE_PLAIN, lines[i]);
}

/* A question that is too long for the last line also uses the lines above: the holder whose lock is
 * to be broken must be readable. */
static void draw_question(const top *t)
{
    size_t width = screen_width(), columns = text_width(t->prompt);
    size_t lines = columns / width + 1, last = screen_height() - 1;
    char text[CELL_MAX], part[CELL_MAX];
    const char *at = text_fit(text, sizeof text, t->prompt, columns, false);

    lines = lines > last ? last : lines;
    for (size_t i = 0; i < lines; i++) {
        size_t n = 0, used = 0;

        while (at[n] && used < width) { /* whole characters, as wide as they are */
            size_t length = 1;

            while (((unsigned char)at[n + length] & 0xc0) == 0x80)
                length++;
            snprintf(part, sizeof part, "%.*s", (int)(n + length), at);
            if (text_width(part) > width)
                break;
            used = text_width(part);
            n += length;
        }
        snprintf(part, sizeof part, "%.*s", (int)n, at);
        whole_line(last + 1 - lines + i, STYLE_ALARM, part);
        at += n;
        if (i + 1 == lines)
            screen_cursor(last, used < width ? used : width - 1);
    }
}

static void draw_foot(const top *t)
{
    size_t y = screen_height() - 1;
    char text[300];

    if (t->mode == MODE_CONFIRM) {
        draw_question(t);
    } else if (t->mode == MODE_FILTER) {
        snprintf(text, sizeof text, "filter: %s", t->filter);
        whole_line(y, STYLE_PLAIN, text);
        screen_cursor(y, text_width(text));
    } else if (*t->notice) {
        whole_line(y, STYLE_ALARM, t->notice);
    } else {
        whole_line(y, STYLE_TITLE,
                   t->mode == MODE_HELP   ? "any key: back"
                   : t->mode == MODE_LOCK ? "Esc list  up/down scroll  b break  ? help  q quit"
                                          : "Enter open  s sort  / filter  b break  ? help  "
                                            "q quit");
    }
}

void top_draw(top *t)
{
    screen_begin();
    draw_title(t);
    if (t->mode == MODE_HELP) {
        whole_line(2, STYLE_HEAD, "KEYS");
        draw_help();
    } else if (top_is_open(t)) {
        draw_lock(t);
    } else {
        draw_list(t, draw_sums(t));
    }
    draw_foot(t);
    screen_end();
}
