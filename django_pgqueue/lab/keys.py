"""One key press, for `--step`."""

from __future__ import annotations

import sys

try:
    import termios
    import tty
except ImportError:  # no terminals of this kind: a line is read instead
    termios = tty = None  # type: ignore[assignment]


def wait_for_key() -> None:
    """Wait for a key, or for a line where the input is no terminal. Ctrl-C interrupts."""
    if termios is None or not sys.stdin.isatty():
        sys.stdin.readline()
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        sys.stdin.read(1)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
