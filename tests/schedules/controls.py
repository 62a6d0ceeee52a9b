#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Put known races back into the core, one by one, and count the seeds until each is found.

    controls.py BUILD [--free] [--seeds N] [--seconds S] [NAME ...]

BUILD is a build folder (release, asan or tsan) in which tests/schedules/schedules was built. Each
control is a text in a source file and its replacement; only that file is compiled again
(compile_commands.json says how) and linked with the other objects. --free runs the same programs
without the scheduler, to compare. TAP: a control that is not found is "not ok".
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

# name: (what, file, old text, new text, needs: '' any build, 'tsan', 'exec' the driver's test)
CONTROLS = {
    'hold-reused': (
        'a hold is used again while its request is out', 'src/hold.c',
        'return hold->request.phase != REQUEST_IDLE || hold->thread ||', 'return hold->thread ||', ''),
    'chain-unreferenced': (
        'the chain of a multi-lock does not keep it alive', 'src/multi.c',
        '    if (atomic_fetch_sub(&multi->refs, 1) > 1)\n        return;',
        '    if (atomic_fetch_sub(&multi->refs, 1) > 1 && !atomic_load(&multi->freed))\n'
        '        return;', ''),
    'cancel-between-members': (
        'a cancel between two members of a multi-lock is lost', 'src/lock.c',
        '    if (asker->group && atomic_load(&asker->group->cancels) != cancels)',
        '    if (0)', ''),
    'cancel-counted': (
        'a multi-lock reads the number of cancels after it was counted', 'src/multi.c',
        '    code = acquire_all(multi, cancels, wait_ms, err);',
        '    cancels = atomic_load(&multi->group.cancels);\n'
        '    code = acquire_all(multi, cancels, wait_ms, err);', ''),
    'thread-cancelled': (
        'pthread_cancel inside a call leaves the driver in a dead stack', 'src/client.c',
        'pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation.state);',
        'pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &cancellation.state);', 'exec'),
    'told-after-free': (
        'done gets 0 although the handle was freed before', 'src/hold_end.c',
        'if (hold->acquires && hold->done_cb.pending && hold->done_cb.code == 0)', 'if (0)', ''),
    'ended-in-front': (
        'a hold whose thread has ended stays the front of its name', 'src/client.c',
        '        pawl__cohort_leave_soon(hold);\n', '', ''),
    'ended-before-grant': (
        'a hold that was granted after its thread had ended stays the front of its name',
        'src/hold.c', '    if (hold->orphan)\n        pawl__cohort_leave(hold);\n', '', ''),
    'callback-unlocked': (
        'a callback\'s field is read after the mutex was let go', 'src/callbacks.c',
        '        pawl__callback_thread.acting = hold;',
        '        pawl__callback_thread.acting = callback->fn ? hold : callback->hold;', 'tsan'),
    'driver-not-handed-on': (
        'a caller that was woken to drive does not hand it on', 'src/driver.c',
        '    hand_on_driving(client);\n    client->active--;', '    client->active--;', ''),
    'kick-not-repeated': (
        'a kick that was meant for the next driver is lost', 'src/driver.c',
        'd->thread->done)\n            pawl__kick(client);',
        'd->thread->done)\n            (void)0;', ''),
    'wake-lost': (
        'the flag of wakes is cleared after they were looked at', 'src/env.c',
        '    if (!atomic_exchange(&client->driver.woken, false))\n        return;',
        '    if (!atomic_load(&client->driver.woken))\n        return;', ''),
    'close-does-not-wait': (
        'pawl_close does not wait for a callback that runs', 'src/client.c',
        '    while (client->driver.dispatching)', '    while (0)', ''),
    'background-not-told': (
        'the background thread sets its polling flag after it unlocks the mutex', 'src/background.c',
        '    b->polls = true;\n    pawl__unlock(client);',
        '    pawl__unlock(client);\n    b->polls = true;', ''),
    'condition-not-rechecked': (
        'a wait on the condition is not repeated', 'src/driver.c',
        '    while (!thread->done) {\n        bool others_drive',
        '    for (int once = 0; !thread->done && once < 3; once++) {\n        bool others_drive', ''),
    'renewal-outlives': (
        'a renewal\'s answer finds a hold that is over', 'src/lease.c',
        '    if (hold->renewing)\n        hold->renewing->arg = NULL;\n    hold->renewing = NULL;\n'
        '    hold->verify = false;\n}',
        '    hold->renewing = NULL;\n    hold->verify = false;\n}', ''),
    'second-asker': (
        'an owner asks anew before its last outcome was told', 'src/hold.c',
        '    if (own->state != HOLD_HELD || own->partial || own->done_cb.pending)',
        '    if (own->state != HOLD_HELD || own->partial)', ''),
    'unlocked-count': (
        'references of a client are counted without its mutex', 'src/client.c',
        '    pthread_mutex_lock(&client->mu);\n    left = --client->refs;\n'
        '    pthread_mutex_unlock(&client->mu);', '    left = --client->refs;', 'tsan'),
    'unlocked-tell': (
        'memory: tells another client without the mutex', 'engines/memory/memory.c',
        '    pthread_mutex_lock(&spaces_mutex);\n    if (!gone(s, to->peer, to->gen)) {',
        '    if (!gone(s, to->peer, to->gen)) {', 'tsan'),
}
# Changes that go with a replaced text.
ALSO = {
    'chain-unreferenced': [],
    'wake-lost': [('        if (atomic_exchange(&wake->sent, false))\n            wake->fn(wake);\n    }\n',
                   '        if (atomic_exchange(&wake->sent, false))\n            wake->fn(wake);\n'
                   '    }\n    atomic_store(&client->driver.woken, false);\n')],
    'unlocked-tell': [('            hint(s, to->peer, to->gen, SHELF_BIT(what->bucket));\n        }\n'
                       '    }\n    pthread_mutex_unlock(&spaces_mutex);',
                       '            hint(s, to->peer, to->gen, SHELF_BIT(what->bucket));\n        }\n'
                       '    }')],
}


