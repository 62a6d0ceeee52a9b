# SPDX-License-Identifier: Apache-2.0
"""The texts of the errors that people meet first, on real servers: each text names the problem, the place
(host:port), and a remedy.

    test_errors.py ENGINE [WORD]      redis, etcd, zk, postgres, mysql or tool
"""
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
import cases  # noqa: E402
from cases import equal  # noqa: E402
from certs import Certs  # noqa: E402
from etcd_server import Etcd  # noqa: E402
import fake_etcd  # noqa: E402
import fake_zk  # noqa: E402
from ports import free_port  # noqa: E402
from redis_live import Live  # noqa: E402
from sql_server import Mysql, Postgres  # noqa: E402
import zk_client  # noqa: E402
import zk_server  # noqa: E402

TOOL = os.environ['PAWL_TOOL']
SOON = 'timeout=700'  # for services that don't answer at all
LONG = 30000  # for waits that succeed, also on a crowded machine
ADVICE = '; check the host and port in -u or PAWL_URL, and that the service is up'
CANT = "pawl: can't acquire 'x': "


class Place:
    """The argument of a case: servers that are started at their first use, and the tool."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='pawl-errors-')
        self.made, self.stops = {}, []

    def once(self, what, make, stop=lambda x: x.stop()):
        if what not in self.made:
            self.made[what] = make()
            self.stops.append((stop, self.made[what]))
        return self.made[what]

    @property
    def redis(self):
        return self.once('redis', Live)

    @property
    def certs(self):
        return self.once('certs', lambda: Certs(self.folder), lambda x: None)

    @property
    def tls_redis(self):
        return self.once('tls', lambda: Live(*self.certs.options()))

    @property
    def etcd(self):
        return self.once('etcd', Etcd)

    @property
    def zk(self):
        return self.once('zk', lambda: zk_server.Server().start())

    @property
    def postgres(self):
        return self.once('postgres', Postgres)

    @property
    def mysql(self):
        return self.once('mysql', Mysql)

    def demanding(self, server):
        """Let the SQL server demand TLS of those who connect to its port."""
        for folder in (self.folder, self.certs.folder):
            os.chmod(folder, 0o755)  # PostgreSQL runs as another user
        server.serve_tls(self.certs, demand=True)

    @property
    def silent_port(self):
        """A port with a server that accepts connections and never answers."""
        def make():
            s = socket.socket()
            s.bind(('127.0.0.1', 0))
            s.listen(50)
            return s
        return self.once('silent', make, lambda s: s.close()).getsockname()[1]

    def talker(self, *texts, greeting=b''):
        """The port of a server that answers the requests of each client with these texts, one after the
        other."""
        s = socket.socket()
        s.bind(('127.0.0.1', 0))
        s.listen(50)
        self.stops.append((lambda x: x.close(), s))

        def talk(client):
            with contextlib.suppress(OSError), client:
                client.sendall(greeting)
                for text in texts:
                    if client.recv(4096):
                        client.sendall(text)
                while client.recv(4096):
                    pass

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=talk, args=s.accept()[:1], daemon=True).start()
        threading.Thread(target=serve, daemon=True).start()
        return s.getsockname()[1]

    def end(self):
        for stop, what in reversed(self.stops):
            stop(what)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the tool ----

    def run(self, url, command=('true',), env=(), options=('-n',), name='x', stop=None):
        """Run the tool. stop: (seconds until the tool is stopped, seconds until it is resumed)."""
        environ = {k: v for k, v in os.environ.items()
                   if not k.startswith('PAWL_') or k == 'PAWL_ENGINE_DIR'}
        tool = subprocess.Popen([TOOL, 'run', *options, '-u', url, name, '--', *command],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env=dict(environ, **dict(env)))
        if stop:
            time.sleep(stop[0])
            tool.send_signal(signal.SIGSTOP)
            time.sleep(stop[1])
            tool.send_signal(signal.SIGCONT)
        try:
            err = tool.communicate(timeout=90)[1]
        except subprocess.TimeoutExpired:
            tool.kill()
            raise
        return subprocess.CompletedProcess(tool.args, tool.returncode, None, err)

    def says(self, url, text, status=69, **more):
        """Check that the output has exactly this line; `...` in it stands for any text."""
        done = self.run(url, **more)
        pattern = '.*'.join(re.escape(part) for part in text.split('...'))
        assert re.fullmatch(pattern, done.stderr.rstrip('\n')), \
            f'{url}:\n  says  {done.stderr.rstrip()}\n  wants {text}'
        assert done.returncode == status, f'{url}: status {done.returncode}, not {status}'


def case(engine, sentence):
    return cases.case(f'{engine}: {sentence}', only=engine)


# ---- no server, or another one -------------------------------------------------------------------

URLS = {'redis': 'redis://{at}/?', 'etcd': 'etcd://{at}/?', 'zk': 'zk://{at}/?',
        'postgres': 'postgres://me@{at}/app?', 'mysql': 'mysql://me@{at}/app?'}
REFUSED = {'mysql': "can't connect; is a MariaDB or MySQL server listening there?"}
UNKNOWN = {'mysql': "the name can't be resolved" + ADVICE}


def unreachable(engine):
    def url(at):
        return URLS[engine].format(at=at) + SOON

    @case(engine, 'a wrong port')
    def _(p):
        at = f'127.0.0.1:{free_port()}'
        p.says(url(at), CANT + at + ': ' + REFUSED.get(engine, 'Connection refused' + ADVICE))

    @case(engine, 'a silent port')
    def _(p):
        at = f'127.0.0.1:{p.silent_port}'
        p.says(url(at), CANT + at + ': no answer ...' + ADVICE)

    @case(engine, 'a silent port, and a machine that stands still when the time is over')
    def _(p):
        if engine == 'mysql':
            return  # the client library has a text of its own for this error
        at = f'127.0.0.1:{p.silent_port}'
        p.says(url(at), CANT + at + ': no answer ...' + ADVICE, stop=(0.35, 0.8))

    @case(engine, 'an unknown host')
    def _(p):
        p.says(url('no-such-host.invalid:7000'), CANT + 'no-such-host.invalid:7000: ' +
               UNKNOWN.get(engine, "the name can't be resolved: ..." + ADVICE))

    @case(engine, 'a certificate file that is not there')
    def _(p):
        words = {'redis': "the certificates of cafile '/no/ca.pem'",
                 'etcd': "the certificates of cafile '/no/ca.pem'",
                 'zk': "the certificates of cafile '/no/ca.pem'"}.get(engine, "cafile '/no/ca.pem'")
        tls = {'redis': '', 'zk': 'tls=1&'}.get(engine, '')
        target = url('127.0.0.1:1').replace('redis://', 'rediss://') + f'&{tls}cafile=/no/ca.pem'
        p.says(target, f'pawl: ...{words}: No such file or directory', 64)


for one in URLS:
    unreachable(one)


@case('redis', 'TLS to a port without TLS')
def _(p):
    """The acquire has time for two attempts, because the limit of an attempt starts again if its timer
    fires late."""
    at = f'127.0.0.1:{p.redis.port}'
    p.says(f'rediss://{at}/?{SOON}', CANT + at + ': no answer to the TLS handshake within 700 ms; '
           'does this port serve TLS?', options=('-w', '1.6'))


@case('redis', 'no TLS to a port with TLS, or to another service')
def _(p):
    at = f'127.0.0.1:{p.tls_redis.extra_port}'
    p.says(f'redis://{at}/?{SOON}', CANT + at + ': ... before the greeting; is this a Redis server, '
           'and a port without TLS (TLS: rediss://, tls=1)?')


@case('redis', 'a certificate of an authority that nobody knows')
def _(p):
    at = f'localhost:{p.tls_redis.extra_port}'
    p.says(f'rediss://{at}/?timeout={LONG}', CANT + at + ": TLS: the server's certificate is not accepted: ...; "
           'name its authority by cafile=')


@case('etcd', 'TLS to a port without TLS, and the reverse')
def _(p):
    at = f'127.0.0.1:{p.etcd.port}'
    p.says(f'etcd://{at}/?tls=1&{SOON}', CANT + at + ': ...TLS...; does this port serve TLS?')
    at = f'127.0.0.1:{p.tls_redis.extra_port}'
    p.says(f'etcd://{at}/?{SOON}', CANT + at + ': ...; is this etcd, without TLS (TLS: tls=1)?')


@case('zk', 'TLS to a port without TLS, and the reverse')
def _(p):
    at = f'127.0.0.1:{p.zk.port}'
    p.says(f'zk://{at}/?tls=1&{SOON}', CANT + at + ': ...TLS...; does this port serve TLS?')
    at = f'127.0.0.1:{p.tls_redis.extra_port}'
    p.says(f'zk://{at}/?{SOON}', CANT + at + ': ...; is this a ZooKeeper server, and a port without '
           'TLS (TLS: tls=1)?')


@case('postgres', 'TLS to a server without TLS')
def _(p):
    p.says(p.postgres.url(sslmode='require', timeout=LONG), CANT + f'127.0.0.1:{p.postgres.port}: server does not '
           'support SSL, but SSL was required; turn TLS on there, or use sslmode=disable')


@case('mysql', 'TLS to a server without TLS')
def _(p):
    p.says(p.mysql.url(sslmode='require', timeout=LONG), CANT + f'127.0.0.1:{p.mysql.port}: the server has no TLS, '
           'which the URL asks for')


# ---- the server and its version ------------------------------------------------------------------

def output_of(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.decode()


def found(pattern, text):
    return re.search(pattern, text)[1]


# The version as another program tells it.
SERVERS = {
    'redis': lambda p: '(redis|valkey) ' + found(r' v=(\S+)', output_of('redis-server', '--version')),
    'etcd': lambda p: 'etcd ' + found(r'etcd Version: (\S+)', output_of('etcd', '--version')),
    'zk': lambda p: 'ZooKeeper ' + found(r'version: ([^-,]+)', p.zk.ask('srvr')),
    'postgres': lambda p: 'PostgreSQL ' + re.escape(p.postgres.sql('SHOW server_version').strip()),
    'mysql': lambda p: '(MariaDB|MySQL) ' + re.escape(p.mysql.sql('SELECT VERSION()').strip())}


SQL = ('postgres', 'mysql')


def ls(url, *options, **environ):
    """What `pawl ls` says, apart from the names."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith('PAWL_') or k == 'PAWL_ENGINE_DIR'}
    done = subprocess.run([TOOL, 'ls', *options, '-u', url], capture_output=True, text=True, timeout=90,
                          env={**kept, **environ}, check=False)
    assert (done.returncode, done.stdout) == (0, ''), done
    return done.stderr


