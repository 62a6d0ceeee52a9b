/* SPDX-License-Identifier: Apache-2.0 */
#include <pawl.h>
#include <stdio.h>

static void print_log(void *arg, int level, const char *text)
{
    (void)arg;
    fprintf(stderr, "level %d: %s\n", level, text);
}

int main(void)
{
    pawl_client_options options = {.size = sizeof options,
                                   .log = print_log,
                                   .label = "nightly",
                                   .watchdog_ms = 10000};
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, "memory:", &options, &err)) { /* or "redis://cache1" */
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    /* ... make locks, acquire and release them ... */
    return pawl_close(client) != 0;
}
