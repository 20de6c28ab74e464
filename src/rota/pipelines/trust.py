"""Which pipelines may execute: those of the project itself, and folders that a person confirmed.

A pipeline.yaml is code: it names commands, and a schedule runs them unattended. A folder from
elsewhere runs neither until `rota pipeline trust` has recorded its digest. The record lies in the
user's own data folder, never in the folder it is about.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rota.errors import BadInput, NotTrusted
from rota.pipelines.definition.compiler import graph_of
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.nodes import ScriptNode
from rota.pipelines.definition.sources import CommandSource
from rota.pipelines.files import RESULTS, write_whole

FILES_MAX = 2000
BYTES_MAX = 64 * 1024 * 1024
# Files that Rota writes beside a pipeline.
_OWN_FILES = (".schedule-state", ".scheduler.lock", ".rota.db")
# Tables change from run to run, and nothing executes them.
_DATA = (".csv", ".tsv", ".jsonl", ".log", ".xlsx", ".parquet", ".sqlite", ".db")


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a person's trust: a folder, and the digest of its files at that time."""

    folder: str
    digest: str


class TrustedFolder(NamedTuple):
    """A recorded folder, and whether its files are still those that were confirmed."""

    folder: Path
    is_unchanged: bool


class Trust:
    """The trusted folders: those inside `project`, and those that a person has confirmed."""

    def __init__(self, project: Path, records: Path | None = None) -> None:
        self._project = project.resolve()
        self._records = records or records_folder()

    # -- checks ----------------------------------------------------------------------------

    def check_run(self, pipeline: Pipeline, folder: Path, *, is_scheduled: bool = False) -> None:
        """NotTrusted if a run would execute commands of a folder that is not trusted."""
        commands = commands_of(pipeline, is_scheduled=is_scheduled)
        if commands and not self.allows(folder):
            raise self.refusal(folder, f"it runs `{commands[0]}`")

    def allows(self, folder: Path) -> bool:
        """Whether commands and schedules of a pipeline's folder may run."""
        resolved = folder.resolve()
        return _belongs_to(resolved, self._project) or self._is_unchanged(resolved)

    def refusal(self, folder: Path, why: str) -> NotTrusted:
        """The error for a folder that is not trusted; `why` names what would execute."""
        known = self._read(self.record_file(folder)) is not None
        what = "has changed since it was trusted" if known else "is not trusted"
        return NotTrusted(
            f"{folder.resolve()} {what}: it is not part of {self._project}, and {why}",
            hint=f"Read its files, then run `rota pipeline trust {folder}`.",
        )

    def _is_unchanged(self, folder: Path) -> bool:
        record = self._read(self.record_file(folder))
        if record is None or record.folder != str(folder):
            return False
        try:
            return record.digest == digest_of(folder)
        except BadInput:
            return False

    # -- records ---------------------------------------------------------------------------

    def add(self, folder: Path) -> None:
        """Record that a person has read the files of a folder and trusts them as they are."""
        resolved = folder.resolve()
        record = TrustRecord(folder=str(resolved), digest=digest_of(resolved))
        file = self.record_file(resolved)
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(file, [msgspec.json.encode(record).decode()], mode=0o600)

    def remove(self, folder: Path) -> bool:
        """Withdraw the trust in a folder; False if there was none."""
        file = self.record_file(folder)
        was_there = file.exists()
        file.unlink(missing_ok=True)
        return was_there

    def recorded(self) -> list[TrustedFolder]:
        """Every folder that a person has confirmed."""
        records = [self._read(file) for file in sorted(self._records.glob("*.json"))]
        places = sorted(Path(record.folder) for record in records if record is not None)
        return [TrustedFolder(folder, self._is_unchanged(folder)) for folder in places]

    def record_file(self, folder: Path) -> Path:
        """The file with the record of a folder, whether there is one or not."""
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]
        return self._records / f"{name}.json"

    @staticmethod
    def _read(file: Path) -> TrustRecord | None:
        try:
            return msgspec.json.decode(file.read_bytes(), type=TrustRecord)
        except (OSError, msgspec.DecodeError):
            return None


def records_folder() -> Path:
    """The place of the trust records: the data folder of the user."""
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser() / "rota" / "trusted"


def commands_of(pipeline: Pipeline, *, is_scheduled: bool) -> list[str]:
    """The command lines that a run of the pipeline executes."""
    parts = [*pipeline.sources, *graph_of(pipeline).values()]
    commands = [each.run for each in parts if isinstance(each, CommandSource | ScriptNode)]
    condition = pipeline.schedule.condition if pipeline.schedule and is_scheduled else None
    return [*commands, condition.command] if condition and condition.command else commands


def _belongs_to(folder: Path, root: Path) -> bool:
    """Whether a folder is part of a project: inside it, not a repository of its own, and owned by
    its owner, by this user or by root."""
    if not folder.is_relative_to(root):
        return False
    inner = [
        each for each in (folder, *folder.parents) if each != root and each.is_relative_to(root)
    ]
    if any((each / ".git").exists() for each in inner):
        return False
    if not hasattr(os, "getuid"):
        return True
    try:
        return folder.stat().st_uid in (0, os.getuid(), root.stat().st_uid)
    except OSError:
        return False


# -- the digest ------------------------------------------------------------------------------


def digest_of(folder: Path) -> str:
    """The digest of the folder's files, without tables of data and what Rota writes there."""
    digest = hashlib.sha256()
    size = 0
    for count, file in enumerate(_files(folder), start=1):
        try:
            content = os.readlink(file).encode() if file.is_dir() else file.read_bytes()
        except OSError as error:
            raise BadInput(f"{file} cannot be read: {error.strerror}") from error
        size += len(content)
        if count > FILES_MAX or size > BYTES_MAX:
            raise BadInput(
                f"{folder} holds more than {FILES_MAX} files or {BYTES_MAX >> 20} MB",
                hint="Keep other files outside of the pipeline's folder: trust covers all files.",
            )
        mode = b"x" if os.access(file, os.X_OK) else b"-"
        for piece in (mode + os.fsencode(file.relative_to(folder)), content):
            digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """The files that count, and links to folders, which are not followed."""
    for parent, names, files in os.walk(folder):
        links = [name for name in names if (Path(parent) / name).is_symlink()]
        names[:] = sorted(name for name in names if name not in (RESULTS, ".git"))
        for name in sorted(files + links):
            file = Path(parent) / name
            is_data = file.suffix in _DATA and not os.access(file, os.X_OK)
            counts = not is_data and not name.startswith(_OWN_FILES)
            if counts and (file.is_file() or file.is_dir()):
                yield file
