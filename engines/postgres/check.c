/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - the check of the tables and functions, before any of them is used: a user that can
 * change or replace them can make them do anything with the rights of their callers.
 *
 * After the check nobody who is not trusted can change its result. Only owners can replace or drop
 * a table or function, only the schema's owner can drop those of others, and only users with the
 * right TRIGGER can add a trigger; so the owners and that right are checked. A function of the same
 * name with other parameters does no harm: all calls have the exact types of the parameters.
 * Objects that don't exist yet could be created by anybody, right after the check. So the function
 * for the version is not called unless it exists, and while another function is missing, the
 * tables count as older than they are.
 */
#include "postgres.h"

#define JOIN_SCHEMA(column) "JOIN pg_catalog.pg_namespace n ON n.oid" PG_EQ column " "
#define IN_SCHEMA "WHERE n.nspname" PG_EQ "$SCHEMA AND "
#define NAMES(list) "ANY ('{" list "}'::pg_catalog.name[])"

#define FUNCTIONS                                                                                  \
    NAMES("$TABLE_acquire,$TABLE_release,$TABLE_renew,$TABLE_break,$TABLE_latch,$TABLE_entry,"     \
          "$TABLE_version,$TABLE_now,$TABLE_lock,$TABLE_key,$TABLE_tell,$TABLE_left,$TABLE_pass,"  \
          "$TABLE_front,$TABLE_unused,$TABLE_sweep")
#define N_FUNCTIONS "16"

#define OBJECTS                                                                                    \
    "WITH o AS MATERIALIZED (SELECT c.oid, c.relname AS name, c.relowner AS owner, "               \
    "c.relacl AS acl, true AS is_table, c.relkind" PG_EQ "'r' AS good, 0 AS args "                 \
    "FROM pg_catalog.pg_class c " JOIN_SCHEMA("c.relnamespace")                                    \
    IN_SCHEMA "c.relname" PG_EQ NAMES("$TABLE,$TABLE_member,$TABLE_client")                        \
    " UNION ALL SELECT p.oid, p.proname, p.proowner, p.proacl, false, true, p.pronargs "           \
    "FROM pg_catalog.pg_proc p " JOIN_SCHEMA("p.pronamespace")                                     \
    IN_SCHEMA "p.proname" PG_EQ FUNCTIONS                                                          \
    "), s AS MATERIALIZED (SELECT n.nspname AS name, n.nspowner AS owner FROM "                    \
    "pg_catalog.pg_namespace n " IN_SCHEMA "true) "

/* Since PostgreSQL 14 the owner of a database has the role pg_database_owner, and nobody else. */
#define DISTRUSTED                                                                                 \
    "(NOT r.rolsuper AND r.rolname" PG_NE "current_user AND r.rolname" PG_NE                       \
    "'$OWNER'::pg_catalog.name AND r.rolname" PG_NE "'pg_database_owner' AND r.oid" PG_NE          \
    "(SELECT d.datdba FROM pg_catalog.pg_database d "                                              \
    "WHERE d.datname" PG_EQ "pg_catalog.current_database()))"

#define ADVICE "let an administrator make the tables (sql.md), or trust owner=%s"

#define OWNERS                                                                                     \
    "SELECT pg_catalog.format('%s belongs to %s, and would run with your rights: " ADVICE "', "    \
    "o.name, r.rolname, r.rolname) AS problem FROM o "                                             \
    "JOIN pg_catalog.pg_roles r ON r.oid" PG_EQ "o.owner WHERE " DISTRUSTED                        \
    " UNION ALL SELECT pg_catalog.format('the schema %s belongs to %s, who could replace what "    \
    "runs with your rights: " ADVICE "', s.name, r.rolname, r.rolname) FROM s "                    \
    "JOIN pg_catalog.pg_roles r ON r.oid" PG_EQ "s.owner WHERE " DISTRUSTED

/* A trigger or a rule calls functions with the rights of the user that changes the table. */
#define HOOKS                                                                                      \
    " UNION ALL SELECT pg_catalog.format('%s is no table', o.name) FROM o WHERE NOT o.good"        \
    " UNION ALL SELECT pg_catalog.format('the trigger %s would run with your rights: "             \
    "DROP TRIGGER %s ON %s', t.tgname, t.tgname, o.name) FROM o JOIN pg_catalog.pg_trigger t "     \
    "ON t.tgrelid" PG_EQ "o.oid WHERE o.is_table AND NOT t.tgisinternal"                           \
    " UNION ALL SELECT pg_catalog.format('the rule %s would run with your rights: "                \
    "DROP RULE %s ON %s', w.rulename, w.rulename, o.name) FROM o JOIN pg_catalog.pg_rewrite w "    \
    "ON w.ev_class" PG_EQ "o.oid WHERE o.is_table AND o.good"                                      \
    " UNION ALL SELECT pg_catalog.format('%s can add triggers that run with your rights: "         \
    "REVOKE TRIGGER ON %s FROM %s', coalesce(r.rolname, 'every user'), o.name, "                   \
    "coalesce(r.rolname, 'PUBLIC')) FROM o, LATERAL pg_catalog.aclexplode(o.acl) a "               \
    "LEFT JOIN pg_catalog.pg_roles r ON r.oid" PG_EQ "a.grantee WHERE o.is_table "                 \
    "AND a.privilege_type" PG_EQ "'TRIGGER' AND (r.oid IS NULL OR " DISTRUSTED ")"

#define RIGHTS                                                                                     \
    " UNION ALL SELECT pg_catalog.format('permission denied: GRANT %s ON %s TO this user "         \
    "(security.md)', k.privilege, o.name) FROM o, "                                                \
    "(VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS k (privilege) "                    \
    "WHERE o.is_table AND NOT pg_catalog.has_table_privilege(o.oid, k.privilege)"                  \
    " UNION ALL SELECT pg_catalog.format('permission denied: GRANT EXECUTE ON FUNCTION %s TO this "\
    "user (security.md)', o.name) FROM o "                                                         \
    "WHERE NOT o.is_table AND NOT pg_catalog.has_function_privilege(o.oid, 'EXECUTE')"

#define MISSING                                                                                    \
    " UNION ALL SELECT '' WHERE (SELECT pg_catalog.count(*) FROM o WHERE o.is_table)" PG_NE "3 "   \
    "OR NOT EXISTS (SELECT FROM o WHERE NOT o.is_table AND o.args" PG_EQ "0 "                      \
    "AND o.name" PG_EQ "'$TABLE_version')"

const char pg_check[] = OBJECTS OWNERS HOOKS RIGHTS MISSING;

const char pg_version[] =
    "SELECT v.version" PG_OP("-") "(CASE WHEN v.version" PG_EQ SQL_VERSION_TEXT " AND "
    "(SELECT pg_catalog.count(DISTINCT p.proname) FROM pg_catalog.pg_proc p "
    JOIN_SCHEMA("p.pronamespace") IN_SCHEMA "p.proname" PG_EQ FUNCTIONS ")" PG_OP("<") N_FUNCTIONS
    " THEN 1 ELSE 0 END) FROM (SELECT @_version() AS version) AS v";
