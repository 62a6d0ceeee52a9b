# SPDX-License-Identifier: Apache-2.0
"""Private PostgreSQL and MariaDB servers. Each server has a folder of its own, listens on a free port of
the loopback and on a unix socket, and is stopped by its process id. The tests send their own statements
through the server's command-line client.

The wall clock of a server can be stepped: the server runs with clock_shim.c, which adds the number in a
file to the clock.
"""
import functools
import glob
import mmap
import os
import pwd
import shutil
import signal
import struct
import subprocess
import tempfile
import time

from actor import Actor
from ports import free_port
import rights
from wait import PATIENCE, until


def is_stopped(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as f:
        return f.read().rpartition(')')[2].split()[0] in 'TZ'


class Server:
    """The common part of both servers; `options` are for the server's command line."""

    def __init__(self, *options, steps_clock=False, durable=False):
        self.folder = tempfile.mkdtemp(prefix='pawl-sql-')
        os.chmod(self.folder, 0o755)
        self.data = os.path.join(self.folder, 'data')
        self.log = os.path.join(self.folder, 'log')
        self.options = list(options)
        self.durable = durable
        self.environ = dict(os.environ)
        self.clock = None
        if steps_clock:
            self._make_clock()
        try:
            self.make()
            self.start()
        except BaseException:
            self.stop()
            raise

    def _make_clock(self):
        path = os.path.join(self.folder, 'clock')
        with open(path, 'wb') as f:
            f.write(bytes(4096))
        with open(path, 'r+b') as f:
            self.clock = mmap.mmap(f.fileno(), 4096)
        os.chmod(path, 0o644)
        self.environ.update(CLKSHIM=path, LD_PRELOAD=os.environ['PAWL_CLOCK_SHIM'])

    def step_clock(self, seconds):
        """Set the difference between the server's wall clock and the true time."""
        self.clock[:8] = struct.pack('q', int(seconds * 1e9))

    def run(self, *words, **options):
        """Run a command of the server's packages, and return its output."""
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              **options)
        assert done.returncode == 0, f'{words[0]}: {done.stderr.decode()}'
        return done.stdout.decode()

    def start(self):
        for attempt in range(5):
            self.port = free_port() if attempt or not hasattr(self, 'port') else self.port
            with open(self.log, 'ab') as log:
                self.process = subprocess.Popen(self.command(), stdout=log, stderr=log,
                                                env=self.environ)
            if self._comes_up():
                return
        with open(self.log, errors='replace') as log:
            raise RuntimeError(f'the server does not start: {log.read()[-2000:]}')

    def _comes_up(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.sql('SELECT 1')
                return True
            except AssertionError:
                time.sleep(0.02)
        self.kill()
        return False

    def kill(self):
        """Kill the server with SIGKILL, as in a crash. The folder stays."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.bury()

    def bury(self):
        """Clean up after a killed server."""

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        if hasattr(self, 'process'):
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self):
        """The processes of the server: with PostgreSQL also its children, which do the work."""
        return [self.process.pid]

    def pause(self):
        """Stop all processes, the parent first: a stopped parent makes no new children."""
        os.kill(self.process.pid, signal.SIGSTOP)
        until(lambda: is_stopped(self.process.pid))
        for pid in self.processes():
            os.kill(pid, signal.SIGSTOP)
            until(lambda: is_stopped(pid))

    def resume(self):
        """Resume all processes, the parent last."""
        for pid in self.processes():
            os.kill(pid, signal.SIGCONT)

    def actor(self, label='', user=None, timeout=10000, **params):
        """Start an actor. The default timeout is so long that a busy machine does not reach it."""
        return Actor(self.url(user, timeout=timeout, **params), label)

    # ---- queries that are the same on both servers ----

    def number(self, text):
        return int(self.sql(text).strip() or 0)

    def waiters(self, name):
        return self.number(f"SELECT count(*) FROM {self.prefix}_member WHERE name = '{name}' AND "
                           "role = 'w'")

    def queue_up(self, name, actors):
        """Put each actor's lock 'l' into the queue, one after the other."""
        for n, a in enumerate(actors, 1):
            a.lock('l', name)
            a.send('acquire', 'l', -1)
            until(lambda: self.waiters(name) == n, 'for a place in the queue')

    prefix = 'distributed_lock'


def query(params):
    return '?' + '&'.join(f'{k}={v}' for k, v in params.items()) if params else ''


class Postgres(Server):
    scheme = 'postgres'
    tables = ('', '_member', '_client')

    def as_postgres(self, *words):
        """PostgreSQL refuses to run as root."""
        if os.getuid():
            return list(words)
        return ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups', *words]

    @staticmethod
    def program(name):
        """The program in PATH, else in the folder of Debian's package, which is not in PATH."""
        found = sorted(glob.glob(f'/usr/lib/postgresql/*/bin/{name}'))
        return shutil.which(name) or found[-1]

    def make(self):
        os.mkdir(self.data)
        if not os.getuid():
            user = pwd.getpwnam('postgres')
            os.chown(self.data, user.pw_uid, user.pw_gid)
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        self.run(*self.as_postgres(self.program('initdb'), '-D', self.data, '-A', 'trust', '-U',
                                    'root', '-N', '-E', 'UTF8', '--no-locale'), cwd='/')
        with open(os.path.join(self.data, 'pg_hba.conf'), 'w', encoding='ascii') as f:
            f.write('local all root trust\n'
                    'local replication root trust\n'
                    'host all locked 127.0.0.1/32 scram-sha-256\n'
                    'host all all 127.0.0.1/32 trust\n')

    def command(self):
        return self.as_postgres(self.program('postgres'), '-D', self.data, '-k', self.folder,
                                 '-c', 'listen_addresses=127.0.0.1', '-p', str(self.port),
                                 '-c', 'shared_buffers=16MB', '-c', 'max_connections=400',
                                 '-c', 'dynamic_shared_memory_type=mmap',  # in its own folder
                                 '-c', 'password_encryption=scram-sha-256',  # as of 14
                                 *(['-c', 'shared_preload_libraries=pg_stat_statements']
                                   if self.durable else
                                   ['-F', '-c', 'log_min_duration_statement=0']),
                                 *self.options)

    def bury(self):
        """Wait until the children of the killed postmaster have ended, and remove the shared memory."""
        pid = os.path.join(self.data, 'postmaster.pid')
        if not os.path.exists(pid):
            return
        with open(pid, encoding='ascii') as f:
            lines = f.read().split('\n')
        key, number = lines[6].split() if len(lines) > 6 and lines[6].split() else (None, None)
        if key:
            until(lambda: not self._attached(int(key)), 'for the server\'s children')
            subprocess.run(['ipcrm', '-m', number], stderr=subprocess.DEVNULL, check=False)
        os.unlink(pid)

    def processes(self):
        path = f'/proc/{self.process.pid}/task/{self.process.pid}/children'
        with open(path, encoding='ascii') as f:
            return [*map(int, f.read().split()), self.process.pid]

    @staticmethod
    def _attached(key):
        with open('/proc/sysvipc/shm', encoding='ascii') as f:
            rows = [line.split() for line in f.readlines()[1:]]
        return any(int(r[0]) == key and int(r[6]) > 0 for r in rows)

    def sql(self, text, user='root'):
        return self.run('psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-h',
                        self.folder if user == 'root' else '127.0.0.1', '-p', str(self.port), '-U',
                        user, 'postgres', '-c', text)

    def url(self, user=None, port=None, **params):
        return (f'postgres://{user or "root"}@127.0.0.1:{port or self.port}/postgres'
                f'{query(params)}')

    def connections(self):
        return self.number("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pawl'")

    def kill_connections(self):
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = "
                 "'pawl'")

    def connections_of(self, actor):
        """The number of connections of an actor's process, which has an entry in the table of clients."""
        return self.number(f"SELECT count(*) FROM {self.prefix}_client c, pg_locks l WHERE c.pid = "
                           f"{actor.pid} AND l.locktype = 'advisory' AND "
                           "(l.classid::bigint << 32 | l.objid::bigint) = "
                           f"{self.prefix}_key(c.client)")

    def statements(self):
        """The number of Pawl's statements that the server has carried out, from its log."""
        with open(self.log, errors='replace') as log:
            return sum('  execute pawl_' in line for line in log)

    def read_only(self, on):
        self.sql(f'ALTER SYSTEM SET default_transaction_read_only = {"on" if on else "off"}')
        self.sql('SELECT pg_reload_conf()')
        want = 'on' if on else 'off'
        until(lambda: self.sql('SHOW default_transaction_read_only').strip() == want)

    def user(self, name, password=None):
        self.sql(f'CREATE ROLE {name} LOGIN' + (f" PASSWORD '{password}'" if password else ''))

    def drop_tables(self):
        self.sql('DROP TABLE ' + ', '.join(self.prefix + t for t in self.tables) + ' CASCADE')

    def schema(self):
        """Run the installed schema file as an administrator."""
        self.run('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-h', self.folder, '-p', str(self.port),
                 '-U', 'root', 'postgres', '-f', os.environ['PAWL_POSTGRES_SQL'])

    def grant(self, name, mark='postgres'):
        for statement in rights.statements(mark, shop=name, app='postgres'):
            self.sql(statement)

    def serve_tls(self, certs, demand=False):
        """Restart with TLS. demand: refuse connections to the port without TLS."""
        owned, rules = (os.path.join(self.data, f) for f in ('server.key', 'pg_hba.conf'))
        shutil.copyfile(certs.key('server'), owned)
        os.chmod(owned, 0o600)
        if not os.getuid():
            stat = os.stat(self.data)
            os.chown(owned, stat.st_uid, stat.st_gid)
        if demand:
            with open(rules, 'r+', encoding='ascii') as f:
                text = f.read().replace('host ', 'hostssl ')
                f.seek(0)
                f.write(text)
        self.options += ['-c', 'ssl=on', '-c', f'ssl_cert_file={certs.pem("server")}',
                         '-c', f'ssl_key_file={owned}']
        self.restart()

    def bare_user(self, name):
        """Create a user without any rights, and revoke the rights that every user has by default."""
        self.sql('REVOKE ALL ON DATABASE postgres FROM PUBLIC')
        self.sql('REVOKE ALL ON SCHEMA public FROM PUBLIC')
        self.sql('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC')
        self.user(name)

    def transaction(self, *texts):
        """Open a connection that runs these statements and keeps its transaction open until kill()."""
        return Transaction(['psql', '-Xqt', '-h', self.folder, '-p', str(self.port), '-U', 'root',
                            'postgres'], texts, '\\echo DONE')


