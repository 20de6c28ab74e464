"""`rota run …` on both databases: lists, pages, waits and commands."""

from __future__ import annotations

import json
import sys

import pytest

from rota import Rota
from rota.cli import connect
from rota.cli.base import CommonOptions
from rota.cli.run import wait
from rota.client.client import Client
from rota.client.start_many import Start
from rota.engine.clock import SystemClock
from rota.errors import Stranded
from rota.store.runs.logs import NewLogLine, append
from rota.testing import virtual
from tests.cli.kit import Shell


def test_a_run_is_started_performed_and_its_result_printed(either: Shell) -> None:
    run_id = either.start("add", "n=2", "text=hi")
    either.work()
    result = either.run("run", "result", run_id)
    assert json.loads(result.stdout) == {"sum": 3, "text": "hi", "key": ""}
    assert result.stderr == ""
    assert either.json("run", "result", run_id) == json.loads(result.stdout)


def test_list_shows_the_newest_first_and_filters(either: Shell) -> None:
    first, second = either.start("add", "n=1"), either.start("naps", "--queue", "slow")
    assert [run["id"] for run in either.json("run", "list")] == [second, first]
    assert [run["id"] for run in either.json("run", "list", "--name", "add")] == [first]
    assert [run["id"] for run in either.json("run", "list", "--queue", "slow")] == [second]
    assert [run["id"] for run in either.json("run", "list", "--before", second)] == [first]
    assert len(either.json("run", "list", "--status", "pending")) == 2
    assert either.json("run", "list", "--status", "failed") == []
    text = either.run("run", "list").stdout.splitlines()
    assert text[0].split() == ["ID", "NAME", "STATUS", "QUEUE", "TRY", "CREATED", "TOOK"]
    assert text[1].split()[:5] == [second[-8:], "naps", "pending", "slow", "1"]


def test_list_says_when_there_is_more_and_when_there_is_nothing(either: Shell) -> None:
    assert either.run("run", "list").stdout == "no runs yet\n"
    assert either.run("run", "list", "--name", "x").stdout == "no runs fit these filters\n"
    ids = [either.start("add", f"n={n}") for n in range(3)]
    page = either.run("run", "list", "--limit", "2")
    assert page.stderr == f"more: --before {ids[1]}\n"
    for before in (ids[1], ids[1][-8:]):
        page = either.run("run", "list", "--limit", "2", "--before", before)
        assert ids[0][-8:] in page.stdout


def test_show_shows_the_whole_explanation_of_a_failure(either: Shell) -> None:
    run_id = either.start("fails", "n=2")
    either.work()
    page = either.run("run", "show", run_id).stdout
    assert page.startswith(f"run {run_id[-8:]}  fails  failed:logic\n  id          {run_id}\n")
    assert 'input       {"n":2}' in page
    assert "StepFailed: step breaks failed after 1 attempt: ValueError: cannot do 3" in page
    assert 'raise ValueError(f"cannot do {n}")' in page
    assert "rota/workflows" not in page, "frames of Rota itself are noise"
    steps = [line.split()[:3] for line in page.splitlines() if "#0" in line]
    assert steps == [["one#0", "completed", "1"], ["breaks#0", "failed", "1"]]
    assert page.endswith(
        f"Fix the cause, then `rota run retry {run_id}`: it resumes after its last finished step.\n"
    )


def test_show_as_a_document_holds_everything(either: Shell) -> None:
    run_id = either.start("parent", "n=1", "--tag", "who=ann", "--external-id", "p1")
    either.work()
    page = either.json("run", "show", run_id[:24])
    assert page["run"]["output"] == {"sum": 2, "text": "", "key": ""}
    assert page["run"]["tags"] == {"who": "ann"}
    assert page["run"]["external_id"] == "p1"
    assert page["run"]["created_at"].endswith("Z")
    assert [attempt["id"] for attempt in page["attempts"]] == [run_id]
    assert {step["kind"] for step in page["steps"]} == {"child", "result"}
    assert page["hint"] == "Completed. Nothing to do."


