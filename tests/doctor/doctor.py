# SPDX-License-Identifier: Apache-2.0
"""Runs pawl doctor on real servers and checks its findings."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
TOOL = os.environ['PAWL_TOOL']
PATIENCE = 120


def run(url, *words):
    """Run pawl doctor. Returns status, stdout and stderr."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith('PAWL_')
               or k == 'PAWL_ENGINE_DIR'}
    done = subprocess.run([TOOL, 'doctor', '-u', url, *words], stdout=subprocess.PIPE, check=False,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                          env=environ)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def ask(url, *words):
    """The output of --json. The exit status must fit, and each finding must be complete."""
    status, out, err = run(url, '--json', *words)
    assert out, f'{url}: status {status}: {err}'
    said = json.loads(out)
    assert status == (1 if said['findings'] else 0), (status, said)
    assert said['sound'] == (not said['findings']), said
    for f in said['findings']:
        assert f['level'] in ('warning', 'danger') and f['what'] and f['why'] and f['remedy'], f
    return said


def found(url, *words):
    """The ids of the findings, sorted."""
    return sorted(f['id'] for f in ask(url, *words)['findings'])


def the(said, name):
    """The one finding with this id."""
    (f,) = [f for f in said['findings'] if f['id'] == name]
    return f


def expect(url, *ids, words=()):
    """Check that these are the findings, and that there are no others."""
    said = ask(url, *words)
    got = sorted(f['id'] for f in said['findings'])
    assert got == sorted(ids), f'{url}: found {said["findings"]}, wanted {ids}'
    return said
