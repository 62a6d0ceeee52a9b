#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_basics.py postgres|mysql [PART]: the engine without faults, and refusals."""
import os
import re
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import Skip, case, equal  # noqa: E402
from certs import Certs  # noqa: E402
from failures import fails  # noqa: E402
import rogue  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402


@case('the tables are made by whoever comes first; eight who come at once all work', own={})
def _(s, name):
    actors = [s.actor() for _ in range(8)]
    for a in actors:
        a.lock('l', name)
        a.send('acquire', 'l', 30000)
    for n in range(8):
        holder = until(lambda: next((a for a in actors if a.have('acquire', 'l')), None))
        holder.ask('drop', 'l').ok()
    equal(s.number(f'SELECT count(*) FROM {s.prefix}'), 1)


@case('waiters are served first come first served, tokens rise')
def _(s, name):
    a = s.actor()
    a.lock('l', name)
    tokens = [a.ask('take', 'l', 0).ok().token]
    waiters = [s.actor() for _ in range(6)]
    s.queue_up(name, waiters)
    a.ask('drop', 'l').ok()
    for w in waiters:
        tokens.append(w.answer('acquire', 'l').ok().token)
        w.ask('drop', 'l').ok()
    equal(tokens, sorted(set(tokens)))


@case('postgresql:// and mariadb:// are other names of the same')
def _(s, name):
    url = s.url(timeout=10000).replace('postgres:', 'postgresql:').replace('mysql:', 'mariadb:')
    a, b = s.actor(), Actor(url)
    for actor in (a, b):
        actor.lock('l', name)
    a.ask('take', 'l', 0).ok()
    b.ask('take', 'l', 0).be('PAWL_EBUSY')
    a.ask('drop', 'l').ok()
    b.ask('take', 'l', 0).ok()


@case('who holds it and who waits is shown in order, with host, pid, program and label')
def _(s, name):
    a, b, c = (s.actor(label) for label in ('first', 'second', 'third'))
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b, c])
    rows = a.rows('show', name.replace(' ', '%20'))
    equal([r.label for r in rows[1:]], ['first', 'second', 'third'])
    equal([r.pid for r in rows[1:]], [a.pid, b.pid, c.pid])
    equal({r.program for r in rows[1:]}, {'actor'})
    listed = a.rows('ls', 'case*')
    equal([r.waiters for r in listed if r.id == name.replace(' ', '%20')], [2])


@case('a lock that is taken by force is told at once')
def _(s, name):
    a, b, c = s.actor(), s.actor(), s.actor()
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up(name, [b])
    c.lock('l', name)
    begun = time.monotonic()
    c.ask('break', 'l').ok()
    a.lost('l')
    print(f'# told after {time.monotonic() - begun:.3f} s')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')


@case('names that differ in case, accents or blanks at the end are different locks')
def _(s, name):
    names = ['name', 'NAME', 'Name', 'nam\u00e9', 'name ', 'n\\ame', "n'ame", 'n"ame', 'n%61me',
             '\u6f22\u5b57', 'x' * 255]
    a = s.actor()
    for i, n in enumerate(names):
        a.lock(f'l{i}', n)
        a.ask('take', f'l{i}', 0).ok()
    equal(len(a.rows('ls', '*ame*')), 6)
    for i in range(len(names)):
        a.ask('drop', f'l{i}').ok()


@case('a prefix names other tables, whose locks have nothing to do with these')
def _(s, name):
    a, b = s.actor(), s.actor(prefix='other_lock')
    for x in (a, b):
        x.lock('l', name)
        x.ask('take', 'l', 0).ok()
    fails(s.url(prefix='robert\'); drop'), ['PAWL_EINVAL'], 'prefix names the table')
    fails(s.url(prefix='1abc'), ['PAWL_EINVAL'], 'prefix names the table')


