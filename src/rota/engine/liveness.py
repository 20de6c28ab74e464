"""The identity of this process, and whether another one on this machine still lives.

A pid alone proves nothing: it may be reused, or belong to another container. So a worker is known
by machine, pid namespace, pid and the start time of the process.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path


def host() -> str:
    """This machine and pid namespace: the scope in which a pid is unique."""
    return f"{socket.gethostname()}/{_boot()}/{_namespace()}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return "-"


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "-"


def started(pid: int) -> str:
    """When a process started, as the kernel writes it; empty when unknown or gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The command may hold spaces and brackets, so count the fields after its closing bracket.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def lives(pid: int, pid_started: str) -> bool:
    """Whether exactly that process still runs. If this is unknown: yes, until its lease ends."""
    if pid_started:
        return started(pid) == pid_started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
