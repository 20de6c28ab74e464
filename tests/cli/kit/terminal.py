"""A command on a real terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
from pathlib import Path


def on_terminal(folder: Path, *words: str, columns: int = 100) -> str:
    """The output of `rota` when stdout is a terminal of that width."""
    pid, screen = pty.fork()
    if pid == 0:  # pragma: no cover
        size = struct.pack("HHHH", 40, columns, 0, 0)
        fcntl.ioctl(1, termios.TIOCSWINSZ, size)
        os.chdir(folder)
        environ = {**os.environ, "TERM": "xterm-256color"}
        environ.pop("NO_COLOR", None)
        os.execve(sys.executable, [sys.executable, "-m", "rota", *words], environ)
    shown = b""
    while True:
        try:
            part = os.read(screen, 65536)
        except OSError:  # Linux says so when the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(screen)
    os.waitpid(pid, 0)
    return shown.decode()
