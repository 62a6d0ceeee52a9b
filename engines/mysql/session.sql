-- SPDX-License-Identifier: Apache-2.0
--
-- The table of layout=session on MariaDB and MySQL (docs/sql.md). The engine runs this file if its
-- user has the rights; else an administrator runs the file once (as share/pawl/mysql-session.sql),
-- and then grants rights (docs/security.md). Running the file again is harmless.
--
-- The lock itself is a user lock of the server (GET_LOCK). @_session has a row for each user lock
-- that Pawl took: the last token, and a description of the session that got it. Only the session
-- that holds the user lock writes its row. Whether the lock is held now, and by which session, only
-- the server knows: IS_USED_LOCK(lock_name). A row that was not used for a day is deleted, unless
-- its token is not a day behind the clock; so tokens also rise after the deletion.
SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'
;;
CREATE TABLE IF NOT EXISTS @_session (
    lock_name  VARBINARY(192) NOT NULL PRIMARY KEY, -- the argument of GET_LOCK
    name       VARBINARY(255) NOT NULL,             -- Pawl's name
    token      BIGINT NOT NULL,                     -- the last token that was granted
    connection BIGINT UNSIGNED NOT NULL,            -- CONNECTION_ID() of the session that got it
    since      BIGINT NOT NULL,                     -- the time of the grant, Unix time in ms
    lease      BIGINT NOT NULL,                     -- ms
    pid        BIGINT NOT NULL,
    host       VARBINARY(255) NOT NULL,
    program    VARBINARY(255) NOT NULL,
    label      VARBINARY(255) NOT NULL,
    KEY (since)
) ENGINE=InnoDB
;;
