/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_main.c - the program: conformance URL [FILTER], for any engine by its URL.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "conf.h"
#include "core.h"

const char *conf_url;
static uint32_t caps; /* enum pawl_caps, what the engine declares */

/* The last scheme of "trace:fault:x;memory:" decides: wrappers share what they wrap. */
static bool is_engine(const char *scheme)
{
    const char *at = strstr(conf_url, scheme);

    return at && (at == conf_url || strchr(":;|", at[-1]));
}

bool has_session(void)
{
    return is_engine("zk:");
}

/* PostgreSQL's own locks: each lasts as long as a connection, at most. */
static bool is_advisory(void)
{
    return strstr(conf_url, "layout=advisory");
}

bool only_locks(void)
{
    return !(caps & PAWL_CAP_PERMITS);
}

bool breaks_late(void)
{
    return !strncmp(conf_url, "quorum:", 7);
}

int broken_reason(void)
{
    return is_advisory() ? PAWL_LOST_GONE : PAWL_LOST_BROKEN;
}

bool only_fair(void)
{
    return caps & PAWL_CAP_FAIR_ONLY;
}

uint64_t ordered_kind(void)
{
    return only_fair() ? PAWL_FAIR : PAWL_MUTEX;
}

void need_order(void)
{
    if (only_fair())
        check_skip("only fair locks have an order of waiters");
}

void need_numbers(const char *what)
{
    if (only_fair())
        check_skip(what);
}

void need_processes(void)
{
    if (is_engine("memory:"))
        check_skip("in-process engine");
}

void need_ranges(void)
{
    if (!(caps & PAWL_CAP_RANGE))
        check_skip("tokens can't be reserved, so nothing is handed on inside the process");
}

bool leases_in_seconds(void)
{
    return is_engine("etcd:");
}

void need_parameters(void)
{
    static const char *const wrappers[] = {"trace:", "fault:", "quorum:"};

    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++)
        if (!strncmp(conf_url, wrappers[i], strlen(wrappers[i])))
            check_skip("an engine around another takes no parameters");
}

void need_leases(void)
{
    if (has_session() || is_advisory())
        check_skip("leases are the session's");
}

int64_t lease_given(int64_t ms)
{
    return has_session() && ms > 12000 ? 12000 : ms;
}

/* "@TMP@" in the URL becomes a new folder, which is gone afterwards. */
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

/* In a process of its own: cases that fork must not have had a client before. */
static bool read_caps(void)
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
        status = write(ends[1], &client->caps, sizeof caps) != sizeof caps;
        pawl_close(client);
        _exit(status);
    }
    close(ends[1]);
    status = read(ends[0], &caps, sizeof caps) != sizeof caps;
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
    if (!read_caps()) {
        fprintf(stderr, "conformance: what the engine can do is not known\n");
        return 1;
    }
    check_cleanup(end_everything);
    status = check_main(argc - 1, argv + 1);
    if (dir)
        remove_tree(dir);
    free(dir);
    free(url);
    return status;
}
