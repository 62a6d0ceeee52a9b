# SPDX-License-Identifier: Apache-2.0
"""The targets of ninja that `meson install` installs: `meson introspect --targets` on the standard
input, the build folder as the argument."""
import json
import os
import sys

folder = os.path.realpath(sys.argv[1])
print(*(os.path.relpath(os.path.realpath(file), folder)
        for target in json.load(sys.stdin) if target['installed'] for file in target['filename']))
