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


def resident_bytes() -> int:
    """The memory that this process has; on systems without /proc, the most that it had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def started(pid: int) -> str:
    """When a process started, as the kernel writes it; empty when unknown or gone."""
    state = _state(pid)
    return "" if not state or state[0] in ("Z", "X") else state[19]


def _state(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command name; empty if the file cannot be read.

    On Linux state Z is a zombie: a dead process that its parent has not reaped. Without an init, a
    container never reaps orphans.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return []
    # The command may hold spaces and brackets, so count the fields after its closing bracket.
    return stat.rpartition(")")[2].split()


def lives(pid: int, pid_started: str) -> bool:
    """Whether exactly that process still runs. If this is unknown: yes, until its lease ends."""
    return started(pid) == pid_started if pid_started else is_alive(pid)


def is_alive(pid: int) -> bool:
    """Whether a process of this machine lives; when in doubt, it does."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return _state(pid)[:1] != ["Z"]
