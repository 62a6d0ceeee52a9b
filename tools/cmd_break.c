/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_break.c - pawl break: take a lock away from its holders, and name these holders.
 *
 * The names come from an inspection just before the break, because no service reports which holders
 * a break has hit.
 */
#include "table.h"

static int break_name(pawl_client *client, const char *name, pawl_error *err)
{
    pawl_lock *lock;
    int code = pawl_lock_new(&lock, client, name, NULL, err);

    if (code)
        return code;
    code = pawl_lock_break(lock, err);
    pawl_lock_free(lock);
    return code;
}

/* Explain why there was nothing to break. `pawl break` doesn't work on latches, but a user who
 * tries to break a latch gets an explanation. */
static void say_why(pawl_client *client, const char *name)
{
    name_info n = {0};

    if (!inspect_name(client, name, &n, NULL) && n.used && n.type == PAWL_TYPE_LATCH)
        say("'%s' is a latch, %lld to go: count it down with 'pawl latch down %s'", name,
            (long long)n.count, name);
    else
        say("nobody holds '%s'", name);
}

static void print_json(const char *name, bool broken, const rows *before)
{
    bool first = true;

    fputs("{\"name\":", stdout);
    json_string(stdout, name);
    printf(",\"broken\":%s,\"holders\":[", broken ? "true" : "false");
    for (size_t i = 0; broken && i < before->n; i++)
        if (before->row[i]->info.role == PAWL_ROLE_HOLDER) {
            fputs(first ? "{" : ",{", stdout);
            json_row(stdout, &before->row[i]->info);
            putchar('}');
            first = false;
        }
    puts("]}");
}

/* "broke 'x', held by pid 4711 (make) on box for 12 s", a line for each holder. */
static void print_broken(const char *name, const rows *before)
{
    bool any = false;
    char text[400];

    for (size_t i = 0; i < before->n; i++)
        if (before->row[i]->info.role == PAWL_ROLE_HOLDER) {
            fputs("broke '", stdout);
            text_put(stdout, name);
            fputs("', held by ", stdout);
            text_put(stdout, client_info_text(&before->row[i]->info, text, sizeof text));
            putchar('\n');
            any = true;
        }
    if (!any) {
        fputs("broke '", stdout);
        text_put(stdout, name);
        puts("'; the service does not tell who held it");
    }
}

int cmd_break(tool *t, int argc, char **argv)
{
    pawl_error err = {0};
    pawl_client_options options = {0};
    pawl_client *client;
    rows before = {0};
    int opt = options_common(t, argc, argv), status;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc - optind != 1)
        return usage_error(t, argc == optind ? "which one? NAME is missing" : "one NAME at a time");
    options.label = operator_name();
    status = client_open(t, &client, &options);
    if (status)
        return status;
    pawl_inspect(client, argv[optind], rows_add, &before, NULL); /* for the message; may fail */
    err.code = break_name(client, argv[optind], &err);
    status = status_of(err.code);
    if (err.code && err.code != PAWL_ENOTHELD)
        failed(t, "can't break it", &err);
    else if (t->json)
        print_json(argv[optind], !err.code, &before);
    else if (err.code)
        say_why(client, argv[optind]);
    else
        print_broken(argv[optind], &before);
    rows_free(&before);
    pawl_close(client);
    return status;
}
