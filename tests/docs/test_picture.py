# SPDX-License-Identifier: Apache-2.0
"""test_picture.py PICTURE PAWL: scripts/picture records two contenders, of which the second waits."""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

SVG = '{http://www.w3.org/2000/svg}'

with tempfile.TemporaryDirectory(prefix='pawl-picture-') as folder:
    path = os.path.join(folder, 'out.svg')
    subprocess.run([sys.executable, sys.argv[1], sys.argv[2], path], check=True, timeout=90)
    texts = [(t.text, float(t.get('x'))) for t in tree.parse(path).iter(SVG + 'text')]

wanted = {'both ran, one after the other': sum('working' in t for t, _ in texts) == 2 and
          sum(t == 'done' for t, _ in texts) == 2,
          'the second waits': any("waiting for 'backup'" in t and x > 400 for t, x in texts),
          'the third sees holder and waiter': any('held, 1 waiting' in t for t, _ in texts),
          'the lock is free at the end': texts[-1][0].endswith('free')}
print(f'1..{len(wanted)}')
for number, (sentence, good) in enumerate(wanted.items(), 1):
    print(f'{"ok" if good else "not ok"} {number} - {sentence}')
sys.exit(0 if all(wanted.values()) else 1)
