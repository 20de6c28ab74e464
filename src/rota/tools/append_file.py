"""Appending to a file exactly once, even if a crash tears the write.

Each record carries a mark made of the key, by which it is found again. Before a record is written,
a small journal beside the file says where it will be. The next writer, under the lock of the file,
truncates a partial record of a killed one.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rota import faults
from rota.errors import BadInput, NotSent, OutcomeUnknown, UsageError
from rota.tools.base import Applied, Call, NotApplied, Safety, Tool, Unknown, Verdict, read_params
from rota.tools.paths import Folder, OpenFolder, disk_errors, mark_of
from rota.tools.threads import in_thread

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

LOCK_EVERY_S = 0.02
FIELD = "rota_mark"


class AppendParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of a FileAppend."""

    path: str
    text: str | None = None
    json: dict[str, Any] | None = None


class FileAppend(Tool):
    """Appends a record to a file below a folder, once for each key.

    `text` is written by the pattern `line`, which says where the mark is; `json` becomes one
    line with the mark as its last field. Idempotent, as long as the marks stay in the file.
    """

    safety = Safety.IDEMPOTENT

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        name: str = "file_append",
        line: str = "{text}  # {mark}",
    ) -> None:
        before, placeholder, after = line.partition("{text}")
        if not placeholder or "{text}" in after or "{mark}" in before or after.count("{mark}") != 1:
            raise UsageError(
                f"{name}: the line {line!r} cannot be used",
                hint="It needs {text} once and {mark} once, in this order.",
            )
        if fcntl is None:
            raise UsageError(f"{name} needs the file locks of a POSIX system")
        self.name = name
        self._before, self._after = before, after
        self._folder = Folder(root, tool=name)

    def read(self, params: dict[str, Any]) -> AppendParams:
        """The parameters, typed and checked."""
        values = read_params(AppendParams, params, tool=self.name)
        self._folder.path_of(values.path)
        if (values.text is None) == (values.json is None):
            raise BadInput(f"parameters of {self.name}: give text or json, one of them")
        return values

    async def perform(self, params: AppendParams, call: Call) -> Any:
        """Append, unless the mark is there already."""
        path, mark = self._folder.path_of(params.path), f"rota:{mark_of(call.key)}"
        record = self._record(params, mark)
        try:
            appended = await in_thread(
                lambda late: _append(self._folder, path, record, mark, late),
                timeout_s=call.timeout_s,
            )
        except TimeoutError as error:
            message = f"{path} was not appended to within {call.timeout_s:g} s"
            raise OutcomeUnknown(message, tool=self.name) from error
        return self._result(path, record) | {"already": not appended}

    async def look_up(self, params: AppendParams, call: Call) -> Verdict:
        """Fix what a killed writer left, then look for the mark."""
        path, mark = self._folder.path_of(params.path), f"rota:{mark_of(call.key)}"
        try:
            is_there = await in_thread(
                lambda late: _find(self._folder, path, mark, late), timeout_s=call.timeout_s
            )
        except (OSError, TimeoutError, NotSent) as error:
            return Unknown(f"{path} cannot be read: {error}")
        if not is_there:
            return NotApplied(f"{self._folder.name(path)} does not hold {mark}")
        return Applied(self._result(path, self._record(params, mark)) | {"already": True})

    def _record(self, params: AppendParams, mark: str) -> bytes:
        if params.json is not None:
            return msgspec.json.encode({**params.json, FIELD: mark}) + b"\n"
        after = self._after.replace("{mark}", mark)
        return f"{self._before}{params.text}{after}\n".encode()

    def _result(self, path: Path, record: bytes) -> dict[str, Any]:
        return {"path": self._folder.name(path), "bytes": len(record)}


class _Target(NamedTuple):
    """The file that is appended to, in its folder; the path is for people."""

    parent: OpenFolder
    path: Path

    @property
    def journal(self) -> str:
        name = hashlib.sha256(self.path.name.encode()).hexdigest()[:16]
        return f".rota-append-{name}"