def test_retry_adds_an_attempt_and_show_lists_both(either: Shell) -> None:
    run_id = either.start("fails", "n=2")
    either.work()
    again = either.json("run", "retry", run_id)
    assert again["id"] == run_id
    assert again["run"]["attempt"] == 2
    either.work()
    page = either.run("run", "show", run_id).stdout
    assert "\nattempts\n" in page
    assert page.count("failed:logic") == 3, "the head and both attempts"
    assert again["run"]["id"][-8:] in page


def test_what_cannot_be_done_is_a_conflict(either: Shell) -> None:
    run_id = either.start("add", "n=1")
    either.work()
    assert "nothing to cancel" in either.error("run", "cancel", run_id, code=5)
    assert "nothing to retry" in either.error("run", "retry", run_id, code=5)
    assert "cannot receive a signal" in either.error("run", "signal", run_id, "x", code=5)


def test_a_run_nobody_knows_is_not_found(either: Shell) -> None:
    for words in (["show"], ["cancel"], ["retry"], ["result"]):
        assert "there is no run 'nope'" in either.error("run", *words, "nope", code=4)
    assert "there is no run" in either.error("run", "signal", "nope", "x", code=4)
    assert "there is no run" in either.error("run", "fork", "nope", "--from", "a#0", code=4)


def test_an_id_that_fits_several_runs_is_refused(either: Shell) -> None:
    first, second = either.start("add", "n=1"), either.start("add", "n=1")
    said = either.error("run", "show", "0", code=4)
    assert "'0' fits several runs:\n" in said
    assert f"  {second}  add  pending\n  {first}  add  pending\n" in said


def test_of_very_many_candidates_the_newest_are_listed(either: Shell) -> None:
    ids = [either.start("add", f"n={n}") for n in range(7)]
    said = either.error("run", "show", "0", code=4)
    assert [run_id for run_id in reversed(ids) if run_id in said] == ids[:1:-1]
    assert "\n  …\n" in said


def test_a_run_is_found_by_beginning_short_id_and_external_id_everywhere(either: Shell) -> None:
    run_id = either.start("add", "n=1", "--external-id", "order-7")
    other = either.start("add", "n=2")
    for given in (run_id[:24], run_id[-8:], run_id[-12:].upper(), "order-7"):
        assert either.json("run", "show", given)["run"]["id"] == run_id
    assert either.json("run", "cancel", other[-8:])["cancelled"] == [other]
    either.work()
    assert either.json("run", "result", "order-7")["sum"] == 2
    assert run_id in either.run("why", "order-7").stdout


def test_an_external_id_of_two_workflows_lists_both_runs(either: Shell) -> None:
    ids = [either.start(name, "n=1", "--external-id", "same") for name in ("add", "fails")]
    said = either.error("run", "show", "same", code=4)
    assert all(run_id in said for run_id in ids)


def test_runs_of_one_batch_have_different_short_ids(either: Shell) -> None:
    async def batch(client: Client) -> list[str]:
        return [one.id for one in await client.start_many("add", [Start(kwargs={"n": 1})] * 40)]

    ids = connect.ask(CommonOptions(), batch)
    assert len({run_id[-8:] for run_id in ids}) == 40
    assert len({run_id[:24] for run_id in ids}) == 1, "so their beginnings are of no use"
    assert either.json("run", "show", ids[7][-8:])["run"]["id"] == ids[7]


def test_a_failed_run_makes_result_fail(either: Shell) -> None:
    run_id = either.start("fails", "n=2")
    either.work()
    assert "ValueError: cannot do 3" in either.error("run", "result", run_id, code=1)


def test_a_cancelled_run_says_so(either: Shell) -> None:
    run_id = either.start("naps")
    assert either.json("run", "cancel", run_id, "--reason", "no need") == {"cancelled": [run_id]}
    assert "cancelled (no need)" in either.error("run", "result", run_id, code=1)
    assert "would continue it" in either.run("run", "show", run_id).stdout


