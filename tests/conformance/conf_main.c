/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_main.c - conformance URL [FILTER]: runs the cases on the engine of a URL.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "conf.h"

const char *conf_url;
static uint32_t answers; /* bit i: the service can do i (enum pawl_can) */

bool can(enum pawl_can what)
{
    return answers >> what & 1;
}

void need_named(enum pawl_can what, const char *name, const char *otherwise)
{
    char reason[160];

    if (can(what))
        return;
    snprintf(reason, sizeof reason, "%s (%s)", otherwise, name);
    check_skip(reason);
}

uint64_t ordered_kind(void)
{
    need(PAWL_CAN_FAIR, "waiters have no order");
    return can(PAWL_CAN_QUEUE) ? PAWL_MUTEX : PAWL_FAIR;
}

int broken_reason(void)
{
    return can(PAWL_CAN_TELL_BROKEN) ? PAWL_LOST_BROKEN : PAWL_LOST_GONE;
}

void need_order(void)
{
    need(PAWL_CAN_QUEUE, "not all kinds of locks have an order of waiters");
}

void need_processes(void)
{
    need(PAWL_CAN_SHARE, "other processes don't share the names");
}

void need_ranges(void)
{
    need(PAWL_CAN_HAND_OVER, "nothing is handed on inside the process");
}

void need_linger(void)
{
    need(PAWL_CAN_LINGER_CLOSED, "the service keeps no lock of a closed client");
}

bool newer(uint64_t token, uint64_t than)
{
    return can(PAWL_CAN_FENCE) ? token > than : token == 0;
}

int64_t lease_given(int64_t ms)
{
    return !can(PAWL_CAN_LEASE) && ms > 12000 ? 12000 : ms;
}

/* "@TMP@" in the URL is replaced by a new folder, which is deleted at the end. */
static char *expand(const char *url, char **dir)
{
    const char *mark = strstr(url, "@TMP@");
    char *text;

    *dir = NULL;
    if (!mark)
        return strdup(url);
    *dir = temp_dir();
    if (!*dir || asprintf(&text, "%.*s%s%s", (int)(mark - url), url, *dir, mark + 5) < 0)
        return NULL;
    return text;
}

static uint32_t all_answers(const pawl_client *client)
{
    uint32_t all = 0;

    for (int i = 0; pawl_client_can(client, i) >= 0; i++)
        all |= (uint32_t)pawl_client_can(client, i) << i;
    return all;
}

/* Ask in a separate process: cases that fork must run in a process that never opened a client. */
static bool read_answers(void)
{
    int ends[2], status;
    pawl_client *client;
    pawl_error err;
    pid_t pid;

    if (pipe(ends) || (pid = fork()) < 0)
        return false;
    if (!pid) {
        if (pawl_open(&client, conf_url, NULL, &err)) {
            fprintf(stderr, "%s\n", err.text);
            _exit(1);
        }
        answers = all_answers(client);
        status = write(ends[1], &answers, sizeof answers) != sizeof answers;
        pawl_close(client);
        _exit(status);
    }
    close(ends[1]);
    status = read(ends[0], &answers, sizeof answers) != sizeof answers;
    close(ends[0]);
    return waitpid(pid, NULL, 0) == pid && !status;
}

int main(int argc, char **argv)
{
    char *dir, *url;
    int status;

    if (argc < 2) {
        fprintf(stderr, "usage: conformance URL [--list] [-j JOBS] [FILTER]\n"
                        "       conformance local:@TMP@ 'waiters'\n");
        return 64;
    }
    url = expand(argv[1], &dir);
    if (!url) {
        perror("conformance");
        return 1;
    }
    conf_url = url;
    if (!read_answers()) {
        fprintf(stderr, "conformance: what the engine can do is not known\n");
        return 1;
    }
    check_cleanup(end_everything);
    setenv("CHECK_JOBS", "8", 0); /* cases mostly wait, for leases and time limits */
    status = check_main(argc - 1, argv + 1);
    if (dir)
        remove_tree(dir);
    free(dir);
    free(url);
    return status;
}
