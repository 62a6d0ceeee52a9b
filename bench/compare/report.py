# SPDX-License-Identifier: Apache-2.0
"""The report of compare.py: report.md, report.html, the plots as SVG files, and results.json."""
import html
import json
import os

from plot import bars, distribution, lines, number

HEADINGS = {'own': '{n} clients, a lock each', 'shared': '{n} threads of one client, a lock each',
            'same': 'one lock, {n} contenders'}
STYLE = '''body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;
color-scheme:light dark;background:Canvas;color:CanvasText}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.2em .7em;border-bottom:1px solid GrayText;text-align:right}td:first-child,th:first-child{text-align:left}svg{max-width:100%}'''
NOTES = '''Every library takes turns in slices on the same private server, so that noise of the
machine meets all of them. "Pawl to it" is the rate of Pawl divided by the rate of the library in
the same round: the median, and the quartiles of all rounds. Above 1, Pawl is faster. The time of a
round is acquire and release together; if contenders share one lock, it is the acquire alone, and the rate
counts hand-overs from one contender to another. CPU is that of the program; commands, bytes and CPU
of the server are for each round.'''


def heading(workload):
    mode, n = workload.split()
    return 'alone: one client' if workload == 'own 1' else HEADINGS[mode].format(n=n)


def cells(result):
    """One row of a table, without its title."""
    def figure(key):
        return number(result[key]) if key in result else ''
    low, middle, high = result.get('ratio', (0, 0, 0))
    return [figure('rate'), figure('p50'), figure('p99'), figure('p999'), figure('cpu_us'),
            figure('server_us'), figure('commands'), figure('bytes'),
            f'{middle:.2f} ({low:.2f} to {high:.2f})' if middle else '']


COLUMNS = ['', 'per second', 'p50 us', 'p99 us', 'p99.9 us', 'CPU us', 'server CPU us', 'commands',
           'bytes', 'Pawl to it']


def tables(service):
    """(heading, rows, notes) of each workload."""
    for workload, results in service['results'].items():
        rows = [[title, *cells(r)] for title, r in results.items() if isinstance(r, dict)]
        left_out = [f'{title}: {r}' for title, r in results.items() if isinstance(r, str)]
        yield heading(workload), rows, left_out


def plots(name, service):
    """(file name, SVG)"""
    def measured(workload):
        return [(t, r) for t, r in service['results'][workload].items()
                if isinstance(r, dict) and r['rate']]
    alone = measured('own 1')
    yield (f'{name}-alone.svg',
           bars(f'{service["title"]}: acquire and release, alone; median, and 99 %',
                'microseconds', [(t, r['p50'], r['p99']) for t, r in alone]))
    hot = [w for w in service['results'] if w.startswith('same')]
    titles = list(dict.fromkeys(t for w in hot for t, _ in measured(w)))
    yield (f'{name}-contenders.svg',
           lines(f'{service["title"]}: one lock', 'contenders', 'hand-overs per second',
                 [(t, [(int(w.split()[1]), dict(measured(w))[t]['rate']) for w in hot
                       if t in dict(measured(w))]) for t in titles]))
    crowd = 'same 16' if 'same 16' in hot else hot[-1]
    yield (f'{name}-waiting.svg',
           distribution(f'{service["title"]}: time to the grant, 16 contenders', 'microseconds',
                        [(t, r['quantiles']) for t, r in measured(crowd)]))


def markdown(results, pictures):
    out = ['# Pawl beside its peers', '', f'{results["machine"]}; {results["rounds"]} rounds of '
           f'{results["ms"]} ms.', '', NOTES, '']
    for name, service in results['services'].items():
        out += [f'## {service["title"]}', '', *(f'![]({f})' for f, _ in pictures[name]), '']
        for title, rows, left_out in tables(service):
            out += [f'### {title[0].upper()}{title[1:]}', '', '| ' + ' | '.join(COLUMNS) + ' |',
                    '|---' + '|--:' * (len(COLUMNS) - 1) + '|',
                    *('| ' + ' | '.join(r) + ' |' for r in rows), '',
                    *(f'- {line}' for line in left_out), '']
    return '\n'.join(out)


def page(results, pictures):
    out = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>Pawl beside its peers'
           f'</title><style>{STYLE}</style><h1>Pawl beside its peers</h1>',
           f'<p>{html.escape(results["machine"])}; {results["rounds"]} rounds of {results["ms"]} '
           f'ms.</p><p>{html.escape(NOTES)}</p>']
    for name, service in results['services'].items():
        out += [f'<h2>{html.escape(service["title"])}</h2>', *(svg for _, svg in pictures[name])]
        for title, rows, left_out in tables(service):
            out += [f'<h3>{html.escape(title)}</h3><table><tr>',
                    *(f'<th>{c}' for c in COLUMNS),
                    *('<tr>' + ''.join(f'<td>{html.escape(c)}' for c in r) for r in rows),
                    '</table>', *(f'<p>{html.escape(line)}</p>' for line in left_out)]
    return '\n'.join(out)


def write(results, folder):
    pictures = {name: list(plots(name, s)) for name, s in results['services'].items()}
    files = {'results.json': json.dumps(results, indent=1),
             'report.md': markdown(results, pictures), 'report.html': page(results, pictures)}
    files.update(p for of in pictures.values() for p in of)
    for name, content in files.items():
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
            f.write(content)
