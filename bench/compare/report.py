# SPDX-License-Identifier: Apache-2.0
"""The report of compare.py: report.md, report.html, the plots as SVG files, and results.json."""
import html
import json
import os

from goals import COLUMNS as GOAL_COLUMNS, judge
from plot import bars, distribution, lines, number

HEADINGS = {'own': '{n} clients, a lock each', 'shared': '{n} threads of one client, a lock each',
            'async': '{n} in flight, one thread, a lock each', 'same': 'one lock, {n} contenders',
            'eights': 'one lock, {n} threads in processes of eight',
            'handover': 'one lock, two contenders that hold and pause',
            'permits': 'a semaphore of ten, {n} contenders',
            'reading': 'a read-write lock, {n} contenders, one round in 20 writes',
            'stopped': 'one lock, {n} contenders, then half of them are stopped while they wait',
            'killed': 'one lock, {n} contenders, then half of them are killed while they wait'}
STYLE = '''body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;
color-scheme:light dark;background:Canvas;color:CanvasText}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.2em .7em;border-bottom:1px solid GrayText;text-align:right}
td:first-child,th:first-child,.goals td{text-align:left}svg{max-width:100%}'''
NOTES = '''Every library takes turns in slices on the same private server, so that noise of the
machine meets all of them. Each figure is the median of the rounds. "Pawl to it" is the rate of Pawl
divided by the rate of the library in the same round (or the time of the library divided by the time
of Pawl): the median, and the quartiles of all rounds. Above 1, Pawl is faster. The time of a round
is acquire and release together. If contenders share one lock, the time is that of the acquire
alone, the rate counts hand-overs from one contender to another, and a hand-over takes from the
begin of a release to the grant of another contender that was waiting. CPU and wake-ups are those of
the program. CPU of the server, commands (those inside of scripts included) and bytes are counted by
the server. CPU, wake-ups, commands and bytes are for each operation.'''
QUICK = '''This was a quick run, which shows that the harness works. Its figures say nothing about
speed.'''

# (figure, heading of its column)
COLUMNS = (('rate', 'per second'), ('ms', 'ms'), ('p50', 'p50 us'),
           ('p99', 'p99 us'), ('p999', 'p99.9 us'),
           ('gap50', 'hand-over p50 us'), ('gap99', 'hand-over p99 us'),
           ('gap999', 'hand-over p99.9 us'), ('kept', 'share of the rate before'),
           ('cpu_us', 'CPU us'), ('wakeups', 'wake-ups'), ('server_us', 'server CPU us'),
           ('commands', 'commands'), ('bytes', 'bytes'), ('unfair', 'most/fewest'),
           ('calls', 'system calls'), ('acquire', 'acquire p50 us'),
           ('acquire99', 'acquire p99 us'), ('release', 'release p50 us'),
           ('release99', 'release p99 us'), ('ping', 'PING us'),
           ('acquire_trips', 'round trips to acquire'),
           ('release_trips', 'round trips to release'), ('handover_trips', 'round trips'),
           ('client_bytes', 'bytes in the client'), ('server_bytes', 'bytes in the server'),
           ('client_percent', 'client % of a core'), ('server_percent', 'server % of a core'),
           ('renewed', 'renewals'), ('held', 'held'), ('lost', 'lost'), ('ratio', 'Pawl to it'))


def heading(service, workload):
    if workload in service.get('headings', {}):
        return service['headings'][workload]
    mode, n = workload.split()
    return 'alone: one client' if workload == 'own 1' else HEADINGS[mode].format(n=n)


def cell(result, key):
    if key not in result:
        return ''
    if key != 'ratio':
        return number(result[key])
    low, middle, high = result['ratio']
    return f'{middle:.2f} ({low:.2f} to {high:.2f})'


def tables(service):
    """(heading, columns, rows, notes) of each workload; a column that nobody has is left out."""
    for workload, results in service['results'].items():
        found = [(title, r) for title, r in results.items() if isinstance(r, dict)]
        columns = [(k, words) for k, words in COLUMNS if any(k in r for _, r in found)]
        if len(found) < 2:
            columns = [c for c in columns if c[0] != 'ratio']
        rows = [[title, *(cell(r, k) for k, _ in columns)] for title, r in found]
        if rows and columns[-1:] == [COLUMNS[-1]]:
            rows[0][-1] = ''
        reasons = {}
        for title, r in results.items():
            if isinstance(r, str):
                reasons.setdefault(r, []).append(title)
        left_out = [f'{", ".join(titles)}: {r}' for r, titles in reasons.items()]
        yield heading(service, workload), ['', *(w for _, w in columns)], rows, left_out


# ---- plots ---------------------------------------------------------------------------------------

def measured(service, workload, key='rate'):
    return [(t, r) for t, r in service['results'].get(workload, {}).items()
            if isinstance(r, dict) and r.get(key)]


def curve(service, mode, key):
    """[(title, [(contenders, figure)])] over all workloads of a mode."""
    found = {}
    for w in service['results']:
        if w.split()[0] == mode:
            for title, r in measured(service, w, key):
                found.setdefault(title, []).append((int(w.split()[1]), r[key]))
    return list(found.items())


