/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE on SQL servers: one statement of the driver, whose rows are the findings:
 * level, id, what, why, what to do. The row "clock" has the server's Unix time in ms instead of
 * words.
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

static void examine_failed(sql_call *call, int code, const char *words)
{
    sql_done(call->about, code, words);
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
