# SPDX-License-Identifier: Apache-2.0
"""Completion in real shells: bash, zsh and fish complete a line at a tab.

fish has a command that lists the candidates. bash and zsh run on a terminal: the test types a line with a
tab and then enter, and the output shows how the shell completed the line.
"""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from shells import FOLDER, Shell, bash, fish, need  # noqa: E402
from tool import TOOL, main  # noqa: E402

COMMANDS = {'run', 'show', 'ls', 'break', 'latch', 'doctor', 'bench'}
NAMES = ('alpha:1', 'alpha:2', 'beta gamma', '$(touch bad)', 'x;y', 'déjà')


def holders(box):
    for name in NAMES:
        box.holder(name)


def check(box, complete):
    """Checks for both bash and fish, which quote names in different ways."""
    assert COMMANDS <= complete(box, 'pawl '), complete(box, 'pawl ')
    assert {'show'} <= complete(box, 'pawl sh') <= {'show', 'shell'}, complete(box, 'pawl sh')
    assert COMMANDS <= complete(box, 'pawl help ')
    assert {'-n', '-w', '--at-least', '-u', '--url'} <= complete(box, 'pawl run -')
    assert '--at-least' not in complete(box, 'pawl show -')
    equal(complete(box, 'pawl latch '), {'set', 'down', 'wait', 'get'})
    equal(complete(box, 'pawl --layout r') | complete(box, 'pawl show --layout r'), {'redisson'})
    assert 'rediss://' in complete(box, 'pawl show -u re')
    equal(complete(box, 'pawl run -w '), set())
    equal(complete(box, 'pawl show bet') | complete(box, 'pawl run -w 5 -n bet'),
          {'beta\\ gamma'} if complete is bash else {'beta gamma'})
    equal(complete(box, 'pawl latch wait dé'), {'déjà'})
    equal(complete(box, 'pawl show alpha:1 '), set())
    equal(complete(box, 'pawl show -u local:/nowhere/at/all '), set())
    other = box.path('other')
    equal(box.status('run', '--at-least', '1h', '-u', f'local:{other}', 'there', '--', 'true'), 0)
    equal(complete(box, f'pawl show -u local:{other} '), {'there'})
    equal(complete(box, f'pawl -u local:{other} break t'), {'there'})
    assert 'pawl' in complete(box, 'pawl run x -- paw'), 'a command'
    assert not os.path.exists(box.path('bad')), 'a name was run'


@case('bash: commands, options, and names, also with colons')
def _(box):
    need('bash')
    holders(box)
    check(box, bash)
    equal(bash(box, 'pawl show alpha:'), {'1', '2'})  # bash replaces only the part after the colon
    equal(bash(box, 'pawl show alp'), {'alpha:1', 'alpha:2'})
    equal(bash(box, 'pawl show x'), {'x\\;y'})
    equal(bash(box, 'pawl show $'), {'\\$\\(touch\\ bad\\)'})


@case('fish: commands, options, and names')
def _(box):
    need('fish')
    holders(box)
    check(box, fish)
    equal(fish(box, 'pawl show alp'), {'alpha:1', 'alpha:2'})


@case('bash on a terminal: a tab completes commands and names')
def _(box):
    box.holder('alpha:1')
    box.holder('beta gamma')
    shell = Shell(box, 'bash', '--norc', '--noprofile', '-i',
                  setup=f'source {FOLDER}/pawl.bash; bind "set bell-style none"')
    try:
        shell.type('pawl sho\talp\t\n')
        shell.expect('alpha:1: held')
        shell.type('pawl show bet\t\n')
        shell.expect('beta gamma: held')
    finally:
        shell.close()


@case('zsh on a terminal: a tab completes commands, options and names')
def _(box):
    holders(box)
    other = box.path('other')
    equal(box.status('run', '--at-least', '1h', '-u', f'local:{other}', 'there', '--', 'true'), 0)
    shell = Shell(box, 'zsh', '-f', '-i',
                  setup=f'fpath=({FOLDER} $fpath); autoload -U compinit; compinit -u -D; '
                        'unsetopt beep; echo set up')
    try:
        shell.type('pawl sho\talpha:1\t\n')
        shell.expect('alpha:1: held')
        shell.type('pawl show bet\t\n')
        shell.expect('beta gamma: held')
        shell.type('pawl show dé\t\n')
        shell.expect('déjà: held')
        shell.type('pawl show \\$\t\n')
        shell.expect(re.escape('$(touch bad): held'))
        shell.type(f'pawl show -u local:{other} the\t\n')
        shell.expect('there: held')
        shell.type('pawl show --js\tbet\t\n')
        shell.expect('"name":"beta gamma"')
        shell.type('pawl latch g\tnew\n')
        shell.expect(r'\n0\r?\n')
        assert not os.path.exists(box.path('bad')), 'a name was run'
    finally:
        shell.close()


@case('make install puts each file where its shell looks')
def _(box):
    plan = json.loads(subprocess.run(
        ['meson', 'introspect', '--install-plan', os.path.dirname(os.path.dirname(TOOL))],
        stdout=subprocess.PIPE, check=True).stdout)
    places = {v['destination'] for group in plan.values() for v in group.values()}
    for end in ('bash-completion/completions/pawl', 'zsh/site-functions/_pawl',
                'fish/vendor_completions.d/pawl.fish'):
        assert any(p.endswith(end) for p in places), (end, places)


main()
