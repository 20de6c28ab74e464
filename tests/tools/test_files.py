"""File tools on a real disk, with children killed around each moment."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rota.errors import (
    BadInput,
    NotSent,
    PayloadTooBig,
    Rejected,
    Transient,
    UsageError,
)
from rota.tools import (
    Applied,
    Call,
    FileAppend,
    FileList,
    FileRead,
    FileWrite,
    NotApplied,
    Safety,
    Unknown,
    files,
)
from rota.tools.paths import OpenFolder
from tests.tools.kit import CALL, child, settle

WRITE_MOMENTS = ["fsync-1", "file-before-rename", "file-after-rename", "fsync-2"]
APPEND_MOMENTS = [
    *("fsync-1", "fsync-2", "append-noted", "torn-1", "torn-7", "torn-12", "torn-30"),
    *("fsync-3", "append-written"),
]
TEXT = "first line\nsecond line"


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".rota")]


async def test_a_file_is_written_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    write = FileWrite(tmp_path)
    result = await write.call({"path": "deep/er/a.txt", "text": "hällo"}, CALL)
    assert (tmp_path / "deep/er/a.txt").read_text() == "hällo"
    assert result["path"] == "deep/er/a.txt"
    assert result["bytes"] == 6
    (tmp_path / "deep/er/a.txt").chmod(0o620)
    await write.call({"path": "deep/er/a.txt", "base64": "AAE="}, CALL)
    assert (tmp_path / "deep/er/a.txt").read_bytes() == b"\x00\x01"
    assert (tmp_path / "deep/er/a.txt").stat().st_mode & 0o777 == 0o620


@pytest.mark.parametrize("moment", WRITE_MOMENTS)
@pytest.mark.parametrize("mode", ["replace", "create"])
async def test_a_kill_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, moment: str, mode: str
) -> None:
    target = tmp_path / "a.txt"
    if mode == "replace":
        target.write_text("old")
    spec: dict[str, Any] = {
        "tool": "write",
        "args": [str(tmp_path)],
        "params": {"path": "a.txt", "text": "new", "mode": mode},
        "key": CALL.key,
        "moment": moment,
    }
    assert child.run(spec) == -signal.SIGKILL
    found = target.read_text() if target.exists() else None
    assert found in (("old" if mode == "replace" else None), "new")
    write = FileWrite(tmp_path)
    verdict = await write.reconcile(spec["params"], CALL)
    assert isinstance(verdict, Applied if found == "new" else NotApplied)
    await settle(write, spec["params"])
    assert target.read_text() == "new"
    assert left_over(tmp_path) == []


async def test_create_refuses_to_replace_but_not_to_be_asked_twice(tmp_path: Path) -> None:
    write = FileWrite(tmp_path)
    (tmp_path / "a").write_text("mine")
    with pytest.raises(Rejected, match="already"):
        await write.call({"path": "a", "text": "yours", "mode": "create"}, CALL)
    assert (tmp_path / "a").read_text() == "mine"
    await write.call({"path": "a", "text": "mine", "mode": "create"}, CALL)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("moment", APPEND_MOMENTS)
@pytest.mark.parametrize("before", ["", "earlier\n", "no newline at the end"])
async def test_a_torn_append_is_mended_and_happens_once(
    tmp_path: Path, moment: str, before: str
) -> None:
    target = tmp_path / "log.txt"
    target.write_text(before)
    spec: dict[str, Any] = {
        "tool": "append",
        "args": [str(tmp_path)],
        "params": {"path": "log.txt", "text": TEXT},
        "key": CALL.key,
        "moment": moment,
    }
    assert child.run(spec) == -signal.SIGKILL
    append = FileAppend(tmp_path)
    # Another writer comes first: it must not write behind a torn record.
    await append.call({"path": "log.txt", "text": "other"}, Call("key-2", 60))
    await settle(append, spec["params"])
    lines = target.read_text().splitlines()
    assert lines.count("first line") == 1
    assert sum(line.startswith("second line  # rota:") for line in lines) == 1
    assert sum(line.startswith("other") for line in lines) == 1
    assert target.read_text().startswith(before)
    assert len(lines) == 3 + (1 if before else 0)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("moment", APPEND_MOMENTS)
async def test_reconcile_after_a_kill_shows_the_truth(tmp_path: Path, moment: str) -> None:
    spec: dict[str, Any] = {
        "tool": "append",
        "args": [str(tmp_path)],
        "params": {"path": "log.jsonl", "json": {"a": 1}},
        "key": CALL.key,
        "moment": moment,
    }
    assert child.run(spec) == -signal.SIGKILL
    append = FileAppend(tmp_path)
    verdict = await append.reconcile(spec["params"], CALL)
    target = tmp_path / "log.jsonl"
    text = target.read_text() if target.exists() else ""
    assert isinstance(verdict, Applied if text else NotApplied)
    assert text == "" or (text.startswith('{"a":1,"rota_mark":"rota:') and text.endswith('"}\n'))


async def test_an_append_is_made_once_however_often_it_is_called(tmp_path: Path) -> None:
    append = FileAppend(tmp_path, line="- {text} <!-- {mark} -->")
    params = {"path": "notes.md", "text": "tea {mark}"}
    calls = [append.call(params, CALL) for _ in range(10)]
    results = await asyncio.gather(*calls)
    assert sorted(each["already"] for each in results) == [False] + [True] * 9
    [line] = (tmp_path / "notes.md").read_text().splitlines()
    assert line.startswith("- tea {mark} <!-- rota:")
    await append.call(params, Call("another", 60))
    assert len((tmp_path / "notes.md").read_text().splitlines()) == 2


async def test_what_a_stranger_wrote_behind_a_torn_record_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "log.txt"
    target.write_text("a\n")
    spec: dict[str, Any] = {
        "tool": "append",
        "args": [str(tmp_path)],
        "params": {"path": "log.txt", "text": TEXT},
        "key": CALL.key,
        "moment": "torn-7",
    }
    assert child.run(spec) == -signal.SIGKILL
    with target.open("a") as stranger:
        stranger.write("stranger\n")
    await settle(FileAppend(tmp_path), spec["params"])
    text = target.read_text()
    assert text.startswith("a\nfirst lstranger\nfirst line\nsecond line  # rota:")


async def test_an_append_waits_for_the_lock_and_gives_up_in_time(tmp_path: Path) -> None:
    target = tmp_path / "log.txt"
    target.touch()
    params = {"path": "log.txt", "text": "x"}
    with target.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(NotSent, match="locked by another process"):
            await FileAppend(tmp_path).call(params, Call("key-1", 0.1))
        verdict = await FileAppend(tmp_path).reconcile(params, Call("key-1", 0.1))
        assert isinstance(verdict, Unknown)
    await settle(FileAppend(tmp_path), params)
    assert len(target.read_text().splitlines()) == 1


async def test_a_full_disk_takes_nothing_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "log.txt"
    target.write_text("a\n")
    real = os.write

    def full(file: int, raw: bytes) -> int:
        if len(raw) > 5:
            return real(file, raw[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(NotSent, match="No space"):
            await FileAppend(tmp_path).call({"path": "log.txt", "text": "12345"}, CALL)
    assert target.read_text() == "a\n"


@pytest.mark.parametrize(
    "path", ["../out", "/etc/passwd", "", ".", "a/../../out", "link/x", "a\0b"]
)
async def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    (tmp_path / "x").write_text("private")
    for tool in (FileWrite(root), FileAppend(root)):
        with pytest.raises(BadInput):
            await tool.call({"path": path, "text": "x"}, CALL)
    with pytest.raises(BadInput):
        await FileRead(root).call({"path": path}, CALL)
    assert (tmp_path / "x").read_text() == "private"


@pytest.mark.parametrize("tool", [FileWrite, FileAppend])
async def test_a_path_that_cannot_be_is_refused(tmp_path: Path, tool: Any) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    for path in ("file/below", "folder", "n" * 300):
        with pytest.raises(Rejected):
            await tool(tmp_path).call({"path": path, "text": "x"}, CALL)
    for params in ({"path": "a"}, {"path": "a", "text": "x", "base64": "eA=="}, {"text": "x"}):
        with pytest.raises(BadInput):
            await tool(tmp_path).call(params, CALL)


def test_a_line_without_text_or_mark_is_refused(tmp_path: Path) -> None:
    for line in (
        "{text}",
        "{mark}",
        "{mark} {text}",
        "{text} {mark} {mark}",
        "{text} {text} {mark}",
    ):
        with pytest.raises(UsageError, match="cannot be used"):
            FileAppend(tmp_path, line=line)


async def test_files_are_read_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hällo")
    (tmp_path / "b.json").write_text('{"a": 1}')
    (tmp_path / "c.bin").write_bytes(b"\xff\x00")
    read = FileRead(tmp_path, bytes_max=100)
    assert (await read.call({"path": "a.txt"}, CALL))["text"] == "hällo"
    assert (await read.call({"path": "b.json", "kind": "json"}, CALL))["json"] == {"a": 1}
    assert (await read.call({"path": "c.bin"}, CALL))["base64"] == "/wA="
    for path, error in (("none", Rejected), ("a.txt/x", Rejected)):
        with pytest.raises(error):
            await read.call({"path": path}, CALL)
    with pytest.raises(Rejected, match="not JSON"):
        await read.call({"path": "a.txt", "kind": "json"}, CALL)
    (tmp_path / "big").write_text("x" * 101)
    with pytest.raises(PayloadTooBig):
        await read.call({"path": "big"}, CALL)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Rejected, match="not a file"):
        await read.call({"path": "pipe"}, CALL)


async def test_a_disk_that_does_not_answer_in_time_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Python that is a TimeoutError, but it is not that of the call."""

    def slow(*_: object) -> int:
        raise OSError(errno.ETIMEDOUT, "Connection timed out")

    (tmp_path / "a").write_text("text")
    monkeypatch.setattr(OpenFolder, "open", slow)
    with pytest.raises(NotSent) as raised:
        await FileRead(tmp_path).call({"path": "a"}, CALL)
    assert raised.value.message == f"{tmp_path / 'a'}: Connection timed out"


