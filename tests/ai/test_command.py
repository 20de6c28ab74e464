"""Programs as models: real ones, with their exits, their children and their silence."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rota.ai import CommandInvoker, Request
from rota.errors import (
    BadSetting,
    NeedsLogin,
    NeedsPermission,
    Rejected,
    RotaError,
    Transient,
    UsageError,
)
from tests.kit.process_trees import PARENT, given_up, gone, until

ASK = Request("tiny", "Grüße\nfrom $HOME", timeout_s=20)
ENV = {"PATH": os.environ["PATH"], "MY_KEY": "sk-very-secret", "OTHER": "not passed on"}


def shell(script: str, *args: str, **options: Any) -> CommandInvoker:
    return CommandInvoker(["sh", "-c", script, "sh", *args], env=ENV, **options)


async def test_the_prompt_goes_in_and_the_answer_comes_out() -> None:
    reply = await CommandInvoker(["cat"]).ask(ASK)
    assert (reply.text, reply.model, reply.finish) == (ASK.prompt, "tiny", "stop")
    assert reply.guessed
    assert reply.cost_usd is None


async def test_model_and_system_go_where_there_is_a_place_for_them() -> None:
    request = Request("{system}", "Ask.", system="Be {model}.", timeout_s=20)
    placed = await shell('echo "$1|$2|$(cat)"', "m={model}", "{system}").ask(request)
    assert placed.text == "m={system}|Be {model}.|Ask."
    bare = await shell("cat").ask(request)
    assert bare.text == "Be {model}.\n\nAsk."


@pytest.mark.parametrize(
    ("code", "meaning", "kind"),
    [
        (1, None, Rejected),
        (69, None, Transient),
        (75, None, Transient),
        (77, None, NeedsPermission),
        (4, "login", NeedsLogin),
        (5, "transient", Transient),
        (6, "permission", NeedsPermission),
        (75, "rejected", Rejected),
    ],
)
async def test_each_exit_means_what_it_is_said_to_mean(
    code: int, meaning: str | None, kind: type[RotaError]
) -> None:
    exits = {code: meaning} if meaning else {}
    with pytest.raises(kind, match=f"exit {code}: oh no") as raised:
        await shell(f"echo half an answer; echo oh no >&2; exit {code}", exits=exits).ask(ASK)
    assert type(raised.value) is kind
    assert (await shell("echo fine; exit 7", exits={7: "ok"}).ask(ASK)).text == "fine"


async def test_a_program_that_is_killed_is_worth_another_try() -> None:
    with pytest.raises(Transient, match="signal 9"):
        await shell("kill -9 $$").ask(ASK)


async def test_only_what_is_named_is_passed_on_and_never_shown() -> None:
    reply = await shell('echo "$MY_KEY/$OTHER"', pass_env=["MY_KEY"]).ask(ASK)
    assert reply.text == "<MY_KEY>/"
    with pytest.raises(NeedsLogin, match="NO_SUCH_KEY"):
        await shell("true", pass_env=["NO_SUCH_KEY"]).ask(ASK)


async def test_a_program_that_is_not_there_or_may_not_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="was not found"):
        await CommandInvoker([str(tmp_path / "nothing")]).ask(ASK)
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(NeedsPermission, match="may not be run"):
        await CommandInvoker([str(plain)]).ask(ASK)


async def test_it_works_in_the_folder_of_the_question(tmp_path: Path) -> None:
    request = Request("tiny", "Where?", timeout_s=20, cwd=str(tmp_path))
    assert (await shell("pwd", cwd=os.sep).ask(request)).text == str(tmp_path)
    assert (await shell("pwd", cwd=os.sep).ask(ASK)).text == os.sep


async def test_a_long_prompt_meets_a_program_that_does_not_read() -> None:
    long = Request("tiny", "x" * 3_000_000, timeout_s=20)
    assert (await shell("echo done").ask(long)).text == "done"
    assert len((await shell("cat").ask(long)).text) == 3_000_000


async def test_more_than_anybody_wants_is_refused_and_never_cut_short() -> None:
    with pytest.raises(Rejected, match="more than 1000 bytes"):
        await shell("yes", bytes_max=1000).ask(ASK)


@pytest.mark.wall_clock("the program must begin within the second that it has")
@pytest.mark.parametrize("how", ["timeout", "cancel"])
async def test_the_whole_family_is_killed_when_the_time_is_over(how: str, tmp_path: Path) -> None:
    script = 'sleep 600 & echo "$$ $!" > pids.part; mv pids.part pids; wait'
    ai = shell(script, cwd=str(tmp_path))
    task = asyncio.create_task(
        ai.ask(Request("tiny", "x", timeout_s=1 if how == "timeout" else 60))
    )
    pids = tmp_path / "pids"
    await until(pids.exists)
    if how == "cancel":
        task.cancel()
    with pytest.raises(asyncio.CancelledError if how == "cancel" else Transient):
        await task
    family = [int(pid) for pid in pids.read_text().split()]
    await until(lambda: all(map(gone, family)))


async def test_a_question_given_up_while_its_program_starts_leaves_nothing(
    tmp_path: Path,
) -> None:
    """The program may have children before we know that it runs."""
    parent = shell(PARENT, cwd=str(tmp_path))
    await given_up(lambda: parent.ask(ASK), tmp_path, forks=12)


async def test_a_grandchild_that_stays_is_not_waited_for(tmp_path: Path) -> None:
    ai = shell("sleep 600 & echo $! > left; echo answer", cwd=str(tmp_path))
    try:
        async with asyncio.timeout(60):
            assert (await ai.ask(ASK)).text == "answer"
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("out", "cost", "used"),
    [
        ('{"result": "Hi", "total_cost_usd": 0.5}', 0.5, None),
        (
            '{"result": "Hi", "usage": {"input_tokens": 3, "output_tokens": 4}}',
            None,
            (3, 4),
        ),
        ('{"result": "Hi", "usage": {"input_tokens": -3}, "total_cost_usd": "x"}', None, None),
    ],
)
async def test_a_program_may_show_its_tokens_and_its_cost(
    out: str, cost: float | None, used: tuple[int, int] | None
) -> None:
    reply = await shell(f"printf '%s' '{out}'", output="json").ask(ASK)
    assert (reply.text, reply.cost_usd, reply.guessed) == ("Hi", cost, used is None)
    assert used is None or (reply.tokens_in, reply.tokens_out) == used


@pytest.mark.parametrize(
    ("out", "kind"),
    [
        ("not json", Transient),
        ("[]", Rejected),
        ("{}", Rejected),
        ('{"result": "no credit", "is_error": true}', Rejected),
    ],
)
async def test_json_without_an_answer_is_no_answer(out: str, kind: type[RotaError]) -> None:
    with pytest.raises(kind):
        await shell(f"printf '%s' '{out}'", output="json").ask(ASK)


async def test_what_cannot_be_is_refused_before_anything_runs(tmp_path: Path) -> None:
    for argv in ("claude -p", [], ["a", 1], ["a\0b"]):
        with pytest.raises(BadSetting):
            CommandInvoker(argv)  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="maybe"):
        CommandInvoker(["true"], exits={1: "maybe"})
    with pytest.raises(UsageError, match="no model"):
        await shell("touch ran", "{model}", cwd=str(tmp_path)).ask(Request("", "x"))
    assert list(tmp_path.iterdir()) == []
