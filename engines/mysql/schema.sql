-- SPDX-License-Identifier: Apache-2.0
--
-- Pawl's tables and procedures for MariaDB and MySQL: four tables, and the procedures that
-- implement the rules. The engine runs this file if its user has the rights; else an administrator
-- runs the file once (as share/pawl/mysql.sql), and then grants rights (docs/sql.md). Running the
-- file again is harmless.
--
--   @          a row per name: the last token, and the exclusive holder
--   @_member   shared holders, waiters in order of id, receipts of latches
--   @_client   client information: host, pid, program, label; and the progress of the sweep
--   @_mail     messages that no listener has read yet
--
-- A procedure that changes a name locks the name's row in @ first, and reads the clock afterwards.
-- So all changes of one name happen one after the other, each at a later time. Every request is one
-- CALL and one transaction: no row stays locked while a client computes. Times are Unix time in ms
-- by this server's clock. An owner is CLIENT:SEQ, 16 hex digits and a number in hex. An owner with
-- the prefix "z:" has released the lock, which lingers until it expires.
--
-- Another transaction may hold a row locked for long. The session's lock wait timeout is 0 on
-- MariaDB (1 s on MySQL, which has no less), so a locked row is refused at once. A procedure that
-- is called with `patient` tries for 100 ms to lock its name's row, without `patient` once; then
-- the procedure replies BLOCKED, and the client retries a little later. So a locked row delays only
-- its own name. @_renew and @_sweep try once.
--
-- Notifying: the first connection of a client holds the user lock pawl:CLIENT for its whole life,
-- which shows other clients that the client is connected. A client that waits has a second
-- connection, the listener, which holds pawl:ear:CLIENT and waits for the first lock, without
-- success, in @_hear. A sender of a message writes the message to @_mail and, after its COMMIT,
-- ends that wait by KILL QUERY (@_ring), which the server allows if both connections have the same
-- user. The listener also checks @_mail every second. (The listener does not SLEEP: all connections
-- that SLEEP share one mutex in the server, and a KILL QUERY may wait 2 s for that mutex.)
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'
;;
CREATE TABLE IF NOT EXISTS @ (
    name    VARBINARY(255) NOT NULL PRIMARY KEY,
    type    TINYINT NOT NULL DEFAULT 0,     -- used as: 1 lock, 2 semaphore, 3 latch
    value   BIGINT NOT NULL DEFAULT 0,      -- semaphore: capacity; latch: count
    token   BIGINT NOT NULL DEFAULT 0,      -- the last token that was granted
    owner   VARBINARY(40),                  -- the exclusive holder; NULL: none
    first   BIGINT NOT NULL DEFAULT 0,      -- the first token of this holder
    tokens  INT NOT NULL DEFAULT 0,         -- how many tokens this holder has
    since   BIGINT NOT NULL DEFAULT 0,
    expires BIGINT NOT NULL DEFAULT 0,      -- the holder's grant ends at this time
    round   VARBINARY(40),                  -- latch: the owner that set the count
    created TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE=InnoDB
;;
CREATE TABLE IF NOT EXISTS @_member (
    name    VARBINARY(255) NOT NULL,
    owner   VARBINARY(40) NOT NULL,
    role    BINARY(1) NOT NULL,             -- h holder, w waiter, r receipt
    id      BIGINT NOT NULL AUTO_INCREMENT,
    mode    BINARY(1) NOT NULL,             -- x exclusive, s shared, p permits, l latch
    push    TINYINT NOT NULL,               -- the client receives messages
    permits BIGINT NOT NULL,
    tokens  INT NOT NULL,
    first   BIGINT NOT NULL,                -- holder: the first token
    since   BIGINT NOT NULL,
    lease   BIGINT NOT NULL,
    expires BIGINT NOT NULL,                -- end of the lease, queue entry or receipt
    PRIMARY KEY (name, owner),
    UNIQUE KEY (name, role, id),            -- the queue, in order
    KEY (id)
) ENGINE=InnoDB
;;
CREATE TABLE IF NOT EXISTS @_client (
    client  VARBINARY(16) NOT NULL PRIMARY KEY,
    host    VARCHAR(255) NOT NULL,
    pid     BIGINT NOT NULL,
    program VARCHAR(255) NOT NULL,
    label   VARCHAR(1000) NOT NULL,
    expires BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4
;;
CREATE TABLE IF NOT EXISTS @_mail (
    client  VARBINARY(16) NOT NULL,
    id      BIGINT NOT NULL AUTO_INCREMENT,
    message VARBINARY(200) NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (client, id),
    KEY (id)
) ENGINE=InnoDB
;;
DROP PROCEDURE IF EXISTS @_now
;;
CREATE PROCEDURE @_now(OUT t BIGINT) SQL SECURITY INVOKER
    SET t = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000
;;
DROP PROCEDURE IF EXISTS @_lock
;;
-- In a new transaction, lock the row of a name. got = 1: locked; 0: the row does not exist; 2:
-- another transaction has the row locked. If the lock was refused, the transaction is rolled back:
-- where innodb_rollback_on_timeout is set, the server has done so already.
CREATE PROCEDURE @_lock(IN a_name VARBINARY(255), IN patient TINYINT, OUT got TINYINT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_refused BOOLEAN;
    DECLARE v_begun, t BIGINT;
    DECLARE CONTINUE HANDLER FOR 1205 SET v_refused = TRUE;
    REPEAT
        SET v_refused = FALSE, got = 0;
        START TRANSACTION;
        SELECT 1 INTO got FROM @ WHERE name = a_name FOR UPDATE;
        IF v_refused THEN
            ROLLBACK;
            SET got = 2;
            CALL @_now(t);
            SET v_begun = IFNULL(v_begun, t);
            IF patient AND t < v_begun + 100 THEN
                DO SLEEP(IF(t < v_begun + 20, 0.001, 0.004));
            ELSE
                SET patient = 0;
            END IF;
        END IF;
    UNTIL got <> 2 OR NOT patient END REPEAT;
END
;;
DROP PROCEDURE IF EXISTS @_tell
;;
-- Write a message to the client of an owner. @_ring notifies the listener after the COMMIT.
CREATE PROCEDURE @_tell(IN a_owner VARBINARY(40), IN a_push TINYINT, IN a_message VARBINARY(200),
    IN t BIGINT, INOUT ring MEDIUMBLOB) SQL SECURITY INVOKER
BEGIN
    IF a_push THEN
        INSERT INTO @_mail (client, message, at) VALUES (LEFT(a_owner, 16), a_message, t);
        SET ring = CONCAT(ring, LEFT(a_owner, 16));
    END IF;
END
;;
DROP PROCEDURE IF EXISTS @_ring
;;
CREATE PROCEDURE @_ring(IN ring MEDIUMBLOB) SQL SECURITY INVOKER
BEGIN
    DECLARE v_id BIGINT UNSIGNED;
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END; -- listener ended, or is another user's
    WHILE LENGTH(ring) >= 16 DO
        SET v_id = IS_USED_LOCK(CONCAT('pawl:ear:', CONVERT(LEFT(ring, 16) USING ascii)));
        SET ring = SUBSTRING(ring, 17);
        IF v_id IS NOT NULL THEN
            KILL QUERY v_id;
        END IF;
    END WHILE;
END
;;
DROP PROCEDURE IF EXISTS @_left
;;
-- In how many ms from t the grants that block `a_mode` should have ended (permits: the first of the
-- grants); 0: none blocks.
CREATE PROCEDURE @_left(IN a_name VARBINARY(255), IN a_mode BINARY(1), IN t BIGINT, OUT ms BIGINT)
    SQL SECURITY INVOKER
BEGIN
    DECLARE v_first, v_last, v_x BIGINT;
    SELECT MIN(expires), MAX(expires) INTO v_first, v_last FROM @_member
        WHERE name = a_name AND role = 'h' AND expires > t;
    SELECT MAX(expires) INTO v_x FROM @
        WHERE name = a_name AND owner IS NOT NULL AND expires > t;
    IF a_mode = 'p' THEN
        SET ms = IFNULL(v_first, t) - t;
    ELSE
        SET ms = GREATEST(IFNULL(v_x, t), IF(a_mode = 'x', IFNULL(v_last, t), t)) - t;
    END IF;
END
;;
DROP PROCEDURE IF EXISTS @_front
;;
-- The id of the first waiter in the queue; 0: none.
CREATE PROCEDURE @_front(IN a_name VARBINARY(255), OUT front BIGINT) SQL SECURITY INVOKER
BEGIN
    SET front = NULL;
    SELECT id INTO front FROM @_member WHERE name = a_name AND role = 'w' ORDER BY id LIMIT 1;
    SET front = IFNULL(front, 0);
END
;;
DROP PROCEDURE IF EXISTS @_pass
;;
-- Grant the name to waiters: delete holders whose lease has ended, then grant from the front of the
-- queue as long as the next waiter fits. `me` is the caller: the caller is granted its full lease,
-- and gets no message. Other waiters get a claim of at most 2 s, and a message. A waiter that has
-- become the front of the queue gets a message, too.
CREATE PROCEDURE @_pass(IN a_name VARBINARY(255), IN me VARBINARY(40), IN t BIGINT,
    IN before_id BIGINT, INOUT ring MEDIUMBLOB) SQL SECURITY INVOKER
body: BEGIN
    DECLARE l_type TINYINT;
    DECLARE l_value, l_token, l_expires, v_used, v_hold, v_ms, v_last BIGINT;
    DECLARE l_owner, w_owner VARBINARY(40);
    DECLARE w_id, w_permits, w_lease, w_expires BIGINT;
    DECLARE w_mode BINARY(1);
    DECLARE w_push TINYINT;
    DECLARE w_tokens INT;
    DELETE FROM @_member WHERE name = a_name AND role = 'h' AND expires <= t;
    SELECT type, value, token, owner, expires INTO l_type, l_value, l_token, l_owner, l_expires
        FROM @ WHERE name = a_name;
    SELECT COUNT(*), IFNULL(SUM(permits), 0) INTO v_hold, v_used FROM @_member
        WHERE name = a_name AND role = 'h';
    queue: LOOP
        SET w_id = NULL;
        SELECT id, owner, mode, push, permits, tokens, lease, expires
            INTO w_id, w_owner, w_mode, w_push, w_permits, w_tokens, w_lease, w_expires
            FROM @_member WHERE name = a_name AND role = 'w' ORDER BY id LIMIT 1;
        IF w_id IS NULL THEN
            LEAVE body;
        END IF;
        IF w_owner <> me AND w_expires <= t THEN
            DELETE FROM @_member WHERE name = a_name AND owner = w_owner;
            ITERATE queue;                  -- the queue entry has expired
        ELSEIF w_mode = 'l' THEN
            IF l_type = 3 AND l_value > 0 THEN
                LEAVE queue;
            END IF;
            DELETE FROM @_member WHERE name = a_name AND owner = w_owner;
            CALL @_tell(w_owner, w_push, CONCAT('o ', w_owner, ' ', t), t, ring);
            ITERATE queue;
        END IF;
        IF (l_owner IS NOT NULL AND l_expires > t) OR (w_mode = 'x' AND v_hold > 0)
            OR (w_mode = 'p' AND v_used + w_permits > l_value) THEN
            LEAVE queue;
        END IF;
        IF w_push AND LEFT(w_owner, 16) <> LEFT(me, 16)
            AND IS_FREE_LOCK(CONCAT('pawl:', CONVERT(LEFT(w_owner, 16) USING ascii))) THEN
            DELETE FROM @_member WHERE name = a_name AND owner = w_owner;
            ITERATE queue;                  -- the client is not connected any more
        END IF;
        SET v_ms = IF(w_owner = me, w_lease, LEAST(w_lease, 2000));
        SET v_last = GREATEST(l_token + w_tokens, t * 1000);
        IF w_mode = 'x' THEN
            DELETE FROM @_member WHERE name = a_name AND owner = w_owner;
            UPDATE @ SET type = 1, owner = w_owner, first = v_last - w_tokens + 1,
                tokens = w_tokens, token = v_last, since = t, expires = t + v_ms
                WHERE name = a_name;
            SET l_owner = w_owner, l_expires = t + v_ms;
        ELSE
            UPDATE @_member SET role = 'h', first = v_last - w_tokens + 1, since = t,
                expires = t + v_ms WHERE name = a_name AND owner = w_owner;
            UPDATE @ SET token = v_last WHERE name = a_name;
            SET v_hold = v_hold + 1, v_used = v_used + w_permits;
        END IF;
        SET l_token = v_last;
        IF w_owner <> me THEN
            CALL @_tell(w_owner, w_push, CONCAT_WS(' ', 'g', w_owner, v_last - w_tokens + 1,
                                                   w_tokens, v_ms, t), t, ring);
        END IF;
    END LOOP;
    IF w_id <> before_id AND w_owner <> me AND w_mode <> 'l' THEN
        CALL @_left(a_name, w_mode, t, v_ms);
        CALL @_tell(w_owner, w_push, CONCAT_WS(' ', 'f', w_owner, v_ms, 0, t), t, ring);
    END IF;
END
;;
DROP PROCEDURE IF EXISTS @_take
;;
-- The inside of @_acquire.
CREATE PROCEDURE @_take(IN a_name VARBINARY(255), IN me VARBINARY(40), IN a_mode BINARY(1),
    IN a_lease BIGINT, IN keep BIGINT, IN n INT, IN a_permits BIGINT, IN capacity BIGINT,
    IN with_owner VARBINARY(40), IN a_floor BIGINT, IN seen VARBINARY(40), IN a_push TINYINT,
    IN patient TINYINT, OUT reply VARBINARY(200), INOUT ring MEDIUMBLOB) SQL SECURITY INVOKER
body: BEGIN
    DECLARE v_got TINYINT;
    DECLARE l_type, v_want TINYINT;
    DECLARE l_value, l_token, l_first, l_expires, t, v_last BIGINT;
    DECLARE l_tokens, m_tokens INT;
    DECLARE l_owner, l_round VARBINARY(40);
    DECLARE m_role BINARY(1);
    DECLARE m_first, m_lease, m_expires, v_front, v_ms, v_hold, v_used BIGINT;
    DECLARE v_held, v_placed, v_queue, v_in_use BOOLEAN;
    SET v_want = CASE a_mode WHEN 'p' THEN 2 WHEN 'l' THEN 3 ELSE 1 END;
    CALL @_lock(a_name, patient, v_got);
    WHILE v_got = 0 DO
        COMMIT;
        INSERT IGNORE INTO @ (name) VALUES (a_name);
        CALL @_lock(a_name, patient, v_got);
    END WHILE;
    IF v_got = 2 THEN
        SET reply = 'BLOCKED';
        LEAVE body;
    END IF;
    SELECT type, value, token, owner, first, tokens, expires, round
        INTO l_type, l_value, l_token, l_owner, l_first, l_tokens, l_expires, l_round
        FROM @ WHERE name = a_name;
    CALL @_now(t);
    IF a_floor > l_token THEN
        UPDATE @ SET token = a_floor WHERE name = a_name;
        SET l_token = a_floor;
    END IF;
    -- A repeated request: `me` already holds the name. The lease starts anew, and never ends
    -- earlier than before.
    IF l_owner = me AND l_expires > t THEN
        UPDATE @ SET expires = GREATEST(expires, t + a_lease) WHERE name = a_name;
        SET reply = CONCAT_WS(' ', 'GRANTED', me, l_first, l_tokens, a_lease, t);
        LEAVE body;
    END IF;
    SELECT role, tokens, first, lease, expires INTO m_role, m_tokens, m_first, m_lease, m_expires
        FROM @_member WHERE name = a_name AND owner = me;
    SET v_placed = IFNULL(m_role = 'w', FALSE);
    IF m_role = 'h' AND m_expires > t THEN
        UPDATE @_member SET expires = GREATEST(expires, t + a_lease)
            WHERE name = a_name AND owner = me;
        SET reply = CONCAT_WS(' ', 'GRANTED', me, m_first, m_tokens, a_lease, t);
        LEAVE body;
    ELSEIF m_role IS NOT NULL AND NOT v_placed THEN
        DELETE FROM @_member WHERE name = a_name AND owner = me;
    END IF;

    SET v_held = l_owner IS NOT NULL AND l_expires > t;
    IF v_placed OR NOT v_held OR a_mode IN ('p', 'l') THEN
        CALL @_front(a_name, v_front);
        CALL @_pass(a_name, me, t, v_front, ring);
        SELECT type, value, token, owner, first, tokens, expires, round
            INTO l_type, l_value, l_token, l_owner, l_first, l_tokens, l_expires, l_round
            FROM @ WHERE name = a_name;
        SET v_held = l_owner IS NOT NULL AND l_expires > t;
    END IF;
    IF v_placed THEN
        IF l_owner = me THEN
            SET reply = CONCAT_WS(' ', 'GRANTED', me, l_first, l_tokens, m_lease, t);
            LEAVE body;
        END IF;
        SET m_role = NULL;
        SELECT role, tokens, first, lease INTO m_role, m_tokens, m_first, m_lease
            FROM @_member WHERE name = a_name AND owner = me;
        IF m_role = 'h' THEN
            SET reply = CONCAT_WS(' ', 'GRANTED', me, m_first, m_tokens, m_lease, t);
            LEAVE body;
        END IF;
        SET v_placed = m_role IS NOT NULL;  -- else the latch has opened
    END IF;

    SELECT COUNT(*), IFNULL(SUM(permits), 0) INTO v_hold, v_used FROM @_member
        WHERE name = a_name AND role = 'h' AND expires > t;
    CALL @_front(a_name, v_front);
    SET v_queue = v_front > 0;
    SET v_in_use = v_held OR v_queue OR v_hold > 0 OR (l_type = 3 AND l_value > 0);
    IF v_in_use AND l_type <> v_want THEN
        SET reply = CONCAT('STATE ', me);
        LEAVE body;
    END IF;
    IF a_mode = 'l' THEN
        IF l_type <> 3 OR l_value <= 0 OR (seen <> '' AND seen <> l_round) THEN
            DELETE FROM @_member WHERE name = a_name AND owner = me;
            SET reply = CONCAT_WS(' ', 'GRANTED', me, 0, 0, 0, t);
            LEAVE body;
        END IF;
    ELSEIF NOT v_placed THEN
        IF a_mode = 'p' THEN
            SET v_last = IF(v_in_use, l_value, capacity);
            IF v_last <= 0 OR (capacity > 0 AND capacity <> v_last) THEN
                SET reply = CONCAT('STATE ', me);
                LEAVE body;
            ELSEIF a_permits < 1 OR a_permits > v_last THEN
                SET reply = CONCAT('INVAL ', me);
                LEAVE body;
            END IF;
        ELSE
            SET v_last = 0;
        END IF;
        IF NOT v_in_use AND (l_type <> v_want OR l_value <> v_last) THEN
            UPDATE @ SET type = v_want, value = v_last WHERE name = a_name;
        END IF;
        SET l_value = v_last;
        IF (v_held AND a_mode = 's' AND l_owner = with_owner
                AND LEFT(me, 16) = LEFT(with_owner, 16))
            OR (NOT v_queue AND NOT v_held AND (a_mode <> 'x' OR v_hold = 0)
                AND (a_mode <> 'p' OR v_used + a_permits <= l_value)) THEN
            SET v_last = GREATEST(l_token + n, t * 1000);
            IF a_mode = 'x' THEN
                UPDATE @ SET owner = me, first = v_last - n + 1, tokens = n, token = v_last,
                    since = t, expires = t + a_lease WHERE name = a_name;
            ELSE
                UPDATE @ SET token = v_last WHERE name = a_name;
                INSERT INTO @_member (name, owner, role, mode, push, permits, tokens, first, since,
                                      lease, expires)
                    VALUES (a_name, me, 'h', a_mode, a_push, a_permits, n, v_last - n + 1, t,
                            a_lease, t + a_lease);
            END IF;
            SET reply = CONCAT_WS(' ', 'GRANTED', me, v_last - n + 1, n, a_lease, t);
            LEAVE body;
        END IF;
    END IF;

    CALL @_left(a_name, a_mode, t, v_ms);
    IF keep <= 0 AND NOT v_placed THEN
        SET reply = CONCAT_WS(' ', 'BUSY', me, v_ms, 0, t);
        LEAVE body;
    END IF;
    IF v_placed THEN
        UPDATE @_member SET expires = t + keep, push = a_push WHERE name = a_name AND owner = me;
    ELSE
        INSERT INTO @_member (name, owner, role, mode, push, permits, tokens, first, since, lease,
                              expires)
            VALUES (a_name, me, 'w', a_mode, a_push, a_permits, n, 0, t, a_lease, t + keep);
    END IF;
    SELECT owner INTO l_owner FROM @_member WHERE name = a_name AND role = 'w' ORDER BY id LIMIT 1;
    SET reply = CONCAT_WS(' ', 'QUEUED', me, IF(l_owner = me, 0, 1), IF(a_mode = 'l', -1, v_ms), 0,
                          t, l_round);
END
;;
DROP PROCEDURE IF EXISTS @_acquire
;;
-- Acquire `name`, or enqueue `me`; see docs/sql.md for arguments and replies.
CREATE PROCEDURE @_acquire(IN a_name VARBINARY(255), IN me VARBINARY(40), IN a_mode BINARY(1),
    IN a_lease BIGINT, IN keep BIGINT, IN n INT, IN a_permits BIGINT, IN capacity BIGINT,
    IN with_owner VARBINARY(40), IN a_floor BIGINT, IN seen VARBINARY(40), IN a_push TINYINT,
    IN patient TINYINT) SQL SECURITY INVOKER
BEGIN
    DECLARE reply VARBINARY(200);
    DECLARE ring MEDIUMBLOB DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL @_take(a_name, me, a_mode, a_lease, keep, n, a_permits, capacity, with_owner, a_floor,
                seen, a_push, patient, reply, ring);
    COMMIT;
    CALL @_ring(ring);
    SELECT reply;
END
;;
DROP PROCEDURE IF EXISTS @_release
;;
-- End a grant, but keep `kept` permits; a_linger > 0: end the grant in a_linger ms. A queue entry
-- of the owner is removed, too; the reply says QUEUED only if `cancels` is set.
CREATE PROCEDURE @_release(IN a_name VARBINARY(255), IN me VARBINARY(40), IN kept BIGINT,
    IN a_linger BIGINT, IN cancels TINYINT, IN patient TINYINT) SQL SECURITY INVOKER
body: BEGIN
    DECLARE v_got TINYINT;
    DECLARE l_owner VARBINARY(40);
    DECLARE m_role BINARY(1);
    DECLARE l_expires, m_expires, m_permits, t, v_front BIGINT;
    DECLARE word VARBINARY(10) DEFAULT 'OK';
    DECLARE ring MEDIUMBLOB DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL @_lock(a_name, patient, v_got);
    IF v_got = 2 THEN
        SELECT 'BLOCKED';
        LEAVE body;
    END IF;
    SELECT owner, expires INTO l_owner, l_expires FROM @ WHERE name = a_name;
    CALL @_now(t);
    CALL @_front(a_name, v_front);
    IF l_owner = me AND l_expires > t THEN
        UPDATE @ SET owner = IF(a_linger > 0, CONCAT('z:', me), NULL),
            expires = t + GREATEST(a_linger, 0) WHERE name = a_name;
    ELSE
        SELECT role, expires, permits INTO m_role, m_expires, m_permits FROM @_member
            WHERE name = a_name AND owner = me;
        IF m_role = 'h' AND m_expires > t AND kept > 0 THEN
            UPDATE @_member SET permits = LEAST(kept, m_permits)
                WHERE name = a_name AND owner = me;
        ELSEIF m_role = 'h' AND m_expires > t AND a_linger > 0 THEN
            UPDATE @_member SET owner = CONCAT('z:', me), expires = t + a_linger
                WHERE name = a_name AND owner = me;
        ELSEIF m_role IN ('h', 'w') THEN
            DELETE FROM @_member WHERE name = a_name AND owner = me;
            SET word = CASE WHEN m_role = 'w' AND cancels THEN 'QUEUED'
                            WHEN m_role = 'w' OR m_expires <= t THEN 'NOTHELD' ELSE 'OK' END;
        ELSEIF NOT (a_linger > 0 AND (IFNULL(l_owner = CONCAT('z:', me) AND l_expires > t, FALSE)
                    OR EXISTS (SELECT 1 FROM @_member WHERE name = a_name
                               AND owner = CONCAT('z:', me)))) THEN
            SET word = 'NOTHELD';           -- and this is not a repeated release
        END IF;
    END IF;
    IF v_front > 0 THEN
        CALL @_pass(a_name, me, t, IF(a_linger > 0, 0, v_front), ring);
    END IF;
    COMMIT;
    CALL @_ring(ring);
    SELECT CONCAT_WS(' ', word, me, t);
END
;;
DROP PROCEDURE IF EXISTS @_renew
;;
-- Renew leases. `list` has for each lease the name in hex, the owner and the lease in ms, each
-- followed by a blank. The reply has a digit for each lease: 1 renewed; 0 the owner holds nothing;
-- 2 another transaction has the row locked, so that the outcome is open. Nothing waits here. A
-- refused lock may end the transaction (innodb_rollback_on_timeout): after the first refusal the
-- whole list starts again, with each lease in a transaction of its own.
CREATE PROCEDURE @_renew(IN list MEDIUMBLOB) SQL SECURITY INVOKER
BEGIN
    DECLARE t, v_expires BIGINT;
    DECLARE at, a, b, c INT DEFAULT 1;
    DECLARE v_name VARBINARY(255);
    DECLARE v_owner VARBINARY(40);
    DECLARE v_lease BIGINT;
    DECLARE v_refused BOOLEAN;
    DECLARE v_each BOOLEAN DEFAULT FALSE;
    DECLARE reply BLOB DEFAULT '';
    DECLARE CONTINUE HANDLER FOR 1205 SET v_refused = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    START TRANSACTION;
    WHILE at < LENGTH(list) DO
        SET a = LOCATE(' ', list, at);
        SET b = LOCATE(' ', list, a + 1);
        SET c = LOCATE(' ', list, b + 1);
        SET v_name = UNHEX(SUBSTRING(list, at, a - at)),
            v_owner = SUBSTRING(list, a + 1, b - a - 1),
            v_lease = CAST(SUBSTRING(list, b + 1, c - b - 1) AS SIGNED), at = c + 1;
        SET v_refused = FALSE;
        SELECT expires INTO v_expires FROM @ WHERE name = v_name FOR UPDATE;
        CALL @_now(t);
        SET v_expires = NULL;
        IF NOT v_refused THEN
            SELECT expires INTO v_expires FROM @
                WHERE name = v_name AND owner = v_owner AND expires > t;
            IF v_expires IS NOT NULL THEN
                UPDATE @ SET expires = GREATEST(expires, t + v_lease) WHERE name = v_name;
            ELSE
                SELECT expires INTO v_expires FROM @_member
                    WHERE name = v_name AND owner = v_owner AND role = 'h' AND expires > t
                    FOR UPDATE;
                IF NOT v_refused AND v_expires IS NOT NULL THEN
                    UPDATE @_member SET expires = GREATEST(expires, t + v_lease)
                        WHERE name = v_name AND owner = v_owner;
                END IF;
            END IF;
        END IF;
        SET reply = CONCAT(reply, IF(v_refused, '2', IF(v_expires IS NULL, '0', '1')));
        IF v_each THEN
            COMMIT;
            START TRANSACTION;
        ELSEIF v_refused THEN
            ROLLBACK;
            START TRANSACTION;
            SET v_each = TRUE, at = 1, reply = '';
        END IF;
    END WHILE;
    COMMIT;
    SELECT CONCAT_WS(' ', t, reply);
END
;;
DROP PROCEDURE IF EXISTS @_break
;;
-- End every grant, send the holders the client information of the breaker, and grant to the next
-- waiters.
CREATE PROCEDURE @_break(IN a_name VARBINARY(255), IN me VARBINARY(40), IN patient TINYINT)
    SQL SECURITY INVOKER
body: BEGIN
    DECLARE v_got TINYINT;
    DECLARE l_owner VARBINARY(40);
    DECLARE l_expires, t, v_front, v_held BIGINT;
    DECLARE v_had BOOLEAN;
    DECLARE v_who VARBINARY(120) DEFAULT '';
    DECLARE v_clients MEDIUMBLOB;
    DECLARE ring MEDIUMBLOB DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL @_lock(a_name, patient, v_got);
    IF v_got = 2 THEN
        SELECT 'BLOCKED';
        LEAVE body;
    END IF;
    SET v_who = IFNULL((SELECT LEFT(CAST(CONCAT('pid ', pid, ' ', LEFT(program, 30),
                                                IF(label = '', '', CONCAT(' (', LEFT(label, 30), ')')),
                                                ' on ', LEFT(host, 30)) AS BINARY), 120)
                        FROM @_client WHERE client = LEFT(me, 16)), '');
    SELECT owner, expires INTO l_owner, l_expires FROM @ WHERE name = a_name;
    CALL @_now(t);
    SET v_had = IFNULL(l_owner IS NOT NULL AND l_expires > t, FALSE);
    IF v_had THEN
        CALL @_tell(l_owner, LEFT(l_owner, 2) <> 'z:', CONCAT_WS(' ', 'e', l_owner, t, v_who), t,
                    ring);
        UPDATE @ SET owner = NULL WHERE name = a_name;
    END IF;
    SELECT COUNT(*), GROUP_CONCAT(IF(LEFT(owner, 2) = 'z:', '', LEFT(owner, 16)) SEPARATOR '')
        INTO v_held, v_clients FROM @_member WHERE name = a_name AND role = 'h' AND expires > t;
    INSERT INTO @_mail (client, message, at)
        SELECT LEFT(owner, 16), CONCAT_WS(' ', 'e', owner, t, v_who), t FROM @_member
        WHERE name = a_name AND role = 'h' AND expires > t AND LEFT(owner, 2) <> 'z:';
    DELETE FROM @_member WHERE name = a_name AND role = 'h';
    SET ring = CONCAT(ring, IFNULL(v_clients, ''));
    CALL @_front(a_name, v_front);
    CALL @_pass(a_name, me, t, v_front, ring);
    COMMIT;
    CALL @_ring(ring);
    SELECT CONCAT_WS(' ', IF(v_had OR v_held > 0, 'OK', 'NOTHELD'), t);
END
;;
DROP PROCEDURE IF EXISTS @_count
;;
-- The inside of @_latch.
CREATE PROCEDURE @_count(IN a_name VARBINARY(255), IN me VARBINARY(40), IN n BIGINT,
    IN patient TINYINT, OUT reply VARBINARY(200), INOUT ring MEDIUMBLOB) SQL SECURITY INVOKER
body: BEGIN
    DECLARE l_type TINYINT;
    DECLARE l_value, l_expires, t, v_now BIGINT;
    DECLARE l_owner VARBINARY(40);
    DECLARE v_clients MEDIUMBLOB;
    DECLARE v_got TINYINT;
    CALL @_lock(a_name, patient, v_got);
    WHILE v_got = 0 DO
        COMMIT;
        INSERT IGNORE INTO @ (name) VALUES (a_name);
        CALL @_lock(a_name, patient, v_got);
    END WHILE;
    IF v_got = 2 THEN
        SET reply = 'BLOCKED';
        LEAVE body;
    END IF;
    SELECT type, value, owner, expires INTO l_type, l_value, l_owner, l_expires
        FROM @ WHERE name = a_name;
    CALL @_now(t);
    DELETE FROM @_member WHERE name = a_name AND role = 'r' AND expires <= t;
    SET v_now = IF(l_type = 3, l_value, 0);
    IF (l_owner IS NOT NULL AND l_expires > t) OR EXISTS (SELECT 1 FROM @_member WHERE name = a_name
            AND role IN ('h', 'w') AND mode <> 'l' AND expires > t) THEN
        SET reply = CONCAT('STATE ', me);
        LEAVE body;
    ELSEIF EXISTS (SELECT 1 FROM @_member WHERE name = a_name AND owner = me) THEN
        SET reply = CONCAT_WS(' ', 'OK', me, v_now);
        LEAVE body;
    ELSEIF n > 0 AND v_now > 0 THEN
        SET reply = CONCAT('STATE ', me);
        LEAVE body;
    ELSEIF n <= 0 AND v_now <= 0 THEN
        SET reply = CONCAT_WS(' ', 'OK', me, 0);
        LEAVE body;
    END IF;
    SET v_now = IF(n > 0, n, v_now - 1);
    UPDATE @ SET type = 3, value = v_now, round = IF(n > 0, me, round) WHERE name = a_name;
    INSERT INTO @_member (name, owner, role, mode, push, permits, tokens, first, since, lease,
                          expires)
        VALUES (a_name, me, 'r', 'l', 0, 0, 0, 0, t, 0, t + 60000);
    IF v_now = 0 OR n > 0 THEN              -- open; or wake the waiters of a lost latch
        SELECT GROUP_CONCAT(LEFT(owner, 16) SEPARATOR '') INTO v_clients FROM @_member
            WHERE name = a_name AND role = 'w' AND push;
        INSERT INTO @_mail (client, message, at)
            SELECT LEFT(owner, 16), CONCAT_WS(' ', 'o', owner, t), t FROM @_member
            WHERE name = a_name AND role = 'w' AND push;
        DELETE FROM @_member WHERE name = a_name AND role = 'w';
        SET ring = CONCAT(ring, IFNULL(v_clients, ''));
    END IF;
    SET reply = CONCAT_WS(' ', 'OK', me, v_now);
END
;;
DROP PROCEDURE IF EXISTS @_latch
;;
-- Set a latch (n > 0), or count the latch down (0).
CREATE PROCEDURE @_latch(IN a_name VARBINARY(255), IN me VARBINARY(40), IN n BIGINT,
    IN patient TINYINT) SQL SECURITY INVOKER
BEGIN
    DECLARE reply VARBINARY(200);
    DECLARE ring MEDIUMBLOB DEFAULT '';
    DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
    CALL @_count(a_name, me, n, patient, reply, ring);
    COMMIT;
    CALL @_ring(ring);
    SELECT reply;
END
;;
DROP PROCEDURE IF EXISTS @_end
;;
-- End the connection that has this user lock, if there is one.
CREATE PROCEDURE @_end(IN a_lock VARCHAR(40) CHARACTER SET ascii) SQL SECURITY INVOKER
BEGIN
    DECLARE v_id BIGINT UNSIGNED;
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    SET v_id = IS_USED_LOCK(a_lock);
    IF v_id IS NOT NULL AND v_id <> CONNECTION_ID() THEN
        KILL v_id;
    END IF;
END
;;
DROP PROCEDURE IF EXISTS @_be
;;
-- Take this user lock for this connection. A connection that has the lock is killed first.
CREATE PROCEDURE @_be(IN a_lock VARCHAR(40) CHARACTER SET ascii) SQL SECURITY INVOKER
BEGIN
    IF NOT IFNULL(GET_LOCK(a_lock, 0), 0) THEN
        CALL @_end(a_lock);
        DO GET_LOCK(a_lock, 1);
    END IF;
END
;;
DROP PROCEDURE IF EXISTS @_sweep
;;
-- Delete rows that were not used for `idle` ms: rows of names, holders and waiters that expired
-- long ago, receipts, messages, client information. One call checks `most` names, from where the
-- last call ended. At most one call runs at a time, when the sweep is due. The sweep waits for no
-- lock and stops at the first refused one. Rows are checked again under the name's row lock before
-- they are deleted. A name's row is deleted only if its last token is behind the clock by `idle`,
-- so that the tokens of a new row are larger.
CREATE PROCEDURE @_sweep(IN idle BIGINT, IN most INT, OUT more BOOLEAN) SQL SECURITY INVOKER
body: BEGIN
    DECLARE t, v_due, v_gone, v_seen BIGINT DEFAULT 0;
    DECLARE v_from, v_last, v_name VARBINARY(255) DEFAULT '';
    DECLARE v_hex VARCHAR(1000);
    DECLARE v_found, v_done BOOLEAN DEFAULT FALSE;
    DECLARE c_names CURSOR FOR SELECT l.name FROM
        (SELECT * FROM @ WHERE name > v_from ORDER BY name LIMIT most) l
        WHERE (l.expires < t - idle AND l.token < (t - idle) * 1000
               AND NOT (l.type = 3 AND l.value > 0)
               AND l.created < FROM_UNIXTIME((t - idle) / 1000))
            OR EXISTS (SELECT 1 FROM @_member m WHERE m.name = l.name AND m.expires < t - 60000);
    DECLARE CONTINUE HANDLER FOR NOT FOUND SET v_done = TRUE;
    DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK; -- the next sweep tries again
    SET more = FALSE;
    CALL @_now(t);
    START TRANSACTION;
    SELECT TRUE, expires, label INTO v_found, v_due, v_hex FROM @_client WHERE client = 'sweep'
        FOR UPDATE;
    IF NOT v_found THEN
        INSERT IGNORE INTO @_client VALUES ('sweep', '', 0, '', '', 0);
    END IF;
    IF NOT v_found OR (v_due > t AND v_due < t + 60000) THEN
        COMMIT;
        LEAVE body;
    END IF;
    SET v_from = IFNULL(UNHEX(v_hex), ''), v_done = FALSE;
    SELECT COUNT(*), MAX(name) INTO v_seen, v_last FROM
        (SELECT name FROM @ WHERE name > v_from ORDER BY name LIMIT most) l;
    SET v_done = FALSE;
    OPEN c_names;
    scan: LOOP
        FETCH c_names INTO v_name;
        IF v_done THEN
            LEAVE scan;
        END IF;
        SELECT 1 INTO v_found FROM @ WHERE name = v_name FOR UPDATE;
        DELETE FROM @_member WHERE name = v_name AND expires < t - 60000;
        DELETE FROM @ WHERE name = v_name AND expires < t - idle AND token < (t - idle) * 1000
            AND NOT (type = 3 AND value > 0) AND created < FROM_UNIXTIME((t - idle) / 1000)
            AND NOT EXISTS (SELECT 1 FROM @_member m WHERE m.name = v_name);
        SET v_gone = v_gone + ROW_COUNT(), v_done = FALSE;
    END LOOP;
    CLOSE c_names;
    DELETE FROM @_client WHERE expires < t - 86400000 AND client <> 'sweep' LIMIT 1000;
    DELETE FROM @_mail WHERE at < t - 120000 LIMIT 1000;
    SET more = v_seen >= most AND v_gone > most DIV 20;
    UPDATE @_client SET expires = t + IF(more, 500, 20000),
        label = IF(v_seen >= most, HEX(v_last), '') WHERE client = 'sweep';
    COMMIT;
END
;;
DROP PROCEDURE IF EXISTS @_entry
;;
-- Write the client information, valid for `kept` ms. The reply also says whether the sweep has more
-- to do.
CREATE PROCEDURE @_entry(IN a_client VARBINARY(16), IN a_host VARCHAR(255), IN a_pid BIGINT,
    IN a_program VARCHAR(255), IN a_label VARCHAR(1000), IN kept BIGINT) SQL SECURITY INVOKER
BEGIN
    DECLARE t BIGINT;
    DECLARE v_more BOOLEAN DEFAULT FALSE;
    CALL @_now(t);
    IF kept <= 0 THEN
        CALL @_end(CONCAT('pawl:ear:', CONVERT(a_client USING ascii)));
        DELETE FROM @_client WHERE client = a_client;
    ELSE
        INSERT INTO @_client VALUES (a_client, a_host, a_pid, a_program, a_label, t + kept)
            ON DUPLICATE KEY UPDATE expires = t + kept;
        CALL @_sweep(86400000, 1000, v_more);
    END IF;
    SELECT IF(v_more, 'OK more', 'OK');
END
;;
DROP PROCEDURE IF EXISTS @_hear
;;
-- Wait for a message, at most 5 s, because the server notices no sooner that a client is gone.
-- `heard` lists the ids of messages that were read before and can be deleted. A largest id would
-- not do, because a smaller id may be committed later.
CREATE PROCEDURE @_hear(IN a_client VARBINARY(16), IN heard BLOB) SQL SECURITY INVOKER
BEGIN
    DECLARE v_lock VARCHAR(40) CHARACTER SET ascii;
    DECLARE n INT DEFAULT 5;
    SET v_lock = CONCAT('pawl:', CONVERT(a_client USING ascii));
    IF heard <> '' THEN
        DELETE FROM @_mail WHERE client = a_client AND FIND_IN_SET(id, heard);
    END IF;
    WHILE n > 0 AND NOT EXISTS (SELECT 1 FROM @_mail WHERE client = a_client) DO
        DO GET_LOCK(v_lock, 1);
        IF IS_USED_LOCK(v_lock) = CONNECTION_ID() THEN
            DO RELEASE_LOCK(v_lock), SLEEP(0.1); -- the first connection is reconnecting
        END IF;
        SET n = n - 1;
    END WHILE;
    SELECT message, id FROM @_mail WHERE client = a_client ORDER BY id LIMIT 50;
END
;;
DROP PROCEDURE IF EXISTS @_version
;;
-- Created last: if this procedure exists, all others do. It reads the tables, and needs each right
-- that the other procedures need, so that the error names a missing right at once.
CREATE PROCEDURE @_version() SQL SECURITY INVOKER
BEGIN
    INSERT INTO @ SELECT * FROM @ WHERE FALSE;
    UPDATE @ SET type = type WHERE FALSE;
    DELETE FROM @ WHERE FALSE;
    INSERT INTO @_member SELECT * FROM @_member WHERE FALSE;
    UPDATE @_member SET role = role WHERE FALSE;
    DELETE FROM @_member WHERE FALSE;
    INSERT INTO @_client SELECT * FROM @_client WHERE FALSE;
    UPDATE @_client SET pid = pid WHERE FALSE;
    DELETE FROM @_client WHERE FALSE;
    INSERT INTO @_mail SELECT * FROM @_mail WHERE FALSE;
    DELETE FROM @_mail WHERE FALSE;
    SELECT 2 FROM (SELECT 1) one WHERE NOT EXISTS (SELECT 1 FROM @ WHERE FALSE)
        AND NOT EXISTS (SELECT 1 FROM @_member WHERE FALSE)
        AND NOT EXISTS (SELECT 1 FROM @_client WHERE FALSE)
        AND NOT EXISTS (SELECT 1 FROM @_mail WHERE FALSE);
END
;;
