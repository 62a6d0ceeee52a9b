# SPDX-License-Identifier: Apache-2.0
"""Extracts the commands and programs of the documentation: fenced blocks of Markdown pages, and the
literal text of the EXAMPLES sections of manual pages.

Every fenced block has a language, which decides what the test does with the block:

    console      Lines that begin with "$ " are commands, which run in a shell. A command continues
                 on the next line after a backslash, and up to the end of a here-document. The lines
                 below a command are its expected output (see compare.py); without such lines any
                 output is accepted. A command must end with status 0, unless the next command is
                 `echo $?` or its expected output is an error message of pawl ("pawl: ...").
    c            A program, compiled with warnings as errors and run. A block without main() is
                 wrapped in one.
    cron         Lines of a crontab: each command runs once.
    sh, python   A script: runs once, if a marker does not name a file for the script.
    text, mermaid, lua, sql, ini, yaml, java, go, javascript ...   Not run, unless a marker says so.

A marker is an HTML comment in the line before the fence, or a .\" comment in a manual page:

    <!-- test: file NAME -->         write the block to this file; NAME.c is also compiled and run
    <!-- test: sql postgres -->      carry out the statements (or: mysql)
    <!-- test: unit NAME.service --> check the unit file with systemd-analyze
    <!-- test: yaml -->              parse the block as YAML
    <!-- test: terminal KEYS -->     run each command on a terminal, and type KEYS until it ends
    <!-- test: excerpt of FILE ... -->  each line of the block is in one of the files (comments aside)
    <!-- test: not run, REASON -->   the block can't run; the test counts and prints the reason
    <!-- rights: NAME -->            the tests of rights carry out the block (tests/lib/rights.py)

A file with several markers has one per line. The commands of a page run in one shell, from top to
bottom, so that variables and files of earlier blocks are there.
"""
import re

COMMANDS = ('console', 'cron')
PROGRAMS = ('c', 'sh', 'python')
PROSE = ('text', 'mermaid')  # neither commands nor programs


class Block:
    def __init__(self, page, line, language, text, markers):
        self.page, self.line, self.language, self.text = page, line, language, text
        self.markers = markers
        self.where = f'{page}:{line}'

    def marker(self, word):
        """The text after this word in a marker, or None."""
        for m in self.markers:
            if m == word or m.startswith((word + ' ', word + ', ')):
                return m[len(word):].lstrip(' ,')
        return None

    def commands(self):
        """(command, expected lines) of a console or cron block."""
        if self.language == 'cron':
            return [(c, []) for c in map(_cron_command, self.text.splitlines()) if c]
        return list(_console(self.text.splitlines()))


def _cron_command(line):
    line = line.strip()
    if not line or line.startswith('#'):
        return None
    if re.match(r'\w+=', line):
        return 'export ' + line
    return re.sub(r'^(@\w+|\S+(\s+\S+){4})\s+', '', line)


def _console(lines):
    at = 0
    while at < len(lines):
        if not lines[at].startswith('$ '):
            raise ValueError(f'output without a command: {lines[at]!r}')
        command = [lines[at][2:]]
        at += 1
        end = re.search(r"<<-?\s*'?(\w+)'?", command[0])
        while at < len(lines) and (command[-1].endswith('\\') or
                                   (end and command[-1].strip() != end[1])):
            command.append(lines[at])
            at += 1
        expected = []
        while at < len(lines) and not lines[at].startswith('$ '):
            expected.append(lines[at])
            at += 1
        yield '\n'.join(command), expected


def markdown(page, text):
    """The blocks of a Markdown page."""
    found, markers, start, language, body = [], [], 0, None, []
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r'\s*```\s*([\w+]*)', line)
        comment = re.fullmatch(r'\s*<!-- (?:test|(rights)): (.*?) -->', line)
        if language is not None:
            if fence:
                found.append(Block(page, start, language, _outdent(body), markers))
                language, markers = None, []
            else:
                body.append(line)
        elif fence:
            language, start, body = fence[1], number, []
        elif comment:
            markers = markers + [f'rights {comment[2]}' if comment[1] else comment[2]]
        elif line.strip():
            markers = []
    return found


def _outdent(lines):
    """Without the indentation of a fence inside a list."""
    least = min((len(x) - len(x.lstrip()) for x in lines if x.strip()), default=0)
    return '\n'.join(x[least:] for x in lines) + '\n'


def _unescape(line):
    line = re.sub(r'\\&', '', line)
    return line.replace('\\e', '\\').replace('\\-', '-')


def manual(page, text):
    """The blocks of a manual page's EXAMPLES."""
    found, markers, body, inside, start = [], [], None, False, 0
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.fullmatch(r'\.\\" test: (.*)', line)
        if line.startswith('.Sh '):
            inside = line == '.Sh EXAMPLES'
        elif comment:
            markers = markers + [comment[1]]
        elif not inside:
            continue
        elif line.startswith('.Dl '):
            found.append(_manual_block(page, number, _unescape(line[4:]), markers))
            markers = []
        elif line.startswith('.Bd '):
            body, start = [], number
        elif line.startswith('.Ed'):
            found.append(_manual_block(page, start, '\n'.join(body), markers))
            body, markers = None, []
        elif body is not None:
            body.append(_unescape(line))
    return found


def _manual_block(page, line, text, markers):
    if re.search(r';\s*$|#include', text, re.M):
        return Block(page, line, 'c', text + '\n', markers)
    commands = ''.join('$ ' + x + '\n' for x in text.splitlines() if x.strip())
    return Block(page, line, 'console', commands, markers)


def read(path, page):
    with open(path, encoding='utf-8') as f:
        text = f.read()
    return (markdown if path.endswith('.md') else manual)(page, text)
