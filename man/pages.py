#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py EXAMPLES OUT HEADER ...: the pages of section 3, one for each group of functions, from the
comments of pawl.h and the headers beside it, so that header and manual can't differ. EXAMPLES is a
folder with a complete program for each page, PAGE.c. Prints the names of all functions with the
page of each.

A group is a part of the header between two lines "/* ---- Title ---- */". A comment belongs to the
declaration below it. The program fails if a group has no entry in GROUPS or no example, or if an
entry or an example belongs to no group: a title that was changed in the header alone would else
rename the page and drop its example.
"""
import os
import re
import sys

# Title in the header: (page, one line).
GROUPS = {
    'Errors': ('pawl_errors', 'error codes and their texts'),
    'Client': ('pawl_client', 'open and close a service that stores locks'),
    'Locks': ('pawl_lock', 'acquire, hold and release distributed locks'),
    'Asynchronous': ('pawl_async', 'locks in event loops'),
    'Semaphore': ('pawl_semaphore', 'distributed semaphores with leased permits'),
    'Latch': ('pawl_latch', 'distributed count-down latches'),
    'Holders and waiters': ('pawl_inspect', 'list holders and waiters of locks'),
    'Counters': ('pawl_stats', 'counters of a client'),
    'Metrics': ('pawl_metrics', 'counters of clients as text for Prometheus'),
    'Losses': ('pawl_lost', 'why a lock was lost, in words'),
    'Tracing': ('pawl_trace', 'a call for the start and the end of each wait and each hold'),
    'Examining the service': ('pawl_examine', 'find what breaks locks on a service'),
    'Engines and libraries': ('pawl_engines', 'list engines, modules and libraries'),
    'Transaction form': ('pawl_sql', 'lock a row in a transaction of your own'),
}
DATE = 'November 19, 2026'


def groups(text):
    """{title: body} of the header."""
    parts = re.split(r'^/\* -{4} (.*?) -+ \*/$', text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def comment_text(comment):
    lines = [re.sub(r'^\s*(/\*|\*/|\*)? ?', '', x) for x in comment.splitlines()]
    return re.sub(r'\s*\*/\s*$', '', '\n'.join(lines)).strip()


def declarations(body):
    """(comment, declaration) in order. Blocks are separated by empty lines. A comment that another
    comment or nothing follows stands alone, with the declaration ''."""
    found, comment = [], ''
    for block in re.split(r'\n\s*\n', body.split('#ifdef __cplusplus')[0]):
        block = block.strip('\n')
        match = re.match(r'(/\*.*?\*/)\n?(.*)', block, re.S)
        if match and comment:
            found.append((comment_text(comment), ''))
        if match:
            comment, block = match[1], match[2]
        if block.strip():
            found.append((comment_text(comment), block.strip()))
            comment = ''
    return found + [(comment_text(comment), '')] * bool(comment)


def escape(text):
    text = text.replace('\\', '\\e')
    return '\n'.join('\\&' + x if x[:1] in ".'" else x for x in text.splitlines())


def without_bodies(text):
    """The header with its inline functions as declarations."""
    return re.sub(r'^static inline ([^{;]*?)\n\{\n.*?^\}$', r'PAWL_API \1;', text,
                  flags=re.M | re.S)


def function(declaration):
    """(type, name, arguments) of PAWL_API type name(arguments);"""
    flat = ' '.join(declaration.split())
    match = re.fullmatch(r'PAWL_API (.*?)(\w+)\((.*)\);', flat)
    return (match[1].strip(), match[2], match[3].split(', ')) if match else None


def fn(kind, name, arguments):
    words = ' '.join(f'"{a}"' for a in arguments)
    return f'.Ft "{kind}"\n.Fn {name} {words}\n'


def description(comment):
    """Paragraphs; the line about threads is one of its own."""
    text = re.sub(r'\n(?=Returns )', '\n.Pp\n', comment)
    text = re.sub(r'\s*\n?(?<!\w)(Thread: )', r'\n.Pp\n\1', text, count=1)
    lines = [x.strip() or '.Pp' for x in text.splitlines()]
    return '\n'.join(x if x == '.Pp' else escape(x) for x in lines) + '\n'


def part(comment, declaration, made):
    """The description of a function, or a declaration with its comment."""
    if made:
        return f'.Ss {made[1]}\n{description(comment)}'
    head = description(comment) if comment else ''
    return head + (f'.Pp\n.Bd -literal\n{escape(declaration)}\n.Ed\n.Pp\n'
                   if declaration else '.Pp\n')


LIBRARY = {
    False: 'libpawl\n.Pq Fl lpawl ;\n.Ql pkg-config --cflags --libs pawl\n',
    True: 'None: the functions are in the header;\n.Ql pkg-config --cflags pawl\n',
}


def page(header, body, name, line, example, pages):
    inline = 'static inline ' in body
    known = [(c, d, function(d)) for c, d in declarations(without_bodies(body))]
    functions = [f for _, _, f in known if f]
    out = [f'.\\" Made from {header} by man/pages.py.\n.Dd {DATE}\n.Dt {name.upper()} 3\n.Os Pawl\n'
           '.Sh NAME\n']
    names = [f[1] for f in functions] or [name]
    out += [f'.Nm {n}{" ," if n is not names[-1] else ""}\n' for n in names]
    out += [f'.Nd {line}\n.Sh LIBRARY\n{LIBRARY[inline]}.Sh SYNOPSIS\n.In {header}\n']
    out += [fn(*f) for f in functions]
    out.append('.Sh DESCRIPTION\n')
    out += [part(*k) for k in known]
    if any(f[0] == 'int' for f in functions) and not inline:
        out.append('.Sh RETURN VALUES\nFunctions of type\n.Vt int\nreturn 0 or a negative\n'
                   '.Dv PAWL_E...\ncode, unless the description says otherwise; see\n'
                   '.Xr pawl_errors 3 .\n')
    out.append(f'.Sh EXAMPLES\n.Bd -literal\n{escape(example)}\n.Ed\n')
    others = sorted(p for p in pages if p != name)
    out.append('.Sh SEE ALSO\n.Xr pawl 1 ,\n.Xr pawl 3 ,\n' +
               ' ,\n'.join(f'.Xr {p} 3' for p in others) + ' ,\n.Xr pawl 7\n')
    return re.sub(r'(\.Pp\n)+(?=\.Pp|\.S[hs])', '', ''.join(out)), names


def read_groups(headers):
    """{page: (header, body, one line)}"""
    found = {}
    for header in headers:
        with open(header, encoding='utf-8') as f:
            for title, body in groups(f.read()).items():
                if title not in GROUPS:
                    sys.exit(f'{header}: the group "{title}" has no entry in GROUPS of pages.py')
                name, line = GROUPS[title]
                found[name] = (os.path.basename(header), body, line)
    unused = {name for name, _ in GROUPS.values()} - set(found)
    if unused:
        sys.exit(f'GROUPS of pages.py has groups that no header has: {", ".join(sorted(unused))}')
    return found


def read_examples(folder, pages):
    """{page: program}"""
    files = {os.path.splitext(name)[0]: os.path.join(folder, name) for name in os.listdir(folder)}
    if set(files) != set(pages):
        sys.exit('an example without a page, or a page without an example: ' +
                 ', '.join(sorted(set(files) ^ set(pages))))
    found = {}
    for name, path in files.items():
        with open(path, encoding='utf-8') as f:
            found[name] = f.read().split('*/\n', 1)[1].strip()
    return found


def main(examples, out, *headers):
    found = read_groups(headers)
    programs = read_examples(examples, found)
    for name, (header, body, line) in found.items():
        text, functions = page(header, body, name, line, programs[name], found)
        with open(os.path.join(out, name + '.3'), 'w', encoding='utf-8') as f:
            f.write(text)
        for function_name in functions:
            print(function_name, name)


if __name__ == '__main__':
    main(*sys.argv[1:])
