# SPDX-License-Identifier: Apache-2.0
"""The manual pages as a whole: groff has no complaint, every public function is found, every page of
section 3 has an example and is named by pawl(3), and man/pages.py refuses groups and examples that don't
belong together.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, '..', '..'))
INSTALLED = '/usr/local/share/man/man3'


def read(*parts):
    with open(os.path.join(*parts), encoding='utf-8') as f:
        return f.read()


def headers():
    return sorted(glob.glob(os.path.join(ROOT, 'include', '*.h')))


def faults(names):
    """What is wrong with these pages of the source tree, and with the installed ones."""
    for name in names:
        done = subprocess.run(['groff', '-mandoc', '-Tutf8', '-ww', name], cwd=ROOT, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        yield from done.stderr.splitlines()
    functions = re.findall(r'^\s+(pawl_\w+);', read(ROOT, 'src', 'libpawl.sym'), re.M)
    for header in headers():
        functions += re.findall(r'^static inline [\w ]*?(pawl_\w+)\(', read(header), re.M)
    for name in functions:
        if not os.path.exists(f'{INSTALLED}/{name}.3'):
            yield f'no manual page {name}(3)'
    overview = read(ROOT, 'man', 'pawl.3').partition('.Sh SEE ALSO')[2]
    for path in glob.glob(INSTALLED + '/pawl_*.3'):
        page = os.path.basename(path)[:-2]
        if not os.path.islink(path) and f'.Xr {page} 3 ,' not in overview:
            yield f'pawl(3), SEE ALSO: no {page}(3)'
        if '.Sh EXAMPLES\n' not in read(path):
            yield f'{page}(3) has no example'
    yield from refusals()


def make_pages(folder):
    """The error text of man/pages.py for copies of the headers and examples in the folder, or ''."""
    out = os.path.join(folder, 'out')
    os.makedirs(out, exist_ok=True)
    done = subprocess.run([sys.executable, os.path.join(ROOT, 'man', 'pages.py'),
                           os.path.join(folder, 'examples'), out,
                           *sorted(glob.glob(os.path.join(folder, 'include', '*.h')))],
                          check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return done.stderr if done.returncode else ''


def rename_title(folder):
    path = os.path.join(folder, 'include', 'pawl.h')
    text = read(path).replace('/* ---- Counters ---', '/* ---- Numbers ---')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def remove_header(folder):
    os.remove(os.path.join(folder, 'include', 'pawl-sql.h'))


def remove_example(folder):
    os.remove(os.path.join(folder, 'examples', 'pawl_stats.c'))


def add_example(folder):
    shutil.copy(os.path.join(folder, 'examples', 'pawl_stats.c'),
                os.path.join(folder, 'examples', 'pawl_numbers.c'))


DAMAGE = ((rename_title, '"Numbers" has no entry'), (remove_header, 'no header has: pawl_sql'),
          (remove_example, 'pawl_stats'), (add_example, 'pawl_numbers'))


def refusals():
    """Damage that man/pages.py accepts."""
    for damage, words in DAMAGE:
        with tempfile.TemporaryDirectory(prefix='pawl-man-') as folder:
            shutil.copytree(os.path.join(ROOT, 'include'), os.path.join(folder, 'include'))
            shutil.copytree(os.path.join(ROOT, 'man', 'examples'), os.path.join(folder, 'examples'))
            before = make_pages(folder)
            damage(folder)
            after = make_pages(folder)
            if before or words not in after:
                yield f'man/pages.py, {damage.__name__}: {before or after or "no complaint"}'
