# SPDX-License-Identifier: Apache-2.0
"""Parses metrics with the parsers of Prometheus' client library and, if installed, with promtool.
"""
import shutil
import subprocess
import sys

sys.path.append('/usr/lib/python3/dist-packages')  # Debian's package, whichever python3 this is
from prometheus_client.openmetrics import parser as openmetrics  # noqa: E402
from prometheus_client import parser as classic  # noqa: E402


def families(text):
    if text.rstrip().endswith('# EOF'):
        return list(openmetrics.text_string_to_metric_families(text))
    tool = shutil.which('promtool')
    if tool:
        done = subprocess.run([tool, 'check', 'metrics'], input=text.encode(),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout.decode()
    return list(classic.text_string_to_metric_families(text))


def total(site, name):
    """The sum of all samples of this name."""
    found = samples(site.get('/metrics').text)
    return sum(value for (sample, _), value in found.items() if sample == name)


def samples(text):
    """{(sample, label `lock` or `name`): value}. Fails if a sample comes twice."""
    found, seen = {}, set()
    for family in families(text):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in seen, key
            seen.add(key)
            label = sample.labels.get('lock', sample.labels.get('name', ''))
            found[sample.name, label] = sample.value
    return found
