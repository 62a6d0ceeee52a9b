/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_show.c - pawl show: holders and waiters of a lock, for people and for machines.
 */
#include "tool.h"

typedef struct show {
    const tool *tool;
    bool held;
    uint64_t rows; /* of the role that is being printed now */
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

/* Print "pid 4711 pawl (make) on box", as far as this is known. */
static void print_client_info(const pawl_info *info)
{
    if (info->pid) {
        printf(" pid %lld", (long long)info->pid);
    } else if (info->owner && *info->owner) { /* not a client of Pawl, or gone */
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
    print_client_info(info);
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
