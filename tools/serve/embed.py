# SPDX-License-Identifier: Apache-2.0
"""embed.py OUTPUT FILE... - files as arrays of a C source: the page of pawl serve."""
import os
import sys

TYPES = {'.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8',
         '.css': 'text/css; charset=utf-8', '.svg': 'image/svg+xml'}

with open(sys.argv[1], 'w') as out:
    out.write('/* made by embed.py */\n#include "serve.h"\n\n')
    entries = []
    for number, path in enumerate(sys.argv[2:]):
        with open(path, 'rb') as f:
            data = f.read()
        name = os.path.basename(path)
        out.write(f'static const unsigned char file_{number}[] = {{')
        out.write(','.join(str(b) for b in data) + '};\n')
        url = '/' if name == 'index.html' else '/' + name
        kind = TYPES[os.path.splitext(name)[1]]
        entries.append(f'    {{"{url}", "{kind}", file_{number}, {len(data)}}},\n')
    out.write('\nconst asset assets[] = {\n' + ''.join(entries) + '    {0}};\n')
