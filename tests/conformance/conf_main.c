/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_main.c - the program: conformance URL [FILTER], for any engine by its URL.
 */
#include "conf.h"

const char *conf_url;

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
    return is_advisory() || !strncmp(conf_url, "quorum:", 7);
}

bool breaks_late(void)
{
    return !strncmp(conf_url, "quorum:", 7);
}

int broken_reason(void)
{
    return is_advisory() ? PAWL_LOST_GONE : PAWL_LOST_BROKEN;
}

bool waits_unseen(void)
{
    return strstr(conf_url, "layout=redisson");
}

void need_shown(const char *what)
{
    if (waits_unseen())
        check_skip(what);
}

void need_processes(void)
{
    if (is_engine("memory:"))
        check_skip("in-process engine");
}

void need_ranges(void)
{
    if (is_engine("etcd:") || has_session() || is_advisory() || waits_unseen())
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
    check_cleanup(end_everything);
    status = check_main(argc - 1, argv + 1);
    if (dir)
        remove_tree(dir);
    free(dir);
    free(url);
    return status;
}
