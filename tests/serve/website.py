# SPDX-License-Identifier: Apache-2.0
"""A running `pawl serve`, and functions that send requests to it."""
import http.client
import json
import re
import urllib.parse

from tool import wait_for


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.text = response.read().decode()

    @property
    def json(self):
        return json.loads(self.text)


class Site:
    def __init__(self, box, *args, url=None):
        env = dict(box.env)
        if url:
            env['PAWL_URL'] = url
        self.errors = open(box.path(f'serve-{len(box.started)}.err'), 'w+')
        self.process = box.start('serve', '--listen', '127.0.0.1:0', '--interval', '250ms', *args,
                                 env=env, stderr=self.errors)
        first = self.process.stdout.readline().decode()
        assert first, self.stderr()
        self.url = re.search(r'(http://.*)/$', first).group(1)
        self.port = int(self.url.rpartition(':')[2])
        self.token = None
        if '--allow-break' in args and '--token-file' not in args:
            self.token = self.process.stdout.readline().decode().split()[1]

    def stderr(self):
        self.errors.flush()
        with open(self.errors.name) as f:
            return f.read()

    def ask(self, method, path, **headers):
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        try:
            connection.request(method, path,
                               headers={k.replace('_', '-'): v for k, v in headers.items()})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path, **headers):
        return self.ask('GET', path, **headers)

    def json(self, path):
        answer = self.get(path)
        assert answer.status == 200, (path, answer.status, answer.text)
        return answer.json

    def locks(self):
        return {lock['name']: lock for lock in self.json('/api/v1/locks')['locks']}

    def until(self, what, predicate):
        return wait_for(what, lambda: predicate(self.json('/api/v1/status')))

    def fresh(self, rounds=2):
        """Wait for `rounds` more rounds, so that the last one began after this call."""
        seq = self.json('/api/v1/status')['seq']
        self.until('a round', lambda s: s['seq'] >= seq + rounds)

    def lock(self, name):
        return self.json('/api/v1/lock?name=' + urllib.parse.quote(name, safe=''))['lock']

    def watch(self, path='/api/v1/events'):
        """Open an event stream."""
        connection = http.client.HTTPConnection('127.0.0.1', self.port, timeout=60)
        connection.request('GET', path)
        return Stream(connection)


class Stream:
    def __init__(self, connection):
        self.connection = connection
        self.response = connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.getheader('Content-Type').startswith('text/event-stream')

    def event(self):
        while True:
            line = self.response.readline().decode()
            assert line, 'the stream has ended'
            if line.startswith('data: '):
                return json.loads(line[6:])

    def close(self):
        self.connection.sock and self.connection.sock.close()
        self.connection.close()
