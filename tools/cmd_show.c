/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_show.c - pawl show and pawl ls: who holds what, for people and for machines.
 *
 * Rows are printed as they come (show) or kept and sorted first (ls: the library gives them in no
 * set order).
 */
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* ---- show ---------------------------------------------------------------------------------- */

typedef struct show {
    const tool *tool;
    bool held;
    uint64_t rows; /* of the role that is being printed */
    uint64_t role;
} show;

static void print_state(const pawl_info *info)
{
    text_put(stdout, info->name);
    if (info->type == PAWL_TYPE_LATCH)
        printf(": latch, %lld to go", (long long)info->count);
    else if (!info->holders)
        printf(": free");
    else if (info->type == PAWL_TYPE_SEMAPHORE)
        printf(": semaphore, %lld of %lld permits free", (long long)info->available,
               (long long)info->count);
    else if (info->shared)
        printf(": held, shared by %llu", (unsigned long long)info->holders);
    else
        printf(": held");
    if (info->waiters)
        printf(", %llu waiting", (unsigned long long)info->waiters);
    putchar('\n');
}

/* "pid 4711 pawl (make) on box": what is known of it. */
static void print_who(const pawl_info *info)
{
    if (info->pid) {
        printf(" pid %lld", (long long)info->pid);
    } else if (info->owner && *info->owner) { /* not a client of Pawl's, or gone */
        putchar(' ');
        text_put(stdout, info->owner);
    }
    if (info->program && *info->program) {
        putchar(' ');
        text_put(stdout, info->program);
    }
    if (info->label && *info->label) {
        fputs(" (", stdout);
        text_put(stdout, info->label);
        putchar(')');
    }
    if (info->host && *info->host) {
        fputs(" on ", stdout);
        text_put(stdout, info->host);
    }
}

static void print_person(const pawl_info *info, uint64_t number)
{
    bool holder = info->role == PAWL_ROLE_HOLDER;
    char age[32];

    if (left_over(info)) {
        printf("  kept by --at-least for another %s (its command has ended)\n",
               duration_text(age, sizeof age, info->lease_ms));
        return;
    }
    if (holder)
        fputs("  held by", stdout);
    else
        printf("  waits %llu.", (unsigned long long)number);
    print_who(info);
    if (info->since_ms >= 0)
        printf(" for %s", duration_text(age, sizeof age, info->since_ms));
    if (info->type == PAWL_TYPE_SEMAPHORE && info->permits != 1)
        printf(", %llu permits", (unsigned long long)info->permits);
    if (info->type == PAWL_TYPE_LOCK && info->shared)
        printf(", shared");
    if (holder && info->lease_ms >= 0)
        printf(", lease ends in %s", duration_text(age, sizeof age, info->lease_ms));
    if (holder && info->token)
        printf(", token %llu", (unsigned long long)info->token);
    putchar('\n');
}

/* {summary members,"holders":[...],"waiters":[...]}: the arrays are opened and closed as the role
 * of the rows changes, so that both are there even when empty. */
static void json_enter(show *s, uint64_t role)
{
    for (; s->role != role; s->rows = 0) {
        s->role = s->role == PAWL_ROLE_SUMMARY ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
        fputs(s->role == PAWL_ROLE_HOLDER ? ",\"holders\":[" : "],\"waiters\":[", stdout);
    }
}

static void json_person(show *s, const pawl_info *info)
{
    json_enter(s, info->role);
    fputs(s->rows++ ? ",{" : "{", stdout);
    json_row(stdout, info);
    putchar('}');
}

static int show_row(void *arg, const pawl_info *info)
{
    show *s = arg;

    if (info->role == PAWL_ROLE_SUMMARY) {
        s->held = info->holders || (info->type == PAWL_TYPE_LATCH && info->count > 0);
        if (s->tool->json) {
            putchar('{');
            json_row(stdout, info);
        } else {
            print_state(info);
        }
    } else if (s->tool->json) {
        json_person(s, info);
    } else {
        s->rows += info->role == PAWL_ROLE_WAITER;
        print_person(info, s->rows);
    }
    return 0;
}

int cmd_show(tool *t, int argc, char **argv)
{
    pawl_error err = {0};
    pawl_client *client;
    show s = {.tool = t, .role = PAWL_ROLE_SUMMARY};
    int opt = options_common(t, argc, argv), status;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc - optind != 1)
        return usage_error(t, argc == optind ? "which one? NAME is missing" : "one NAME at a time");
    status = client_open(t, &client, NULL);
    if (status)
        return status;
    err.code = pawl_inspect(client, argv[optind], show_row, &s, &err);
    pawl_close(client);
    if (err.code)
        return failed(t, "can't show it", &err);
    if (t->json) {
        json_enter(&s, PAWL_ROLE_WAITER);
        puts("]}");
    }
    return s.held ? STATUS_OK : STATUS_NO;
}