def tells_version(p, engine, at, url, **environ):
    lines = ls(url, '-v', **environ).splitlines()
    told = [line for line in lines if ': server ' in line]
    assert len(told) == 1, lines
    assert re.fullmatch(f'pawl: {at}: server {SERVERS[engine](p)}', told[0]), told
    assert ': server ' not in ls(url, **environ), url


for one in SERVERS:
    @case(one, '-v tells the server and its version, once; nothing else does')
    def _(p, engine=one):
        server = getattr(p, engine)
        tells_version(p, engine, f'127.0.0.1:{server.port}',
                      server.url(f'?timeout={LONG}') if engine == 'zk' else
                      # the cases about rights want no tables
                      server.url(timeout=LONG, **({'prefix': 'other'} if engine in SQL else {})))


@case('etcd', '-v and a server that does not know the call for its version')
def _(p):
    def say(stream, n):
        if n == 1:
            return fake_etcd.head(stream, (':status', '200'), ('content-type', 'application/grpc'),
                             ('grpc-status', '12'), ('grpc-message', 'unknown method'), end=True)
        return fake_etcd.begin(stream) + fake_etcd.message(stream, b'\x0a\x02\x18\x05') + fake_etcd.end(stream)
    server = fake_etcd.Fake(say)
    said = ls(f'etcd://127.0.0.1:{server.port}/?timeout={LONG}', '-v')
    assert said == 'pawl: no names in use\n', said
    assert server.requests > 1 and server.connections == 1, (server.requests, server.connections)


