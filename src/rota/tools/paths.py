"""Files below one folder: which paths are allowed, and what an error of the disk means."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from rota.errors import BadInput, NeedsPermission, NotSent, Rejected, UsageError

_HANDLES = os.open in os.supports_dir_fd  # not on Windows
_NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: int = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_WRONG = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO),
}


class Folder:
    """The folder a tool may touch. Paths are confined to it; symlinks cannot escape it."""

    def __init__(self, root: str | os.PathLike[str], *, tool: str) -> None:
        self.root = Path(root).resolve()
        self.tool = tool
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{tool}: {root} is not a folder")

    def path_of(self, path: str) -> Path:
        """The file that `path` means, or BadInput. A file is named in one way: an id that is
        empty or `..` would make a path about another file."""
        parts = path.removeprefix("/").split("/")
        if not set(parts).isdisjoint(("", ".", "..")) or any(ord(char) < 32 for char in path):
            raise BadInput(
                f"{self.tool}: {path!r} does not name one file",
                hint="Give its path without empty parts and without dots as parts.",
            )
        try:
            resolved = (self.root / path).resolve()
        except (ValueError, OSError, RuntimeError) as error:
            raise BadInput(f"{self.tool}: {path!r} is not a path: {error}") from error
        if self.root not in resolved.parents:
            raise BadInput(
                f"{self.tool}: {path!r} is not below the folder of this tool",
                hint="Give a path relative to that folder.",
            )
        return resolved

    @contextlib.contextmanager
    def opened(self, path: Path, *, make: bool = False) -> Iterator[OpenFolder]:
        """The folder that holds the file at `path`. It is opened part by part, from the root and
        without following links: one that was put into the path meanwhile is not followed."""
        if make:
            self.root.mkdir(parents=True, exist_ok=True)
        if not _HANDLES:
            if make:
                path.parent.mkdir(parents=True, exist_ok=True)
            yield OpenFolder(path.parent, None)
            return
        handle = os.open(self.root, _FOLDER)
        try:
            for part in path.relative_to(self.root).parts[:-1]:
                inner = _enter(handle, part, make=make)
                os.close(handle)
                handle = inner
            yield OpenFolder(path.parent, handle)
        finally:
            os.close(handle)

    def name(self, path: Path) -> str:
        """The path as a person knows it: from the folder on. Bytes that are not UTF-8, which JSON
        cannot hold, are written as `\\xff`."""
        return os.fsencode(path.relative_to(self.root).as_posix()).decode(
            "utf-8", "backslashreplace"
        )


def _enter(handle: int, part: str, *, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, dir_fd=handle)
    return os.open(part, _FOLDER | _NO_LINK, dir_fd=handle)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Errors of the disk in here mean that nothing was changed."""
    try:
        yield
    except OSError as error:
        message = f"{path}: {error.strerror or error}"
        if error.errno in _FORBIDDEN:
            raise NeedsPermission(message, service="file", account=None) from error
        if error.errno in _WRONG:
            raise Rejected(message) from error
        raise NotSent(message) from error  # a full disk, too many open files: it may pass


def mark_of(key: str) -> str:
    """A short name for a key that is safe in any file and any file name."""
    return hashlib.sha256(key.encode()).hexdigest()[:24]


class OpenFolder:
    """A folder by its handle. Names in it are opened without following a link.

    If the system has no such handles (Windows), names are paths. Then a link that is put into the
    way at the right moment is followed."""

    def __init__(self, path: Path, handle: int | None) -> None:
        self._path = path
        self._handle = handle

    def open(self, name: str, flags: int) -> int:
        """A descriptor of a file."""
        return os.open(self._name(name), flags | _NO_LINK, 0o666, dir_fd=self._handle)

    def stat(self, name: str) -> os.stat_result:
        """The status of a name; of a link, not of its target."""
        return os.stat(self._name(name), dir_fd=self._handle, follow_symlinks=False)

    def names(self) -> list[str]:
        """All names in the folder."""
        return os.listdir(self._path if self._handle is None else self._handle)

    def unlink(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._name(name), dir_fd=self._handle)

    def replace(self, name: str, target: str) -> None:
        """Rename, over whatever has the new name."""
        here = self._handle
        os.replace(self._name(name), self._name(target), src_dir_fd=here, dst_dir_fd=here)

    def link(self, name: str, target: str) -> None:
        """Give a file a second name; unlike a rename, fails if there is one."""
        here = self._handle
        os.link(self._name(name), self._name(target), src_dir_fd=here, dst_dir_fd=here)

    def read(self, name: str) -> bytes:
        """The content of a file."""
        with open(self.open(name, os.O_RDONLY), "rb") as file:
            return file.read()

    def create(self, name: str, raw: bytes, mode: int | None = None) -> None:
        """Create a file that is not there, with all of this in it, on the disk."""
        with open(self.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())

    def sync(self) -> None:
        """Make a rename or a removal in the folder survive a power cut."""
        if self._handle is not None:
            os.fsync(self._handle)

    def _name(self, name: str) -> str:
        return name if self._handle is not None else str(self._path / name)
