# SPDX-License-Identifier: Apache-2.0
"""Shrinking: finds a smaller program that still fails, by leaving parts out.

shrink(program, fails) tries to leave out, from large to small: a whole thread, a whole object, runs of
steps, a single step; then it tries simpler values. It starts over as long as something could be left
out. `fails` says whether a program still fails. Because of races a failing program may pass at times, so
`fails` should run a program as often as the caller thinks right.
"""
import time


def without_thread(p, thread):
    q = p.copy()
    q.steps = [s for s in p.steps if s[0] != thread]
    return q


def of_client(step):
    return step[1] in ('close', 'list')


def without_object(p, n):
    q = p.copy()
    del q.objects[n]
    for m, (kind, fields) in list(q.objects.items()):
        if kind == 'multi' and str(n) in fields['members'].split(','):
            left = [x for x in fields['members'].split(',') if x != str(n)]
            if left:
                fields['members'] = ','.join(left)
            else:
                return None
    q.steps = [s for s in p.steps if of_client(s) or s[2] != n]
    return q


def without_client(p, n):
    q = p.copy()
    del q.clients[n]
    if any(f.get('client') == n for _, f in q.objects.values()):
        return None
    q.steps = [s for s in p.steps if not (of_client(s) and s[2] == n)]
    return q


def without_steps(p):
    size = len(p.steps) // 2
    while size:
        for at in range(0, len(p.steps), size):
            q = p.copy()
            del q.steps[at:at + size]
            yield q
        size //= 2


SIMPLER = {'loop': (0,), 'cohort': (0,), 'kind': (0, 1), 'owner': (0,), 'lease': (0,), 'max': (0,),
           'atleast': (0,), 'lost': (0,), 'done': (0,), 'client': (0,), 'permits': (1, 2)}


def with_simpler_values(p):
    for n, (_, fields) in p.objects.items():
        for key, values in SIMPLER.items():
            for value in values:
                if fields.get(key, value) not in (value, 0):
                    q = p.copy()
                    q.objects[n][1][key] = value
                    if value in q.clients or key != 'client':
                        yield q
    for n, fields in p.clients.items():
        for key in ('loop', 'cohort'):
            if fields.get(key):
                q = p.copy()
                q.clients[n][key] = 0
                yield q
    for i, s in enumerate(p.steps):
        if s[0]:
            q = p.copy()
            q.steps[i] = (0, *s[1:])
            yield q
        if s[1] == 'start' or s[1] == 'rstart':
            q = p.copy()
            q.steps[i] = (s[0], 'acquire' if s[1] == 'start' else 'release', *s[2:])
            yield q
        if s[3] not in (0, 1):
            q = p.copy()
            q.steps[i] = (*s[:3], 1 if s[1] in ('sacquire', 'srelease', 'set') else 0, s[4])
            yield q


def candidates(p):
    for thread in sorted({s[0] for s in p.steps}):
        yield without_thread(p, thread)
    for n in sorted(p.objects, reverse=True):
        yield without_object(p, n)
    for n in sorted(p.clients, reverse=True):
        yield without_client(p, n)
    yield from without_steps(p)
    yield from with_simpler_values(p)


def shrink(program, fails, tries=400, seconds=120):
    best, found = program, True
    until = time.monotonic() + seconds
    while found and tries > 0:
        found = False
        for q in candidates(best):
            if q is None or not q.steps or not q.objects:
                continue
            tries -= 1
            if tries <= 0 or time.monotonic() > until:
                return best
            if fails(q):
                best, found = q, True
                break
    return best
