#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_sql.py postgres|mysql [WORDS]: pawl doctor on a SQL server."""
import os
import re
import signal
import subprocess
import sys

SCHEME = sys.argv.pop(1)

from doctor import ask, expect, found, the  # noqa: E402
from cases import case, equal  # noqa: E402
from sql_pairs import Standby  # noqa: E402
from sql_server import SERVERS  # noqa: E402
from tool import main, wait_for  # noqa: E402

KIND = SERVERS[SCHEME]


def start(*options, **how):
    return KIND(*options, durable=True, **how)


def url_of(server, user=None, **params):
    return server.url(user, timeout=20000, **params)


def planted(server, name, statement, undo):
    """The statement causes a defect. pawl doctor finds this defect and no other."""
    server.sql(statement)
    f = the(expect(url_of(server), name), name)
    server.sql(undo)
    return f


def many(s, url):
    """Several rights are missing at once: all are named, and the statements grant them."""
    if SCHEME == 'postgres':
        gone = ['INSERT ON distributed_lock_member', 'UPDATE ON distributed_lock_member',
                'SELECT ON distributed_lock', 'EXECUTE ON FUNCTION distributed_lock_latch',
                'EXECUTE ON FUNCTION distributed_lock_break']
    else:
        gone = [f'EXECUTE ON PROCEDURE pawl.distributed_lock_{name}'
                for name in ('latch', 'break', 'sweep')]
        all_missing(s, url, gone)
        gone += ['SELECT ON pawl.distributed_lock', 'DELETE ON pawl.distributed_lock_mail',
                 'INSERT ON pawl.distributed_lock_member', 'UPDATE ON pawl.distributed_lock_member',
                 'UPDATE ON pawl.distributed_lock_client',
                 'EXECUTE ON PROCEDURE pawl.distributed_lock_version']
    all_missing(s, url, gone)


def all_missing(s, url, gone, user='shop'):
    for right in gone:
        s.sql(f'REVOKE {right} FROM {user}')
    said = ask(url)
    equal([f['id'] for f in said['findings']], ['rights'] * len(gone), said)
    remedies = [f['remedy'] for f in said['findings']]
    if SCHEME == 'mysql':
        remedies = [r.replace(' distributed_lock', ' pawl.distributed_lock') for r in remedies]
    equal(sorted(remedies), sorted(f'GRANT {right} TO shop;' for right in gone))
    for remedy in remedies:
        s.sql(remedy.replace('TO shop;', f'TO {user};'))
    expect(url)


def session_rights(s):
    s.sql("CREATE USER few IDENTIFIED BY ''")
    s.grant('few', 'session')
    url = url_of(s, 'few', layout='session')
    expect(url)
    s.sql('REVOKE SELECT, UPDATE, DELETE ON pawl.distributed_lock_session FROM few')
    said = ask(url)
    equal(sorted(f['remedy'] for f in said['findings']),
          [f'GRANT {right} ON distributed_lock_session TO few;'
           for right in ('DELETE', 'SELECT', 'UPDATE')])


def rights_of_a_role(s):
    """MariaDB's lists of rights in information_schema don't show the rights of roles."""
    s.sql("CREATE USER clerk IDENTIFIED BY ''; CREATE ROLE team; GRANT team TO clerk; "
          'SET DEFAULT ROLE team FOR clerk')
    s.grant('team')
    url = url_of(s, 'clerk')
    expect(url)
    for right in ('INSERT ON pawl.distributed_lock_client', 'DELETE ON pawl.distributed_lock'):
        s.sql(f'REVOKE {right} FROM team')
    said = ask(url)
    equal(sorted(f['remedy'] for f in said['findings']),
          ['GRANT DELETE ON distributed_lock TO clerk;',
           'GRANT INSERT ON distributed_lock_client TO clerk;'])


