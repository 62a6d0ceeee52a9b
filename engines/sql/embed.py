#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py NAME FILE: print a schema as a C string, without comments and blank lines.
embed.py --print FILE: print the schema as an administrator runs it, with the default prefix.
"""
import sys

PREFIX = 'distributed_lock'
SCHEMA = 'public.'  # PostgreSQL: names inside functions are qualified


def print_for_people(text):
    """Keep comments. MySQL's command-line client needs a delimiter between the statements."""
    head, _, rest = text.replace('@', SCHEMA + PREFIX).partition('\n\n')
    if '\n;;\n' in text:
        head, _, rest = text.replace('@', PREFIX).partition('\nSET SESSION')
        rest = 'delimiter ;;\nSET SESSION' + rest + 'delimiter ;\n'
    print(head + '\n\n' + rest, end='')


def print_string(name, text):
    print('/* Made by embed.py. */')
    print(f'static const char {name}[] =')
    for line in text.splitlines():
        line = line.split('--', 1)[0].rstrip()
        if line:
            line = line.replace('\\', '\\\\').replace('"', '\\"')
            print(f'    "{line}\\n"')
    print('    ;')


def main():
    with open(sys.argv[2], encoding='utf-8') as file:
        text = file.read()
    if sys.argv[1] == '--print':
        print_for_people(text)
    else:
        print_string(sys.argv[1], text)


if __name__ == '__main__':
    main()
