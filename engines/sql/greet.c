/* SPDX-License-Identifier: Apache-2.0
 *
 * greet.c - the greeting of a connection, one statement after the other: the settings of the
 * session, then the version of the tables. Missing tables are created by the first client that has
 * the right. The version is asked from a function that belongs to the tables' owner, so the
 * driver's `check` runs before, and finds out whether that owner may be trusted. PostgreSQL's check
 * also finds out that the function is missing: then the function is not called, because anybody
 * might have created it since.
 *
 *     greeting --> ASK_VERSION --missing--> LOCK --> ASK_AGAIN --missing--> MAKE ... --> ASK_LAST
 *                      | there                           | there                            |
 *                      v                                 +-----------> UNLOCK <-------------+
 *                 the second half of the greeting <------------------------+
 *                      v
 *                    ready
 *
 * If the connection fails in between, the server frees the LOCK. If the user may not ask for the
 * version, PROBE statements find out which rights are missing, and the connection is dropped.
 *
 * A user can't tell a function without the right from a function that another client is making at
 * this moment. Therefore a missing right counts only if it is missing again when this client has
 * the LOCK (recheck).
 */
#include <stdlib.h>

#include "sql.h"

#define PROBLEMS_MAX 100

/* Steps: the index of a greeting statement, then these. CHECK is added to the step that follows the
 * check. */
enum { ASK_VERSION = 100, LOCK, ASK_AGAIN, MAKE, ASK_LAST, UNLOCK, PROBE, SECOND_HALF = 200,
    CHECK = 1000 };

/* Each statement has env->timeout_ms, LOCK and MAKE have five times as long. */
static int ask(sql_link *link, const char *text)
{
    int64_t ms = link->env->timeout_ms * (link->step == MAKE || link->step == LOCK ? 5 : 1);

    kit_timer_ms(link->env, &link->timer, ms);
    return link->sql->driver->query(link, text);
}

static void say(sql_link *link, int step, const char *template)
{
    char *text = sql_expand(link->sql, template);
    int code;

    link->step = step;
    code = text ? ask(link, text) : PAWL_ENOMEM;
    free(text);
    if (code)
        sql_link_drop(link, code, "out of memory");
}

static void ask_version(sql_link *link, int step)
{
    free(link->sql->refusals);
    link->sql->refusals = NULL;
    say(link, CHECK + step, link->sql->driver->check);
}

/* The next of several statements; false: there is none. */
static bool next_piece(sql_link *link, char **ret)
{
    char *end;

    if (!link->made || !*link->made)
        return false;
    *ret = link->made;
    end = strstr(link->made, "\n;;\n");
    link->made = end ? end + 4 : NULL;
    if (end)
        *end = 0;
    return true;
}

static void make(sql_link *link)
{
    char *piece;
    int code;

    if (!next_piece(link, &piece)) {
        ask_version(link, ASK_LAST);
        return;
    }
    code = ask(link, piece);
    if (code)
        sql_link_drop(link, code, "out of memory");
}

static void begin_making(sql_link *link)
{
    link->step = MAKE;
    link->making = link->made = sql_expand(link->sql, link->sql->driver->schema);
    if (!link->making) {
        sql_link_drop(link, PAWL_ENOMEM, "out of memory");
        return;
    }
    link->env->log(link->env, PAWL_LOG_INFO, "%s: making the tables %s", sql_link_host(link)->where,
                   link->sql->settings.prefix);
    make(link);
}

/* ---- missing rights -------------------------------------------------------------------------- */

static void add_refusal(sql *q, const char *problem)
{
    size_t size = q->refusals ? strlen(q->refusals) : 0, length = strlen(problem) + 2;
    char *more = realloc(q->refusals, size + length);

    if (!more)
        return; /* no memory: one line less */
    q->refusals = more;
    snprintf(more + size, length, "%s\n", problem);
}

