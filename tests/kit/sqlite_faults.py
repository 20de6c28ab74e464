"""Disk errors for SQLite: a VFS that fails where a test says, and a real limit on file size."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from typing import Any

import apsw


def io_error(code: int) -> apsw.IOError:
    """The exception of apsw for one of SQLite's codes of disk errors."""
    error = apsw.IOError("disk I/O error")
    error.__dict__["extendedresult"] = code
    return error


class Fault:
    """The answer of the next operation on a file with this ending, while it is set."""

    def __init__(self) -> None:
        self.ending: str | None = None
        self.operation = "xWrite"
        self.code = apsw.SQLITE_IOERR_WRITE
        self.errno = 0

    def reach(self, name: str, operation: str) -> None:
        """Fail here, if this is the place."""
        if self.ending is not None and name.endswith(self.ending) and operation == self.operation:
            raise io_error(self.code)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], fault: Fault) -> None:
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        self._fault = fault
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        """Write, or fail."""
        self._fault.reach(self._name, "xWrite")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Sync, or fail."""
        self._fault.reach(self._name, "xSync")
        super().xSync(flags)


class _FaultyVfs(apsw.VFS):
    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        super().__init__("faulty", "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        """A file that may fail."""
        return _FaultyFile(name, flags, self._fault)

    def xGetLastError(self) -> tuple[int, str]:  # noqa: N802
        """The system's error number, as the file system would give it."""
        return self._fault.errno, ""


@contextlib.contextmanager
def faulty_disk() -> Iterator[Fault]:
    """Connections opened meanwhile go through a VFS with writes that fail as the fault says."""
    fault = Fault()
    vfs = _FaultyVfs(fault)
    apsw.set_default_vfs("faulty")
    try:
        yield fault
    finally:
        apsw.set_default_vfs("unix")
        vfs.unregister()


@contextlib.contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """The system refuses this process every write beyond `size`, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