class NoCommands:
    """A proxy that hangs up on clients that send the command `srvr`, or does not answer them."""

    def __init__(self, port, silent):
        self.to, self.silent, self.refused = ('127.0.0.1', port), silent, []
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            first = client.recv(4096)
            if first == b'srvr':
                self.refused.append(client)
                if not self.silent:
                    client.close()
                continue
            server = socket.create_connection(self.to)
            server.sendall(first)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.copy, args=ends, daemon=True).start()

    @staticmethod
    def copy(source, to):
        try:
            while data := source.recv(65536):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def stop(self):
        self.listener.close()


@case('zk', '-v and a server that does not tell its version')
def _(p):
    for silent, timeout in ((False, LONG), (True, 4000)):
        proxy = NoCommands(p.zk.port, silent)
        p.stops.append((lambda x: x.stop(), proxy))
        said = ls(f'zk://127.0.0.1:{proxy.port}/?timeout={timeout}', '-v')
        assert said == 'pawl: no names in use\n', said
        assert len(proxy.refused) == 1, proxy.refused


@case('postgres', 'no TLS to a server that demands TLS')
def _(p):
    s = p.once('tls', Postgres)
    p.demanding(s)
    p.says(s.url(sslmode='disable', timeout=LONG), CANT + f'127.0.0.1:{s.port}: no pg_hba.conf entry for host '
           '"127.0.0.1", user "root", database "postgres", no encryption; if it demands TLS, remove '
           'sslmode=disable; else check PAWL_USER and pg_hba.conf')
    p.says(s.url('ssl_only', sslmode='require', timeout=LONG), CANT + f'127.0.0.1:{s.port}: role "ssl_only" does '
           'not exist; check PAWL_USER and pg_hba.conf')
    equal(p.run(s.url(timeout=LONG)).returncode, 0)


