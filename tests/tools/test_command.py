"""Commands: real ones, with their exits, their children and their silence."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.errors import (
    BadInput,
    NeedsLogin,
    NeedsPermission,
    NotSent,
    OutcomeUnknown,
    Rejected,
    UsageError,
)
from rota.tools import Applied, Call, Command, NotApplied, Safety, Unknown, secret
from tests.kit.process_trees import PARENT, given_up, gone, until
from tests.kit.sampling import sample
from tests.tools.kit import CALL, PERSON, settle

QUICK = Call("key-1", 2.0)
# Adds a line to a file, unless it has to fail before or after; used up one fault a time.
ADD = """
fault=$(head -n 1 faults 2>/dev/null); sed -i 1d faults 2>/dev/null
case "$fault" in before) exit 9;; killed) kill -9 $$;; temporary) exit 75;; esac
if [ "$1" != once ] || ! grep -q "$ROTA_KEY" effects 2>/dev/null
then echo "$ROTA_KEY" >> effects; fi
case "$fault" in after) exit 9;; after-killed) kill -9 $$;; esac
"""
LOOK = '[ -f effects ] || exit 1; grep "$ROTA_KEY" effects'
FAULTS = ["before", "after", "killed", "after-killed", "temporary"]
PAIRS = list(itertools.product(FAULTS, repeat=2))


def shell(script: str, *args: str, **options: Any) -> Command:
    return Command(["sh", "-c", script, "sh", *args], **options)


def effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


async def test_arguments_and_input_reach_the_program_and_no_shell() -> None:
    echo = Command([sys.executable, "-c", "import sys; print(sys.argv[1:], sys.stdin.read())"])
    result = await echo.call({"args": ["a b", "$HOME; rm -rf x"], "stdin": "hällo"}, CALL)
    assert result == {"exit": 0, "stdout": "['a b', '$HOME; rm -rf x'] hällo\n"}


@pytest.mark.parametrize(
    ("code", "meaning", "error"),
    [
        (1, None, OutcomeUnknown),
        (2, "rejected", Rejected),
        (3, "not_sent", NotSent),
        (4, "login", NeedsLogin),
        (5, "permission", NeedsPermission),
        (6, "unknown", OutcomeUnknown),
    ],
)
async def test_each_exit_means_what_it_is_said_to_mean(
    code: int, meaning: str | None, error: type[Exception]
) -> None:
    exits = {code: meaning} if meaning else {}
    with pytest.raises(error, match="oh no") as raised:
        await shell(f"echo oh no >&2; exit {code}", exits=exits).call({}, CALL)
    assert type(raised.value) is error
    assert (await shell("exit 7", exits={7: "applied"}).call({}, CALL))["exit"] == 7


async def test_a_read_that_fails_is_rejected_not_unknown() -> None:
    with pytest.raises(Rejected):
        await shell("exit 1", safety="read").call({}, CALL)
    with pytest.raises(NotSent):
        await shell("sleep 60", safety="read").call({}, Call("k", 0.1))


async def test_a_program_that_is_not_there_or_may_not_run_had_no_effect(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="not found"):
        await Command(["no-such-program-anywhere"]).call({}, CALL)
    (tmp_path / "plain").write_text("x")
    with pytest.raises(NeedsPermission):
        await Command([str(tmp_path / "plain")]).call({}, CALL)
    with pytest.raises(Rejected):
        await Command(["true"], cwd=tmp_path / "none").call({}, CALL)


@pytest.mark.wall_clock("the programs must begin within the seconds that the call has")
async def test_a_timeout_kills_the_program_and_its_children(tmp_path: Path) -> None:
    script = "sh -c 'echo $$ > child; exec sleep 600' & echo $$ > parent; wait"
    with pytest.raises(OutcomeUnknown, match="was killed"):
        await shell(script, cwd=tmp_path).call({}, QUICK)
    pids = [int((tmp_path / name).read_text()) for name in ("child", "parent")]
    await until(lambda: all(map(gone, pids)))


async def test_a_cancelled_call_kills_the_program(tmp_path: Path) -> None:
    call = asyncio.create_task(
        shell("echo $$ > pid; exec sleep 600", cwd=tmp_path).call({}, Call("k", 60))
    )
    await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert gone(int((tmp_path / "pid").read_text()))


async def test_a_call_given_up_while_its_program_starts_leaves_nothing(tmp_path: Path) -> None:
    """The program may have children before we know that it runs."""
    parent = shell(PARENT, cwd=tmp_path)
    await given_up(lambda: parent.call({}, Call("k", 60)), tmp_path, forks=12)


async def test_a_child_left_behind_does_not_keep_us_waiting(tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > pid; echo done"
    result = await shell(script, cwd=tmp_path).call({}, CALL)
    assert result["stdout"] == "done\n"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


async def test_a_flood_is_cut_and_does_not_block() -> None:
    flood = Command([sys.executable, "-c", "print('x' * 5_000_000)"], bytes_max=1000)
    assert (await flood.call({"stdin": "y" * 1_000_000}, CALL))["stdout"] == "x" * 1000


async def test_the_environment_is_small_and_secrets_are_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-value")
    monkeypatch.setenv("ANOTHER_TOKEN", "other-secret")
    monkeypatch.setenv("WANTED", "yes")
    dump = shell("env", env={"TOKEN": secret("THE_TOKEN"), "PLAIN": "p"}, pass_env=["WANTED"])
    said = (await dump.call({}, CALL))["stdout"]
    assert "TOKEN=<THE_TOKEN>" in said
    assert "PLAIN=p" in said
    assert "WANTED=yes" in said
    assert "ROTA_KEY=key-1" in said
    assert "other-secret" not in said
    with pytest.raises(OutcomeUnknown) as raised:
        await shell("echo $T >&2; exit 1", env={"T": secret("THE_TOKEN")}).call({}, CALL)
    assert "s3cr3t" not in str(raised.value)
    with pytest.raises(NeedsLogin):
        await shell("true", env={"T": secret("NOT_SET_ANYWHERE")}).call({}, CALL)


@pytest.mark.parametrize("faults", sample(PAIRS, "exactly once"))
@pytest.mark.parametrize("kind", ["idempotent", "reconcilable"])
async def test_the_effect_happens_exactly_once_after_any_two_faults(
    tmp_path: Path, kind: str, faults: tuple[str, ...]
) -> None:
    (tmp_path / "faults").write_text("\n".join(faults) + "\n")
    exits = {75: "not_sent"}
    if kind == "idempotent":
        add = shell(ADD, "once", safety=kind, exits=exits, cwd=tmp_path)
    else:
        add = shell(ADD, exits=exits, cwd=tmp_path, lookup=["sh", "-c", LOOK])
    await settle(add, {})
    assert effects(tmp_path) == ["key-1"]


@pytest.mark.parametrize("faults", sample(PAIRS, "never twice"))
async def test_an_unknowable_effect_never_happens_twice(
    tmp_path: Path, faults: tuple[str, ...]
) -> None:
    (tmp_path / "faults").write_text("\n".join(faults) + "\n")
    ended = await settle(shell(ADD, exits={75: "not_sent"}, cwd=tmp_path), {})
    assert len(effects(tmp_path)) <= 1
    assert ended == PERSON or effects(tmp_path) == ["key-1"]


async def test_a_lookup_gives_all_three_verdicts(tmp_path: Path) -> None:
    verdicts = [
        type(await shell("true", lookup=["sh", "-c", f"exit {code}"]).reconcile({}, CALL))
        for code in (0, 1, 2)
    ]
    assert verdicts == [Applied, NotApplied, Unknown]
    missing = shell("true", lookup=["no-such-program-anywhere"])
    assert isinstance(await missing.reconcile({}, CALL), Unknown)
    slow = shell("true", lookup=["sleep", "60"])
    assert isinstance(await slow.reconcile({}, Call("k", 0.1)), Unknown)
    assert isinstance(await shell("true").reconcile({}, CALL), Unknown)


def test_a_bad_declaration_is_refused() -> None:
    for argv in ("git push", [], ["git", 1], ["git\0", "push"]):
        with pytest.raises(UsageError, match="list of arguments"):
            Command(argv)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="list of arguments"):
            Command(["true"], lookup=argv or "git log")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="needs lookup"):
        Command(["true"], safety="reconcilable")
    with pytest.raises(UsageError, match="cannot mean"):
        Command(["true"], exits={1: "fine"})
    with pytest.raises(UsageError, match="kind of replay safety"):
        Command(["true"], safety="maybe")
    assert Command(["true"]).safety is Safety.UNKNOWABLE
    bads: list[dict[str, Any]] = [{"args": "x"}, {"args": ["a\0b"]}, {"argv": []}]
    for bad in bads:
        with pytest.raises(BadInput):
            Command(["true"]).check(bad)