@case('nobody polls: a hand-over costs as many statements with 12 waiters as with 2')
def _(s, name):
    costs = []
    for n in (2, 12):
        this = f'{name}/{n}'
        a = s.actor()
        a.lock('l', this)
        a.ask('take', 'l', 0).ok()
        waiters = [s.actor() for _ in range(n)]
        s.queue_up(this, waiters)
        time.sleep(0.5)  # until the listeners are open
        before = s.statements()
        begun = time.monotonic()
        a.ask('drop', 'l').ok()
        for w in waiters:
            w.answer('acquire', 'l').ok()
            w.ask('drop', 'l').ok()
        idle = (n + 1) * (time.monotonic() - begun)  # listeners report back every 5 s
        cost = (s.statements() - before - idle) / n
        print(f'# {n} waiters: {cost:.1f} statements each')
        costs.append(cost)
        for w in [a, *waiters]:
            w.close()
    assert costs[1] <= costs[0] + 3, costs


@case('a waiter that has nothing to hear sends next to nothing')
def _(s, name):
    a, b = s.actor(), s.actor()
    a.lock('l', name, lease=600000)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b])
    time.sleep(1)
    before = s.statements()
    time.sleep(3)
    sent = s.statements() - before
    print(f'# {sent} statements in 3 s')
    assert sent <= 12, sent  # the statements of this test count as well


@case('a semaphore and a latch across processes')
def _(s, name):
    a, b = s.actor(), s.actor()
    for x in (a, b):
        x.sem('s', name + '/s', permits=2)
        x.latch('d', name + '/d')
        x.lock('r', name + '/r', kind='read')
    a.ask('take', 's', 0, 2).ok()
    b.ask('try', 's', 1).be('PAWL_EBUSY')
    a.ask('drop', 's', 1).ok()
    b.ask('take', 's', 5000, 1).ok()
    a.ask('set', 'd', 2).ok()
    b.ask('try', 'd').be('PAWL_EBUSY')
    a.ask('down', 'd').ok()
    a.ask('down', 'd').ok()
    b.ask('take', 'd', 5000).ok()
    a.ask('take', 'r', 0).ok()
    b.ask('take', 'r', 0).ok()


def opens(s, a, b, name, crowd):
    """The time until a waiter of a latch is notified, if there are this many waiters of dead clients whose
    ids sort before the id of the live client."""
    a.ask('set', 'd', 1).ok()
    b.send('take', 'd', 60000)
    until(lambda: s.waiters(name) == 1, 'for a place')
    if crowd:
        s.sql(f"INSERT INTO {s.prefix}_member (name, owner, role, mode, push, permits, tokens, "
              f"first, since, lease, expires) SELECT '{name}', CONCAT(LPAD(seq, 16, '0'), ':1'), "
              f"'w', 'l', 1, 0, 0, 0, 0, 60000, 4000000000000 FROM seq_1_to_{crowd}")
    began = time.monotonic()
    a.ask('down', 'd').ok()
    b.answer('take', 'd').ok()
    return time.monotonic() - began


@case('of a latch that opens the last of 80 clients is told as soon as the first', only='mysql')
def _(s, name):
    before = s.number('SELECT @@global.group_concat_max_len')
    s.sql('SET GLOBAL group_concat_max_len = 1024')  # the default of MySQL; of MariaDB it is more
    try:
        a, b = s.actor(), s.actor()
        for x in (a, b):
            x.latch('d', name)
        opens(s, a, b, name, 0)
    finally:
        s.sql(f'SET GLOBAL group_concat_max_len = {before}')
    alone = sorted(opens(s, a, b, name, 0) for _ in range(7))[3]
    crowd = sorted(opens(s, a, b, name, 80) for _ in range(15))[7]
    print(f'# {alone * 1000:.0f} ms alone, {crowd * 1000:.0f} ms behind 80')
    assert crowd < alone + 0.25, crowd  # a waiter without a notification asks once a second


@case('a name with more than 50000 rows is an error, not a long list')
def _(s, _name):
    a, name = s.actor(), 'many'
    a.lock('l', name)
    a.ask('take', 'l', 5000).ok()
    rows = ('generate_series(1, 50001) AS seq' if s.scheme == 'postgres' else 'seq_1_to_50001')
    text = 'lpad(seq::text,' if s.scheme == 'postgres' else 'LPAD(seq,'
    push = 'false' if s.scheme == 'postgres' else '0'
    s.sql(f"INSERT INTO {s.prefix}_member (name, owner, role, mode, push, permits, tokens, first, "
          f"since, lease, expires) SELECT '{name}', CONCAT({text} 16, '0'), ':1'), 'w', 'x', "
          f"{push}, 0, 1, 0, 0, 60000, 4000000000000 FROM {rows}")
    got = a.ask('show', name).be('PAWL_EBACKEND')
    assert 'more than 50000' in got.words, got
    s.sql(f"DELETE FROM {s.prefix}_member WHERE name = '{name}'")
    equal(len(a.rows('show', name)), 2)


