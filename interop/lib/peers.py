# SPDX-License-Identifier: Apache-2.0
"""The peers: how each one's driver is started, what it can do, and which version it is.

A peer is a package in its own language behind the line protocol of interop/README.md. Pawl is one
of them, so a pair can be any two; Pawl's own process is told by a URL query which layout to speak.
"""
import glob
import os
import re

from driver import Driver

HERE = os.path.dirname(os.path.abspath(__file__))
INTEROP = os.path.dirname(HERE)
BUILT = os.path.join(os.path.dirname(INTEROP), 'build', 'interop')


def built(*parts):
    return os.path.join(BUILT, *parts)


def manifest(*parts):
    with open(os.path.join(INTEROP, *parts), encoding='utf-8') as file:
        return file.read()


class Peer:
    title = None
    layout = 'plain'   # which layout of Pawl's it shares
    prefix = ''        # what it puts before a lock's name
    renews = False     # the holder renews by itself
    extends = True     # the holder can be told to renew
    refuses = True     # giving back what is not one's own is an error
    signal = False     # a waiter is told of a release by this peer's own kind
    polls = None       # how often a waiter looks otherwise
    lease_unit = 1     # ms
    cluster = False    # it talks to a cluster

    def command(self, other):
        raise NotImplementedError

    def start(self, other=None):
        return Driver(self.title, self.command(other), cwd=self.folder())

    def folder(self):
        return None

    def version(self):
        raise NotImplementedError


class Pawl(Peer):
    title = 'Pawl'
    renews = True
    signal = True
    polls = '20 to 250 ms behind a stranger'

    def command(self, other):
        query = 'prefix=' + (other.prefix if other else '')
        if other and other.layout != 'plain':
            query += '&layout=' + other.layout
        return [built('pawl'), query, 'redis+cluster' if other and other.cluster else 'redis']

    def version(self):
        header = manifest('..', 'include', 'pawl.h')
        return '.'.join(re.search(r'PAWL_VERSION_%s (\d+)' % part, header).group(1)
                        for part in ('MAJOR', 'MINOR', 'PATCH'))


class Python(Peer):
    package = None

    def command(self, other):
        return [built('python', 'bin', 'python'), os.path.join(INTEROP, 'python', 'driver.py'),
                self.title]

    def version(self):
        wanted = manifest('python', 'requirements.txt')
        return re.search(r'^%s==(\S+)' % self.package, wanted, re.M).group(1)


class RedisPy(Python):
    title = 'redis-py'
    package = 'redis'
    polls = '100 ms'


class PythonRedisLock(Python):
    title = 'python-redis-lock'
    package = 'python-redis-lock'
    prefix = 'lock:'
    renews = True
    polls = 'its own lease'
    lease_unit = 1000


class Redsync(Peer):
    title = 'redsync'
    polls = '50 to 250 ms'

    def command(self, other):
        return [built('redsync')]

    def version(self):
        return re.search(r'redsync/v4 v(\S+)', manifest('go', 'go.mod')).group(1)


class Node(Peer):
    package = None

    def command(self, other):
        return ['node', os.path.join(INTEROP, 'node', 'driver.js'), self.package]

    def folder(self):
        return built('node')

    def version(self):
        wanted = manifest('node', 'package.json')
        return re.search(r'"%s": "(?:npm:redlock@)?([^"]+)"' % self.package, wanted).group(1)


class Redlock4(Node):
    title = 'redlock 4'
    package = 'redlock4'
    polls = '100 to 300 ms'


class Redlock5(Node):
    title = 'redlock 5'
    package = 'redlock5'
    polls = '100 to 300 ms'
    renews = True


class RedisSemaphore(Node):
    title = 'redis-semaphore'
    package = 'redis-semaphore'
    prefix = 'mutex:'
    polls = '10 ms'
    renews = True
    extends = False
    refuses = False


class Redisson(Peer):
    layout = 'redisson'
    renews = True
    extends = False
    signal = True
    polls = "the holder's lease"

    def __init__(self, name, cluster=False):
        self.name = name
        self.cluster = cluster
        self.title = 'Redisson ' + name[-1] + (', cluster' if cluster else '')

    def command(self, other):
        classes = built(self.name, 'classes') + ':' + built(self.name, 'lib', '*')
        return ['java', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Xshare:auto', '-Xmx256m',
                '-cp', classes, 'Driver'] + ['cluster'] * self.cluster

    def version(self):
        jar, = glob.glob(built(self.name, 'lib', 'redisson-[0-9]*.jar'))
        return re.search(r'redisson-([\d.]+)\.jar', jar).group(1)


PAWL = Pawl()
PEERS = {
    'redis-py': RedisPy(),
    'python-redis-lock': PythonRedisLock(),
    'redsync': Redsync(),
    'redlock4': Redlock4(),
    'redlock5': Redlock5(),
    'redis-semaphore': RedisSemaphore(),
    'redisson3': Redisson('redisson3'),
    'redisson4': Redisson('redisson4'),
    'redisson4-cluster': Redisson('redisson4', True),
}
EVERYBODY = dict(PEERS, pawl=PAWL)
