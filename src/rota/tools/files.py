"""File tools: write a whole file at once, read one, list many. `append.py` appends."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import heapq
import itertools
import operator
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from rota import faults
from rota.errors import BadInput, NotSent, OutcomeUnknown, PayloadTooBig, Rejected, Transient
from rota.tools.base import Applied, Call, NotApplied, Safety, Tool, Unknown, Verdict, read_params
from rota.tools.paths import Folder, OpenFolder, disk_errors, mark_of
from rota.tools.threads import in_thread

BYTES_MAX = 1024 * 1024
FILES_MAX = 10_000


class FileWriteParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of a FileWrite."""

    path: str
    text: str | None = None
    base64: str | None = None
    mode: Literal["replace", "create"] = "replace"

    def raw(self, tool: str) -> bytes:
        """The content as bytes."""
        if (self.text is None) == (self.base64 is None):
            raise BadInput(f"parameters of {tool}: give text or base64, one of them")
        if self.text is not None:
            return self.text.encode()
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise BadInput(f"parameters of {tool}: base64: {error}") from error


class FileWrite(Tool):
    """Writes a whole file below a folder: readers see the old one or the new one, never a part.

    Idempotent: the same content again is the same file. `mode="create"` refuses to replace.
    """

    safety = Safety.IDEMPOTENT

    def __init__(self, root: str | os.PathLike[str], *, name: str = "file_write") -> None:
        self.name = name
        self._folder = Folder(root, tool=name)

    def read(self, params: dict[str, Any]) -> FileWriteParams:
        """The parameters, typed and checked."""
        values = read_params(FileWriteParams, params, tool=self.name)
        self._folder.path_of(values.path)
        values.raw(self.name)
        return values

    async def perform(self, params: FileWriteParams, call: Call) -> Any:
        """Write beside it, then rename."""
        path, raw = self._folder.path_of(params.path), params.raw(self.name)

        def work(late: threading.Event) -> None:
            with disk_errors(path), self._folder.opened(path, make=True) as parent:
                mark = mark_of(call.key)
                _put(parent, path, raw, late, mark=mark, replace=params.mode == "replace")

        try:
            await in_thread(work, timeout_s=call.timeout_s)
        except TimeoutError as error:
            message = f"{path} was not written within {call.timeout_s:g} s"
            raise OutcomeUnknown(message, tool=self.name) from error
        return self._result(path, raw)

    async def look_up(self, params: FileWriteParams, call: Call) -> Verdict:
        """By content: the file is what was to be written, or it is not."""
        path, raw = self._folder.path_of(params.path), params.raw(self.name)

        def work(_late: threading.Event) -> bool:
            try:
                with self._folder.opened(path) as parent:
                    _sweep(parent, mark_of(call.key))
                    return _holds(parent, path.name, raw)
            except FileNotFoundError:
                return False

        try:
            same = await in_thread(work, timeout_s=call.timeout_s)
        except (OSError, TimeoutError) as error:
            return Unknown(f"{path} cannot be read: {error}")
        if same:
            return Applied(self._result(path, raw))
        return NotApplied(f"{self._folder.name(path)} does not have this content")

    def _result(self, path: Path, raw: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(raw).hexdigest()
        return {"path": self._folder.name(path), "bytes": len(raw), "sha256": digest}


def _put(
    parent: OpenFolder, path: Path, raw: bytes, late: threading.Event, *, mark: str, replace: bool
) -> None:
    spare = f".rota-{mark}-{secrets.token_hex(4)}.tmp"
    try:
        _sweep(parent, mark)
        parent.create(spare, raw, _mode(parent, path.name))
        faults.reach("file-before-rename")
        if late.is_set():
            raise NotSent(f"{path} was not written in time")
        _move(parent, spare, path, raw, replace=replace)
    finally:
        with contextlib.suppress(OSError):
            parent.unlink(spare)
    faults.reach("file-after-rename")
    try:
        parent.sync()
    except OSError as error:
        message = f"{path} was written, but may not survive a power cut: {error}"
        raise OutcomeUnknown(message) from error


def _move(parent: OpenFolder, spare: str, path: Path, raw: bytes, *, replace: bool) -> None:
    if replace:
        parent.replace(spare, path.name)
        return
    try:
        parent.link(spare, path.name)
    except FileExistsError:
        if not _holds(parent, path.name, raw):
            raise Rejected(f"{path} is there already, with another content") from None


def _mode(parent: OpenFolder, name: str) -> int | None:
    """The permissions of the file to be replaced; a new one gets what the umask leaves."""
    try:
        status = parent.stat(name)
    except FileNotFoundError:
        return None
    return None if stat.S_ISLNK(status.st_mode) else stat.S_IMODE(status.st_mode)


def _sweep(parent: OpenFolder, mark: str) -> None:
    """Remove what earlier calls of this effect left behind when they were killed."""
    for name in parent.names():
        if name.startswith(f".rota-{mark}-") and name.endswith(".tmp"):
            parent.unlink(name)


def _holds(parent: OpenFolder, name: str, raw: bytes) -> bool:
    try:
        return parent.stat(name).st_size == len(raw) and parent.read(name) == raw
    except FileNotFoundError:
        return False


class FileReadParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of a FileRead."""

    path: str
    kind: Literal["auto", "text", "json", "base64"] = "auto"


class FileRead(Tool):
    """Reads a file below a folder: text, JSON, or base64 for binary content."""

    safety = Safety.READ

    def __init__(
        self, root: str | os.PathLike[str], *, name: str = "file_read", bytes_max: int = BYTES_MAX
    ) -> None:
        self.name = name
        self._folder = Folder(root, tool=name)
        self._bytes_max = bytes_max

    def read(self, params: dict[str, Any]) -> FileReadParams:
        """The parameters, typed and checked."""
        values = read_params(FileReadParams, params, tool=self.name)
        self._folder.path_of(values.path)
        return values

    async def perform(self, params: FileReadParams, call: Call) -> Any:
        """The content, and enough to see later whether it changed."""
        path = self._folder.path_of(params.path)
        try:
            raw, facts = await in_thread(lambda _: self._read(path), timeout_s=call.timeout_s)
        except TimeoutError as error:
            raise Transient(f"{path} was not read within {call.timeout_s:g} s") from error
        digest = hashlib.sha256(raw).hexdigest()
        return facts | {"sha256": digest} | _content(raw, params.kind, str(path))

    def _read(self, path: Path) -> tuple[bytes, dict[str, Any]]:
        with disk_errors(path), self._folder.opened(path) as parent:
            if not stat.S_ISREG(parent.stat(path.name).st_mode):
                raise Rejected(f"{path} is not a file")  # to open a pipe is to wait for its end
            with open(parent.open(path.name, os.O_RDONLY), "rb") as file:
                raw = file.read(self._bytes_max + 1)
                facts = _facts(self._folder.name(path), os.fstat(file.fileno()))
        if len(raw) > self._bytes_max:
            raise PayloadTooBig(
                f"{path} has more than {self._bytes_max:,} bytes",
                hint="Raise bytes_max of the tool, or pass on the path instead of the content.",
                bytes_max=self._bytes_max,
            )
        return raw, facts


class ListParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of a FileList."""

    glob: str = "*"
    limit: int | None = None


class FileList(Tool):
    """Lists files below a folder by a pattern (`*.csv`, `**/*.md`), in the order of their names."""

    safety = Safety.READ

    def __init__(self, root: str | os.PathLike[str], *, name: str = "file_list") -> None:
        self.name = name
        self._folder = Folder(root, tool=name)

    def read(self, params: dict[str, Any]) -> ListParams:
        """The parameters, typed and checked."""
        values = read_params(ListParams, params, tool=self.name)
        if not values.glob or values.glob.startswith("/") or ".." in Path(values.glob).parts:
            raise BadInput(f"parameters of {self.name}: {values.glob!r} leads out of the folder")
        if values.limit is not None and not 1 <= values.limit <= FILES_MAX:
            raise BadInput(f"parameters of {self.name}: limit is 1 to {FILES_MAX:,}")
        return values

    async def perform(self, params: ListParams, call: Call) -> Any:
        """Path, size and time of each; files that Rota is writing are skipped."""
        try:
            return await in_thread(lambda late: self._list(params, late), timeout_s=call.timeout_s)
        except TimeoutError as error:
            message = f"{params.glob} was not listed within {call.timeout_s:g} s"
            raise Transient(message) from error
        except (OSError, ValueError) as error:
            raise Rejected(f"{params.glob!r} cannot be listed: {error}") from error

    def _list(self, params: ListParams, late: threading.Event) -> list[dict[str, Any]]:
        files, name = self._each(params.glob, late), operator.itemgetter("path")
        if params.limit is not None:
            return heapq.nsmallest(params.limit, files, key=name)
        listed = list(itertools.islice(files, FILES_MAX + 1))
        if len(listed) > FILES_MAX:
            raise Rejected(
                f"{params.glob!r} fits more than {FILES_MAX:,} files",
                hint="Narrow the pattern, or give a limit to get the first ones.",
            )
        return sorted(listed, key=name)

    def _each(self, glob: str, late: threading.Event) -> Iterator[dict[str, Any]]:
        for path in self._folder.root.glob(glob):
            if late.is_set():
                raise TimeoutError("a part of the files is not a listing")
            if path.name.startswith(".rota-"):
                continue
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # gone meanwhile
                seen = self._seen(path.resolve())
                if seen is not None:
                    yield _facts(self._folder.name(path), seen)

    def _seen(self, real: Path) -> os.stat_result | None:
        """The status of a file, if it is one and lies inside of the folder."""
        if self._folder.root not in real.parents:
            return None
        with self._folder.opened(real) as parent:
            status = parent.stat(real.name)
        return status if stat.S_ISREG(status.st_mode) else None


def _facts(name: str, status: os.stat_result) -> dict[str, Any]:
    modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="microseconds")
    return {"path": name, "bytes": status.st_size, "modified_at": modified.replace("+00:00", "Z")}


def _content(raw: bytes, kind: str, path: str) -> dict[str, Any]:
    if kind == "json":
        try:
            return {"json": msgspec.json.decode(raw)}
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Rejected(f"{path} is not JSON: {error}") from error
    if kind != "base64":
        try:
            return {"text": raw.decode("utf-8", "replace" if kind == "text" else "strict")}
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(raw).decode()}
