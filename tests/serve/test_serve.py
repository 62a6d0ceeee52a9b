# SPDX-License-Identifier: Apache-2.0
"""pawl serve: the API, metrics, headers, hostile names, breaking, a service that is silent, and the
load that watching puts on the service. The page itself: test_page.py.
"""
import contextlib
import json
import os
import sys
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from hostile import LABEL, LISTED, plant  # noqa: E402
import metrics  # noqa: E402
from redis_live import Live  # noqa: E402
import schema  # noqa: E402
from services import services  # noqa: E402
from tool import main, wait_for  # noqa: E402
from website import Site  # noqa: E402

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'"


@contextlib.contextmanager
def redis():
    """A server, and .clients(n): actors that end with it, also while they wait."""
    server, actors = Live(), []

    def clients(n):
        actors.extend(server.actor() for _ in range(n))
        return actors[-n:]
    server.clients = clients
    try:
        yield server
    finally:
        for actor in actors:
            actor.kill()
        server.stop()


@case('the API tells locks, holders and waiters in order, and the history')
def api(box):
    site = Site(box)
    equal(site.locks(), {})
    holder, _ = box.holder('stock:7')
    waiters = []
    for n in range(3):
        waiters.append(box.start('run', 'stock:7', '--', 'true').pid)
        box.wait_waiters('stock:7', n + 1)
    box.holder('many', '-p', '3')
    site.fresh()
    locks = site.locks()
    equal(sorted(locks), ['many', 'stock:7'])
    one = locks['stock:7']
    equal((one['id'], one['held'], one['holder_count'], one['waiter_count'], one['pid']),
          ('stock%3A7', True, 1, 3, holder.pid))
    equal((locks['many']['type'], locks['many']['capacity']), ('semaphore', 3))
    lock = site.lock('stock:7')
    equal([h['pid'] for h in lock['holders']], [holder.pid])
    equal([w['pid'] for w in lock['waiters']], waiters)
    assert lock['holders'][0]['lease_ms'] > 0 and lock['waiters'][0]['since_ms'] >= 0, lock
    site.fresh()
    history = site.json('/api/v1/history?name=stock%3A7')
    equal(len(history['holders']), 360)
    last = {key: [v for v in history[key] if v is not None][-1] for key in
            ('holders', 'waiters', 'hold_ms', 'wait_ms')}
    equal((last['holders'], last['waiters']), (1, 3))
    assert last['hold_ms'] > 0 and last['wait_ms'] > 0, last
    whole = site.json('/api/v1/history')
    equal(([v for v in whole['holders'] if v is not None][-1],
           [v for v in whole['waiters'] if v is not None][-1]), (2, 3))
    equal(site.json('/api/v1/history?name=nothing')['holders'], [None] * 360)
    free = site.lock('nothing')
    equal((free['held'], free['holders'], free['waiters']), (False, [], []))


NAMES = 20  # more than a round inspects


def contend(box, server):
    """Locks that two clients want, of which one has waited for longer than the others."""
    holder, waiter = server.clients(2)
    for n in range(NAMES):
        for actor in (holder, waiter):
            actor.lock(f'l{n}', f'lock:{n}' if n else 'first')
        holder.ask('acquire', f'l{n}', 0).ok()
        waiter.send('acquire', f'l{n}', 600000)
        name = f'lock:{n}' if n else 'first'
        wait_for(name, lambda: server.queue(name))
        if n == 0:
            time.sleep(2)  # so that its wait is certainly the longest, also in whole seconds
    return holder, waiter


@case('the waits of all locks are known, though no page looks at them')
def waits(box):
    with redis() as server:
        contend(box, server)
        site = Site(box, url=server.url())
        site.until('all names', lambda s: s['names'] == NAMES)
        site.fresh()
        locks = site.locks()
        equal(len(locks), NAMES)
        waits = sorted((lock['wait_ms'], name) for name, lock in locks.items())
        assert waits[0][0] >= 0 and waits[-1][0] >= 2000, waits
        equal(waits[-1][1], 'first')
        for name in locks:
            past = site.json('/api/v1/history?name=' + urllib.parse.quote(name))
            assert any(ms is not None and ms >= 0 for ms in past['wait_ms']), name
        whole = [ms for ms in site.json('/api/v1/history')['wait_ms'] if ms is not None]
        assert whole[-1] >= 2000, whole
        equal(metrics.samples(site.get('/metrics').text)['pawl_service_inspections_total', ''], 0)