def replaced(root, name):
    what, path, old, new, _ = CONTROLS[name]
    with open(os.path.join(root, path)) as f:
        text = f.read()
    for before, after in [(old, new)] + ALSO.get(name, []):
        if text.count(before) != 1:
            sys.exit(f'{name}: the text is {text.count(before)} times in {path}')
        text = text.replace(before, after)
    return text


def compiled(build, root, name, folder):
    """Compile the changed file. Returns its object, and the command that made the original object."""
    path = CONTROLS[name][1]
    with open(os.path.join(build, 'compile_commands.json')) as f:
        entries = json.load(f)
    for entry in entries:
        if 'pawl_core_steered' in entry['output'] and entry['file'].endswith(path):
            break
    else:
        sys.exit(f'{path}: not in compile_commands.json')
    changed = os.path.join(folder, os.path.basename(path))
    with open(changed, 'w') as f:
        f.write(replaced(root, name))
    target = os.path.join(folder, 'changed.o')
    words = shlex.split(entry['command'])
    words = [changed if w == entry['file'] else target if w == entry['output'] else w
             for w in words]
    where = os.path.dirname(os.path.join(build, entry['file']))
    subprocess.run(words + ['-I', where, '-w'], cwd=build, check=True)
    return entry['output'], target


def linked(build, original, changed, program, folder):
    """Link the program from its objects, with one of them replaced."""
    command = subprocess.run(['ninja', '-C', build, '-t', 'commands', '-s', program],
                             capture_output=True, text=True, check=True).stdout.splitlines()[-1]
    archive = next(w for w in shlex.split(command) if w.endswith('libpawl_core_steered.a'))
    members = os.path.join(build, archive + '.p')
    objects = [os.path.join(members, n) for n in sorted(os.listdir(members)) if n.endswith('.o')]
    objects = [changed if os.path.samefile(o, os.path.join(build, original)) else o
               for o in objects]
    target = os.path.join(folder, 'program')
    words = []
    for word in shlex.split(command):
        words += objects if word == archive else [target if word == program else word]
    subprocess.run(words, cwd=build, check=True)
    return target


def search(build, program, name, args):
    runs = os.path.join(build, 'tests/schedules/schedules')
    command = [program if CONTROLS[name][4] != 'exec' else runs]
    command += ['--count', str(args['seeds']), '--for', str(args['seconds'])]
    if args['free']:
        command += ['--free']
    if CONTROLS[name][4] == 'exec':
        command += ['--exec', program, 'cancelled']
    env = dict(os.environ, PAWL_ENGINE_DIR=os.path.join(build, 'tests/module'))
    done = subprocess.run(command, capture_output=True, text=True, env=env, errors='replace')
    ran = re.search(r'ok 1 - (\d+) programs', done.stdout)
    why = re.search(r'# schedule \d+, step \d+: (.*)', done.stderr) or \
        re.search(r'(?:ERROR|WARNING): (\w+Sanitizer: [\w -]+)', done.stderr) or \
        re.search(r'# seed \d+:? (.*)', done.stdout) or re.search(r'# program \d+: (.*)', done.stderr)
    return done.returncode != 0, ran.group(1) if ran else '?', why.group(1) if why else ''


def main():
    words = sys.argv[1:]
    args = {'free': False, 'seeds': 2000, 'seconds': 60}
    names = []
    build = os.path.abspath(words.pop(0))
    while words:
        word = words.pop(0)
        if word == '--free':
            args['free'] = True
        elif word in ('--seeds', '--seconds'):
            args[word[2:]] = int(words.pop(0))
        else:
            names.append(word)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..')
    tsan = '-fsanitize=thread' in open(os.path.join(build, 'compile_commands.json')).read()
    names = names or [n for n in CONTROLS if tsan or CONTROLS[n][4] != 'tsan']
    failed = 0
    for i, name in enumerate(names, 1):
        with tempfile.TemporaryDirectory(prefix='pawl-control-') as folder:
            original, changed = compiled(build, root, name, folder)
            program = 'tests/schedules/' + \
                ('test_driver_steered' if CONTROLS[name][4] == 'exec' else 'schedules')
            found, ran, why = search(build, linked(build, original, changed, program, folder), name,
                                     args)
        failed += not found
        print(f'{"ok" if found else "not ok"} {i} - {name}: '
              f'{"found by seed" if found else "not found in seeds:"} {ran} # {why[:90]}',
              flush=True)
    print(f'1..{len(names)}')
    sys.exit(failed != 0)


main()