class Mysql(Server):
    scheme = 'mysql'
    tables = ('', '_member', '_client', '_mail')
    program = shutil.which('mariadbd') or '/usr/sbin/mariadbd'

    @classmethod
    @functools.lru_cache(None)
    def is_mysql(cls):
        """Whether the server is MySQL, not MariaDB, whatever the program is called."""
        done = subprocess.run([cls.program, '--version'], stdout=subprocess.PIPE, check=True)
        return b'MariaDB' not in done.stdout

    def make(self):
        self.run('mariadb-install-db', '--no-defaults', f'--user={pwd.getpwuid(os.getuid())[0]}',
                 '--auth-root-authentication-method=normal', '--skip-test-db',
                 f'--datadir={self.data}', f'--tmpdir={self.folder}', '--innodb-log-file-size=8M')

    def command(self):
        return [self.program, '--no-defaults', f'--user={pwd.getpwuid(os.getuid())[0]}',
                f'--datadir={self.data}', f'--tmpdir={self.folder}',
                f'--socket={self.folder}/socket',
                f'--pid-file={self.folder}/pid', '--bind-address=127.0.0.1',
                f'--port={self.port}', '--skip-name-resolve', '--max-connections=400',
                '--innodb-buffer-pool-size=32M',
                '--loose-innodb-log-file-size=8M', '--skip-log-bin',
                f'--innodb-flush-log-at-trx-commit={1 if self.durable else 2}',
                # TLS only with a certificate of the test: MySQL and MariaDB 11.4 make their own
                '--loose-auto-generate-certs=OFF' if self.is_mysql() else '--skip-ssl',
                *self.options]

    def start(self):
        super().start()
        self.sql('CREATE DATABASE IF NOT EXISTS pawl', database='')

    def _comes_up(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.sql('SELECT 1', database='')
                return True
            except AssertionError:
                time.sleep(0.02)
        self.kill()
        return False

    def sql(self, text, user='root', database='pawl'):
        return self.run('mariadb', '--no-defaults', '-NB', '-S', f'{self.folder}/socket', '-u',
                        user, *([database] if database else []), '-e', text)

    def url(self, user=None, port=None, **params):
        if self.is_mysql():  # its default method of authentication needs a trusted server
            params.setdefault('cleartext', 'yes')
        return f'mysql://{user or "root"}@127.0.0.1:{port or self.port}/pawl{query(params)}'

    IDS = ("SELECT id FROM information_schema.processlist WHERE db = 'pawl' AND host LIKE "
           "'127.0.0.1:%'")

    def connections(self):
        return len(self.sql(self.IDS).split())

    def kill_connections(self):
        for number in self.sql(self.IDS).split():
            try:
                self.sql(f'KILL {number}')
            except AssertionError:
                pass  # the session has just ended

    def connections_of(self, actor):
        return self.number(f"SELECT count(*) FROM {self.prefix}_client WHERE pid = {actor.pid} AND "
                           "IS_USED_LOCK(CONCAT('pawl:', client)) IS NOT NULL")

    def statements(self):
        row = self.sql("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'")
        return int(row.split()[1])

    def read_only(self, on):
        self.sql(f'SET GLOBAL read_only = {int(on)}')

    def user(self, name, password=None):
        self.sql(f"CREATE USER {name}@'%' IDENTIFIED BY '{password or ''}'")
        self.sql(f'GRANT EXECUTE ON pawl.* TO {name}')

    def drop_tables(self):
        self.sql('DROP TABLE ' + ', '.join(self.prefix + t for t in self.tables))

    def schema(self):
        tables = os.environ['PAWL_MYSQL_SQL']
        for name in (tables, tables.replace('mysql.sql', 'mysql-session.sql')):
            with open(name, encoding='utf-8') as f:
                self.run('mariadb', '--no-defaults', '-S', f'{self.folder}/socket', '-u', 'root',
                         'pawl', stdin=f)

    def grant(self, name, mark='mysql'):
        for statement in rights.statements(mark, shop=name, app='pawl'):
            self.sql(statement)

    def serve_tls(self, certs, demand=False):
        """Restart with TLS. demand: refuse connections to the port without TLS."""
        self.options += [f'--ssl-cert={certs.pem("server")}', f'--ssl-key={certs.key("server")}',
                         f'--ssl-ca={certs.pem("ca")}',
                         *(['--require-secure-transport=ON'] if demand else [])]
        self.restart()

    def bare_user(self, name):
        self.sql(f"CREATE USER {name}@'%'")

    def transaction(self, *texts):
        return Transaction(['mariadb', '--no-defaults', '-NBn', '-S', f'{self.folder}/socket', '-u',
                            'root', 'pawl'], texts, "SELECT 'DONE';")


class Transaction:
    def __init__(self, command, texts, mark):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.mark = mark
        self.say('BEGIN', *texts)

    def say(self, *texts):
        """Run a statement. Returns the output, which contains the error text after a failure."""
        for text in texts:
            self.process.stdin.write(f'{text};\n'.encode())
        self.process.stdin.write(f'{self.mark}\n'.encode())
        self.process.stdin.flush()
        said = b''
        for line in self.process.stdout:
            if line.strip() == b'DONE':
                break
            said += line
        return said.decode()

    def start(self, text):
        """Send a statement without waiting for the answer."""
        self.process.stdin.write(f'{text};\n'.encode())
        self.process.stdin.flush()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


SERVERS = {'postgres': Postgres, 'mysql': Mysql}
