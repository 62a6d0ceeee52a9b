#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts as they are sent: `--#include FILE` lines replaced by the file, comments and blank
lines left out. As a command: embed.py SCRIPT.lua... writes a C header: for each script its text as a
string literal, pawl__redis_NAME (redisson/NAME.lua: pawl__redis_redisson_NAME), and the digest
EVALSHA wants, pawl__redis_NAME_sha.
"""
import hashlib
import os
import sys


def text(path):
    lines = []
    with open(path) as f:
        for line in f:
            line = line.strip()
            if line.startswith('--#include '):
                lines.append(text(os.path.join(os.path.dirname(path), line.split()[1])))
            elif line and not line.startswith('--'):
                lines.append(line.split(' -- ')[0] + '\n')
    return ''.join(lines)


def literal(script):
    quoted = script.replace('\\', '\\\\').replace('"', '\\"')
    return '\n'.join(f'    "{line}\\n"' for line in quoted.splitlines())


if __name__ == '__main__':
    print('/* Made from engines/redis/scripts by embed.py. */')
    for path in sys.argv[1:]:
        folder, file = os.path.split(os.path.abspath(path))
        name = os.path.splitext(file)[0]
        if os.path.basename(folder) != 'scripts':
            name = os.path.basename(folder) + '_' + name
        script = text(path)
        print(f'static const char pawl__redis_{name}[] =\n{literal(script)};')
        digest = hashlib.sha1(script.encode()).hexdigest()
        print(f'static const char pawl__redis_{name}_sha[41] = "{digest}";')