def _append(folder: Folder, path: Path, record: bytes, mark: str, late: threading.Event) -> bool:
    """True if the record was appended, False if it was there."""
    with disk_errors(path), folder.opened(path, make=True) as parent:
        target = _Target(parent, path)
        with _locked(target, os.O_RDWR | os.O_CREAT | os.O_APPEND, late) as file:
            _repair(file, target)
            if _holds(file, mark):
                return False
            _write(file, target, record)
    return True


def _write(file: int, target: _Target, record: bytes) -> None:
    offset = os.fstat(file).st_size
    if offset and os.pread(file, 1, offset - 1) != b"\n":
        record = b"\n" + record
    _note(target, offset, record)
    faults.reach("append-noted")
    try:
        _all(file, record)
        os.fsync(file)
    except OSError as error:
        _undo(file, offset, target.path, error)
        raise
    faults.reach("append-written")
    with contextlib.suppress(OSError):  # a journal of a whole record does no harm
        target.parent.unlink(target.journal)


def _all(file: int, record: bytes) -> None:
    view = memoryview(record)
    while view:
        view = view[os.write(file, view) :]


def _undo(file: int, offset: int, path: Path, error: OSError) -> None:
    try:
        os.ftruncate(file, offset)
        os.fsync(file)
    except OSError as worse:
        message = f"{path}: {error}, and what was written cannot be taken back: {worse}"
        raise OutcomeUnknown(message) from worse


def _find(folder: Folder, path: Path, mark: str, late: threading.Event) -> bool:
    try:
        with folder.opened(path) as parent:
            target = _Target(parent, path)
            with _locked(target, os.O_RDWR | os.O_APPEND, late) as file:
                _repair(file, target)
                return _holds(file, mark)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _locked(target: _Target, flags: int, late: threading.Event) -> Iterator[int]:
    """The file under an exclusive lock; it is still the file that has the name."""
    while True:
        file = target.parent.open(target.path.name, flags)
        try:
            _lock(file, target.path, late)
            if _is_named(file, target):
                yield file
                return
        finally:
            os.close(file)  # and with it the lock


def _lock(file: int, path: Path, late: threading.Event) -> None:
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if late.wait(LOCK_EVERY_S):
                raise NotSent(f"{path} is locked by another process") from None
        else:
            if late.is_set():
                raise NotSent(f"{path} was not locked in time")
            return


def _is_named(file: int, target: _Target) -> bool:
    """False if the file was replaced or removed while we waited for its lock."""
    try:
        return os.path.samestat(os.fstat(file), target.parent.stat(target.path.name))
    except FileNotFoundError:
        return False


class _Note(msgspec.Struct):
    offset: int
    record: str


def _note(target: _Target, offset: int, record: bytes) -> None:
    parent, spare = target.parent, f"{target.journal}.tmp"
    parent.unlink(spare)  # left by a killed process; we hold the lock
    note = _Note(offset, base64.b64encode(record).decode())
    parent.create(spare, msgspec.json.encode(note))
    parent.replace(spare, target.journal)
    parent.sync()


def _repair(file: int, target: _Target) -> None:
    """Cut off a record of which only a part was written."""
    try:
        note = msgspec.json.decode(target.parent.read(target.journal), type=_Note)
    except (FileNotFoundError, msgspec.MsgspecError):
        return
    record = base64.b64decode(note.record)
    size = os.fstat(file).st_size
    tail = os.pread(file, len(record), note.offset)
    # Only a tail that is the start of the record may be cut: a log may have been rotated, or a
    # program without the lock may have written behind it.
    torn = note.offset + len(tail) == size and record.startswith(tail) and tail != record
    if tail and torn:
        os.ftruncate(file, note.offset)
        os.fsync(file)
    target.parent.unlink(target.journal)


def _holds(file: int, mark: str) -> bool:
    if os.fstat(file).st_size == 0:
        return False
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content:
        return content.rfind(mark.encode()) >= 0