/* Keep all problems for EXAMINE; the connection is refused because of the first one. */
static void remember(sql *q, const sql_reply *reply)
{
    for (size_t i = 0; i < reply->rows && i < PROBLEMS_MAX; i++) {
        const char *problem = reply->cell(reply, i, 0);

        if (problem && *problem)
            add_refusal(q, problem);
    }
}

/* The next probe, or the end. */
static void probe(sql_link *link)
{
    const char *problems = link->sql->refusals;
    char *piece = NULL, *statement = NULL;

    if (next_piece(link, &piece))
        statement = strchr(piece, '\n'); /* the name of the right is before it */
    if (!statement) {
        if (problems)
            sql_link_drop(link, PAWL_EAUTH, "%.*s", (int)strcspn(problems, "\n"), problems);
        else
            sql_link_drop(link, PAWL_EAUTH, "%s", link->refusal);
        return;
    }
    *statement = 0;
    link->right = piece;
    if (ask(link, statement + 1))
        sql_link_drop(link, PAWL_ENOMEM, "out of memory");
}

static void begin_probing(sql_link *link, const sql_fault *fault)
{
    link->step = PROBE;
    snprintf(link->refusal, sizeof link->refusal, "%s", fault->words);
    link->making = link->made = sql_expand(link->sql, link->sql->driver->probes);
    if (link->making)
        probe(link);
    else
        sql_link_drop(link, PAWL_ENOMEM, "out of memory");
}

/* A right on something says whether it exists. */
static void no_tables(sql_link *link)
{
    const sql_driver *driver = link->sql->driver;
    char problem[300];

    snprintf(problem, sizeof problem, "no tables \"%.100s\"; let an administrator run "
             "share/pawl/%.20s.sql and GRANT (sql.md)", link->sql->settings.prefix,
             driver->script ? driver->script : driver->scheme);
    free(link->sql->refusals);
    link->sql->refusals = NULL;
    add_refusal(link->sql, problem);
    link->made = NULL; /* no more probes */
}

/* The answer to a probe. Other faults than these say nothing about the right. */
static int probed(sql_link *link, const sql_reply *reply, const sql_fault *fault)
{
    char problem[300];

    if (fault && fault->sense == SQL_BROKEN) {
        sql_link_drop(link, PAWL_ECONN, "%s", fault->words);
        return -1;
    }
    snprintf(problem, sizeof problem, "permission denied: GRANT %.200s TO this user (security.md)",
             link->right);
    if (fault && fault->sense == SQL_MISSING)
        no_tables(link);
    else if (fault && fault->code == PAWL_EAUTH && *link->right)
        add_refusal(link->sql, problem);
    else if (!fault && reply && !*link->right)
        remember(link->sql, reply);
    probe(link);
    return 0;
}

/* ---- the steps ------------------------------------------------------------------------------- */

/* Called again after each answer. 1: the greeting is complete. */
int sql_greet(sql_link *link)
{
    const char *statement = link->greeting[link->step];

    if (!statement && !link->sql->driver->version)
        return 1;
    if (statement)
        say(link, link->step, statement);
    else
        ask_version(link, ASK_VERSION);
    return 0;
}

/* The tables don't exist, or have an older version. */
static void missing(sql_link *link)
{
    if (link->step == ASK_VERSION)
        say(link, LOCK, link->sql->driver->lock);
    else
        begin_making(link);
}

/* A right seems to be missing: ask again with the lock, unless that was done. */
static bool recheck(sql_link *link)
{
    if (link->rechecked)
        return false;
    link->rechecked = true;
    say(link, LOCK, link->sql->driver->lock);
    return true;
}