def test_a_run_is_asked_to_clean_up_and_end(either: Shell) -> None:
    run_id = either.start("naps")
    either.work()
    words = ["cancel", run_id, "--reason", "no need", "--grace", "5m"]
    assert either.json("run", *words) == {"cancelled": [run_id]}
    assert "is asked to end: no need" in either.run("run", "show", run_id).stdout
    assert "it is asked to end (no need)" in either.run("why", run_id).stdout
    either.work()
    assert "cancelled (no need)" in either.error("run", "result", run_id, code=1)
    assert "grace=0 leaves no time" in either.error(
        "run", "cancel", run_id, "--grace", "0s", code=2
    ).replace("'0s'", "0")


def test_waiting_for_a_result_has_a_limit(either: Shell) -> None:
    run_id = either.start("naps")
    said = either.error("run", "result", run_id, "--timeout", "50ms", code=6)
    assert f"run {run_id} has not ended within 50ms; it continues" in said
    assert "is not a duration" in either.error("run", "result", run_id, "--timeout", "x", code=2)


def test_waiting_for_a_blocked_run_says_why(either: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "EXPLAIN_AFTER_US", 1)
    run_id = either.start("naps")
    said = either.error("run", "result", run_id, "--timeout", "3s", code=6)
    assert f"run {run_id} (naps) waits" in said
    assert "no worker is running" in said
    assert "`rota up`" in said


def test_a_signal_reaches_the_run(either: Shell) -> None:
    run_id = either.start("answer")
    either.work()
    page = either.run("run", "show", run_id).stdout
    assert f"`rota run signal {run_id} reply VALUE`" in page
    assert either.json("run", "signal", run_id, "reply", "fine")["value"] == "fine"
    either.work()
    assert either.run("run", "result", run_id).stdout == '"fine"\n'


def test_a_person_is_reported_what_is_needed(either: Shell) -> None:
    run_id = either.start("login")
    either.work()
    page = either.run("run", "show", run_id).stdout
    assert (
        f"It waits for an operator: renew the credentials, then retry (`rota run retry {run_id}`)"
        in page
    )


def test_fork_starts_again_from_a_step(either: Shell) -> None:
    run_id = either.start("fails", "n=2")
    either.work()
    fresh = either.json("run", "fork", run_id, "--from", "breaks#0")["id"]
    assert [step["key"] for step in either.json("run", "show", fresh)["steps"]] == ["one#0"]
    said = either.error("run", "fork", run_id, "--from", "braeks#0", code=2)
    assert "Did you mean breaks#0?" in said


def test_a_sleeping_run_says_when_it_wakes(either: Shell) -> None:
    run_id = either.start("naps")
    either.work()
    page = either.run("run", "show", run_id).stdout
    assert "sleeping, wakes in 59m" in page
    assert "It wakes by itself in 59m" in page


CHANGED = """
from rota import Rota, wait_for

app = Rota()

@app.step
async def {first}() -> int:
    return 1

@app.workflow
async def flow() -> None:
    await {first}()
    await wait_for("go")
"""


def test_a_run_stranded_by_a_code_change_is_not_advised_to_retry(either: Shell) -> None:
    (either.folder / "jobs.py").write_text(CHANGED.format(first="before"))
    run_id = either.start("flow")
    either.work()
    (either.folder / "jobs.py").write_text(CHANGED.format(first="after"))
    del sys.modules["jobs"]
    either.run("run", "signal", run_id, "go")
    either.work()
    page = either.run("run", "show", run_id).stdout
    why = either.run("why", run_id).stdout
    for said in (page, why):
        assert Stranded.hint in said
        assert "Fix the cause" not in said
        assert ".." not in said