def my_packet(number, body):
    return struct.pack('<I', len(body))[:3] + bytes([number]) + body


def my_error(number, state, text):
    return b'\xff' + struct.pack('<H', number) + b'#' + state.encode() + text.encode()


def my_talker(p, version, answer):
    """The port of a server without TLS that greets as this version, and answers the login so."""
    can = 0x1 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x80000
    hello = (b'\x0a' + version + b'\0' + struct.pack('<I', 1) + b'12345678\0' +
             struct.pack('<HBHHB', can & 0xffff, 33, 2, can >> 16, 21) + bytes(10) +
             b'123456789012\0mysql_native_password\0')
    return p.talker(my_packet(2, answer), greeting=my_packet(0, hello))


@case('mysql', 'no TLS to a server that demands TLS')
def _(p):
    s = p.once('tls', Mysql)
    p.demanding(s)
    s.sql("CREATE USER strict@'%' REQUIRE SSL; GRANT ALL ON pawl.* TO strict@'%'")
    says = CANT + f'127.0.0.1:{s.port}: '
    equal(p.run(s.url(timeout=LONG)).returncode, 0)
    for user in ('root', 'strict'):  # the second only after require_secure_transport is off
        p.says(s.url(user, sslmode='disable', timeout=LONG), says + f"the server says: Access denied for user "
               f"'{user}'@...; check PAWL_USER and PAWL_PASSWORD, or remove sslmode=disable if TLS is needed")
        equal(p.run(s.url(user, timeout=LONG)).returncode, 0)
        s.sql('SET GLOBAL require_secure_transport = OFF')
    equal(p.run(s.url(sslmode='disable', timeout=LONG)).returncode, 0)
    words = 'Connections using insecure transport are prohibited while --require_secure_transport=ON.'
    at = f'127.0.0.1:{my_talker(p, b"8.0.40", my_error(3159, "HY000", words))}'  # only MySQL says so
    p.says(f'mysql://me@{at}/app?sslmode=disable&timeout={LONG}', CANT + at + ': the server demands TLS: remove '
           f'sslmode=disable (the server says: {words})')


# ---- refused -------------------------------------------------------------------------------------

@case('redis', 'no password, a wrong password, a missing right, no such database')
def _(p):
    s = p.redis
    at = f'127.0.0.1:{s.port}'
    s.call('ACL', 'SETUSER', 'shop', 'on', '>right', '~*', '&*', '+@all', '-evalsha', '-eval')
    s.call('ACL', 'SETUSER', 'keys', 'on', '>right', '~other:*', '&*', '+@all')
    s.call('CONFIG', 'SET', 'requirepass', 'secret')
    url, says = s.url(timeout=LONG), CANT + at + ': the server says: '
    p.says(url, says + 'NOAUTH, it needs a password; set PAWL_PASSWORD (and PAWL_USER)')
    p.says(url, says + 'WRONGPASS ...; check PAWL_USER and PAWL_PASSWORD',
           env={'PAWL_PASSWORD': 'wrong'})
    p.says(url, says + 'NOPERM ...eval...; see docs/security.md',
           env={'PAWL_USER': 'shop', 'PAWL_PASSWORD': 'right'})
    p.says(url, says + 'NOPERM; the user needs the keys ~pawl:* ~{pawl:* ~{*}:pawl:*; see '
           'docs/security.md', env={'PAWL_USER': 'keys', 'PAWL_PASSWORD': 'right'})
    s.call('CONFIG', 'SET', 'requirepass', '')
    p.says(f'redis://{at}/99?timeout={LONG}', CANT + at + ': the server has no database 99, which the URL names '
           '(the server says: ERR DB index is out of range)', 64)


