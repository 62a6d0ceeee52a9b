# SPDX-License-Identifier: Apache-2.0
"""A server and its replica, which takes over, behind one address.

    p = PAIRS['postgres'](synchronous=True)
    p.url(...)      the URL, which leads to the server that serves now
    p.cut_off()     commits from now on do not reach the replica
    p.fail_over()   kill the server; the replica takes over
"""
import os
import shutil

from proxy import Proxy
from sql_server import Mysql, Postgres
from wait import until


class Pair:
    def __init__(self, synchronous):
        self.first = self.second = self.proxy = None
        try:
            self.make(synchronous)
            self.proxy = Proxy(self.first.port)
        except BaseException:
            self.stop()
            raise

    def url(self, **params):
        return self.first.url(port=self.proxy.port, **params)

    def hosts(self, **params):
        """The URL with both hosts, the replica first."""
        other = f'127.0.0.1:{self.second.port}'
        return self.first.url(**params).replace('@', f'@{other},', 1)

    def fail_over(self):
        self.first.kill()
        self.promote()
        self.proxy.target = ('127.0.0.1', self.second.port)
        self.proxy.cut()

    def stop(self):
        if self.proxy:
            self.proxy.close()
        for server in (self.second, self.first):
            if server:
                server.stop()


class Standby(Postgres):
    """A standby: a copy of a server that is kept up to date."""

    def __init__(self, of, *options):
        self.of = of
        super().__init__(*options)

    def make(self):
        os.mkdir(self.data, 0o700)
        if not os.getuid():
            shutil.chown(self.data, 'postgres', 'postgres')
            shutil.chown(self.folder, 'postgres', 'postgres')
        self.run(*self.as_postgres(self.program('pg_basebackup'), '-D', self.data, '-h',
                                   self.of.folder, '-p', str(self.of.port), '-U', 'root', '-R',
                                   '-c', 'fast', '-X', 'stream'), cwd='/')


class PostgresPair(Pair):
    def make(self, synchronous):
        self.first = Postgres()
        self.first.schema()
        self.second = Standby(self.first, '-c', 'wal_retrieve_retry_interval=100ms')
        until(lambda: self.first.number("SELECT count(*) FROM pg_stat_replication WHERE state = "
                                        "'streaming'"), 'for the standby')
        if synchronous:
            self.first.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
            self.first.sql('SELECT pg_reload_conf()')
            until(lambda: self.first.number("SELECT count(*) FROM pg_stat_replication WHERE "
                                            "sync_state = 'sync'"), 'for a synchronous standby')

    def cut_off(self):
        self.second.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.second.sql('SELECT pg_reload_conf()')
        until(lambda: not self.first.number('SELECT count(*) FROM pg_stat_replication'),
              'for the standby to be cut off')

    def promote(self):
        assert self.second.sql('SELECT pg_promote()').strip() == 't'


class MysqlPair(Pair):
    """Synchronous is MariaDB's semi-synchronous mode: a commit waits until the replica has it."""

    LOG = ('--log-bin=log', '--binlog-format=ROW', '--log-slave-updates', '--gtid-strict-mode=1')

    def make(self, synchronous):
        self.first = Mysql('--server-id=1', *self.LOG,
                           '--rpl-semi-sync-master-wait-point=AFTER_SYNC',
                           '--rpl-semi-sync-master-timeout=3600000')
        self.second = Mysql('--server-id=2', *self.LOG,
                            f'--rpl-semi-sync-slave-enabled={int(synchronous)}')
        self.second.sql('RESET MASTER')
        self.second.sql("CHANGE MASTER TO master_host = '127.0.0.1', master_user = 'root', "
                        f'master_port = {self.first.port}, master_use_gtid = slave_pos; '
                        'START SLAVE; SET GLOBAL read_only = 1')
        self.first.schema()
        until(lambda: 'distributed_lock_mail' in self.second.sql('SHOW TABLES'), 'for the replica')
        if synchronous:
            self.first.sql('SET GLOBAL rpl_semi_sync_master_enabled = 1')
            until(lambda: '1' in self.first.sql("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'"),
                  'for a synchronous replica')

    def cut_off(self):
        self.second.sql('STOP SLAVE IO_THREAD')

    def promote(self):
        """Promote the replica, after it has applied everything that it has received."""
        until(self._idle, 'for the replica to be done')
        self.second.sql('STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0')

    def _idle(self):
        rows = self.second.sql('SHOW SLAVE STATUS\\G')
        return 'Slave has read all relay log' in rows


PAIRS = {'postgres': PostgresPair, 'mysql': MysqlPair}
