"""Files below one folder: which paths are meant, and what an error of the disk says."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

from rota.errors import BadInput, NeedsPermission, NotSent, Rejected, UsageError

_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_WRONG = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO),
}


class Folder:
    """The folder a tool may touch. No path leads out of it, not even through a link."""

    def __init__(self, root: str | os.PathLike[str], *, tool: str) -> None:
        self.root = Path(root).resolve()
        self.tool = tool
        if self.root.exists() and not self.root.is_dir():
            raise UsageError(f"{tool}: {root} is not a folder")

    def place(self, path: str) -> Path:
        """The file that `path` means, or BadInput."""
        try:
            found = (self.root / path).resolve()
        except (ValueError, OSError, RuntimeError) as error:
            raise BadInput(f"{self.tool}: {path!r} is not a path: {error}") from error
        if self.root not in found.parents:
            raise BadInput(
                f"{self.tool}: {path!r} is not below the folder of this tool",
                hint="Give a path relative to that folder.",
            )
        return found

    def name(self, place: Path) -> str:
        """The path as a person knows it: from the folder on."""
        return place.relative_to(self.root).as_posix()


def disk_error(error: OSError, what: str) -> Exception:
    """What an error means that came before the effect."""
    said = f"{what}: {error.strerror or error}"
    if error.errno in _FORBIDDEN:
        return NeedsPermission(said, service="file", account=None)
    if error.errno in _WRONG:
        return Rejected(said)
    return NotSent(said)  # a full disk, too many open files: it may pass


def mark_of(key: str) -> str:
    """A short name for a key that is safe in any file and any file name."""
    return hashlib.sha256(key.encode()).hexdigest()[:24]


def sync_folder(folder: Path) -> None:
    """Make a rename or a removal in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(place: Path, raw: bytes, mode: int | None = None) -> None:
    """Create a file that is not there, with all of this in it, on the disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(place, flags, 0o666), "wb") as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