@case('redis', 'a server that is too old, or that has too few replicas')
def _(p):
    old = (b'%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n'
           b'$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:4\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n'
           b'$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n')
    at = f'127.0.0.1:{p.talker(old)}'
    p.says(f'redis://{at}/', CANT + at + ': server too old: it is of version 6.0.9, Pawl needs 6.2 '
           'or newer', 64)
    p.says(p.redis.url(replicas=1, timeout=2000), CANT + 'only 0 of 1 replicas have it; the grant was given back')


@case('etcd', 'no user, a wrong password, a missing right')
def _(p):
    e = p.etcd
    at = f'127.0.0.1:{e.port}'
    for words in (('user', 'add', 'root:root'), ('user', 'grant-role', 'root', 'root'),
                  ('user', 'add', 'poor:right'), ('auth', 'enable')):
        e.ctl(*words)
    says = CANT + at + ': the server says: etcdserver: '
    p.says(e.url(timeout=LONG), says + 'user name is empty; check PAWL_USER and PAWL_PASSWORD')
    p.says(e.url(timeout=LONG), says + 'authentication failed, invalid user ID or password; check PAWL_USER and '
           'PAWL_PASSWORD', env={'PAWL_USER': 'root', 'PAWL_PASSWORD': 'wrong'})
    p.says(e.url(timeout=LONG), says + 'permission denied; the user needs readwrite on the prefix "pawl/"',
           env={'PAWL_USER': 'poor', 'PAWL_PASSWORD': 'right'})
    tells_version(p, 'etcd', at, e.url(timeout=LONG), PAWL_USER='root', PAWL_PASSWORD='root')
    e.ctl('--user', 'root:root', 'auth', 'disable')  # for the cases that follow


@case('etcd', 'a server that is too old, or another gRPC service')
def _(p):
    told = fake_etcd.Fake(lambda stream, n: fake_etcd.head(stream, (':status', '200'), (
        'content-type', 'application/grpc'), ('grpc-status', '12'),
        ('grpc-message', 'unknown service etcdserverpb.KV'), end=True))
    p.stops.append((lambda x: x.listener.close(), told))
    at = f'127.0.0.1:{told.port}'
    p.says(f'etcd://{at}/?timeout={LONG}', CANT + at + ': server too old, or no etcd: Pawl needs etcd 3.4 or newer '
           '(the server says: unknown service etcdserverpb.KV)', 64)


@case('zk', 'no user, a wrong user or password')
def _(p):
    z = zk_client.Client(p.zk.port)
    z.create('/closed')
    z.set_acl('/closed', (1, 'world', 'anyone'))
    z.create('/mine')
    z.set_acl('/mine', (31, 'digest', zk_client.digest('till', 'sesame')))
    at = f'127.0.0.1:{p.zk.port}'
    p.says(f'zk://{at}/closed?timeout={LONG}', CANT + at + ': the right to create is missing at or below /closed/ '
           '(error -102), and no user was given; see docs/security.md')
    for user, password in (('till', 'guess'), ('tim', 'sesame')):
        p.says(f'zk://{at}/mine?timeout={LONG}', CANT + at + ': the right to create is missing at or below /mine/'
               f", or user '{user}' has another password; check PAWL_USER and PAWL_PASSWORD",
               env={'PAWL_USER': user, 'PAWL_PASSWORD': password})
    login = {'PAWL_USER': 'till', 'PAWL_PASSWORD': 'sesame'}
    equal(p.run(f'zk://{at}/mine?timeout={LONG}', env=login).returncode, 0)
    s = p.once('no digest', lambda: zk_server.Server(
        options=['-Dzookeeper.DigestAuthenticationProvider.enabled=false']).start())
    p.says(s.url(f'?timeout={LONG}'), CANT + f'127.0.0.1:{s.port}: user and password were refused (error -115); '
           'check PAWL_USER, PAWL_PASSWORD, and that the server allows the scheme digest', env=login)


