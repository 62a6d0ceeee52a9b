# SPDX-License-Identifier: Apache-2.0
"""Imports helpers from the folders of other tests, for tests that need servers of several kinds at once.
Several folders have a server.py, so an ordinary import finds only one of these files."""
import importlib.util
import os
import sys
import threading

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
AMBIGUOUS = ('server', 'client', 'cases', 'fake', 'scenes')
_importing = threading.Lock()


def module(folder, name):
    """Import tests/FOLDER/NAME.py, with the helpers of that folder."""
    path = os.path.join(TESTS, folder)
    with _importing:
        sys.path.insert(0, path)
        hidden = {n: sys.modules.pop(n) for n in AMBIGUOUS if n in sys.modules}
        try:
            spec = importlib.util.spec_from_file_location(f'{folder}_{name}',
                                                          os.path.join(path, name + '.py'))
            made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
            return made
        finally:
            for n in AMBIGUOUS:
                sys.modules.pop(n, None)
            sys.path.remove(path)
            sys.modules.update(hidden)