@case('a server that ends idle sessions does not end ours')
def _(s, name):
    if s.scheme == 'postgres' and s.number('SHOW server_version_num') < 140000:
        raise Skip('PostgreSQL has idle_session_timeout since version 14')
    before = s.number('SELECT @@global.wait_timeout') if s.scheme == 'mysql' else 0
    s.sql("ALTER DATABASE postgres SET idle_session_timeout = '500ms'" if s.scheme == 'postgres'
          else 'SET GLOBAL wait_timeout = 1')
    try:
        a = s.actor()
        a.lock('l', name)
        a.ask('take', 'l', 5000).ok()
        time.sleep(4)
        equal(a.ask('stats').reconnects, 0)
        a.ask('drop', 'l').ok()
    finally:
        s.sql('ALTER DATABASE postgres RESET idle_session_timeout' if s.scheme == 'postgres'
              else f'SET GLOBAL wait_timeout = {before}')


@case('a user who may not make the tables is told what to do; once they are made it works', own={})
def _(s, name):
    s.user('shop')
    if s.scheme == 'postgres':
        s.sql('REVOKE CREATE ON SCHEMA public FROM PUBLIC')
    fails(s.url('shop'), ['PAWL_EAUTH'], r'no tables "distributed_lock".*share/pawl/.*GRANT')
    s.schema()
    if s.scheme == 'mysql':
        s.sql("REVOKE EXECUTE ON pawl.* FROM shop")
    fails(s.url('shop'), ['PAWL_EAUTH'], 'denied')
    if s.scheme == 'mysql':
        s.sql("GRANT EXECUTE ON pawl.* TO shop")
    s.grant('shop')
    a, b = s.actor(user='shop'), s.actor(user='shop')
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b])
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()


@case('tables that another user has made are not used, unless the URL trusts that user', own={})
def _(s, name):
    for user in ('mallory', 'shop'):
        s.user(user)
    if s.scheme == 'postgres':
        s.sql('GRANT CREATE ON SCHEMA public TO PUBLIC')
    else:
        s.sql('GRANT ALL ON pawl.* TO mallory')
    a = s.actor(user='mallory')
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()
    s.grant('shop')
    fails(s.url('shop'), ['PAWL_EAUTH'], 'mallory.*administrator')
    b = s.actor(user='shop', owner='mallory')
    b.lock('l', name)
    b.ask('take', 'l', 0).be('PAWL_EBUSY')


@case('wrong password, unknown user and database, nobody there: each with its code and words',
      own={})
def _(s, name):
    s.user('locked', 'secret')
    url = s.url('locked')
    pawl_password = {'PAWL_PASSWORD': 'wrong'}
    fails(url, ['PAWL_EAUTH'], 'password|denied', environ=pawl_password)
    fails(re.sub(r'/(pawl|postgres)(?=$|\?)', '/nowhere', s.url()), ['PAWL_EINVAL', 'PAWL_EAUTH'],
          'exist|unknown|denied')
    fails(url.replace(f':{s.port}', ':1'), ['PAWL_ECONN'], 'refused|can\'t connect')
    fails(url.replace('127.0.0.1', 'no.such.host.invalid'), ['PAWL_ECONN'],
          'resolve|unknown|known')
    if s.scheme == 'postgres':
        s.sql('GRANT CREATE ON SCHEMA public TO locked')
    else:
        s.sql('GRANT ALL ON pawl.* TO locked')
    a = Actor(url, environ={'PAWL_PASSWORD': 'secret'})
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()


