# SPDX-License-Identifier: Apache-2.0
"""Several `pawl serve` behind one proxy: nginx with the configuration of docs/serve.md, in which only
ports and files are replaced.
"""
import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', folder) for folder in ('lib', 'docs')]
from cases import Skip, case, equal  # noqa: E402
from certs import Certs  # noqa: E402
import extract  # noqa: E402
from ports import free_port  # noqa: E402
from tool import main, wait_for  # noqa: E402
from website import Answer, Site, Stream  # noqa: E402

PAGE = os.path.join(HERE, '..', '..', 'docs', 'serve.md')
NGINX = shutil.which('nginx', path=os.environ['PATH'] + ':/usr/sbin')
HOSTS = ('cache1.locks.example.com', 'java.locks.example.com')
LOGIN = {'Authorization': 'Basic ' + base64.b64encode(b'ann:secret').decode()}
MAIN = '''user root;
daemon off;
pid {0}/nginx.pid;
error_log {0}/nginx.log;
events {{}}
http {{
    access_log off;
    {1}
    {2}
}}
'''
TEMPORARY = ('client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi')


def documented():
    """The configuration in the documentation."""
    blocks = [b.text for b in extract.read(PAGE, 'serve.md') if b.language == 'nginx']
    equal(len(blocks), 1)
    return blocks[0]


class Proxy:
    def __init__(self, box, sites):
        certs, self.port = Certs(box.dir), free_port()
        with open(box.path('htpasswd'), 'w') as f:
            f.write('ann:{PLAIN}secret\n')
        text = documented()
        for old, new in (('listen 443', f'listen 127.0.0.1:{self.port}'),
                         ('/etc/nginx/locks.crt', certs.pem('server')),
                         ('/etc/nginx/locks.key', certs.key('server')),
                         ('/etc/nginx/locks.htpasswd', box.path('htpasswd')),
                         *((f'{host}(\\s+)127.0.0.1:\\d+', f'{host}\\g<1>127.0.0.1:{site.port}')
                           for host, site in zip(HOSTS, sites))):
            text, n = re.subn(old, new, text)
            equal(n, 1, old)
        folders = ' '.join(f'{t}_temp_path {box.dir}/{t};' for t in TEMPORARY)
        with open(box.path('nginx.conf'), 'w') as f:
            f.write(MAIN.format(box.dir, folders, text))
        self.process = subprocess.Popen([NGINX, '-e', box.path('nginx.log'), '-c',
                                         box.path('nginx.conf')], stderr=subprocess.DEVNULL)
        wait_for('nginx', lambda: self.process.poll() is not None or self.answers())
        assert self.process.poll() is None, box.read('nginx.log')

    def connect(self):
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection('127.0.0.1', self.port, timeout=60, context=trusting)

    def answers(self):
        with contextlib.suppress(OSError):
            return self.ask('GET', '/', HOSTS[0]).status == 401
        return False

    def ask(self, method, path, host, headers=()):
        connection = self.connect()
        try:
            connection.request(method, path, headers={'Host': host, **dict(headers)})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        self.process.wait()


@contextlib.contextmanager
def proxy(box, *options):
    """Two services, a `pawl serve` for each, and a proxy."""
    if not NGINX:
        raise Skip('nginx is not installed')
    sites = []
    for host in HOSTS:
        folder = box.path(host)
        os.mkdir(folder, 0o700)
        box.env['PAWL_URL'] = 'local:' + folder
        box.holder('lock of ' + host)
        sites.append(Site(box, '--host', host, *options))
        sites[-1].until('the first round', lambda s: s['names'] == 1)
    front = Proxy(box, sites)
    try:
        yield front, sites
    finally:
        front.stop()


@case('each host name leads to the locks of its own service, after a login')
def separate(box):
    with proxy(box) as (front, _):
        for host in HOSTS:
            equal(front.ask('GET', '/api/v1/locks', host).status, 401)
            answer = front.ask('GET', '/api/v1/locks', host, LOGIN)
            equal([lock['name'] for lock in answer.json['locks']], ['lock of ' + host])
            equal(front.ask('GET', '/app.js', host, LOGIN).status, 200)
        equal(front.ask('GET', '/', 'other.locks.example.com', LOGIN).status, 404)


@case('events pass through at once')
def stream(box):
    with proxy(box) as (front, _):
        connection = front.connect()
        connection.request('GET', '/api/v1/events', headers={'Host': HOSTS[1], **LOGIN})
        events = Stream(connection)
        assert events.event()['full']
        box.holder('new')  # in the second service, which is the last one started
        names = wait_for('the change', lambda: [c['name'] for c in
                                                events.event().get('changed') or ()])
        equal(names, ['new'])
        events.close()


@case('a name that leads to the wrong process is refused')
def crossed(box):
    with proxy(box) as (_, sites):
        for host, site in zip(reversed(HOSTS), sites):
            equal(site.get('/api/v1/locks', Host=host).status, 421)


@case('a break does not get past Basic authentication')
def breaking(box):
    with proxy(box, '--allow-break') as (front, sites):
        held = sites[0].locks()['lock of ' + HOSTS[0]]
        path = f'/api/v1/break?name={held["id"]}&holder_token={held["token"]}'
        bearer = {'Authorization': 'Bearer ' + sites[0].token, 'Origin': 'https://' + HOSTS[0]}
        equal(front.ask('POST', path, HOSTS[0], bearer).status, 401)
        direct = sites[0].ask('POST', path, Host=HOSTS[0], **bearer)
        equal(direct.status, 200, json.dumps(direct.json))


if __name__ == '__main__':
    main()