static int failed(sql_link *link, const sql_fault *fault)
{
    const sql_settings *s = &link->sql->settings;
    const sql_driver *driver = link->sql->driver;
    bool asked = link->step == ASK_VERSION || link->step == ASK_AGAIN;

    if (asked && fault->sense == SQL_MISSING) {
        missing(link);
        return 0;
    }
    if (asked && fault->code == PAWL_EAUTH && driver->probes) {
        if (!recheck(link))
            begin_probing(link, fault);
        return 0;
    }
    if (link->step == MAKE && fault->sense == SQL_REFUSED)
        sql_link_drop(link, fault->code,
                      "no tables \"%s\"; let an administrator run share/pawl/%s.sql and GRANT "
                      "(sql.md); %.60s", s->prefix,
                      driver->script ? driver->script : driver->scheme, fault->words);
    else
        sql_link_drop(link, fault->sense == SQL_REFUSED ? fault->code : PAWL_ECONN, "%s",
                      fault->words);
    return -1;
}

/* The tables exist: send the next statement of the second half. 1: there is none. */
static int go_on(sql_link *link, int step)
{
    int n = 0;

    while (link->greeting[n])
        n++;
    n += 1 + step - SECOND_HALF;
    if (!link->greeting[n])
        return 1;
    say(link, step, link->greeting[n]);
    return 0;
}

static int version_told(sql_link *link, const char *text)
{
    int version = text ? atoi(text) : 0;

    if (version == SQL_VERSION && link->step == ASK_VERSION)
        return go_on(link, SECOND_HALF);
    if (version == SQL_VERSION) {
        say(link, UNLOCK, link->sql->driver->unlock);
        return 0;
    }
    if (version && version < SQL_VERSION && link->step != ASK_LAST) {
        missing(link);
        return 0;
    }
    sql_link_drop(link, PAWL_EBACKEND, "the tables \"%s\" are of version %.10s, this is for %d",
                  link->sql->settings.prefix, text ? text : "?", SQL_VERSION);
    return -1;
}

/* The first row that names a problem, else "" if there is an empty row, else NULL. */
static const char *problem_in(const sql_reply *reply)
{
    const char *found = NULL;

    for (size_t i = 0; i < reply->rows && (!found || !*found); i++)
        found = reply->cell(reply, i, 0);
    return found;
}

static int checked(sql_link *link, const sql_reply *reply)
{
    const char *problem = problem_in(reply);

    link->step -= CHECK;
    if (!problem) {
        say(link, link->step, link->sql->driver->version);
        return 0;
    }
    if (!*problem && link->step != ASK_LAST) {
        missing(link);
        return 0;
    }
    if (!*problem) {
        sql_link_drop(link, PAWL_EBACKEND, "the tables \"%s\" were made, and are gone again",
                      link->sql->settings.prefix);
        return -1;
    }
    remember(link->sql, reply);
    sql_link_drop(link, PAWL_EAUTH, "%s", problem);
    return -1;
}

/* The answer to a statement of the second half: a row names a missing right. 1: the greeting is
 * complete, 0: another answer follows, -1: the connection was dropped. */
static int in_second_half(sql_link *link, const sql_reply *reply)
{
    const char *problem = reply ? reply->cell(reply, 0, 0) : NULL;

    if (!problem)
        return go_on(link, link->step + 1);
    if (recheck(link))
        return 0;
    remember(link->sql, reply);
    sql_link_drop(link, PAWL_EAUTH, "%s", problem);
    return -1;
}

int sql_greet_answer(sql_link *link, const sql_reply *reply, const sql_fault *fault)
{
    if (link->step == PROBE)
        return probed(link, reply, fault);
    if (fault)
        return failed(link, fault);
    if (link->step >= CHECK)
        return checked(link, reply);
    switch (link->step) {
    case LOCK:
        ask_version(link, ASK_AGAIN);
        return 0;
    case MAKE:
        make(link);
        return 0;
    case ASK_VERSION:
    case ASK_AGAIN:
    case ASK_LAST:
        return version_told(link, reply ? reply->cell(reply, 0, 0) : NULL);
    case UNLOCK:
        return go_on(link, SECOND_HALF);
    default:
        if (link->step >= SECOND_HALF)
            return in_second_half(link, reply);
        if (link->sql->driver->greeted && !link->sql->driver->greeted(link, reply))
            return -1;
        link->step++;
        return sql_greet(link);
    }
}