async def test_files_are_listed_by_a_pattern(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    for name in ("b.csv", "a.csv", "sub/c.csv", "d.txt", ".rota-x.tmp"):
        (root / name).write_text(name)
    (tmp_path / "private.csv").write_text("x")
    (root / "link.csv").symlink_to(tmp_path / "private.csv")
    listing = FileList(root)

    async def names(**params: Any) -> list[str]:
        return [each["path"] for each in await listing.call(params, CALL)]

    assert await names(glob="*.csv") == ["a.csv", "b.csv"]
    assert await names(glob="**/*.csv") == ["a.csv", "b.csv", "sub/c.csv"]
    assert await names() == ["a.csv", "b.csv", "d.txt"]
    assert await names(limit=1) == ["a.csv"]
    for bad in ({"glob": "../*"}, {"glob": "/etc/*"}, {"glob": ""}, {"limit": 0}):
        with pytest.raises(BadInput):
            await listing.call(bad, CALL)
    [first, *_] = await listing.call({}, CALL)
    assert first["bytes"] == 5
    assert first["modified_at"].endswith("Z")
    assert listing.safety is FileRead(root).safety is Safety.READ


async def test_a_listing_without_a_limit_has_all_files_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1_100):
        (tmp_path / f"{number}.csv").touch()
    listing = FileList(tmp_path)
    assert len(await listing.call({}, CALL)) == 1_100
    monkeypatch.setattr(files, "FILES_MAX", 1_099)
    with pytest.raises(Rejected, match="more than 1,099 files"):
        await listing.call({}, CALL)
    assert len(await listing.call({"limit": 1_099}, CALL)) == 1_099


async def test_a_listing_that_is_not_whole_in_time_fails(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number}.csv").touch()
    with pytest.raises(Transient, match="not listed within"):
        await FileList(tmp_path).call({}, Call("key", 0.0))


@pytest.mark.parametrize("before", ["", "earlier\n", "no newline at the end"])
async def test_a_whole_record_is_not_taken_for_a_torn_one(tmp_path: Path, before: str) -> None:
    """A writer that died between the record and the removal of its journal has written it."""
    target = tmp_path / "log.txt"
    target.write_text(before)
    spec: dict[str, Any] = {
        "tool": "append", "args": [str(tmp_path)], "key": CALL.key, "moment": "append-written",
        "params": {"path": "log.txt", "text": "tea"},
    }  # fmt: skip
    assert child.run(spec) == -signal.SIGKILL
    written = target.read_bytes()
    append = FileAppend(tmp_path)
    await append.call({"path": "log.txt", "text": "another"}, Call("key-2", 60))
    assert target.read_bytes().startswith(written)
    assert isinstance(await append.reconcile(spec["params"], CALL), Applied)
    assert (await append.call(spec["params"], CALL))["already"] is True
    assert target.read_text().count("tea") == 1