def test_log_lines_are_printed_in_pages(either: Shell) -> None:
    run_id = either.start("add", "n=1")
    assert either.run("run", "logs", run_id).stdout == "no log lines\n"
    lines = [NewLogLine(run_id, 0, "INFO", "shop", f"line {n}\x1b[2J") for n in range(3)]
    call = CommonOptions(database=either.url)
    connect.ask(call, lambda client: client.connection.database.write(append, lines))
    page = either.run("run", "logs", run_id, "--after", "1", "--limit", "1")
    assert page.stdout.endswith("  info    shop: line 1\\x1b[2J\n")
    assert page.stderr == "more: --after 2\n"
    assert [line["position"] for line in either.json("run", "logs", run_id)] == [1, 2, 3]


def test_logs_are_followed_until_the_run_has_ended(either: Shell) -> None:
    run_id = either.start("add", "n=1")
    either.work()
    lines = [NewLogLine(run_id, 0, "INFO", "shop", f"line {n}") for n in range(3)]
    call = CommonOptions(database=either.url)
    connect.ask(call, lambda client: client.connection.database.write(append, lines))
    followed = either.run("run", "logs", run_id, "--follow", "--after", "1")
    assert len(followed.stdout.splitlines()) == 2
    refused = either.run("run", "logs", run_id, "--follow", "--limit", "1", code=2)
    assert "--follow prints every line: omit --limit" in refused.stderr


def test_list_filters_by_tag_error_kind_schedule_and_time(either: Shell) -> None:
    tagged = either.start("add", "n=1", "--tag", "to=me")
    failed = either.start("fails", "n=2")
    either.work()

    def found(*words: str) -> list[str]:
        return [run["id"] for run in either.json("run", "list", *words)]

    assert found("--tag", "to=me") == found("--tag", "to") == [tagged]
    assert found("--error", "StepFailed") == [failed]
    assert found("--kind", "workflow", "--since", "1h") == [failed, tagged]
    assert found("--until", "1h") == found("--since", "2999-01-01") == []
    assert "no schedule 'x'" in either.error("run", "list", "--schedule", "x", code=4)
    assert "is not a time" in either.error("run", "list", "--since", "soon", code=2)


def test_many_runs_are_counted_then_retried_or_cancelled(either: Shell) -> None:
    failed = [either.start("fails", f"n={n}") for n in range(2)]
    either.work()
    words = ("run", "retry", "--all", "--error", "StepFailed")
    counted = either.run(*words)
    assert counted.stdout == "retry would take 2 runs\n"
    assert counted.stderr == "to retry them: the same command with --yes\n"
    assert either.run(*words, "--yes").stdout == "retry: 2 runs\n"
    done = either.json("run", "cancel", "--all", "--name", "fails", "--yes", "--reason", "enough")
    assert (done["matched"], set(done["run_ids"]), done["dry_run"]) == (2, set(failed), False)
    assert either.run("run", "cancel", "--all").stdout == "cancel would take 0 runs\n"
    for verb in ("cancel", "retry"):  # an empty variable of a shell selects nothing
        empty = either.error("run", verb, "--all", "--yes", "--name", "", code=2)
        assert "--name is empty" in empty
    assert "--external-id is empty" in either.error("run", "list", "--external-id", "", code=2)
    assert "missing argument" in either.error("run", "retry", code=2)
    assert "names one run" in either.error("run", "retry", failed[0], "--all", code=2)


def test_watching_a_run_ends_with_it_and_watching_a_list_with_ctrl_c(
    either: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = either.start("add", "n=1")
    either.work()
    page = either.run("run", "show", run_id, "--watch").stdout
    assert page == either.run("run", "show", run_id).stdout

    async def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "wait", interrupted)
    assert run_id[-8:] in either.run("run", "list", "--watch").stdout


async def test_ctrl_c_after_the_end_of_the_run_does_not_say_that_the_run_continues(
    database_url: str,
) -> None:
    app = Rota(keep_days=0)

    @app.workflow
    async def adds() -> int:
        return 2

    async with virtual(app, url=database_url) as world:
        run = await adds.start()
        await world.settle()
        waiter = wait.Waiter(CommonOptions(), None)
        await waiter.wait(app, run.id)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # and not Interrupted
        waiter.run(interrupted)