@case('the wait behind any number of holders is known')
def wait_behind_many(box):
    with redis() as server:
        holder, waiter = server.clients(2)
        for actor in (holder, waiter):
            actor.sem('s', 'wide', permits=100)
        for _ in range(100):
            holder.ask('take', 's', 0, 1).ok()
        waiter.send('take', 's', 600000, 1)
        wait_for('the waiter', lambda: server.queue('wide'))
        site = Site(box, url=server.url())
        one = site.until('the name', lambda s: s['names']) and site.locks()['wide']
        equal((one['holder_count'], one['waiter_count']), (100, 1))
        assert one['wait_ms'] is not None, one


@case('the longest wait of each template is a metric, with as many series as the others')
def waits_in_metrics(box):
    with redis() as server:
        actors = contend(box, server)
        for n in range(100):
            for actor in actors:
                actor.lock(f'w{n}', 'word' + chr(97 + n % 26) + chr(97 + n // 26))
            actors[0].ask('acquire', f'w{n}', 0).ok()
            actors[1].send('acquire', f'w{n}', 600000)
        site = Site(box, url=server.url())
        site.until('all names', lambda s: s['names'] == NAMES + 100)
        wait_for('all waiters', lambda: metrics.total(site, 'pawl_service_waiters') == NAMES + 100)
        found = metrics.samples(site.get('/metrics').text)
        labels = {what: {label for name, label in found if name == 'pawl_service_' + what}
                  for what in ('waiters', 'oldest_wait_seconds', 'oldest_hold_seconds')}
        equal(len(labels['waiters']), 65, '64 templates and "other"')
        equal(labels['oldest_wait_seconds'], labels['waiters'])
        equal(labels['oldest_hold_seconds'], labels['waiters'])
        longest = max(v for (name, _), v in found.items()
                      if name == 'pawl_service_oldest_wait_seconds')
        assert longest >= 2, longest
        for actor in actors:
            actor.kill()
        server.call('FLUSHALL')
        actor, = server.clients(1)
        actor.lock('x', 'alone')
        actor.ask('acquire', 'x', 0).ok()
        site.fresh()
        found = metrics.samples(site.get('/metrics').text)
        assert ('pawl_service_oldest_hold_seconds', 'alone') in found, found
        assert not any(name == 'pawl_service_oldest_wait_seconds' for name, _ in found), found


@case('the answers have exactly the members of docs/serve.md, with these types')
def documented(box):
    site = Site(box, '--allow-break')
    box.holder('lock', '-l', '1m')
    box.start('run', 'lock', '--', 'true')
    box.holder('shared', '-s')
    box.holder('shared', '-s')
    box.start('run', 'shared', '--', 'true')
    box.holder('semaphore', '-p', '1')
    box.start('run', '-p', '1', 'semaphore', '--', 'true')
    equal(box.status('latch', 'set', 'latch', '2'), 0)
    box.start('latch', 'wait', 'latch')
    for name in ('lock', 'shared', 'semaphore', 'latch'):
        box.wait_waiters(name, 1)
    site.fresh()
    schema.check(site, 'lock', 'shared', 'semaphore', 'latch', 'free')
    schema.check(site, 'no valid\nname', refused=True)


@case('events tell what changes, and a stream of one lock tells the lock')
def events(box):
    site = Site(box)
    stream, of_lock = site.watch(), site.watch('/api/v1/events?name=x')
    assert stream.event()['full']
    holder, _ = box.holder('x')
    changed = wait_for('the change', lambda: stream.event().get('changed'))
    equal([(c['name'], c['pid']) for c in changed], [('x', holder.pid)])
    wait_for('the lock', lambda: (of_lock.event()['lock'] or {}).get('holders'))
    equal(stream.event().get('changed'), [], 'nothing changed')
    holder.terminate()
    box.end(holder)
    equal(wait_for('the end', lambda: stream.event().get('gone')), ['x'])
    stream.close()
    of_lock.close()
    wait_for('the streams to end', lambda: site.json('/api/v1/status')['watchers'] == 0)
    site.process.terminate()
    equal(site.process.wait(timeout=60), 0)


@case('/metrics is read by Prometheus\' own parsers, in both formats')
def prometheus(box):
    site = Site(box)
    for i in range(3):
        box.holder(f'stock:{i}')
    site.fresh()
    for accept, kind in ((None, 'text/plain; version=0.0.4'),
                         ('application/openmetrics-text;version=1.0.0,text/plain;q=0.5',
                          'application/openmetrics-text; version=1.0.0')):
        answer = site.get('/metrics', **({'Accept': accept} if accept else {}))
        assert answer.headers['content-type'].startswith(kind), answer.headers
        found = metrics.samples(answer.text)
        equal(found['pawl_service_holders', 'stock:*'], 3)
        equal(found['pawl_service_up', ''], 1)
        assert found['pawl_service_rounds_total', ''] > 0


@case('every response has the headers that keep others out')
def headers(box):
    site = Site(box)
    site.until('the first round', lambda status: status['seq'] >= 1)  # /healthz is 503 before
    for path, status in (('/', 200), ('/lock?name=x', 200), ('/app.js', 200), ('/style.css', 200),
                         ('/api/v1/locks', 200), ('/metrics', 200), ('/healthz', 200),
                         ('/none', 404), ('/../etc/passwd', 404), ('/api/v1/lock', 400)):
        answer = site.get(path)
        equal(answer.status, status, path)
        assert answer.headers['content-security-policy'].startswith(POLICY), path
        assert 'unsafe' not in answer.headers['content-security-policy'], path
        equal(answer.headers['x-content-type-options'], 'nosniff', path)
        equal(answer.headers['cache-control'], 'no-store', path)
        assert 'access-control-allow-origin' not in answer.headers, path
    assert '<script>' not in site.get('/').text and 'style=' not in site.get('/').text
    for method in ('POST', 'PUT', 'DELETE', 'OPTIONS'):
        equal(site.ask(method, '/api/v1/locks').status, 405, method)
    equal(site.ask('HEAD', '/').text, '')


@case('a Host that is not this server\'s gets nothing')
def host(box):
    site = Site(box, '--host', 'locks.example')
    for name in ('127.0.0.1', 'localhost:1234', 'LOCALHOST', '[::1]:80', 'locks.example',
                 'locks.example:8443'):
        equal(site.get('/api/v1/locks', Host=name).status, 200, name)
    for name in ('evil.example', '', '127.0.0.1.evil.example', 'localhost.evil', 'xlocalhost',
                 '[::1', '192.168.0.1', 'locks.example.evil', ':80'):
        answer = site.get('/api/v1/locks', Host=name)
        assert answer.status in (400, 421), (name, answer.status)
        assert 'locks"' not in answer.text, name


@case('breaking needs --allow-break, the token, and the hold that was seen')
def breaking(box):
    holder, _ = box.holder('x')
    seen = box.show('x')['token']
    path = f'/api/v1/break?name=x&holder_token={seen}'
    plain = Site(box)
    equal(plain.ask('POST', path, Authorization='Bearer ' + 32 * '0').status, 403)
    site = Site(box, '--allow-break')
    good = 'Bearer ' + site.token
    for authorization in (None, '', 'Bearer ', 'Bearer ' + 32 * '0', good[:-1], good + '0',
                          'Basic ' + site.token):
        extra = {} if authorization is None else {'Authorization': authorization}
        equal(site.ask('POST', path, **extra).status, 401, authorization)
    equal(site.ask('GET', path, Authorization=good).status, 404)
    equal(site.ask('POST', path, Authorization=good, Host='evil.example').status, 421)
    equal(site.ask('POST', path, Authorization=good, Origin='http://evil.example').status, 403)
    equal(site.ask('POST', path, Authorization=good, Origin='null').status, 403)
    equal(site.ask('POST', '/api/v1/break?name=x', Authorization=good).status, 400)
    other = site.ask('POST', f'/api/v1/break?name=x&holder_token={seen + 1}', Authorization=good)
    equal(other.status, 409)
    assert 'another hold' in other.json['message'], other.text
    equal(box.show('x')['token'], seen, 'still held')
    answer = site.ask('POST', path, Authorization=good, Origin=site.url)
    equal(answer.status, 200, answer.text)
    assert 'held by' in answer.json['message'] and str(holder.pid) in answer.text, answer.text
    equal(box.end(holder)[0], 75)
    equal(site.ask('POST', path, Authorization=good).status, 409)
    assert "broke 'x'" in site.stderr(), site.stderr()
    assert site.token not in site.stderr()


@case('the token may come from a file, and a short one is refused')
def token_file(box):
    with open(box.path('token'), 'w') as f:
        f.write('correct horse battery staple\n')
    site = Site(box, '--allow-break', '--token-file', 'token')
    box.holder('x')
    path = f'/api/v1/break?name=x&holder_token={box.show("x")["token"]}'
    equal(site.ask('POST', path, Authorization='Bearer correct horse').status, 401)
    equal(site.ask('POST', path, Authorization='Bearer correct horse battery staple').status, 200)
    with open(box.path('token'), 'w') as f:
        f.write('short\n')
    status, _, err = box.pawl('serve', '--allow-break', '--token-file', 'token')
    equal(status, 64)
    assert 'at least 16' in err, err


@case('wrong options are refused with the right ones')
def usage(box):
    for args, words in ((('--listen', 'nonsense'), '127.0.0.1:8080'),
                        (('--listen', '127.0.0.1:99999'), '[::1]:8080'),
                        (('--interval', '1ms'), '250ms'),
                        (('--token-file', 'x'), '--allow-break'),
                        (('extra',), 'extra'), (('-u', 'nosuch://x'), 'nosuch')):
        status, _, err = box.pawl('serve', *args)
        equal(status, 64, args)
        assert words in err, (args, err)
    port = Site(box).port
    status, _, err = box.pawl('serve', '--listen', str(port))
    equal(status, 71)
    assert 'in use' in err, err


@case('names and labels of strangers are harmless in JSON and metrics')
def hostile(box):
    with redis() as server:
        plant(server)
        site = Site(box, url=server.url(layout='redisson'))
        site.fresh()
        locks = site.json('/api/v1/locks')['locks']
        equal(sorted(urllib.parse.unquote_to_bytes(lock['id']) for lock in locks), sorted(LISTED))
        for lock in locks:
            answer = site.get('/api/v1/lock?name=' + lock['id'])
            equal(answer.status, 200)
            equal(answer.json['lock']['id'], lock['id'])
            equal(answer.json['lock']['name'], lock['name'])
        for accept in ('text/plain', 'application/openmetrics-text'):
            metrics.samples(site.get('/metrics', Accept=accept).text)
        actor = server.actor(label=LABEL)
        actor.lock('l', 'x')
        actor.ask('acquire', 'l', 0).ok()
        site = Site(box, url=server.url())
        site.fresh()
        assert '<b onmouseover' in site.lock('x')['holders'][0]['label']
        raw = site.get('/api/v1/locks').text
        assert not any(ord(c) < 0x20 and c != '\n' or c == '\u202e' for c in raw), raw


@case('a service that does not answer is shown as such, with the age of the data')
def silent(box):
    with redis() as server:
        plant(server)
        site = Site(box, url=server.url(layout='redisson', timeout=300))
        site.until('data', lambda s: s['ok'])
        before = site.locks()
        equal(site.get('/healthz').status, 200)
        server.kill()
        down = site.until('the failure', lambda s: not s['ok'] and s)
        assert down['error'], down
        answer = site.get('/healthz')
        equal(answer.status, 503)
        assert 'does not answer' in answer.json['message'], answer.text
        equal(sorted(site.locks()), sorted(before), 'the last data')
        age = site.json('/api/v1/status')['age_ms']
        wait_for('the age to grow', lambda: site.json('/api/v1/status')['age_ms'] > age + 300)
        equal(metrics.samples(site.get('/metrics').text)['pawl_service_up', ''], 0)
        server.start()
        site.until('the service', lambda s: s['ok'])
        equal(site.get('/healthz').status, 200)
        equal(site.locks(), {}, 'it came up empty')
        port = server.port
    down = Site(box, url=f'redis://127.0.0.1:{port}/?timeout=300')
    equal(down.get('/healthz').status, 503)
    equal(down.json('/api/v1/status')['ok'], False)


@case('the locks of every engine and layout are shown')
def engines(box):
    for what, start, url, queue in services():
        server = start()
        try:
            box.env['PAWL_URL'] = url(server)
            holder, _ = box.holder('stock:42')
            waiter = box.start('run', 'stock:42', '--', 'true')
            site = Site(box)
            one = wait_for(what, lambda: [lock for lock in site.locks().values()
                                          if lock['waiter_count'] == queue])[0]
            equal(one['name'], 'stock:42')
            equal((one['pid'], one['held'], one['waiter_count']), (holder.pid, True, queue), what)
            lock = site.lock('stock:42')
            equal([h['pid'] for h in lock['holders']], [holder.pid], what)
            equal([w['pid'] for w in lock['waiters']], [waiter.pid] * queue, what)
            equal(one['wait_ms'] is not None, queue, f'{what}: {one}')
            schema.check(site, 'stock:42', 'free')
            for process in (site.process, waiter, holder):
                process.terminate()
                box.end(process)
        finally:
            server.stop()


def commands_per_round(server, site, rounds=4):
    def counted():
        return site.json('/api/v1/status')['seq'], server.stat('evalsha', 'eval', 'scan', 'type',
                                                               'get', 'hgetall', 'zrange')
    site.fresh()
    (first, before), _ = counted(), site.until('rounds', lambda s, seq=counted()[0]:
                                               s['seq'] >= seq + rounds)
    last, after = counted()
    return (after - before) / (last - first)


@case('watching costs the service the same, whoever watches')
def load(box):
    with redis() as server:
        actor = server.actor()
        for n in range(20):
            actor.lock(f'l{n}', f'lock:{n}')
            actor.ask('acquire', f'l{n}', 0).ok()
        site = Site(box, url=server.url())
        site.until('20 names', lambda s: s['names'] == 20)
        streams = [site.watch()]
        one = commands_per_round(server, site)
        streams += [site.watch() for _ in range(19)]
        equal(site.json('/api/v1/status')['watchers'], 20)
        twenty = commands_per_round(server, site)
        print(f'# commands per round: {one:.1f} with 1 watcher, {twenty:.1f} with 20')
        assert 0 < twenty < one * 1.5 + 2, (one, twenty)
        seen = [stream.event() for stream in streams]
        assert all(seen)
        pages = [site.watch(f'/api/v1/events?name=lock%3A{n}') for n in range(20)]
        many = commands_per_round(server, site)
        print(f'# and {many:.1f} with 20 pages of 20 locks')
        assert many <= one + 8 * 3 + 8, (one, many)
        for stream in streams + pages:
            stream.close()


@case('a list of Redis asks for the client of each holder once, and for no waiter')
def clients(box):
    with redis() as server:
        holder, other, waiter = server.clients(3)
        for n in range(130):  # more names than are asked for at a time
            actor = other if n == 129 else holder
            actor.lock(f'l{n}', f'lock:{n:03}')
            actor.ask('acquire', f'l{n}', 0).ok()
        waiter.lock('w', 'lock:000')
        waiter.send('acquire', 'w', -1)
        wait_for('a waiter', lambda: server.queue('lock:000'))
        before = server.stat('hmget')
        rows = json.loads(box.pawl('ls', '--json', '-u', server.url(timeout=60000))[1])
        equal(server.stat('hmget') - before, 2)
        equal(len(rows), 130)
        equal({row['pid'] for row in rows[:129]}, {holder.process.pid})
        equal(rows[129]['pid'], other.process.pid)
        equal((rows[0]['waiter_count'], rows[1]['waiter_count']), (1, 0))


if __name__ == '__main__':
    main()
