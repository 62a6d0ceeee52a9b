-- SPDX-License-Identifier: Apache-2.0
--
-- Pawl's tables and functions for PostgreSQL: three tables, and the functions that implement the
-- rules. The engine runs this file if its user has the rights; else an administrator runs the file
-- once, and then grants rights (docs/sql.md). Running the file again is harmless.
--
--   @          a row per name: the last token, and the exclusive holder
--   @_member   shared holders, waiters in order of id, receipts of latches
--   @_client   client information: host, pid, program, label; and the progress of the sweep
--
-- A function that changes a name locks the name's row in @ first, and reads the clock afterwards.
-- So all changes of one name happen one after the other, each at a later time. Every function is
-- one statement and one transaction: no row stays locked while a client computes.
--
-- Another transaction may hold a row locked for long. A function that is called with `patient`
-- waits for a row lock for 100 ms and then fails (55P03); without `patient` the function does not
-- wait, and replies BLOCKED. The client retries a little later. So a locked row delays only its own
-- name. @_renew and @_sweep never wait.
--
-- Every caller runs these functions with its own rights, so the functions must not call anything
-- that another user may have put into the schema: all names here are qualified (@ stands for
-- SCHEMA.TABLE), each function that clients call has its own search_path, and the arguments of each
-- call have exactly the types of the function's parameters, because another user may have created
-- a function of the same name with other parameters.
--
-- Times are Unix time in ms by this server's clock. An owner is CLIENT:SEQ, 16 hex digits and a
-- number in hex. An owner with the prefix "z:" has released the lock, which lingers until it
-- expires.
BEGIN;
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE IF NOT EXISTS @ (
    name    bytea PRIMARY KEY,
    type    smallint NOT NULL DEFAULT 0,    -- used as: 1 lock, 2 semaphore, 3 latch
    value   bigint NOT NULL DEFAULT 0,      -- semaphore: capacity; latch: count
    token   bigint NOT NULL DEFAULT 0,      -- the last token that was granted
    owner   text,                           -- the exclusive holder; NULL: none
    first   bigint NOT NULL DEFAULT 0,      -- the first token of this holder
    tokens  integer NOT NULL DEFAULT 0,     -- how many tokens this holder has
    since   bigint NOT NULL DEFAULT 0,
    expires bigint NOT NULL DEFAULT 0,      -- the holder's grant ends at this time
    round   text,                           -- latch: the owner that set the count
    created timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE IF NOT EXISTS @_member (
    name     bytea NOT NULL,
    owner    text NOT NULL,
    role     "char" NOT NULL,               -- h holder, w waiter, r receipt
    id       bigint GENERATED ALWAYS AS IDENTITY,
    mode     "char" NOT NULL,               -- x exclusive, s shared, p permits, l latch
    push     boolean NOT NULL,              -- the client receives messages
    permits  bigint NOT NULL,
    tokens   integer NOT NULL,
    first    bigint NOT NULL,               -- holder: the first token
    since    bigint NOT NULL,
    lease    bigint NOT NULL,
    expires  bigint NOT NULL,               -- end of the lease, queue entry or receipt
    PRIMARY KEY (name, owner),
    UNIQUE (name, role, id)                 -- the queue, in order
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);

CREATE TABLE IF NOT EXISTS @_client (
    client  text PRIMARY KEY,
    host    text NOT NULL,
    pid     bigint NOT NULL,
    program text NOT NULL,
    label   text NOT NULL,
    expires bigint NOT NULL
);

CREATE OR REPLACE FUNCTION @_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())
    OPERATOR(pg_catalog.*) 1000::pg_catalog.float8)::pg_catalog.int8 $$;