@case('a sound server has no findings; a user without a right has one that names it')
def _(box):
    s = start()
    try:
        said = expect(url_of(s))
        equal(sorted(f['id'] for f in said['facts']), ['clock', 'machine', 'server'])
        s.bare_user('shop')
        s.grant('shop')
        url = url_of(s, 'shop')
        expect(url)
        many(s, url)
        on = ('' if SCHEME == 'postgres' else 'pawl.') + 'distributed_lock_member'
        s.sql(f'REVOKE INSERT ON {on} FROM shop')
        f = the(expect(url, 'rights'), 'rights')
        assert 'INSERT' in f['what'] and 'distributed_lock_member' in f['what'], f
        s.grant('shop')
        function = ('FUNCTION ' if SCHEME == 'postgres' else 'PROCEDURE pawl.')
        s.sql(f'REVOKE EXECUTE ON {function}distributed_lock_latch FROM shop')
        f = the(expect(url, 'rights'), 'rights')
        assert 'GRANT EXECUTE' in f['what'] and 'distributed_lock_latch' in f['what'], f
        if SCHEME == 'mysql':
            s.schema()
            session_rights(s)
            rights_of_a_role(s)
    finally:
        s.stop()


@case('clocks')
def _(box):
    s = start(steps_clock=True)
    try:
        expect(url_of(s))
        s.step_clock(100)
        expect(url_of(s), 'clock-offset')
    finally:
        s.stop()


def standby(s):
    """A program that receives the log is a standby, as far as the server is concerned."""
    received = os.path.join(s.folder, 'received')
    os.mkdir(received)
    with subprocess.Popen([s.program('pg_receivewal'), '-h', s.folder, '-p', str(s.port), '-U',
                           'root', '-w', '-D', received], stderr=subprocess.DEVNULL) as receiver:
        try:
            wait_for('the standby', lambda: s.number('SELECT count(*) FROM pg_stat_replication'))
            f = the(expect(url_of(s), 'sql-standby'), 'sql-standby')
            assert '1 standby' in f['what'], f
            wait_number(s, "SELECT count(*) FROM pg_stat_replication WHERE replay_lag > '4 s' OR "
                           "(sent_lsn > flush_lsn AND reply_time < now() - interval '4 s')",
                        'a lag of a program that never replays')
            expect(url_of(s), 'sql-standby')
            s.sql("ALTER SYSTEM SET synchronous_standby_names = 'pg_receivewal'")
            s.sql('ALTER SYSTEM SET synchronous_commit = local')
            s.sql('SELECT pg_reload_conf()')
            wait_for('the setting', lambda: s.number(
                "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_standby_names' "
                "AND setting <> ''"))
            expect(url_of(s))
        finally:
            receiver.kill()
    s.sql('ALTER SYSTEM RESET ALL')
    s.sql('SELECT pg_reload_conf()')


def postgres(s):
    expect(url_of(s, layout='advisory'))
    alter = 'ALTER DATABASE postgres SET synchronous_commit = off'
    planted(s, 'sql-commit', alter, 'ALTER DATABASE postgres RESET synchronous_commit')
    table = 'ALTER TABLE distributed_lock_member '
    planted(s, 'sql-unlogged', table + 'SET UNLOGGED', table + 'SET LOGGED')
    planted(s, 'sql-autovacuum', table + 'SET (autovacuum_enabled = false)',
            table + 'RESET (autovacuum_enabled)')
    planted(s, 'sql-index', table + 'DROP CONSTRAINT distributed_lock_member_name_role_id_key',
            table + 'ADD UNIQUE (name, role, id)')
    s.sql("SET enable_seqscan = on; ALTER TABLE distributed_lock SET (autovacuum_enabled = false)")
    s.sql("INSERT INTO distributed_lock (name) SELECT ('bloat' || i)::bytea "
          "FROM generate_series(1, 60000) i")
    s.sql("DELETE FROM distributed_lock WHERE name LIKE 'bloat%'")
    wait_for('the statistics', lambda: s.number(
        "SELECT n_dead_tup FROM pg_stat_all_tables WHERE relname = 'distributed_lock'") > 50000)
    equal(found(url_of(s)), ['sql-autovacuum', 'sql-bloat'])
    s.sql('VACUUM distributed_lock')
    s.sql('ALTER TABLE distributed_lock RESET (autovacuum_enabled)')
    expect(url_of(s))
    standby(s)