@case('TLS that is asked for and that the server does not have is an error')
def _(s, name):
    for params in ({'sslmode': 'require'}, {'verify': 'none'}):
        fails(s.url(**params), ['PAWL_EAUTH', 'PAWL_ECONN'], 'TLS|SSL')


SECRET = 'Sesame-open-4711'


def refuses(scheme, script, pattern, asks=True, **params):
    """The password does not reach this false server in clear, and the caller is told why."""
    false = rogue.Rogue(script)
    params.setdefault('timeout', 3000)
    query = '&'.join(f'{k}={v}' for k, v in params.items())
    try:
        fails(f'{scheme}://joe@127.0.0.1:{false.port}/app?{query}', ['PAWL_EAUTH'], pattern,
              environ={'PAWL_PASSWORD': SECRET})
        assert SECRET.encode() not in false.heard, false.heard
        assert not asks or until(lambda: false.asked), 'nobody asked for it'
    finally:
        false.close()


@case('a false PostgreSQL server asks for the password in clear, and does not get it', only='postgres')
def _(s, name):
    clear = 'in clear.*cleartext=yes'
    for layout in ('pawl', 'advisory'):
        refuses('postgres', rogue.postgres(), clear, layout=layout)
    refuses('postgres', rogue.postgres(), clear, sslmode='disable')
    refuses('postgres', rogue.postgres(first=rogue.SASL), clear)
    refuses('postgres', rogue.postgres(first=rogue.SASL, pause=0.2), clear)
    refuses('postgres', rogue.postgres(early=rogue.CLEAR), clear)
    refuses('postgres', rogue.postgres(first=rogue.CLEAR[:6], second=rogue.CLEAR[6:], pause=0.1),
            clear)
    refuses('postgres', rogue.postgres(), 'SSL', asks=False, sslmode='require')
    told = rogue.Rogue(rogue.postgres())  # the same server, and a URL that allows cleartext
    a = Actor(f'postgres://joe@127.0.0.1:{told.port}/app?timeout=1000&cleartext=yes',
              environ={'PAWL_PASSWORD': SECRET})
    a.lock('l', name)
    a.ask('take', 'l', 500).be('PAWL_ECONN')
    assert SECRET.encode() in told.heard
    told.close()


@case('a false MySQL server asks for the password in clear, and does not get it', only='mysql')
def _(s, name):
    for mode in ('disable', 'prefer', 'require', 'verify-ca', 'verify-full'):
        refuses('mysql', rogue.mysql, 'could read the password|TLS|SSL',
                asks=not mode.startswith('verify'), sslmode=mode)
    refuses('mysql', rogue.mysql, 'could read the password', layout='session')


@case('TLS: the server\'s certificate is checked as asked for', own={})
def _(s, name):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        certs = Certs(folder)
        os.chmod(certs.folder, 0o755)
        s.serve_tls(certs)
        url = s.url().replace('127.0.0.1', 'localhost')
        ca = certs.pem('ca')
        for params in (f'cafile={ca}', 'verify=none', 'sslmode=require',
                       f'cafile={ca}&verify=full'):
            a = Actor(f'{url}?{params}')
            a.lock('l', name)
            a.ask('take', 'l', 20000).ok()
            a.close()
        fails(f'{url}?cafile={certs.pem("other")}', ['PAWL_EAUTH'], 'cert|ssl|tls')
        fails(f'{url}?verify=maybe', ['PAWL_EINVAL'], 'sslmode')
        b, c = Actor(f'{url}?cafile={ca}'), Actor(f'{url}?cafile={ca}')
        b.lock('l', name)
        b.ask('take', 'l', 0).ok()
        s.queue_up(name, [c])
        b.ask('drop', 'l').ok()
        c.answer('acquire', 'l').ok()


@case('behind a pooler that keeps no session: all kinds work, by asking again and again',
      only='postgres')
def _(s, name):
    a, b = s.actor(pooler='transaction'), s.actor(pooler='transaction')
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b])
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('drop', 'l').ok()
    for x in (a, b):
        x.sem('s', name + '/s', permits=1)
    a.ask('take', 's', 0, 1).ok()
    b.ask('try', 's', 1).be('PAWL_EBUSY')


if __name__ == '__main__':
    sys.exit(run())