def plots(name, service):
    """(file name, SVG)"""
    title = service['title']
    alone = measured(service, 'own 1', 'p50')
    if alone:
        yield (f'{name}-alone.svg', bars(f'{title}: acquire and release, alone; median, and 99 %',
                                         'microseconds', [(t, r['p50'], r['p99'])
                                                          for t, r in alone]))
    for key, words in (('cpu_us', 'CPU of the client, us'), ('server_us', 'CPU of the server, us'),
                       ('commands', 'commands')):
        rows = [(t, r[key], None) for t, r in measured(service, 'own 1', key)]
        if rows:
            yield f'{name}-{key}.svg', bars(f'{title}: {words}, of a pair, alone', '', rows)
    for mode, key, x, y in (('same', 'rate', 'contenders', 'hand-overs per second'),
                            ('same', 'cpu_us', 'contenders', 'CPU us of clients per hand-over'),
                            ('same', 'commands', 'contenders', 'commands per hand-over'),
                            ('shared', 'rate', 'threads of one client', 'pairs per second'),
                            ('async', 'rate', 'locks in flight', 'pairs per second')):
        series = curve(service, mode, key)
        if series and max(len(s) for _, s in series) > 1:
            yield f'{name}-{mode}-{key}.svg', lines(title, x, y, series)
    hot = [w for w in service['results'] if w.startswith('same')]
    crowd = 'same 16' if 'same 16' in hot else (hot or [''])[-1]
    series = [(t, r['quantiles']) for t, r in measured(service, crowd) if r['quantiles'][50]]
    if series:
        yield (f'{name}-waiting.svg', distribution(
            f'{title}: from a release to the next owner, {crowd.split()[1]} contenders',
            'microseconds', series))
    for w, results in service['results'].items():
        if w in service.get('headings', {}) and measured(service, w, 'p50'):
            yield (f'{name}-{w.replace(" ", "-")}.svg',
                   bars(service['headings'][w], 'microseconds',
                        [(t, r['p50'], r.get('p99')) for t, r in measured(service, w, 'p50')]))


# ---- pages ---------------------------------------------------------------------------------------

def row(cells):
    return '| ' + ' | '.join(cells) + ' |'


def intro(results):
    words = f'{results["machine"]}. Rounds: {results["rounds"]}, slices of {results["ms"]} ms.'
    return [words, *([QUICK] if results['quick'] else []), NOTES]


def markdown(results, pictures, folder=''):
    out = ['# Pawl beside its peers', '', *(f'{p}\n' for p in intro(results)), '## Goals', '',
           row(GOAL_COLUMNS), '|---' * len(GOAL_COLUMNS) + '|', *map(row, judge(results)), '']
    for name, service in results['services'].items():
        out += [f'## {service["title"]}', '',
                *(f'![{name}: {f}]({folder}{f})' for f, _ in pictures[name]), '']
        for title, columns, rows, left_out in tables(service):
            out += [f'### {title[0].upper()}{title[1:]}', '']
            if rows:
                out += [row(columns), '|---' + '|--:' * (len(columns) - 1) + '|',
                        *map(row, rows), '']
            out += [*(f'- {line}' for line in left_out), '']
    out += [f'## {name}: {why}\n' for name, why in results['failed'].items()]
    return '\n'.join(out)


def page(results, pictures):
    def line(cells, tag='td'):
        return '<tr>' + ''.join(f'<{tag}>{html.escape(c)}' for c in cells)
    out = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>Pawl beside its peers'
           f'</title><style>{STYLE}</style><h1>Pawl beside its peers</h1>',
           *(f'<p>{html.escape(p)}</p>' for p in intro(results)),
           '<h2>Goals</h2><table class="goals">', line(GOAL_COLUMNS, 'th'),
           *(line(r) for r in judge(results)), '</table>']
    for name, service in results['services'].items():
        out += [f'<h2>{html.escape(service["title"])}</h2>', *(svg for _, svg in pictures[name])]
        for title, columns, rows, left_out in tables(service):
            out.append(f'<h3>{html.escape(title)}</h3>')
            if rows:
                out += ['<table>', line(columns, 'th'), *(line(r) for r in rows), '</table>']
            out += [f'<p>{html.escape(words)}</p>' for words in left_out]
    out += [f'<h2>{html.escape(f"{n}: {why}")}</h2>' for n, why in results['failed'].items()]
    return '\n'.join(out)


def save(files, folder):
    os.makedirs(folder, exist_ok=True)
    for name, content in files.items():
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
            f.write(content)


def drawn(results):
    return {name: list(plots(name, s)) for name, s in results['services'].items()}


def write(results, folder):
    pictures = drawn(results)
    save({'results.json': json.dumps(results, indent=1), 'report.md': markdown(results, pictures),
          'report.html': page(results, pictures)}, folder)
    for of in pictures.values():
        save(dict(of), folder)


def publish(results, folder):
    """The Markdown report as benchmark-results.md, its plots in images/."""
    pictures = {name: [(f'bench-{f}', svg) for f, svg in of]
                for name, of in drawn(results).items()}
    title, rest = markdown(results, pictures, 'images/').split('\n', 1)
    text = ['<!-- Written by bench/compare/compare.py --publish; do not edit. -->', '', title, '',
            'How the figures are made: [benchmarks.md](benchmarks.md).', rest]
    save({'benchmark-results.md': '\n'.join(text)}, folder)
    for of in pictures.values():
        save(dict(of), os.path.join(folder, 'images'))