def mysql(s):
    planted(s, 'sql-commit', 'SET GLOBAL innodb_flush_log_at_trx_commit = 0',
            'SET GLOBAL innodb_flush_log_at_trx_commit = 1')
    table = 'ALTER TABLE distributed_lock_member '
    planted(s, 'sql-index', table + 'DROP KEY name', table + 'ADD UNIQUE KEY (name, role, id)')
    planted(s, 'sql-engine', 'ALTER TABLE distributed_lock_client ENGINE=Aria',
            'ALTER TABLE distributed_lock_client ENGINE=InnoDB')
    expect(url_of(s))
    expect(url_of(s, layout='session'))
    table = 'ALTER TABLE distributed_lock_session '
    for ident, plant, mend in (('sql-engine', 'ENGINE=Aria', 'ENGINE=InnoDB'),
                               ('sql-index', 'DROP PRIMARY KEY', 'ADD PRIMARY KEY (lock_name)')):
        s.sql(table + plant)
        expect(url_of(s, layout='session'), ident)
        s.sql('DELETE FROM distributed_lock_session')  # without the key the table may have a name twice
        s.sql(table + mend)
    expect(url_of(s, layout='session'))


def wait_number(s, text, what):
    """Wait until the query returns a number other than 0, and let the server write its log."""
    def found():
        s.sql('CREATE TABLE IF NOT EXISTS other (n int); INSERT INTO other VALUES (1)')
        return s.number(text)
    wait_for(what, found)


def postgres_lag(s):
    s.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
    other = Standby(s, '-c', 'wal_retrieve_retry_interval=100ms')
    try:
        s.sql('SELECT pg_reload_conf()')
        wait_number(s, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND state "
                       "= 'streaming' AND replay_lag < '1 s'", 'the standby')
        equal(expect(url_of(s))['skipped'], [])
        s.bare_user('shop')
        s.grant('shop')
        skipped, = expect(url_of(s, 'shop'))['skipped']
        equal(skipped['id'], 'sql-lag')
        s.sql('GRANT pg_read_all_stats TO shop')
        equal(expect(url_of(s, 'shop'))['skipped'], [])
        other.sql('SELECT pg_wal_replay_pause()')
        wait_number(s, "SELECT count(*) FROM pg_stat_replication WHERE replay_lag > '4 s'",
                    'a replay that lags')
        f = the(expect(url_of(s), 'sql-lag'), 'sql-lag')
        assert re.fullmatch(r'the standby walreceiver is \d+ s behind', f['what']), f
        equal(f['level'], 'warning')
        expect(url_of(s, layout='advisory'), 'sql-lag')
        other.sql('SELECT pg_wal_replay_resume()')
        wait_number(s, "SELECT count(*) FROM pg_stat_replication WHERE replay_lag < '1 s'",
                    'the end of the lag')
        expect(url_of(s))
        s.sql("ALTER SYSTEM RESET synchronous_standby_names")
        s.sql('SELECT pg_reload_conf()')
        receiver = other.number('SELECT pid FROM pg_stat_wal_receiver')
        os.kill(receiver, signal.SIGSTOP)
        try:
            wait_number(s, 'SELECT count(*) FROM pg_stat_replication WHERE sent_lsn > flush_lsn AND '
                           "reply_time < now() - interval '4 s'", 'the silence')
            f = the(expect(url_of(s), 'sql-lag', 'sql-standby'), 'sql-lag')
            assert 'confirmed nothing' in f['what'], f
        finally:
            os.kill(receiver, signal.SIGCONT)
    finally:
        other.stop()