-- Lock the row of a name; `make`: create the row if it does not exist. False: another transaction
-- has the row locked. Without `patient` the rest of the transaction waits at most 1 ms for a row.
CREATE OR REPLACE FUNCTION @_lock(a_name bytea, patient boolean, make boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('lock_timeout', CASE WHEN patient THEN '100' ELSE '1' END, true);
    LOOP
        IF patient THEN
            PERFORM FROM @ WHERE name = a_name FOR UPDATE;
        ELSE
            PERFORM FROM @ WHERE name = a_name FOR UPDATE SKIP LOCKED;
        END IF;
        EXIT WHEN FOUND;
        IF NOT patient AND EXISTS (SELECT FROM @ WHERE name = a_name) THEN
            RETURN false;
        END IF;
        EXIT WHEN NOT make;
        INSERT INTO @ (name) VALUES (a_name) ON CONFLICT DO NOTHING;
    END LOOP;
    RETURN true;
END $$;

-- The number of the advisory lock that shows other clients that a client is connected. All users
-- may read the numbers of advisory locks, and a user that knows a client's id can send messages to
-- that client. So the number is a hash, which does not reveal the id.
CREATE OR REPLACE FUNCTION @_key(client text) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT ('x' || encode(substr(sha256(convert_to(client, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- Send a message to the client of an owner.
CREATE OR REPLACE FUNCTION @_tell(to_owner text, push boolean, message text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF push THEN
        PERFORM pg_notify('pawl_' || left(to_owner, 16), message);
    END IF;
END $$;

-- In how many ms from t the grants that block `a_mode` should have ended (permits: the first of the
-- grants); 0: none blocks.
CREATE OR REPLACE FUNCTION @_left(a_name bytea, a_mode "char", t bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    ends bigint;
    last bigint;
    x    bigint;
BEGIN
    SELECT min(m.expires), max(m.expires) INTO ends, last FROM @_member m
        WHERE m.name = a_name AND m.role = 'h' AND m.expires > t;
    SELECT l.expires INTO x FROM @ l
        WHERE l.name = a_name AND l.owner IS NOT NULL AND l.expires > t;
    IF a_mode = 'p' THEN
        RETURN greatest(coalesce(ends, t) - t, 0);
    END IF;
    RETURN greatest(coalesce(greatest(x, CASE WHEN a_mode = 'x' THEN last END), t) - t, 0);
END $$;

-- Grant the name to waiters: delete holders whose lease has ended, then grant from the front of the
-- queue as long as the next waiter fits. `me` is the caller: the caller is granted its full lease,
-- and gets no message. Other waiters get a claim of at most 2 s, and a message. A waiter that has
-- become the front of the queue gets a message, too.
CREATE OR REPLACE FUNCTION @_pass(a_name bytea, me text, t bigint, before bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    l    @%ROWTYPE;
    w    @_member%ROWTYPE;
    used bigint;
    hold bigint;
    ms   bigint;
    last bigint;
BEGIN
    DELETE FROM @_member m WHERE m.name = a_name AND m.role = 'h' AND m.expires <= t;
    SELECT * INTO l FROM @ WHERE name = a_name;
    SELECT count(*), coalesce(sum(m.permits), 0) INTO hold, used FROM @_member m
        WHERE m.name = a_name AND m.role = 'h';
    LOOP
        SELECT * INTO w FROM @_member m WHERE m.name = a_name AND m.role = 'w'
            ORDER BY m.id LIMIT 1;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        IF w.owner <> me AND w.expires <= t THEN
            DELETE FROM @_member m WHERE m.name = a_name AND m.owner = w.owner;
            CONTINUE;                       -- the queue entry has expired
        ELSIF w.mode = 'l' THEN
            EXIT WHEN l.type = 3 AND l.value > 0;
            DELETE FROM @_member m WHERE m.name = a_name AND m.owner = w.owner;
            PERFORM @_tell(w.owner, w.push, format('o %s %s', w.owner, t));
            CONTINUE;
        END IF;
        EXIT WHEN (l.owner IS NOT NULL AND l.expires > t) OR (w.mode = 'x' AND hold > 0)
            OR (w.mode = 'p' AND used + w.permits > l.value);
        IF w.push AND left(w.owner, 16) <> left(me, 16)
            AND pg_try_advisory_xact_lock(@_key(left(w.owner, 16))) THEN
            DELETE FROM @_member m WHERE m.name = a_name AND m.owner = w.owner;
            CONTINUE;                       -- the client is not connected any more
        END IF;
        ms := CASE WHEN w.owner = me THEN w.lease ELSE least(w.lease, 2000) END;
        last := greatest(l.token + w.tokens, t * 1000);
        IF w.mode = 'x' THEN
            DELETE FROM @_member m WHERE m.name = a_name AND m.owner = w.owner;
            UPDATE @ SET type = 1, owner = w.owner, first = last - w.tokens + 1, tokens = w.tokens,
                token = last, since = t, expires = t + ms WHERE name = a_name;
            l.owner := w.owner;
            l.expires := t + ms;
        ELSE
            UPDATE @_member m SET role = 'h', first = last - w.tokens + 1, since = t,
                expires = t + ms WHERE m.name = a_name AND m.owner = w.owner;
            UPDATE @ SET token = last WHERE name = a_name;
            hold := hold + 1;
            used := used + w.permits;
        END IF;
        l.token := last;
        IF w.owner <> me THEN
            PERFORM @_tell(w.owner, w.push, format('g %s %s %s %s %s', w.owner,
                                                   last - w.tokens + 1, w.tokens, ms, t));
        END IF;
    END LOOP;
    IF w.id <> before AND w.owner <> me AND w.mode <> 'l' THEN
        PERFORM @_tell(w.owner, w.push, format('f %s %s 0 %s', w.owner,
                                               @_left(a_name, w.mode, t), t));
    END IF;
END $$;

-- The id of the first waiter in the queue; 0: none.
CREATE OR REPLACE FUNCTION @_front(a_name bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    front bigint;
BEGIN
    SELECT m.id INTO front FROM @_member m WHERE m.name = a_name AND m.role = 'w'
        ORDER BY m.id LIMIT 1;
    RETURN coalesce(front, 0);
END $$;

-- Acquire `name`, or enqueue `me`; see docs/sql.md for arguments and replies.
CREATE OR REPLACE FUNCTION @_acquire(a_name bytea, me text, a_mode "char", a_lease bigint,
    keep bigint, n integer, a_permits bigint, capacity bigint, with_owner text, floor bigint,
    seen text, a_push boolean, patient boolean) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l      @%ROWTYPE;
    m      @_member%ROWTYPE;
    t      bigint;
    held   boolean;
    placed boolean;
    in_use boolean;
    queue  boolean;
    hold   bigint;
    used   bigint;
    last   bigint;
    want   smallint := CASE a_mode WHEN 'p' THEN 2 WHEN 'l' THEN 3 ELSE 1 END;
BEGIN
    IF NOT @_lock(a_name, patient, true) THEN
        RETURN 'BLOCKED';
    END IF;
    SELECT * INTO l FROM @ WHERE name = a_name;
    t := @_now();
    IF floor > l.token THEN
        UPDATE @ SET token = floor WHERE name = a_name;
        l.token := floor;
    END IF;
    -- A repeated request: `me` already holds the name. The lease starts anew, and never ends
    -- earlier than before.
    IF l.owner = me AND l.expires > t THEN
        UPDATE @ SET expires = greatest(expires, t + a_lease) WHERE name = a_name;
        RETURN format('GRANTED %s %s %s %s %s', me, l.first, l.tokens, a_lease, t);
    END IF;
    SELECT * INTO m FROM @_member b WHERE b.name = a_name AND b.owner = me;
    placed := FOUND AND m.role = 'w';
    IF FOUND AND m.role = 'h' AND m.expires > t THEN
        UPDATE @_member b SET expires = greatest(expires, t + a_lease)
            WHERE b.name = a_name AND b.owner = me;
        RETURN format('GRANTED %s %s %s %s %s', me, m.first, m.tokens, a_lease, t);
    ELSIF FOUND AND NOT placed THEN
        DELETE FROM @_member b WHERE b.name = a_name AND b.owner = me;
    END IF;

    held := l.owner IS NOT NULL AND l.expires > t;
    IF placed OR NOT held OR a_mode IN ('p', 'l') THEN
        PERFORM @_pass(a_name, me, t, @_front(a_name));
        SELECT * INTO l FROM @ WHERE name = a_name;
        held := l.owner IS NOT NULL AND l.expires > t;
    END IF;
    IF placed THEN
        IF l.owner = me THEN
            RETURN format('GRANTED %s %s %s %s %s', me, l.first, l.tokens, m.lease, t);
        END IF;
        SELECT * INTO m FROM @_member b WHERE b.name = a_name AND b.owner = me;
        IF FOUND AND m.role = 'h' THEN
            RETURN format('GRANTED %s %s %s %s %s', me, m.first, m.tokens, m.lease, t);
        END IF;
        placed := FOUND;                    -- else the latch has opened
    END IF;

    SELECT coalesce(bool_or(b.role = 'w'), false), count(*) FILTER (WHERE b.role = 'h'),
        coalesce(sum(b.permits) FILTER (WHERE b.role = 'h'), 0) INTO queue, hold, used
        FROM (SELECT * FROM @_member c WHERE c.name = a_name AND c.role = 'h' AND c.expires > t
              UNION ALL
              (SELECT * FROM @_member c WHERE c.name = a_name AND c.role = 'w' LIMIT 1)) b;
    in_use := held OR queue OR hold > 0 OR (l.type = 3 AND l.value > 0);
    IF in_use AND l.type <> want THEN
        RETURN format('STATE %s', me);
    END IF;
    IF a_mode = 'l' THEN
        IF l.type <> 3 OR l.value <= 0 OR (seen <> '' AND seen <> l.round) THEN
            DELETE FROM @_member b WHERE b.name = a_name AND b.owner = me;
            RETURN format('GRANTED %s 0 0 0 %s', me, t);
        END IF;
    ELSIF NOT placed THEN
        IF a_mode = 'p' THEN
            last := CASE WHEN in_use THEN l.value ELSE capacity END;
            IF last <= 0 OR (capacity > 0 AND capacity <> last) THEN
                RETURN format('STATE %s', me);
            ELSIF a_permits < 1 OR a_permits > last THEN
                RETURN format('INVAL %s', me);
            END IF;
            l.value := last;
        END IF;
        IF NOT in_use AND (l.type <> want OR l.value <> CASE WHEN a_mode = 'p' THEN last ELSE 0 END
                           OR a_mode = 'p') THEN
            UPDATE @ SET type = want, value = CASE WHEN a_mode = 'p' THEN last ELSE 0 END
                WHERE name = a_name;
        END IF;
        IF (held AND a_mode = 's' AND l.owner = with_owner AND left(me, 16) = left(with_owner, 16))
            OR (NOT queue AND NOT held AND (a_mode <> 'x' OR hold = 0)
                AND (a_mode <> 'p' OR used + a_permits <= l.value)) THEN
            last := greatest(l.token + n, t * 1000);
            IF a_mode = 'x' THEN
                UPDATE @ SET owner = me, first = last - n + 1, tokens = n, token = last, since = t,
                    expires = t + a_lease WHERE name = a_name;
            ELSE
                UPDATE @ SET token = last WHERE name = a_name;
                INSERT INTO @_member (name, owner, role, mode, push, permits, tokens, first, since,
                                      lease, expires)
                    VALUES (a_name, me, 'h', a_mode, a_push, a_permits, n, last - n + 1, t, a_lease,
                            t + a_lease);
            END IF;
            RETURN format('GRANTED %s %s %s %s %s', me, last - n + 1, n, a_lease, t);
        END IF;
    END IF;

    IF keep <= 0 AND NOT placed THEN
        RETURN format('BUSY %s %s 0 %s', me, @_left(a_name, a_mode, t), t);
    END IF;
    INSERT INTO @_member AS b (name, owner, role, mode, push, permits, tokens, first, since, lease,
                               expires)
        VALUES (a_name, me, 'w', a_mode, a_push, a_permits, n, 0, t, a_lease, t + keep)
        ON CONFLICT (name, owner) DO UPDATE SET expires = t + keep, push = a_push
        RETURNING * INTO m;
    RETURN format('QUEUED %s %s %s 0 %s %s', me,
        CASE WHEN @_front(a_name) = m.id THEN 0 ELSE 1 END,
        CASE WHEN a_mode = 'l' THEN -1 ELSE @_left(a_name, a_mode, t) END, t, left(l.round, 40));
END $$;

-- End a grant, but keep `kept` permits; linger > 0: end the grant in `linger` ms. A queue entry of
-- the owner is removed, too; the reply says QUEUED only if `cancels` is set.
CREATE OR REPLACE FUNCTION @_release(a_name bytea, me text, kept bigint, linger bigint,
    cancels boolean, patient boolean) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l      @%ROWTYPE;
    m      @_member%ROWTYPE;
    t      bigint;
    before bigint;
    reply  text := 'OK';
BEGIN
    IF NOT @_lock(a_name, patient, false) THEN
        RETURN 'BLOCKED';
    END IF;
    SELECT * INTO l FROM @ WHERE name = a_name;
    t := @_now();
    before := @_front(a_name);
    IF l.owner = me AND l.expires > t THEN
        UPDATE @ SET owner = CASE WHEN linger > 0 THEN 'z:' || me END,
            expires = t + greatest(linger, 0) WHERE name = a_name;
    ELSE
        SELECT * INTO m FROM @_member b WHERE b.name = a_name AND b.owner = me;
        IF m.role = 'h' AND m.expires > t AND kept > 0 THEN
            UPDATE @_member b SET permits = least(kept, b.permits)
                WHERE b.name = a_name AND b.owner = me;
        ELSIF m.role = 'h' AND m.expires > t AND linger > 0 THEN
            UPDATE @_member b SET owner = 'z:' || me, expires = t + linger
                WHERE b.name = a_name AND b.owner = me;
        ELSIF m.role = 'h' OR m.role = 'w' THEN
            DELETE FROM @_member b WHERE b.name = a_name AND b.owner = me;
            reply := CASE WHEN m.role = 'w' AND cancels THEN 'QUEUED'
                          WHEN m.role = 'w' OR m.expires <= t THEN 'NOTHELD' ELSE 'OK' END;
        ELSIF linger > 0 AND ((l.owner = 'z:' || me AND l.expires > t) OR EXISTS (
                SELECT FROM @_member b WHERE b.name = a_name AND b.owner = 'z:' || me)) THEN
            reply := 'OK';                  -- a repeated release
        ELSE
            reply := 'NOTHELD';
        END IF;
    END IF;
    IF before > 0 THEN
        PERFORM @_pass(a_name, me, t, CASE WHEN linger > 0 THEN 0 ELSE before END);
    END IF;
    RETURN format('%s %s %s', reply, me, t);
END $$;

-- Renew leases. `list` has for each lease the name in hex, the owner and the lease in ms, each
-- followed by a blank. The reply has a digit for each lease: 1 renewed; 0 the owner holds nothing;
-- 2 another transaction has the row locked, so that the outcome is open.
CREATE OR REPLACE FUNCTION @_renew(list text) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    words  text[] := string_to_array(list, ' ');
    names  bytea[];
    owners text[];
    leases bigint[];
    got    bytea[];
    done   bigint[];
    more   bigint[];
    t      bigint;
    reply  text;
BEGIN
    SELECT array_agg(decode(words[i], 'hex') ORDER BY i), array_agg(words[i + 1] ORDER BY i),
        array_agg(words[i + 2]::bigint ORDER BY i) INTO names, owners, leases
        FROM generate_series(1, cardinality(words) - 3, 3) i;
    SELECT coalesce(array_agg(x.name), '{}') INTO got FROM
        (SELECT l.name FROM @ l WHERE l.name = ANY (names) FOR UPDATE SKIP LOCKED) x;
    t := @_now();
    WITH x AS (
        UPDATE @ l SET expires = greatest(l.expires, t + i.lease)
        FROM unnest(names, owners, leases) WITH ORDINALITY AS i (name, owner, lease, n)
        WHERE l.name = i.name AND l.name = ANY (got) AND l.owner = i.owner AND l.expires > t
        RETURNING i.n
    ) SELECT coalesce(array_agg(x.n), '{}') INTO done FROM x;
    IF cardinality(done) = cardinality(names) THEN
        RETURN format('%s %s', t, repeat('1', cardinality(names)));
    END IF;
    WITH f AS (
        SELECT m.name, m.owner, i.lease, i.n FROM @_member m
        JOIN unnest(names, owners, leases) WITH ORDINALITY AS i (name, owner, lease, n)
            ON m.name = i.name AND m.owner = i.owner
        WHERE m.name = ANY (got) AND m.role = 'h' FOR UPDATE OF m SKIP LOCKED
    ), s AS (
        UPDATE @_member m SET expires = greatest(m.expires, t + f.lease) FROM f
        WHERE m.name = f.name AND m.owner = f.owner AND m.expires > t RETURNING f.n
    ) SELECT coalesce(array_agg(s.n), '{}') INTO more FROM s;
    SELECT string_agg(CASE WHEN i.n = ANY (done) OR i.n = ANY (more) THEN '1'
            WHEN EXISTS (SELECT FROM @ l WHERE l.name = i.name AND l.name <> ALL (got))
                OR EXISTS (SELECT FROM @_member m WHERE m.name = i.name AND m.owner = i.owner
                           AND m.role = 'h' AND m.expires > t) THEN '2'
            ELSE '0' END, '' ORDER BY i.n) INTO reply
        FROM unnest(names, owners) WITH ORDINALITY AS i (name, owner, n);
    RETURN format('%s %s', t, reply);
END $$;

-- End every grant, send the holders the client information of the breaker, and grant to the next
-- waiters.
CREATE OR REPLACE FUNCTION @_break(a_name bytea, me text, patient boolean) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l   @%ROWTYPE;
    m   @_member%ROWTYPE;
    t   bigint;
    had boolean;
    who text;
BEGIN
    IF NOT @_lock(a_name, patient, false) THEN
        RETURN 'BLOCKED';
    END IF;
    SELECT * INTO l FROM @ WHERE name = a_name;
    SELECT format('pid %s %s%s on %s', c.pid, left(c.program, 30),
                  CASE WHEN c.label = '' THEN '' ELSE ' (' || left(c.label, 30) || ')' END,
                  left(c.host, 30)) INTO who FROM @_client c WHERE c.client = left(me, 16);
    t := @_now();
    had := l.owner IS NOT NULL AND l.expires > t;
    IF had THEN
        PERFORM @_tell(l.owner, left(l.owner, 2) <> 'z:', format('e %s %s %s', l.owner, t, who));
        UPDATE @ SET owner = NULL WHERE name = a_name;
    END IF;
    FOR m IN DELETE FROM @_member b WHERE b.name = a_name AND b.role = 'h' RETURNING b.* LOOP
        IF m.expires > t THEN
            PERFORM @_tell(m.owner, left(m.owner, 2) <> 'z:',
                           format('e %s %s %s', m.owner, t, who));
            had := true;
        END IF;
    END LOOP;
    PERFORM @_pass(a_name, me, t, @_front(a_name));
    RETURN format('%s %s', CASE WHEN had THEN 'OK' ELSE 'NOTHELD' END, t);
END $$;

-- Set a latch (count > 0), or count the latch down (0).
CREATE OR REPLACE FUNCTION @_latch(a_name bytea, me text, count bigint, patient boolean)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    l       @%ROWTYPE;
    m       @_member%ROWTYPE;
    t       bigint;
    current bigint;
BEGIN
    IF NOT @_lock(a_name, patient, true) THEN
        RETURN 'BLOCKED';
    END IF;
    SELECT * INTO l FROM @ WHERE name = a_name;
    t := @_now();
    DELETE FROM @_member b WHERE b.name = a_name AND b.role = 'r' AND b.expires <= t;
    current := CASE WHEN l.type = 3 THEN l.value ELSE 0 END;
    IF (l.owner IS NOT NULL AND l.expires > t) OR EXISTS (SELECT FROM @_member b
            WHERE b.name = a_name AND b.role IN ('h', 'w') AND b.mode <> 'l' AND b.expires > t) THEN
        RETURN format('STATE %s', me);
    ELSIF EXISTS (SELECT FROM @_member b WHERE b.name = a_name AND b.owner = me) THEN
        RETURN format('OK %s %s', me, current);
    ELSIF count > 0 AND current > 0 THEN
        RETURN format('STATE %s', me);
    ELSIF count <= 0 AND current <= 0 THEN
        RETURN format('OK %s 0', me);
    END IF;
    current := CASE WHEN count > 0 THEN count ELSE current - 1 END;
    UPDATE @ SET type = 3, value = current, round = CASE WHEN count > 0 THEN me ELSE round END
        WHERE name = a_name;
    INSERT INTO @_member (name, owner, role, mode, push, permits, tokens, first, since, lease,
                          expires)
        VALUES (a_name, me, 'r', 'l', false, 0, 0, 0, t, 0, t + 60000);
    IF current = 0 OR count > 0 THEN        -- open; or wake the waiters of a lost latch
        FOR m IN DELETE FROM @_member b WHERE b.name = a_name AND b.role = 'w' RETURNING b.* LOOP
            PERFORM @_tell(m.owner, m.push, format('o %s %s', m.owner, t));
        END LOOP;
    END IF;
    RETURN format('OK %s %s', me, current);
END $$;

-- True if the row was not used since `since`. Members are not checked.
CREATE OR REPLACE FUNCTION @_unused(l @, since bigint) RETURNS boolean LANGUAGE sql STABLE AS
$$ SELECT l.expires < since AND l.token < since * 1000 AND NOT (l.type = 3 AND l.value > 0)
    AND l.created < to_timestamp(since / 1000.0) $$;

-- Delete rows that were not used for `idle` ms: rows of names, holders and waiters that expired
-- long ago, receipts, client information. One call checks `most` names, from where the last call
-- ended. At most one call runs at a time, when the sweep is due. Locked rows are skipped, and rows
-- are checked again under the name's row lock before they are deleted. A name's row is deleted only
-- if its last token is behind the clock by `idle`, so that the tokens of a new row are larger.
-- True: there is more.
CREATE OR REPLACE FUNCTION @_sweep(idle bigint, most integer) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    c     @_client%ROWTYPE;
    t     bigint := @_now();
    slice bytea[];
    got   bytea[];
    gone  bigint;
    more  boolean;
BEGIN
    PERFORM set_config('lock_timeout', '1', true);
    SELECT * INTO c FROM @_client WHERE client = 'sweep' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        INSERT INTO @_client VALUES ('sweep', '', 0, '', '', 0) ON CONFLICT DO NOTHING;
        RETURN false;
    ELSIF c.expires > t AND c.expires < t + 60000 THEN
        RETURN false;
    END IF;
    SELECT array_agg(x.name ORDER BY x.name) INTO slice FROM
        (SELECT l.name FROM @ l WHERE l.name > decode(c.label, 'hex') ORDER BY l.name LIMIT most) x;
    SELECT array_agg(x.name) INTO got FROM (
        SELECT l.name FROM @ l WHERE l.name = ANY (slice) AND (@_unused(l, t - idle)
            OR EXISTS (SELECT FROM @_member m WHERE m.name = l.name AND m.expires < t - 60000))
        FOR UPDATE SKIP LOCKED) x;
    DELETE FROM @_member m WHERE m.ctid = ANY (ARRAY (SELECT n.ctid FROM @_member n
        WHERE n.name = ANY (got) AND n.expires < t - 60000 FOR UPDATE SKIP LOCKED));
    DELETE FROM @ l WHERE l.name = ANY (got) AND @_unused(l, t - idle)
        AND NOT EXISTS (SELECT FROM @_member m WHERE m.name = l.name);
    GET DIAGNOSTICS gone = ROW_COUNT;
    DELETE FROM @_client d WHERE d.ctid = ANY (ARRAY (SELECT e.ctid FROM @_client e
        WHERE e.expires < t - 86400000 AND e.client <> 'sweep' LIMIT most FOR UPDATE SKIP LOCKED));
    more := cardinality(slice) = most AND gone > most / 20;
    UPDATE @_client SET expires = t + CASE WHEN more THEN 500 ELSE 20000 END,
        label = CASE WHEN cardinality(slice) = most THEN encode(slice[most], 'hex') ELSE '' END
        WHERE client = 'sweep';
    RETURN coalesce(more, false);
END $$;

-- Write the client information, valid for `kept` ms. The reply also says whether the sweep has more
-- to do.
CREATE OR REPLACE FUNCTION @_entry(a_client text, a_host text, a_pid bigint, a_program text,
    a_label text, kept bigint) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    t    bigint := @_now();
    more boolean := false;
BEGIN
    IF kept <= 0 THEN
        DELETE FROM @_client c WHERE c.client = a_client;
        RETURN 'OK';
    END IF;
    PERFORM set_config('lock_timeout', '100', true);
    INSERT INTO @_client AS c VALUES (a_client, a_host, a_pid, a_program, a_label, t + kept)
        ON CONFLICT (client) DO UPDATE SET expires = t + kept;
    BEGIN
        more := @_sweep(86400000::bigint, 1000::integer);
    EXCEPTION WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
        NULL;                               -- the next sweep tries again
    END;
    RETURN CASE WHEN more THEN 'OK more' ELSE 'OK' END;
END $$;

-- Version 1 had these functions with other arguments.
DROP FUNCTION IF EXISTS @_acquire(bytea, text, "char", bigint, bigint, integer, bigint, bigint,
    text, bigint, text, boolean);
DROP FUNCTION IF EXISTS @_release(bytea, text, bigint, bigint, boolean);
DROP FUNCTION IF EXISTS @_break(bytea, text);
DROP FUNCTION IF EXISTS @_latch(bytea, text, bigint);

-- Created last: if this function exists, all others do.
CREATE OR REPLACE FUNCTION @_version() RETURNS integer LANGUAGE sql AS $$ SELECT 2 $$;
COMMIT;
