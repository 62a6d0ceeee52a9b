/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - the rows of pawl_list and pawl_inspect, copied, sorted and written as text.
 */
#include <stdlib.h>
#include <string.h>

#include "table.h"

/* ---- Keeping ------------------------------------------------------------------------------- */

static const char *known(const char *text)
{
    return text ? text : "";
}

static char *put(char **at, const char *text)
{
    char *ret = *at;

    *at = stpcpy(ret, known(text)) + 1;
    return ret;
}

static row *row_copy(const pawl_info *info)
{
    row *r = malloc(sizeof *r + strlen(known(info->name)) + strlen(known(info->host)) +
                    strlen(known(info->program)) + strlen(known(info->label)) +
                    strlen(known(info->owner)) + 5);
    char *at;

    if (!r)
        return NULL;
    r->info = *info;
    at = r->text;
    r->info.name = put(&at, info->name);
    r->info.host = put(&at, info->host);
    r->info.program = put(&at, info->program);
    r->info.label = put(&at, info->label);
    r->info.owner = put(&at, info->owner);
    return r;
}

int rows_add(void *arg, const pawl_info *info)
{
    rows *all = arg;

    if (all->n == all->room) {
        size_t room = all->room ? all->room * 2 : 64;
        row **more = realloc(all->row, room * sizeof(row *));

        if (!more)
            return PAWL_ENOMEM;
        all->row = more;
        all->room = room;
    }
    all->row[all->n] = row_copy(info);
    return all->row[all->n] ? (all->n++, 0) : PAWL_ENOMEM;
}

void rows_free(rows *all)
{
    for (size_t i = 0; i < all->n; i++)
        free(all->row[i]);
    free(all->row);
    *all = (rows){0};
}

/* ---- Sorting ------------------------------------------------------------------------------- */

const char *const row_order_names[ROW_ORDERS] = {"name", "waiters", "longest wait", "held since",
                                                 "lease"};

/* The sort key; larger values come first. A remaining lease is negated, so that the shortest is
 * first. */
static int64_t rank(const pawl_info *info, enum row_order order)
{
    switch (order) {
    case BY_WAITERS:
        return (int64_t)info->waiters;
    case BY_WAIT:
        return info->waiters ? info->wait_ms : -2;
    case BY_SINCE:
        return info->since_ms;
    case BY_LEASE:
        return info->lease_ms < 0 ? INT64_MIN : -info->lease_ms;
    default:
        return 0;
    }
}

static int compare(const void *a, const void *b, void *arg)
{
    static const enum row_order then[] = {BY_WAITERS, BY_WAIT};
    const pawl_info *x = &(*(row *const *)a)->info, *y = &(*(row *const *)b)->info;
    enum row_order order = *(enum row_order *)arg;
    int64_t i = rank(x, order), k = rank(y, order);

    for (size_t t = 0; order != BY_NAME && i == k && t < 2; t++) {
        i = rank(x, then[t]);
        k = rank(y, then[t]);
    }
    return i != k ? (i > k ? -1 : 1) : strcmp(x->name, y->name);
}

void rows_sort(row **r, size_t n, enum row_order order)
{
    if (n)
        qsort_r(r, n, sizeof *r, compare, &order);
}

/* ---- Words --------------------------------------------------------------------------------- */

static bool is_held(const pawl_info *info)
{
    return info->holders || (info->type == PAWL_TYPE_LATCH && info->count > 0);
}

const char *rows_summary(const rows *all, char *buf, size_t size)
{
    unsigned long long held = 0, waiting = 0;
    int64_t longest = -1;
    char age[16];
    int n;

    for (size_t i = 0; i < all->n; i++) {
        held += is_held(&all->row[i]->info);
        waiting += all->row[i]->info.waiters;
        if (all->row[i]->info.wait_ms > longest)
            longest = all->row[i]->info.wait_ms;
    }
    n = snprintf(buf, size, "%zu name%s, %llu held, %llu waiting", all->n, all->n == 1 ? "" : "s",
                 held, waiting);
    if (longest >= 0 && n > 0 && (size_t)n < size)
        snprintf(buf + n, size - (size_t)n, ", longest wait %s",
                 age_text(age, sizeof age, longest));
    return buf;
}