def mysql_replica(s):
    other = KIND('--server-id=2', '--rpl-semi-sync-slave-enabled=1')
    try:
        s.sql("CREATE USER shop IDENTIFIED BY ''; GRANT ALL ON pawl.* TO shop")
        equal(expect(url_of(s, 'shop'))['skipped'], [])
        other.sql(f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {s.port}, "
                  "master_user = 'root', master_use_gtid = slave_pos; START SLAVE")
        wait_for('the replica', lambda: '1' in s.sql("SHOW STATUS LIKE 'Slaves_connected'"))
        for user in ('root', 'shop'):
            f = the(expect(url_of(s, user), 'sql-standby'), 'sql-standby')
            assert f['level'] == 'warning' and '1 replica' in f['what'], f
        s.sql('SET GLOBAL rpl_semi_sync_master_timeout = 600000')
        s.sql('SET GLOBAL rpl_semi_sync_master_enabled = 1')
        wait_for('semi-synchronous replication', lambda: 'ON' in s.sql(
            "SHOW STATUS LIKE 'Rpl_semi_sync_master_status'") and '1' in s.sql(
            "SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"))
        expect(url_of(s, 'shop'))
        s.sql('SET GLOBAL rpl_semi_sync_master_enabled = 0')
        expect(url_of(s, 'shop'), 'sql-standby')
        other.sql('STOP SLAVE')
        wait_for('the end', lambda: '0' in s.sql("SHOW STATUS LIKE 'Slaves_connected'"))
        expect(url_of(s, 'shop'))
    finally:
        other.stop()


@case('replicas that nobody waits for, and standbys that lag')
def _(box):
    if SCHEME == 'postgres':
        s = start()
    else:
        s = start('--server-id=1', '--log-bin=log', '--sync-binlog=1')
    try:
        expect(url_of(s))
        {'postgres': postgres_lag, 'mysql': mysql_replica}[SCHEME](s)
    finally:
        s.stop()


@case('settings and tables')
def _(box):
    s = start()
    try:
        expect(url_of(s))
        {'postgres': postgres, 'mysql': mysql}[SCHEME](s)
    finally:
        s.stop()


@case('locks of sessions: a user who does not see the sessions of others is told which right is missing')
def _(box):
    s = start()
    layout = 'advisory' if SCHEME == 'postgres' else 'session'
    try:
        s.schema()
        s.bare_user('shop')
        s.grant('shop', layout)
        watcher = s.transaction('SELECT 1')  # another user's session
        (f,) = expect(url_of(s, 'shop', layout=layout))['skipped']
        equal(f['id'], 'sql-sessions')
        assert ('pg_read_all_stats' if SCHEME == 'postgres' else 'PROCESS') in f['remedy'], f
        s.grant('shop', layout + ', others')
        equal(expect(url_of(s, 'shop', layout=layout))['skipped'], [])
        watcher.kill()
    finally:
        s.stop()


@case('a server that does not write to its disk, and one that is nearly full')
def _(box):
    if SCHEME == 'postgres':
        options = ('-F', '-c', 'max_connections=12', '-c', 'superuser_reserved_connections=0',
                   '-c', 'max_wal_senders=0')
        ids = ['sql-fsync']
    else:
        options = ('--log-bin', '--sync-binlog=0', '--innodb-flush-log-at-trx-commit=2',
                   '--max-connections=12')
        ids = ['sql-binlog', 'sql-commit']
    s = start(*options)
    open_ones = []
    try:
        equal(found(url_of(s)), ids)
        open_ones = [s.transaction() for _ in range(10)]
        said = ask(url_of(s))
        equal(sorted(f['id'] for f in said['findings'] if f['id'] != 'use'),
              sorted(ids + ['sql-connections']))
    finally:
        for t in open_ones:
            t.kill()
        s.stop()


main()