@case('zk', 'a server that is too old')
def _(p):
    old = fake_zk.Fake(p.zk.port)
    old.spoil('create2', lambda head, body: fake_zk.frame(head[:12] + struct.pack('>i', -6)), whole=True)
    at = f'127.0.0.1:{old.port}'
    p.says(f'zk://{at}/?timeout={LONG}', CANT + at + ": server too old: it can't create containers, Pawl needs "
           'ZooKeeper 3.5 or newer (error -6)', 64)


@case('postgres', 'no password, a wrong password, no such database, a missing right')
def _(p):
    s = p.postgres
    s.user('locked', 'right')
    s.user('poor')
    says = CANT + f'127.0.0.1:{s.port}: '
    p.says(s.url('locked', timeout=LONG), says + 'the server asks for a password; set PAWL_PASSWORD')
    p.says(s.url('locked', timeout=LONG), says + 'password authentication failed for user "locked"; check '
           'PAWL_USER and PAWL_PASSWORD', env={'PAWL_PASSWORD': 'wrong'})
    p.says(s.url(timeout=LONG).replace('/postgres', '/nodb'), says + 'database "nodb" does not exist; create the '
           'database, or correct the URL', 64)
    s.sql('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    p.says(s.url('poor', timeout=LONG), says + 'no tables "distributed_lock"; let an administrator run '
           'share/pawl/postgres.sql and GRANT (sql.md); the server says: permission denied for '
           'schema public')


@case('mysql', 'a wrong password, no such database, a missing right')
def _(p):
    s = p.mysql
    s.sql("CREATE USER locked@'%' IDENTIFIED BY 'right'")
    s.sql("GRANT SELECT ON pawl.* TO locked@'%'")
    says = CANT + f'127.0.0.1:{s.port}: the server says: '
    p.says(s.url('locked', timeout=LONG), says + "Access denied for user 'locked'@... (using password: YES); check "
           'PAWL_USER and PAWL_PASSWORD', env={'PAWL_PASSWORD': 'wrong'})
    p.says(s.url(timeout=LONG).replace('/pawl', '/nodb'), says + "Unknown database 'nodb'; create the database, "
           'grant the rights (docs/security.md) or correct the URL', 64)
    p.says(s.url('locked', timeout=LONG), CANT + f'127.0.0.1:{s.port}: no tables "distributed_lock"; let an '
           'administrator run share/pawl/mysql.sql and GRANT (sql.md)', env={'PAWL_PASSWORD': 'right'})
    ls(s.url(timeout=LONG))  # makes the tables
    p.says(s.url('locked', timeout=LONG), CANT + f'127.0.0.1:{s.port}: permission denied: GRANT INSERT ON '
           'distributed_lock TO this user (security.md)', env={'PAWL_PASSWORD': 'right'})
    p.says(s.url('locked', layout='session', timeout=LONG), CANT + f'127.0.0.1:{s.port}: no tables '
           '"distributed_lock"; let an administrator run share/pawl/mysql-session.sql and GRANT (sql.md)',
           env={'PAWL_PASSWORD': 'right'})


def pg(kind, body=b''):
    """A message of PostgreSQL's protocol."""
    return kind + struct.pack('>i', 4 + len(body)) + body


def pg_error(state, text):
    return pg(b'E', b''.join(k + v.encode() + b'\0' for k, v in (
        (b'S', 'ERROR'), (b'V', 'ERROR'), (b'C', state), (b'M', text))) + b'\0')


@case('postgres', 'a server that is too old')
def _(p):
    """Answers to the request for TLS, to the login, and to the first statement."""
    ready = pg(b'Z', b'I')

    def port(version, *more):
        return p.talker(b'N', pg(b'R', struct.pack('>i', 0)) + pg(b'S', b'server_version\0' + version + b'\0') +
                        pg(b'K', struct.pack('>ii', 1, 1)) + ready, *more)
    at = f'127.0.0.1:{port(b"11.22")}'
    p.says(f'postgres://me@{at}/app?timeout={LONG}', CANT + at + ': server too old: it is of version 11.22, Pawl '
           'needs PostgreSQL 12 or newer', 64)
    words = 'server too old: layout=advisory needs PostgreSQL 14 or newer, this is 13.4'
    at = f'127.0.0.1:{port(b"13.4", pg_error("PW001", words) + ready)}'
    p.says(f'postgres://me@{at}/app?layout=advisory&timeout={LONG}', CANT + at + ': the server says: ' + words, 64)


