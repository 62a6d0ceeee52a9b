#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py EXAMPLES OUT HEADER ...: the pages of section 3, one for each group of functions, from the
comments of pawl.h and the headers beside it, so that header and manual can't differ. EXAMPLES is a
folder with a complete program for each page, PAGE.c. Prints the names of all functions with the
page of each.

A group is a part of the header between two lines "/* ---- Title ---- */". A comment belongs to the
declaration below it.
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
    'Who holds it?': ('pawl_inspect', 'list holders and waiters of locks'),
    'Counters': ('pawl_stats', 'counters of a client'),
}
DATE = 'November 16, 2026'


def named(title):
    """(page, one line); a group that is not in the list is called after its title."""
    word = re.sub(r'\W+', '_', title.lower()).strip('_')
    return GROUPS.get(title, ('pawl_' + word, title[:1].lower() + title[1:]))


def groups(text):
    """{title: body} of the header."""
    parts = re.split(r'^/\* -{4} (.*?) -+ \*/$', text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def comment_text(comment):
    lines = [re.sub(r'^\s*(/\*|\*/|\*)? ?', '', x) for x in comment.splitlines()]
    return re.sub(r'\s*\*/\s*$', '', '\n'.join(lines)).strip()


def declarations(body):
    """(comment, declaration) in order. Blocks are separated by empty lines."""
    found, comment = [], ''
    for block in re.split(r'\n\s*\n', body.split('#ifdef __cplusplus')[0]):
        block = block.strip('\n')
        match = re.match(r'(/\*.*?\*/)\n?(.*)', block, re.S)
        if match and not match[2].strip():
            comment = match[1]
            continue
        if match:
            comment, block = match[1], match[2]
        if block.strip():
            found.append((comment_text(comment), block.strip()))
        comment = ''
    return found


def escape(text):
    text = text.replace('\\', '\\e')
    return '\n'.join('\\&' + x if x[:1] in ".'" else x for x in text.splitlines())


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


def page(header, body, name, line, example, pages):
    known = [(c, d, function(d)) for c, d in declarations(body)]
    functions = [f for _, _, f in known if f]
    out = [f'.\\" Made from {header} by man/pages.py.\n.Dd {DATE}\n.Dt {name.upper()} 3\n.Os Pawl\n'
           '.Sh NAME\n']
    out += [f'.Nm {f[1]}{" ," if f is not functions[-1] else ""}\n' for f in functions]
    out += [f'.Nd {line}\n.Sh LIBRARY\nlibpawl\n.Pq Fl lpawl ;\n.Ql pkg-config --cflags --libs pawl\n'
            f'.Sh SYNOPSIS\n.In {header}\n']
    out += [fn(*f) for f in functions]
    out.append('.Sh DESCRIPTION\n')
    for comment, declaration, made in known:
        if made:
            out.append(f'.Ss {made[1]}\n{description(comment)}')
        else:
            head = description(comment) + '.Pp\n' if comment else '.Pp\n'
            out.append(f'{head}.Bd -literal\n{escape(declaration)}\n.Ed\n.Pp\n')
    out.append('.Sh RETURN VALUES\nFunctions of type\n.Vt int\nreturn 0 or a negative\n.Dv PAWL_E...\n'
               'code, unless the description says otherwise; see\n.Xr pawl_errors 3 .\n')
    if example:
        out.append(f'.Sh EXAMPLES\n.Bd -literal\n{escape(example)}\n.Ed\n')
    others = sorted(p for p in pages if p != name)
    out.append('.Sh SEE ALSO\n.Xr pawl 1 ,\n.Xr pawl 3 ,\n' +
               ' ,\n'.join(f'.Xr {p} 3' for p in others) + ' ,\n.Xr pawl 7\n')
    return re.sub(r'(\.Pp\n)+(?=\.Pp|\.S[hs])', '', ''.join(out)), [f[1] for f in functions]


def main(examples, out, *headers):
    found = {}       # page: (header, body, one line)
    for header in headers:
        with open(header, encoding='utf-8') as f:
            for title, body in groups(f.read()).items():
                if re.search(r'^PAWL_API', body, re.M):
                    name, line = named(title)
                    found[name] = (os.path.basename(header), body, line)
    for name, (header, body, line) in found.items():
        path = os.path.join(examples, name + '.c')
        example = ''
        if os.path.exists(path):
            with open(path, encoding='utf-8') as f:
                example = f.read().split('*/\n', 1)[1].strip()
        text, functions = page(header, body, name, line, example, found)
        with open(os.path.join(out, name + '.3'), 'w', encoding='utf-8') as f:
            f.write(text)
        for function_name in functions:
            print(function_name, name)


if __name__ == '__main__':
    main(*sys.argv[1:])
