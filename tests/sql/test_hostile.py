#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_hostile.py postgres|mysql [PART]: another user of the database, mallory, or a false server, means
harm. PostgreSQL: mallory may create objects in the schema public, as every user could before version 15."""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from actor import Actor  # noqa: E402
from bouncer import Bouncer  # noqa: E402
from cases import case, equal  # noqa: E402
from certs import Certs  # noqa: E402
from failures import fails  # noqa: E402
from proxy import Proxy  # noqa: E402
import rights  # noqa: E402
import rogue  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402

SECRET = 'Sesame-open-4711'
CAUGHT = "BEGIN RAISE LOG 'caught % as %', '{}', current_user; {} END"


def users(s, *names):
    for name in names:
        s.user(name)
    if s.scheme == 'postgres':
        s.sql('GRANT CREATE, USAGE ON SCHEMA public TO mallory')


def caught(s, since=0):
    """What of mallory's was called by shop."""
    with open(s.log, errors='replace') as log:
        log.seek(since)
        return sorted(set(re.findall(r'LOG:  caught (.*) as shop$', log.read(), re.M)))


# ---- PostgreSQL: objects in front of PostgreSQL's own ----------------------------------------------

def doctor(url):
    done = subprocess.run([os.environ['PAWL_TOOL'], 'doctor', '-u', url], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    assert b'PostgreSQL 1' in done.stdout, done.stdout


def set_trap(s):
    s.schema()
    users(s, 'mallory', 'shop')
    s.sql('ALTER ROLE mallory SUPERUSER; ALTER ROLE mallory NOSUPERUSER')
    s.run('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-h', s.folder, '-p', str(s.port), '-U', 'root',
          'postgres', '-f', os.path.join(HERE, 'trap.sql'))
    s.grant('shop')


def play(s, what, url, parts):
    since = os.path.getsize(s.log)
    try:
        rights.everything(url, parts=parts)
        doctor(url)
    finally:
        equal(caught(s, since), [], what)


@case('objects of another user, in front of PostgreSQL\'s own or a better match, are not called',
      only='postgres', own={})
def _(s, name):
    set_trap(s)
    tables = [p for p in rights.PARTS if p != 'odd']
    sessions = [p for p in tables if p not in ('permits', 'latches')]
    for path in ('pg_catalog, public', 'public, pg_catalog'):
        s.sql(f'SET search_path = pg_catalog; ALTER ROLE shop SET search_path = {path}')
        since = os.path.getsize(s.log)
        s.sql('SELECT 1 + 1::pg_catalog.int8', user='shop')
        equal(bool(caught(s, since)), path.startswith('public'), 'the trap')
        for params, parts in (({}, tables), ({'layout': 'advisory'}, sessions),
                              ({'pooler': 'transaction'}, tables)):
            play(s, f'{path}, {params}:', s.url('shop', timeout=10000, **params), parts)
        pooler = Bouncer(s, 'transaction', user='shop')
        try:
            play(s, f'{path}, PgBouncer:', pooler.url(timeout=10000, pooler='transaction'), tables)
        finally:
            pooler.stop()


def add_overloads(s, function, types):
    """Functions of mallory with this name, and another type for one of the parameters."""
    near = {', '.join([*types[:i], other, *types[i + 1:]]) for i in range(len(types))
            for other in ('integer', 'bigint', 'text', 'boolean', 'anyelement')} - {', '.join(types)}
    if near:
        s.sql(';'.join(f'CREATE FUNCTION {function}({n}) RETURNS text LANGUAGE plpgsql AS $$ '
                       f'{CAUGHT.format(function, "RETURN NULL;")} $$' for n in sorted(near)),
              user='mallory')


@case('functions that call each other find no function of another user', only='postgres', own={})
def _(s, name):
    s.schema()
    users(s, 'mallory', 'shop')
    s.grant('shop')
    got = s.sql("SELECT p.proname || ' ' || oidvectortypes(p.proargtypes) FROM pg_proc p "
                f"WHERE p.proname LIKE '{s.prefix}%'")
    for line in got.splitlines():
        function, _, types = line.partition(' ')
        add_overloads(s, function, types.split(', ') if types else [])
    owner = "'0000000000000001:{}'"
    calls = []
    for mode, n in (('x', 1), ('s', 2), ('p', 3), ('l', 4), ('x', 5)):
        me = owner.format(n)
        calls += [f"_acquire('n{mode}'::bytea, {me}::text, '{mode}'::\"char\", 1000::bigint, "
                  f"60000::bigint, 1, 1::bigint, 1::bigint, ''::text, 0::bigint, ''::text, true, false)"]
    calls += [f"_release('nx'::bytea, {owner.format(1)}::text, 0::bigint, 0::bigint, true, true)",
              f"_renew('6e78 {owner.format(5)[1:-1]} 1000 '::text)",
              f"_break('ns'::bytea, {owner.format(9)}::text, true)",
              f"_latch('nd'::bytea, {owner.format(9)}::text, 2::bigint, true)",
              f"_latch('nd'::bytea, {owner.format(8)}::text, 0::bigint, true)"]
    entry = "_entry('0000000000000001'::text, 'h'::text, 1::bigint, 'p'::text, 'l'::text, 90000::bigint)"
    for call in [*calls, entry, entry, '_version()', '_now()']:
        s.sql(f'SELECT {s.prefix}{call}', user='shop')
    equal(caught(s), [])


# ---- PostgreSQL: who could change the tables and functions -------------------------------------------

@case('triggers, rules, the right to add triggers, and an owner of the schema who is not trusted',
      only='postgres', own={})
def _(s, name):
    s.schema()
    users(s, 'mallory', 'shop')
    s.grant('shop')
    table = s.prefix

    def works(**params):
        a = s.actor(user='shop', **params)
        a.lock('l', name)
        a.ask('take', 'l', 20000).ok()
        a.close()

    works()
    s.sql(f'GRANT ALL ON {table} TO mallory')
    s.sql(f'CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ '
          f'{CAUGHT.format("trigger", "RETURN NEW;")} $$', user='mallory')
    fails(s.url('shop'), ['PAWL_EAUTH'], f'mallory.*REVOKE TRIGGER ON {table} FROM mallory')
    s.sql(f'CREATE TRIGGER t BEFORE UPDATE OR INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION f()',
          user='mallory')
    s.sql(f'REVOKE TRIGGER ON {table} FROM mallory')
    fails(s.url('shop'), ['PAWL_EAUTH'], f'DROP TRIGGER t ON {table}')
    s.sql(f'DROP TRIGGER t ON {table}; GRANT TRIGGER ON {table}_client TO PUBLIC')
    fails(s.url('shop'), ['PAWL_EAUTH'], f'every user.*REVOKE TRIGGER ON {table}_client FROM PUBLIC')
    s.sql(f'REVOKE TRIGGER ON {table}_client FROM PUBLIC; GRANT ALL ON {table} TO shop')
    s.sql(f'CREATE RULE r AS ON DELETE TO {table}_member DO ALSO SELECT f()' .replace('f()', '1'))
    fails(s.url('shop'), ['PAWL_EAUTH'], f'DROP RULE r ON {table}_member')
    s.sql(f'DROP RULE r ON {table}_member')
    works()
    equal(caught(s), [])
    s.sql('CREATE SCHEMA app AUTHORIZATION mallory; GRANT USAGE ON SCHEMA app TO shop')
    a = s.actor(prefix='app.locks', owner='mallory')
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()
    a.close()
    s.sql('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA app TO shop')
    fails(s.url('shop', prefix='app.locks'), ['PAWL_EAUTH'], 'schema app belongs to mallory')
    works(prefix='app.locks', owner='mallory')
    s.sql('ALTER SCHEMA app OWNER TO root')
    works(prefix='app.locks')


class Between(Proxy):
    """Before the piece of a request that follows a piece with `mark`, calls `meanwhile` once."""

    def __init__(self, port, mark, meanwhile):
        super().__init__(port)
        self.mark, self.meanwhile, self.marked = mark, meanwhile, set()
        self.request = self.look

    def look(self, connection, data):
        if connection in self.marked and self.meanwhile:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        if self.mark in data:
            self.marked.add(connection)
        return data


@case('a function that is made between the check and its use is not used', only='postgres', own={})
def _(s, name):
    users(s, 'mallory', 'shop')

    def meanwhile():
        for table in s.tables:
            s.sql(f'CREATE TABLE {s.prefix}{table} (name bytea); '
                  f'GRANT ALL ON {s.prefix}{table} TO PUBLIC', user='mallory')
        s.sql(f'CREATE FUNCTION {s.prefix}_version() RETURNS integer LANGUAGE plpgsql AS $$ '
              f'{CAUGHT.format("version", "RETURN 2;")} $$', user='mallory')

    for params in ({}, {'pooler': 'transaction'}):
        between = Between(s.port, b'proowner', meanwhile)
        fails(s.url('shop', port=between.port, **params), ['PAWL_EAUTH'], 'mallory', wait=20000)
        assert not between.meanwhile, 'the check was not seen'
        between.close()
        equal(caught(s), [])
        s.drop_tables()
        s.sql(f'DROP FUNCTION {s.prefix}_version()')


# ---- PostgreSQL: messages ------------------------------------------------------------------------------

@case('a user who may read the tables can\'t grant a lock or open a latch by a message', only='postgres',
      own={})
def _(s, name):
    s.schema()
    users(s, 'mallory', 'shop')
    s.grant('shop')
    s.sql(f'GRANT SELECT ON {s.prefix}, {s.prefix}_member, {s.prefix}_client TO mallory')
    a, b, c = (s.actor(user='shop') for _ in range(3))
    for x in (a, c):
        x.latch('d', 'latch')
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    a.ask('set', 'd', 1).ok()
    s.queue_up(name, [b])
    c.send('take', 'd', -1)
    until(lambda: s.waiters('latch') == 1, 'for the latch')

    def forge(what, words):
        row = s.sql(f"SELECT owner, (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM "
                    f"{s.prefix}_member WHERE name = '{what}' AND role = 'w'", user='mallory')
        owner, now = row.strip().split('|')
        s.sql(f"NOTIFY pawl_{owner[:16]}, '{words.format(owner=owner, now=now)}'", user='mallory')

    for _ in range(3):
        for token in (1, 9 * 10 ** 15):
            forge(name, f'g {{owner}} {token} 1 2000 {{now}}')
            forge(name, 'o {owner} {now}')
            forge('latch', 'o {owner} {now}')
            forge('latch', f'g {{owner}} {token} 1 2000 {{now}}')
            for _ in range(2):  # the answers come after the messages
                b.rows('show', name.replace(' ', '%20'))
            assert not b.have('acquire', 'l') and not c.have('take', 'd')
    row = s.sql(f"SELECT owner FROM {s.prefix} WHERE name = '{name}'", user='mallory').strip()
    s.sql(f"NOTIFY pawl_{row[:16]}, 'e {row} 1 pid 1 on h'", user='mallory')
    a.ask('renew', 'l', 20000).ok()  # the holder has asked, and still holds the lock
    a.ask('down', 'd').ok()
    c.answer('take', 'd').ok()
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('renew', 'l', 20000).ok()


# ---- long answers --------------------------------------------------------------------------------------

def peak_mb(actor):
    with open(f'/proc/{actor.pid}/status', encoding='ascii') as f:
        return int(re.search(r'VmHWM:\s*(\d+)', f.read()).group(1)) // 1024


@case('long texts that another client has written are cut', own={})
def _(s, name):
    s.schema()
    a = s.actor('short')
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()
    huge = '40000000' if s.scheme == 'postgres' else '255'
    most = 'label = ' + (f"repeat('x', {huge})" if s.scheme == 'postgres' else "REPEAT('x', 1000)")
    s.sql(f"UPDATE {s.prefix}_client SET host = REPEAT('h', {huge}), program = REPEAT('p', {huge}), "
          f"{most} WHERE pid = {a.pid}")
    b = s.actor()
    rows = b.rows('show', name.replace(' ', '%20'))
    equal([len(rows[1].fields[k]) for k in ('host', 'program', 'label')], [64, 64, 255])
    if s.scheme == 'postgres':
        s.sql(f"UPDATE {s.prefix}_member SET owner = owner; INSERT INTO {s.prefix}_member (name, owner, "
              "role, mode, push, permits, tokens, first, since, lease, expires) SELECT "
              "decode(repeat('61', 20000), 'hex'), repeat('0', 20000), 'w', 'x', false, 0, 1, 0, 0, 0, "
              f"4000000000000; INSERT INTO {s.prefix} (name) SELECT decode(repeat('61', 20000), 'hex')")
        equal([r.id for r in b.rows('ls')], [name.replace(' ', '%20')])
    print(f'# {peak_mb(b)} MB')


@case('an answer without an end from a false server is given up')
def _(s, name):
    script = rogue.postgres_endless if s.scheme == 'postgres' else rogue.mysql_lets_in(rogue.mysql_endless)
    false = rogue.Rogue(script)
    layouts = ('pawl', 'advisory' if s.scheme == 'postgres' else 'session')
    for layout in layouts:
        a = Actor(f'{s.scheme}://joe@127.0.0.1:{false.port}/app?layout={layout}&timeout=20000')
        a.lock('l', name)
        got = a.ask('take', 'l', 10000).be('PAWL_ECONN', 'PAWL_EPROTO', 'PAWL_ETIMEDOUT')
        print(f'# {got.words}; {peak_mb(a)} MB')
        assert peak_mb(a) < 250, peak_mb(a)
        a.kill()
    false.close()


# ---- MariaDB and MySQL: option files, files of the client, names of users ---------------------------------

def home_with(folder, *lines):
    with open(os.path.join(folder, '.my.cnf'), 'w', encoding='ascii') as f:
        f.write('[client]\n' + '\n'.join(lines) + '\n')
    return {'HOME': folder, 'PAWL_PASSWORD': SECRET}


def keeps_password(environ, script, **params):
    false = rogue.Rogue(script)
    query = '&'.join(f'{k}={v}' for k, v in {'timeout': 3000, **params}.items())
    try:
        fails(f'mysql://joe@localhost:{false.port}/app?{query}', ['PAWL_EAUTH', 'PAWL_ECONN'], '',
              environ=environ)
        assert SECRET.encode() not in false.heard, (params, false.heard)
        assert false.calls, 'nobody called'
    finally:
        false.close()


@case('option files don\'t weaken TLS, or allow methods that show the password', only='mysql')
def _(s, name):
    with tempfile.TemporaryDirectory() as folder:
        certs = Certs(folder)
        ca, strange = certs.pem('ca'), rogue.mysql_tls(certs.pem('stranger'), certs.key('stranger'))
        weak = home_with(folder, 'ssl-verify-server-cert=0', f'ssl-ca={certs.pem("other")}',
                         'restricted-auth=mysql_clear_password', 'default-auth=mysql_clear_password')
        for params in ({'sslmode': 'verify-full', 'cafile': ca}, {'verify': 'chain', 'cafile': ca},
                       {'cafile': ca}, {'sslmode': 'require'}, {}):
            keeps_password(weak, strange, **params)
            keeps_password(weak, rogue.mysql, **params)
        weak = home_with(folder, 'ssl-verify-server-cert=0')
        for params in ({'sslmode': 'verify-full', 'cafile': ca}, {'cafile': ca}):
            keeps_password(weak, strange, **params)
            elsewhere = rogue.mysql_tls(certs.pem('elsewhere'), certs.key('elsewhere'))
            keeps_password(weak, elsewhere, **params)


@case('option files still have user, password and stricter TLS; a socket in the URL is used', only='mysql',
      own={})
def _(s, name):
    s.user('boss', SECRET)
    s.sql('GRANT ALL ON pawl.* TO boss')
    with tempfile.TemporaryDirectory() as folder:
        home = home_with(folder, 'user=boss', f'password={SECRET}', 'host=192.0.2.1', 'protocol=tcp')
        del home['PAWL_PASSWORD']
        for url in (f'mysql://127.0.0.1:{s.port}/pawl', f'mysql:///pawl?host={s.folder}/socket'):
            a = Actor(url, environ=home)
            a.lock('l', name)
            a.ask('take', 'l', 20000).ok()
            a.close()
        home = home_with(folder, 'user=boss', f'password={SECRET}', 'ssl-verify-server-cert=1')
        fails(f'mysql://127.0.0.1:{s.port}/pawl', ['PAWL_EAUTH', 'PAWL_ECONN'], 'SSL|TLS', environ=home)


@case('a server that asks for a file of this machine does not get it', only='mysql')
def _(s, name):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'private')
        with open(path, 'w', encoding='ascii') as f:
            f.write('TOP-SECRET\n' * 100)
        home = home_with(folder, 'local-infile=1')

        def ask(c):
            c.sendall(rogue.packet(1, b'\xfb' + path.encode()))

        for layout in ('pawl', 'session'):
            false = rogue.Rogue(rogue.mysql_lets_in(ask))
            fails(f'mysql://joe@127.0.0.1:{false.port}/app?timeout=1000&layout={layout}',
                  ['PAWL_ECONN', 'PAWL_EBACKEND', 'PAWL_EPROTO'], '', environ=home)
            assert b'SET SESSION' in false.heard and b'TOP-SECRET' not in false.heard, false.heard[:500]
            false.close()


@case('procedures of a user whose name only resembles root\'s are not called', only='mysql', own={})
def _(s, name):
    s.schema()
    s.bare_user('shop')
    s.grant('shop')
    for i, user in enumerate(("'root@x'", "'ROOT'", "'root@127.0.0.1'")):
        s.sql(f"CREATE USER {user}@'%'")
        s.sql(f"CREATE DEFINER={user}@'%' PROCEDURE {s.prefix}_extra{i}() SELECT 1")
        s.sql(f'GRANT EXECUTE ON PROCEDURE pawl.{s.prefix}_extra{i} TO shop')
        fails(s.url('shop'), ['PAWL_EAUTH'], f'_extra{i} was made by {user[1:-1]}')
        s.sql(f'DROP PROCEDURE {s.prefix}_extra{i}')
    a = s.actor(user='shop')
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()


if __name__ == '__main__':
    sys.exit(run())