@case('mysql', 'a server that is too old')
def _(p):
    """The greeting without TLS, and the answer that accepts the login."""
    for version, shown in ((b'5.5.5-10.2.11-MariaDB', '10.2.11-MariaDB'), (b'5.7.44', '5.7.44')):
        at = f'127.0.0.1:{my_talker(p, version, bytes([0, 0, 0, 2, 0, 0, 0]))}'
        p.says(f'mysql://me@{at}/app?timeout={LONG}', CANT + at + f': server too old: it is of version ...{shown}, '
               'Pawl needs MariaDB 10.3 or MySQL 8.0 or newer', 64)


# ---- the tool's own ------------------------------------------------------------------------------

@case('tool', 'an engine that does not exist, a module that is not installed')
def _(p):
    for url, scheme in (('consul://here', 'consul'), ('localhost:6379', 'localhost')):
        p.says(url, f"pawl: can't open the service: no engine for '{scheme}:'; a URL looks like "
               'redis://host:port (built in: local, memory, redis, rediss, redis+unix, redis+sentinel, redis+cluster, quorum, '
               'trace, fault; modules are in ... or $PAWL_ENGINE_DIR)', 64)
    for scheme in ('etcd', 'zk', 'postgres', 'mysql'):
        p.says(f'{scheme}://here', f"pawl: can't open the service: the module pawl-{scheme}.so is "
               'not in ... or $PAWL_ENGINE_DIR; install it, or build Pawl with the client library '
               'that it needs', 64, env={'PAWL_ENGINE_DIR': '/nowhere'})


def other_home(p, *files):
    """Copy the tool, libpawl and the named modules into a folder; each module file is truncated."""
    home = os.path.join(p.folder, 'home-' + '-'.join(map(os.path.basename, files)))
    built = os.path.dirname(os.path.dirname(TOOL))
    for folder in ('tools', 'engines'):
        os.makedirs(os.path.join(home, folder))
    shutil.copy(TOOL, os.path.join(home, 'tools'))
    shutil.copy(os.path.join(built, 'libpawl.so.0'), home)
    for name in files:
        with open(os.path.join(built, name), 'rb') as whole, open(os.path.join(home, name), 'wb') as cut:
            cut.write(whole.read(100))
    return home


@case('tool', 'modules of TLS, of the screens and of an engine that are cut off, or not there')
def _(p):
    environ = {k: v for k, v in os.environ.items()
               if not k.startswith('PAWL_') and k != 'LD_LIBRARY_PATH'}  # the copy has its own library
    for files in ((), ('tools/view.so', 'engines/tls.so', 'engines/pawl-zk.so')):
        home = other_home(p, *files)
        asks = {'tls.so': ('run', '-n', '-u', 'rediss://127.0.0.1:1', 'x', '--', 'true'),
                'view.so': ('top', '-u', 'memory:'), 'pawl-zk.so': ('ls', '-u', 'zk://127.0.0.1:1')}
        for file, args in asks.items():
            done = subprocess.run([home + '/tools/pawl', *args], capture_output=True, text=True, timeout=90,
                                  stdin=subprocess.DEVNULL, env=environ, check=False)
            assert done.returncode not in (0, 1), args
            wants = f"can't load the .*{home}/.*/{file}: [^;]+; install that file again" if files else \
                f'the module {file} is n.*; install '
            assert re.search(wants, done.stderr), f'{args}: {done.stderr} lacks {wants}'


@case('tool', 'a quorum whose servers are too young, or down')
def _(p):
    three = [p.once(f'young {i}', Live) for i in range(3)]
    url = 'quorum:' + '|'.join(s.url(timeout=LONG) for s in three)
    young = 'too young (... of 30 s)'
    p.says(url, CANT + f'0 of 3: node 1 {young}, 2 {young}, 3 {young}; a node counts when it has run '
           'for as long as a lease: wait, or see settle in pawl(7)')
    ports = [free_port(), free_port()]
    url = f'quorum:settle=1|redis://127.0.0.1:{three[0].port}' + \
        ''.join(f'|redis://127.0.0.1:{n}?{SOON}' for n in ports)
    p.says(url, CANT + f'1 of 3: node 1 ok, 2 127.0.0.1:{ports[0]}: Connection refused, 3 '
           f'127.0.0.1:{ports[1]}: Connection refused; check the nodes that are not ok')


