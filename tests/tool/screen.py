# SPDX-License-Identifier: Apache-2.0
"""A real pseudo-terminal with a model of its screen, for cases about `pawl top` and the like.

The model is pyte's (Debian: python3-pyte), which understands the Linux console; hence TERM=linux.
"""
import fcntl
import html
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from tool import PATIENCE, TOOL

try:
    import pyte
except ImportError:  # this Python is not Debian's own; the packages are pure Python
    sys.path.append('/usr/lib/python3/dist-packages')
    import pyte

ENTER, ESCAPE, UP, DOWN, PAGE_DOWN, END = '\r', '\x1b', '\x1b[A', '\x1b[B', '\x1b[6~', '\x1b[4~'


class Screen(pyte.Screen):
    """After a character in the last column the cursor stays in that column, and a move to another line
    cancels the pending wrap, as on real terminals."""

    def cursor_to_line(self, line=None):
        super().cursor_to_line(line)
        self.ensure_hbounds()

    def cursor_up(self, count=None):
        super().cursor_up(count)
        self.ensure_hbounds()

    def cursor_down(self, count=None):
        super().cursor_down(count)
        self.ensure_hbounds()


COLOURS = {'default': '#d0d0d0', 'cyan': '#4ec9b0', 'brown': '#e5c07b', 'yellow': '#e5c07b',
           'white': '#ffffff', 'red': '#c5353d', 'black': '#16181d'}
CELL_WIDTH, CELL_HEIGHT = 8, 17


def _runs(screen, y):
    """Runs of neighbouring cells with the same style: (column, text, columns, style). Each word is a run
    of its own, so that a font whose wide characters are not two columns wide shifts only that word."""
    runs = []
    for x in range(screen.columns):
        cell = screen.buffer[y][x]
        style = (cell.fg, cell.bg, cell.bold, cell.reverse)
        if runs and runs[-1][3] == style and not (runs[-1][1].endswith(' ') and cell.data != ' '):
            column, text, _, _ = runs.pop()
            runs.append((column, text + cell.data, x + 1 - column, style))
        else:
            runs.append((x, cell.data, 1, style))
    return [r for r in runs if r[1].strip() or r[3][1] != 'default' or r[3][3]]


def svg(screen):
    """The screen as a picture: one text for each run, stretched to its columns."""
    width, height = screen.columns * CELL_WIDTH + 16, screen.lines * CELL_HEIGHT + 16
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'font-family="monospace" font-size="13">',
           f'<rect width="{width}" height="{height}" rx="6" fill="{COLOURS["black"]}"/>']
    for y in range(screen.lines):
        for column, text, columns, (fg, bg, bold, reverse) in _runs(screen, y):
            front, back = COLOURS.get(fg, '#d0d0d0'), COLOURS.get(bg) if bg != 'default' else None
            if reverse:
                front, back = back or COLOURS['black'], front
            x, w, top = 8 + column * CELL_WIDTH, columns * CELL_WIDTH, 8 + y * CELL_HEIGHT
            if back:
                out.append(f'<rect x="{x}" y="{top}" width="{w}" height="{CELL_HEIGHT}" fill="{back}"/>')
            if text.strip():
                out.append(f'<text x="{x}" y="{top + 13}" textLength="{w}" xml:space="preserve" '
                           f'fill="{front}"{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""}>'
                           f'{html.escape(text)}</text>')
    return '\n'.join(out + ['</svg>', ''])


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, box, *args, columns=80, lines=24, term='linux', env=None, command=None):
        self.master, self.slave = pty.openpty()
        self.screen = Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b''
        self._set_size(columns, lines)
        self.modes = termios.tcgetattr(self.slave)
        environment = {**box.env, 'TERM': term, 'LC_ALL': 'C.UTF-8', **(env or {})}
        self.process = subprocess.Popen(
            command or [TOOL, *args], stdin=self.slave, stdout=self.slave, stderr=self.slave,
            env=environment, cwd=box.dir, start_new_session=True, preexec_fn=self._control)
        box.started.append(self.process)

    def _control(self):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def _set_size(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack('HHHH', lines, columns, 0, 0))

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        self._set_size(columns, lines)  # the kernel sends SIGWINCH

    def feed(self, wait=0.02):
        """Put the output of the command so far on the screen."""
        while select.select([self.master], [], [], wait)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # no process has the terminal open any more
                return
            self.raw += data
            self.stream.feed(data)
            wait = 0

    def settle(self):
        """Wait until no output has come for a moment, because a screen may arrive in parts."""
        for _ in range(20):
            if not select.select([self.master], [], [], 0.1)[0]:
                return
            self.feed()

    def lines(self):
        self.feed()
        return [line.rstrip() for line in self.screen.display]

    def text(self):
        return '\n'.join(self.lines())

    def wait(self, what, predicate, patience=PATIENCE):
        """Wait until predicate(text of the screen) is true. Returns the text."""
        end = time.monotonic() + patience
        while True:
            if predicate(self.text()):
                self.settle()
            text = self.text()
            if predicate(text):
                return text
            if time.monotonic() > end:
                raise AssertionError(f'timed out waiting for {what}; the screen:\n{text}')
            if self.process.poll() is not None and not self._readable():
                text = self.text()
                if predicate(text):
                    return text
                raise AssertionError(f'ended before {what}; the screen:\n{text}')

    def check(self, assertions, patience=PATIENCE):
        """Wait until assertions() about the screen hold, because the words that a case waited for may
        arrive before the rest of the screen."""
        end = time.monotonic() + patience
        while True:
            try:
                return assertions()
            except AssertionError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
            self.feed()

    def _readable(self):
        return bool(select.select([self.master], [], [], 0)[0])

    def wait_for(self, *texts):
        return self.wait(' '.join(texts), lambda screen: all(t in screen for t in texts))

    def key(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """The exit status. The terminal's modes must be the same as before the command."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.feed()
            assert time.monotonic() < deadline, 'it does not end'
        self.feed()
        return self.process.returncode

    def restored(self):
        return termios.tcgetattr(self.slave) == self.modes

    def close(self):
        os.close(self.master)
        os.close(self.slave)
