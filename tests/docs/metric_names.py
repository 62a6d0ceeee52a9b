# SPDX-License-Identifier: Apache-2.0
"""Compares the metrics in the documentation with the metrics that `pawl serve` and `pawl run --metrics` write:
every name in an expression of a YAML block must exist, and every metric must be in a table of serve.md or
metrics.md.
"""
import glob
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request

import extract

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, '..', '..'))
NAME = r'\bpawl_\w+'
PATIENCE = 60


def _types(text):
    """The names of all metric families."""
    return set(re.findall(r'^# TYPE (\S+)', text, re.M))


def _get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def _served(env):
    """The metrics of a service with a held lock that has a waiter."""
    run = ['pawl', 'run', 'x', '--', 'sleep', '1000']
    started = [subprocess.Popen(run, env=env), subprocess.Popen(run, env=env)]
    started.append(subprocess.Popen(['pawl', 'serve', '--listen', '127.0.0.1:0', '--interval', '250ms'], env=env,
                                    stdout=subprocess.PIPE, text=True))
    try:
        url = re.search(r'http://\S+', started[-1].stdout.readline())[0]
        end = time.monotonic() + PATIENCE
        while sum(lock['waiter_count'] for lock in json.loads(_get(url + 'api/v1/locks'))['locks']) < 1:
            assert time.monotonic() < end, 'nobody waits'
            time.sleep(0.02)
        return _types(_get(url + 'metrics'))
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()


def _written(folder, env):
    """The metrics of a job."""
    path = os.path.join(folder, 'x.prom')
    subprocess.run(['pawl', 'run', '--metrics', path, 'y', '--', 'true'], env=env, check=True)
    with open(path, encoding='utf-8') as f:
        return _types(f.read())


def _used():
    """{(page, metric)} in expressions of YAML blocks."""
    for path in sorted(glob.glob(os.path.join(ROOT, 'docs', '*.md'))):
        page = os.path.relpath(path, ROOT)
        for block in extract.read(path, page):
            if block.language == 'yaml':
                for expression in re.findall(r'^ *expr: (.*)$', block.text, re.M):
                    for name in re.findall(NAME, expression):
                        yield page, name


def _documented():
    """The metrics in the text of serve.md and metrics.md."""
    names = set()
    for page in ('serve.md', 'metrics.md'):
        with open(os.path.join(ROOT, 'docs', page), encoding='utf-8') as f:
            names |= set(re.findall(NAME, re.sub(r'^```.*?^```', '', f.read(), flags=re.M | re.S)))
    return names


def faults():
    with tempfile.TemporaryDirectory(prefix='pawl-metrics-') as folder:
        env = dict(os.environ, PAWL_URL='local:' + os.path.join(folder, 'locks'))
        os.mkdir(os.path.join(folder, 'locks'), 0o700)
        there = _served(env) | _written(folder, env)
    for page, name in _used():
        if name not in there and re.sub(r'_(bucket|sum|count)$', '', name) not in there:
            yield f'{page}: no such metric: {name}'
    for name in sorted(there - _documented()):
        yield f'{name} is neither in docs/serve.md nor in docs/metrics.md'