/* ---- ls ------------------------------------------------------------------------------------ */

typedef struct entry {
    char *name; /* to sort by */
    char *line; /* to print: JSON, or the columns after the name */
} entry;

typedef struct listing {
    bool json;
    entry *entries;
    size_t n, room;
} listing;

#define LEAST_WIDTH 24

/* How many columns it takes, near enough: characters, wide ones counted as one. */
static size_t columns(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_padded(const char *text, size_t width)
{
    size_t n = columns(text);

    fputs(text, stdout);
    for (; n <= width; n++)
        putchar(' ');
}

static void ls_state(char *buf, size_t size, const pawl_info *info)
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

static void ls_line(FILE *out, const pawl_info *info)
{
    char who[512], state[48], age[32] = "-";
    const char *label = info->label && *info->label ? info->label : info->program;

    ls_state(state, sizeof state, info);
    if (info->since_ms >= 0)
        duration_text(age, sizeof age, info->since_ms);
    text_copy(who, sizeof who, label ? label : "");
    fprintf(out, "%-9s %-12s %7llu  %-12s ", type_text(info), state,
            (unsigned long long)info->waiters, age);
    if (info->pid)
        fprintf(out, "%lld %s", (long long)info->pid, who);
    else
        fputs(*who ? who : "-", out);
}

static bool listing_room(listing *l)
{
    size_t room = l->room ? l->room * 2 : 64;
    entry *entries;

    if (l->n < l->room)
        return true;
    entries = realloc(l->entries, room * sizeof *entries);
    if (!entries)
        return false;
    l->entries = entries;
    l->room = room;
    return true;
}

static int ls_row(void *arg, const pawl_info *info)
{
    listing *l = arg;
    char *line = NULL, *name = strdup(info->name);
    size_t size;
    FILE *out = open_memstream(&line, &size);

    if (out) {
        if (l->json)
            json_row(out, info);
        else
            ls_line(out, info);
        fclose(out);
    }
    if (!out || !line || !name || !listing_room(l)) {
        free(line);
        free(name);
        return PAWL_ENOMEM;
    }
    l->entries[l->n++] = (entry){name, line};
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static void print_json_list(const listing *l)
{
    putchar('[');
    for (size_t i = 0; i < l->n; i++)
        printf("%s{%s}", i ? "," : "", l->entries[i].line);
    puts("]");
}

/* The first column is as wide as the longest name, escaped; the others are what fits nearly
 * always. */
static void print_table(const listing *l)
{
    char name[1100]; /* 255 bytes, each escaped at worst */
    size_t width = LEAST_WIDTH;

    for (size_t i = 0; i < l->n; i++) {
        size_t n = columns(text_copy(name, sizeof name, l->entries[i].name));

        width = n > width ? n : width;
    }
    if (l->n) {
        print_padded("NAME", width);
        printf("%-9s %-12s %7s  %-12s %s\n", "TYPE", "STATE", "WAITING", "SINCE", "HOLDER");
    }
    for (size_t i = 0; i < l->n; i++) {
        print_padded(text_copy(name, sizeof name, l->entries[i].name), width);
        puts(l->entries[i].line);
    }
}

static void ls_print(listing *l)
{
    if (l->n)
        qsort(l->entries, l->n, sizeof *l->entries, by_name);
    if (l->json)
        print_json_list(l);
    else
        print_table(l);
}

int cmd_ls(tool *t, int argc, char **argv)
{
    pawl_error err = {0};
    pawl_client *client;
    listing l = {0};
    int opt = options_common(t, argc, argv), status;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc - optind > 1)
        return usage_error(t, "one PATTERN at a time, in quotes");
    status = client_open(t, &client, NULL);
    if (status)
        return status;
    l.json = t->json;
    err.code = pawl_list(client, argv[optind], ls_row, &l, &err); /* argv ends with NULL: all */
    pawl_close(client);
    if (!err.code)
        ls_print(&l);
    for (size_t i = 0; i < l.n; i++) {
        free(l.entries[i].name);
        free(l.entries[i].line);
    }
    free(l.entries);
    return err.code ? failed(t, "can't list", &err) : STATUS_OK;
}
