/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_break.c - pawl break: take a lock away from whoever holds it.
 */
#include "tool.h"

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

static void print_json(const char *name, bool broken)
{
    fputs("{\"name\":", stdout);
    json_string(stdout, name);
    printf(",\"broken\":%s}\n", broken ? "true" : "false");
}

int cmd_break(tool *t, int argc, char **argv)
{
    pawl_error err = {0};
    pawl_client *client;
    int opt = options_common(t, argc, argv), status;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc - optind != 1)
        return usage_error(t, argc == optind ? "which one? NAME is missing" : "one NAME at a time");
    status = client_open(t, &client, NULL);
    if (status)
        return status;
    err.code = break_name(client, argv[optind], &err);
    pawl_close(client);
    if (err.code && err.code != PAWL_ENOTHELD)
        return failed("can't break it", &err);
    if (t->json)
        print_json(argv[optind], !err.code);
    else if (err.code)
        say("nobody holds '%s'", argv[optind]);
    return status_of(err.code);
}
