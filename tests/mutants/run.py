#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the simulator. Each mutant is the library with one deliberate mistake; the simulator must fail on
every mutant, and pass on the unchanged library. Mistakes in the quorum are tested with the quorum's own
simulator (tests/quorum/test_quorum_random.c).

    run.py SOURCE-FOLDER LIBRARY-SOURCES... -- SIMULATOR-SOURCES... -- QUORUM-SOURCES...

A mistake is (name, file, the text that is there, the text that replaces it). If the text is no longer
there, the mutant is out of date, which is a failure, too.
"""
import os
import subprocess
import sys
import tempfile

SEEDS = {'simulator': '4000', 'quorum': '400'}

MUTANTS = [
    ('a lease counts from the answer, not from before the request', 'src/lease.c',
     'int64_t from = r->op.lease_from ? r->op.lease_from : r->first_sent;',
     'int64_t from = pawl__now(hold->client);'),
    ('a renewed lease counts from the answer', 'src/lease.c',
     'int64_t sent = r->op.lease_from ? r->op.lease_from : r->first_sent;',
     'int64_t sent = pawl__now(hold->client);'),
    ('nobody is told when a lease is over', 'src/lease.c',
     '    pawl__timers_set(&client->timers, &hold->lost_timer, hold->deadline);', '    ;'),
    ('a renewal outlives its hold', 'src/lease.c',
     '        hold->renewing->arg = NULL;', '        ;'),
    ('an unanswered acquire counts as acquired', 'src/hold.c',
     '    if ((code && r->unknown)',
     '    if (code == PAWL_EUNKNOWN)\n        code = 0;\n    if ((code && r->unknown)'),
    ('a lost lock keeps the threads behind it waiting', 'src/hold_end.c',
     '    pawl__cohort_leave(hold);\n    if (hold->orphan', '    if (hold->orphan'),
    ('a hand-over inside the process keeps the token', 'src/cohort.c',
     'next->token = hold->token + 1;', 'next->token = hold->token;'),
    ('an unanswered request is not repeated', 'src/request.c',
     'if (r->once || r->giving_up ||', 'if (1 ||'),
    ('a late renewal shortens the lease', 'engines/shelf/lockstate.c',
     'if (expires > e->expires)', 'if (true)'),
    ('anybody may release', 'engines/shelf/lockstate.c',
     'lockstate_entry *e = held(edit, lock, client, seq);\n    lockstate_front before;\n\n    if (!e)\n'
     '        return lock && linger_ms',
     'lockstate_entry *e = lock && lock->holders ? lockstate_entries(lock) : NULL;\n'
     '    lockstate_front before;\n\n    if (!e)\n        return lock && linger_ms'),
    ('half of the nodes are enough', 'engines/quorum/quorum.c',
     'q->majority = n / 2 + 1;', 'q->majority = n / 2;'),
    ('a node that has forgotten everything votes', 'engines/quorum/attempt.c',
     'return s->ours && s->end > now && !quorum_node_young', 'return s->ours && s->end > now; (void)'),
    ('the largest token is not written back', 'engines/quorum/token.c',
     's->token > token || s->mark < token)', 's->token > token)'),
    ('the lease is as long as the longest of the nodes', 'engines/quorum/token.c',
     'end = best[a->quorum->majority - 1]->end;', 'end = best[0]->end;'),
    ('a renewal by a minority is one', 'engines/quorum/renew.c',
     'if (yes >= q->majority)', 'if (yes)'),
]


def compile_object(cc, flags, source, target):
    return subprocess.run(cc + flags + ['-c', source, '-o', target], stderr=subprocess.PIPE)


def groups(words):
    """The library's sources, generated or not, and the sources of each program."""
    found = [[]]
    for word in words:
        if word == '--':
            found.append([])
        else:
            found[-1].append(os.path.realpath(word))
    return found


def main():
    root = os.path.realpath(sys.argv[1])
    library, simulator, quorum = groups(sys.argv[2:])
    headers = [source for source in library if source.endswith('.h')]
    library = [source for source in library if source not in headers]
    programs = {'simulator': library + simulator, 'quorum': library + quorum}
    cc = os.environ.get('CC', 'cc').split()
    uv = subprocess.run(['pkg-config', '--cflags', '--libs', 'libuv', 'openssl'], check=True,
                        stdout=subprocess.PIPE, text=True).stdout.split()
    flags = ['-O1', '-std=gnu11', '-D_GNU_SOURCE', '-w', '-pthread']
    flags += ['-I' + os.path.join(root, folder) for folder in ('include', 'src', 'engines', 'tests/lib')]
    flags += ['-I' + os.path.dirname(header) for header in headers]
    with tempfile.TemporaryDirectory() as work:
        objects = {}
        for source in library + simulator + quorum:
            objects[source] = os.path.join(work, '%d.o' % len(objects))
            built = compile_object(cc, flags, source, objects[source])
            if built.returncode:
                print('Bail out! %s: %s' % (source, built.stderr.decode()))
                return 1

        def simulate(name, replaced, by):
            program = os.path.join(work, name)
            parts = [by if source == replaced else objects[source] for source in programs[name]]
            subprocess.run(cc + parts + ['-pthread', '-ldl', '-o', program] + uv, check=True)
            try:
                run = subprocess.run([program, '1', SEEDS[name]], timeout=60, stdout=subprocess.PIPE)
            except subprocess.TimeoutExpired:
                return 'hangs'
            if run.returncode == 0:
                return None
            words = [line for line in run.stdout.decode().splitlines()
                     if 'not ok' in line or 'failed' in line]
            return words[0] if words else 'dies with %d' % run.returncode

        print('1..%d' % (len(MUTANTS) + len(programs)))
        status = 0
        for number, program in enumerate(programs, 1):
            failed = simulate(program, None, None)
            print('%s %d - %s: the library as it is passes' % ('not ok' if failed else 'ok', number,
                                                             program))
            status |= bool(failed)
        for number, (name, path, old, new) in enumerate(MUTANTS, len(programs) + 1):
            program = 'quorum' if 'quorum' in path else 'simulator'
            source = os.path.join(root, path)
            text = open(source).read()
            found = None
            if old in text:
                mutant = os.path.join(work, 'mutant.c')
                with open(mutant, 'w') as out:
                    out.write(text.replace(old, new, 1))
                built = compile_object(cc, flags + ['-I' + os.path.dirname(source)], mutant,
                                       os.path.join(work, 'mutant.o'))
                if not built.returncode:
                    found = simulate(program, source, os.path.join(work, 'mutant.o'))
            print('%s %d - noticed: %s' % ('ok' if found else 'not ok', number, name))
            print('# %s' % (found or ('is not noticed' if old in text else 'the text is gone')))
            status |= not found
        return status


sys.exit(main())
