-- SPDX-License-Identifier: Apache-2.0
-- The user mallory creates, in the schema public, objects with the names of PostgreSQL's own: functions,
-- operators, types and views. They do what the originals do, and also write to the server's log who
-- called them. Whoever has public before pg_catalog in search_path, and names an object without its
-- schema, calls mallory's object.
SET search_path = pg_catalog;
SET ROLE mallory;
SET check_function_bodies = off;

CREATE FUNCTION public.caught(what pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS
$$ BEGIN RAISE LOG 'caught % as %', what, current_user; RETURN true; END $$;

CREATE FUNCTION public.copy_function(name pg_catalog.text, args pg_catalog.text, result pg_catalog.text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    n int := CASE WHEN args = '' THEN 0 ELSE cardinality(string_to_array(args, ',')) END;
BEGIN
    EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', name, args, result,
        format('BEGIN PERFORM public.caught(%L); RETURN pg_catalog.%I(%s); END', name, name,
               (SELECT string_agg('$' || i, ', ') FROM generate_series(1, n) i)));
END $$;

CREATE FUNCTION public.copy_operator(name pg_catalog.text, a pg_catalog.text, b pg_catalog.text,
    result pg_catalog.text)
RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    f text := 'operator_' || md5(name || a || b);
BEGIN
    EXECUTE format('CREATE FUNCTION public.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', f, a, b, result,
        format('BEGIN PERFORM public.caught(%L); RETURN $1 OPERATOR(pg_catalog.%s) $2; END',
               a || name || b, name));
    EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
                   name, a, b, f);
END $$;

SELECT public.copy_function(p.proname, oidvectortypes(p.proargtypes), format_type(p.prorettype, NULL))
FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset
AND NOT EXISTS (SELECT FROM unnest(p.proargtypes::oid[] || p.prorettype) AS a (oid)
    JOIN pg_type t USING (oid) WHERE t.typtype = 'p');
SELECT public.copy_function('pg_advisory_lock_shared', 'bigint', 'void');
SELECT public.copy_function(f, args, 'text') FROM (VALUES
    ('concat_ws', 'text, text, integer, bigint, bigint, bigint, pg_lsn, text'), ('concat', 'text, text'),
    ('format', 'text, name, name'), ('format', 'text, text, name'), ('format', 'text, name')
) AS f (f, args);
CREATE FUNCTION public.count(boolean) RETURNS bigint LANGUAGE sql AS
$$ SELECT (public.caught('count')::int)::bigint $$;

SELECT public.copy_operator(o.oprname, format_type(o.oprleft, NULL), format_type(o.oprright, NULL),
                            format_type(o.oprresult, NULL))
FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprkind = 'b'
AND o.oprname IN ('+', '-', '*', '/', '=', '<>', '<', '>', '<=', '>=', '||', '~', '~~')
AND NOT EXISTS (SELECT FROM unnest(ARRAY[o.oprleft, o.oprright, o.oprresult]) AS a (oid)
    JOIN pg_type t USING (oid) WHERE t.typtype = 'p');
-- Better matches than PostgreSQL's own, also behind pg_catalog in search_path.
SELECT public.copy_operator('*', 'numeric', 'integer', 'numeric');
SELECT public.copy_operator('*', 'double precision', 'integer', 'double precision');
SELECT public.copy_operator('||', 'text', 'bigint', 'text');
SELECT public.copy_function('pg_terminate_backend', 'integer, integer', 'boolean');

CREATE VIEW public.pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE public.caught('pg_locks');
CREATE VIEW public.pg_stat_activity AS SELECT * FROM pg_catalog.pg_stat_activity
    WHERE public.caught('pg_stat_activity');
CREATE VIEW public.pg_database AS SELECT * FROM pg_catalog.pg_database WHERE public.caught('pg_database');
CREATE VIEW public.pg_class AS SELECT * FROM pg_catalog.pg_class WHERE public.caught('pg_class');
CREATE VIEW public.pg_settings AS SELECT * FROM pg_catalog.pg_settings WHERE public.caught('pg_settings');
CREATE DOMAIN public.text AS pg_catalog.text CHECK (public.caught('text'));
CREATE DOMAIN public.bytea AS pg_catalog.bytea CHECK (public.caught('bytea'));
CREATE DOMAIN public."char" AS pg_catalog."char" CHECK (public.caught('char'));
CREATE DOMAIN public.name AS pg_catalog.name CHECK (public.caught('name'));
CREATE DOMAIN public.oid AS pg_catalog.oid CHECK (public.caught('oid'));
CREATE DOMAIN public.int8 AS pg_catalog.int8 CHECK (public.caught('int8'));
CREATE DOMAIN public.int4 AS pg_catalog.int4 CHECK (public.caught('int4'));
