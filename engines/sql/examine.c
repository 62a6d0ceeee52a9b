/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE on SQL servers. The driver has one statement, which returns a row per
 * finding: level, id, defect, reason, remedy. The row "clock" has the server's Unix time in ms
 * instead of a text. If the user lacks rights, the greeting refuses the connection, and EXAMINE
 * reports all defects that the greeting found.
 */
#include <stdlib.h>

#include "examine.h"
#include "sql.h"

enum { LEVEL, ID, WHAT, WHY, REMEDY };

static const char *cell(const sql_reply *reply, size_t row, int column)
{
    const char *text = reply->cell(reply, row, column);

    return text ? text : "";
}

static void look_at_network(const sql_call *call, pawl_op *op)
{
    static const enum net_verify verified[] = {[SQL_TLS_REQUIRE] = NET_VERIFY_NONE,
        [SQL_TLS_CHAIN] = NET_VERIFY_CHAIN, [SQL_TLS_FULL] = NET_VERIFY_FULL};
    const sql_settings *s = &call->on->sql->settings;
    bool tls = s->tls >= SQL_TLS_REQUIRE; /* "prefer" promises nothing */

    examine_network(op, sql_link_host(call->on)->where, call->on->fd, tls,
                    tls ? verified[s->tls] : NET_VERIFY_FULL);
}

static bool answer_examine(sql_call *call, const sql_reply *reply)
{
    const char *where = sql_link_host(call->on)->where;
    pawl_op *op = call->about;

    for (size_t i = 0; i < reply->rows; i++) {
        int level = atoi(cell(reply, i, LEVEL));

        if (!strcmp(cell(reply, i, ID), "clock"))
            examine_clock(op, call->on->env, where, strtoll(cell(reply, i, WHAT), NULL, 10),
                          call->sent);
        else if (level == PAWL_FINDING_FACT)
            pawl_op_fact(op, cell(reply, i, ID), where, cell(reply, i, WHAT), 0);
        else
            pawl_op_found(op, (uint64_t)level, cell(reply, i, ID), where, cell(reply, i, WHAT),
                          cell(reply, i, WHY), cell(reply, i, REMEDY));
    }
    look_at_network(call, op);
    sql_done(op, 0, NULL);
    return true;
}

/* ---- a greeting that was refused (greet.c) --------------------------------------------------- */

/* Extract the statement from "permission denied: GRANT INSERT ON t TO this user (security.md)",
 * with the user's name. */
static void statement_of(const sql *q, const char *problem, char *text, size_t size)
{
    const char *user = q->settings.login.user ? q->settings.login.user : "this user";
    const char *grant = strstr(problem, "GRANT ");
    const char *to = grant ? strstr(grant, " TO this user") : NULL;

    if (to)
        snprintf(text, size, "%.*s TO %s;", (int)(to - grant), grant, user);
    else
        snprintf(text, size, "Let an administrator make the tables and GRANT (docs/sql.md).");
}

static void tell_refusals(const sql_call *call, pawl_op *op, const char *lines)
{
    const char *end;

    for (; (end = strchr(lines, '\n')); lines = end + 1) {
        char problem[400], remedy[400];

        snprintf(problem, sizeof problem, "%.*s", (int)(end - lines), lines);
        statement_of(call->on->sql, problem, remedy, sizeof remedy);
        pawl_op_found(op, PAWL_FINDING_DANGER, "rights", sql_link_host(call->on)->where, problem,
                      "No lock can be taken: all rights are checked when a client connects.",
                      remedy);
    }
}

static void examine_failed(sql_call *call, int code, const char *words)
{
    const char *lines = code == PAWL_EAUTH ? call->on->sql->refusals : NULL;

    if (lines)
        tell_refusals(call, call->about, lines);
    sql_done(call->about, lines ? 0 : code, words);
}

static void fill(const sql_call *call, sql_params *p)
{
    p->text = call->on->sql->driver->examine;
}

void sql_examine(sql *q, pawl_op *op)
{
    static const sql_call_type type = {.statement = SQL_EXAMINE, .fill = fill,
        .answer = answer_examine, .failed = examine_failed};

    sql_start(q, op, &type);
}
