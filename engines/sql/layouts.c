/* SPDX-License-Identifier: Apache-2.0
 *
 * layouts.c - the parameter `layout` of a SQL engine: the tables (sql.c), or locks of the server's
 * sessions (sessions.c). An instance is a struct sql or a struct sql_sessions, which begins with a
 * struct sql; sql.layout is NULL for the tables.
 */
#include "session.h"

static bool has_sessions(const void *self)
{
    return ((const sql *)self)->layout;
}

int sql_layouts_open(void *self, const sql_driver *tables, const sql_layout *layout, pawl_env *env,
                     const pawl_url *url, pawl_error *err)
{
    const char *name = pawl_url_param(url, "layout");

    if (name && !strcmp(name, layout->name))
        return sql_sessions_open(self, layout, env, url, err);
    if (name && strcmp(name, "pawl"))
        return pawl_error_set(err, PAWL_EINVAL, "layout is pawl (the default) or %s", layout->name);
    return sql_open(self, tables, env, url, err);
}

void sql_layouts_close(void *self)
{
    if (has_sessions(self))
        sql_sessions_close(self);
    else
        sql_close(self);
}

void sql_layouts_submit(void *self, pawl_op *op)
{
    if (has_sessions(self))
        sql_sessions_submit(self, op);
    else
        sql_submit(self, op);
}

void sql_layouts_cancel(void *self, pawl_op *op)
{
    if (has_sessions(self))
        sql_sessions_cancel(self, op);
    else
        sql_cancel(self, op);
}

/* Locks and waits of sessions end with their connections. */
bool sql_layouts_unfinished(void *self)
{
    return !has_sessions(self) && sql_waiters_leave(self);
}

uint32_t sql_layouts_caps(void *self)
{
    return has_sessions(self) ? ((const sql *)self)->layout->caps : SQL_CAPS;
}