LOST = "pawl: 'x' was lost while the command ran, and the command was ended: "


def lose(p, url, harm, text, *options):
    """A run that loses its lock because of harm() ends its command and gives the reason."""
    ready = os.path.join(p.folder, 'ready')
    if os.path.exists(ready):
        os.unlink(ready)

    over = threading.Event()

    def later():
        while not os.path.exists(ready) and not over.is_set():
            time.sleep(0.02)
        if not over.is_set():
            harm()
    thread = threading.Thread(target=later)
    thread.start()
    try:
        p.says(url, text, 75, command=('sh', '-c', f'touch {ready}; exec sleep 60'), options=options)
    finally:
        over.set()
        thread.join()


BY_WHOM = 'it was broken by pid ... pawl (alice) on ' + socket.gethostname()[:30]
BROKEN = 'it was broken (pawl_lock_break, pawl break)'


def lose_by_break(p, url, text, *options):
    """The breaker writes the name: control characters must not reach the holder's terminal."""
    me = pwd.getpwuid(os.getuid()).pw_name
    hostile = (('alice', 'alice'), ('al\033[2Jce', 'al?[2Jce'))
    for user, shown in hostile if me == 'root' else ((me, me),):
        def break_it(user=user):
            subprocess.run([TOOL, 'break', '-u', url, 'x'], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, 'SUDO_USER': user})
        lose(p, url, break_it, LOST + text.replace('alice', shown), *options)


@case('tool', 'a lock that was broken, and by whom')
def _(p):
    folder = os.path.join(p.folder, 'locks')
    for url in (p.redis.url(), p.redis.url() + '?layout=redisson', f'local:{folder}'):
        lose_by_break(p, url, BY_WHOM)
    lose_by_break(p, p.redis.url(), BY_WHOM, '-p', '2')


@case('postgres', 'a lock that was broken, and by whom')
def _(p):
    lose_by_break(p, p.postgres.url(timeout=LONG), BY_WHOM)


@case('mysql', 'a lock that was broken, and by whom')
def _(p):
    lose_by_break(p, p.mysql.url(timeout=LONG), BY_WHOM)


@case('etcd', 'a lock that was broken; etcd does not tell by whom')
def _(p):
    lose_by_break(p, p.etcd.url(timeout=LONG), BROKEN)


@case('zk', 'a lock that was broken; ZooKeeper does not tell by whom')
def _(p):
    lose_by_break(p, p.zk.url(f'?timeout={LONG}'), BROKEN)


@case('tool', 'a lock whose key is gone')
def _(p):
    lose(p, p.redis.url(), lambda: p.redis.call('DEL', 'pawl:x'), LOST + 'the service no longer has '
         'it: deleted, ended there, or its data were lost', '-l', '3s')


@case('tool', 'a lock without contact to its service')
def _(p):
    s = Live()
    p.stops.append((lambda x: x.stop(), s))
    # With the short time-out several renewals fail before the lease ends; each one is logged.
    lose(p, s.url(timeout=300), s.kill, LOST + 'the service did not confirm its renewal before the lease ended, '
         f"... s after the last contact (can't connect: 127.0.0.1:{s.port}: Connection refused)", '-l', '3s')


@case('tool', 'a lock whose pawl was stopped')
def _(p):
    ready = os.path.join(p.folder, 'stopped')
    process = subprocess.Popen([TOOL, 'run', '-l', '2s', '-u', p.redis.url(), 'x', '--', 'sh', '-c',
                                f'touch {ready}; exec sleep 60'], stderr=subprocess.PIPE, text=True)
    while not os.path.exists(ready):
        time.sleep(0.02)
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)  # the lease
    process.send_signal(signal.SIGCONT)
    words = process.communicate(timeout=60)[1]
    assert process.returncode == 75 and words.startswith(LOST) and \
        'pawl had been stopped and could not renew it' in words, words


def main():
    place = Place()
    return cases.run_in_turn(lambda number: contextlib.nullcontext([place]), place.end, sys.argv.pop(1))


if __name__ == '__main__':
    sys.exit(main())
