/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - the program that runs random programs (run.h):
 *
 *     generate sequence URL ordered|unordered   programs from the standard input, each in turn
 *     generate free URL LOG PREFIX              one program from the standard input, with its log
 *     generate expect                           one program from the standard input, on memory:
 *     generate list URL PREFIX                  the names in use that begin with PREFIX
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "run.h"

static int print_name(void *arg, const pawl_info *info)
{
    if (!strncmp(info->name, arg, strlen(arg)))
        printf("%s:%s:holders=%d:waiters=%d\n", info->name,
               info->type == PAWL_TYPE_LOCK    ? "lock"
               : info->type == PAWL_TYPE_LATCH ? "latch"
                                               : "semaphore",
               (int)info->holders, (int)info->waiters);
    return 0;
}

static int list_main(const char *url, char *prefix)
{
    pawl_client *client;
    pawl_error err = {0};
    int code = pawl_open(&client, url, NULL, &err);

    if (!code) {
        code = pawl_list(client, NULL, print_name, prefix, &err);
        pawl_close(client);
    }
    if (code)
        fprintf(stderr, "generate: %s\n", err.text);
    return code ? 1 : 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_DFL);
    if (argc == 4 && !strcmp(argv[1], "sequence"))
        return sequence_main(argv[2], argv[3]);
    if (argc == 2 && !strcmp(argv[1], "expect"))
        return expect_main();
    if (argc == 5 && !strcmp(argv[1], "free"))
        return free_main(argv[2], argv[3], argv[4]);
    if (argc == 4 && !strcmp(argv[1], "list"))
        return list_main(argv[2], argv[3]);
    fprintf(stderr, "usage: generate sequence URL ordered|unordered < PROGRAMS\n"
                    "       generate free URL LOG PREFIX < PROGRAM\n"
                    "       generate expect < PROGRAM\n"
                    "       generate list URL PREFIX\n");
    return 64;
}