const char *age_text(char *buf, size_t size, int64_t ms)
{
    long long s = ms / 1000;

    if (ms < 0)
        snprintf(buf, size, "-");
    else if (ms < 1000)
        snprintf(buf, size, "%dms", (int)ms);
    else if (s < 60)
        snprintf(buf, size, "%llds", s);
    else if (s < 3600)
        snprintf(buf, size, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, size, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else if (s < 86400 * 100)
        snprintf(buf, size, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    else
        snprintf(buf, size, "%lldd", s / 86400);
    return buf;
}

static void state_text(char *buf, size_t size, const pawl_info *info)
{
    if (info->type == PAWL_TYPE_LATCH)
        snprintf(buf, size, "%lld to go", (long long)info->count);
    else if (info->type == PAWL_TYPE_SEMAPHORE)
        snprintf(buf, size, "%lld/%lld free", (long long)info->available, (long long)info->count);
    else if (!info->holders)
        snprintf(buf, size, "free");
    else
        snprintf(buf, size, info->shared ? "shared %llu" : "held",
                 (unsigned long long)info->holders);
}

/* The label, if there is one, tells more than the program: the label of `pawl run` is the name of
 * the command. */
static const char *called(const pawl_info *info)
{
    return *known(info->label) ? info->label : known(info->program);
}

static void holder_text(char *buf, size_t size, const pawl_info *info)
{
    if (info->pid)
        snprintf(buf, size, "%lld%s%s", (long long)info->pid, *called(info) ? " " : "",
                 called(info));
    else
        snprintf(buf, size, "%s%s%s", known(info->owner),
                 *known(info->owner) && *called(info) ? " " : "", called(info));
    if (!*buf)
        snprintf(buf, size, "-");
}

const char *row_cell(const pawl_info *info, enum cell cell, char *buf, size_t size)
{
    switch (cell) {
    case CELL_NAME:
        return known(info->name);
    case CELL_TYPE:
        return type_text(info);
    case CELL_STATE:
        state_text(buf, size, info);
        break;
    case CELL_WAITERS:
        snprintf(buf, size, "%llu", (unsigned long long)info->waiters);
        break;
    case CELL_WAIT:
        return age_text(buf, size, info->waiters ? info->wait_ms : -1);
    case CELL_SINCE:
        return age_text(buf, size, info->since_ms);
    case CELL_LEASE:
        return age_text(buf, size, info->lease_ms);
    case CELL_TOKEN:
        snprintf(buf, size, info->token ? "%llu" : "-", (unsigned long long)info->token);
        break;
    case CELL_HOST:
        return *known(info->host) ? info->host : "-";
    case CELL_HOLDER:
        holder_text(buf, size, info);
        break;
    }
    return buf;
}

const char *client_info_text(const pawl_info *info, char *buf, size_t size)
{
    char id[80] = "an unknown process", time[32] = "";
    const char *called_so = called(info), *host = known(info->host);

    if (info->since_ms >= 0)
        duration_text(time, sizeof time, info->since_ms);
    if (info->pid)
        snprintf(id, sizeof id, "pid %lld", (long long)info->pid);
    else if (*known(info->owner))
        snprintf(id, sizeof id, "%.*s", (int)text_bytes(info->owner, 70), info->owner);
    snprintf(buf, size, "%s%s%.*s%s%s%.*s%s%s", id, *called_so ? " (" : "",
             (int)text_bytes(called_so, 80), called_so, *called_so ? ")" : "",
             *host ? " on " : "", (int)text_bytes(host, 80), host, *time ? " for " : "", time);
    return buf;
}
