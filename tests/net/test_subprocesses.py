"""Programs that we start: nothing is left of one that no caller waits for any more."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rota.errors import NeedsPermission, Rejected
from rota.net.subprocesses import (
    Child,
    ExitStatus,
    OutputPipe,
    kill,
    read_outputs,
    start,
    write_stdin,
)
from tests.kit.process_trees import PARENT, given_up


async def run(*argv: str, stdin: bytes = b"", cwd: Path | None = None) -> ExitStatus:
    with OutputPipe(100) as out, OutputPipe(100) as err:
        child = await start(argv, out, err, env=os.environ, cwd=cwd)
        try:
            code = await write_stdin(child, stdin)
        finally:
            await kill(child)
        await read_outputs(out, err)
    return ExitStatus(code, out.text(), err.text())


async def test_a_program_is_fed_and_read() -> None:
    assert await run("sh", "-c", "cat; echo no >&2; exit 3", stdin=b"yes") == (3, "yes", "no\n")


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_who_gives_up_and_insists_leaves_nothing_either(tmp_path: Path, times: int) -> None:
    await given_up(lambda: run("sh", "-c", PARENT, cwd=tmp_path), tmp_path, forks=6, times=times)


async def test_a_start_that_fails_after_it_was_given_up_is_no_trouble() -> None:
    failing = asyncio.create_task(run("no-such-program-anywhere"))
    await asyncio.sleep(0)
    failing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await failing


async def test_what_keeps_a_program_from_starting_is_reported(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(NeedsPermission, match="may not be run"):
        await run(str(tmp_path / "plain"))
    with pytest.raises(Rejected, match="none was not found"):
        await run("true", cwd=tmp_path / "none")
    with pytest.raises(ValueError, match="null byte"):
        await run("echo", "a\0b")


async def test_to_kill_what_has_ended_changes_nothing() -> None:
    with OutputPipe(10) as out, OutputPipe(10) as err:
        child: Child = await start(["true"], out, err, env=os.environ, cwd=None)
        assert await write_stdin(child, b"") == 0
        await kill(child)
    assert child.returncode == 0


async def test_an_output_pipe_keeps_the_first_part_and_says_that_there_was_more() -> None:
    with OutputPipe(3) as out, OutputPipe(4) as err:
        child = await start(
            ["sh", "-c", "printf abcd; printf abcd >&2"], out, err, env=os.environ, cwd=None
        )
        await write_stdin(child, b"")
        await read_outputs(out, err)
        assert (out.text(), out.full.is_set()) == ("abc", True)
        assert (err.text(), err.full.is_set()) == ("abcd", False)


def test_an_end_is_reported_in_words() -> None:
    assert ExitStatus(0, "", "").end_text("git") == "git ended with exit 0"
    assert ExitStatus(-9, "out", "").end_text("git") == "git ended with signal 9: out"
    assert ExitStatus(1, "out", " err\n").end_text("git") == "git ended with exit 1: err"
