"""Deploying, publishing, pausing and skipping from the command line, and everything refused."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from rota import Rota
from rota.cli.automation import page
from rota.core.runs.model import WorkerRecord
from rota.core.runs.worker_code import code_set
from rota.engine import process_identity
from rota.store.runs import workers
from tests.cli.kit import Daemon
from tests.cli.kit.automation_project import CODE, AutomationShell
from tests.kit import select

BROKEN = """
from rota import Rota
app = Rota("sqlite:///from_code.db")
for name in ("one", "two"):
    auto = app.automation(name)
    auto.topic("lonely")
good = app.automation("good")
topic = good.topic("in", external=True)

async def prepare(ctx, state):
    return None

good.consumer("reader", subscribes=[topic], prepare=prepare)
"""


@pytest.fixture
def project(folder: Path) -> AutomationShell:
    """The project on SQLite, deployed and at rest."""
    project = AutomationShell(folder, "sqlite:///jobs.db")
    project.work()
    return project


# -- deploying ---------------------------------------------------------------------------------


def test_the_code_is_deployed_once_and_again_when_it_changes(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db")
    assert project.run("automation", "deploy").stdout == (
        "asking is deployed, version 1\nmails is deployed, version 1\n"
    )
    [shown] = project.json("automation", "deploy", "mails")
    assert (shown["name"], shown["version"], shown["before"]) == ("mails", 1, 1)
    assert (shown["lost_state_of"], shown["code"]["refused"]) == ([], None)
    assert project.run("automation", "deploy", "mails").stdout == "mails is unchanged, version 1\n"
    (folder / "jobs.py").write_text(CODE.replace('every="1h"', 'every="2h"'))
    project.forget_code()
    said = project.run("automation", "deploy", "mails").stdout
    assert said == "mails is deployed, version 2 after 1\n"
    assert [row["version"] for row in project.json("automation", "versions", "mails")] == [2, 1]
    assert "def poll" in project.json("automation", "versions", "mails")[0]["source"]["poll"]["run"]


def test_a_deploy_names_the_workers_to_restart(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db")
    project.run("automation", "deploy")
    digest = project.json("automation", "versions", "mails")[0]["digest"]
    asyncio.run(worker_with_code(f"sqlite:///{folder / 'jobs.db'}", {"mails": digest}))
    (folder / "jobs.py").write_text(CODE.replace('every="1h"', 'every="2h"'))
    project.forget_code()
    result = project.run("automation", "deploy", "mails")
    assert f"restart worker {socket.gethostname()}, pid {os.getpid()}: " in result.stderr
    assert "it has other code of mails (version 1)" in result.stderr
    assert "No worker has version 2 of its code" in project.run("automation", "list").stdout
    assert "rota automation rollback mails 1" in project.run("automation", "show", "mails").stdout
    assert (
        "deployed code of asking (version 1), mails (version 2)"
        in project.run("doctor", code=1).stdout
    )


async def worker_with_code(url: str, digests: dict[str, str]) -> None:
    """A live worker, with this code."""
    async with Rota(url).connected() as app:
        now, pid = app.clock.now(), os.getpid()
        row = WorkerRecord(
            "w1", "default", process_identity.host(), pid, process_identity.started(pid),
            '["default"]', "[]", 1, "online", "", now, now, None,
        )  # fmt: skip
        await app.connection.database.write(workers.register, row, code_set("default", digests))


def test_a_version_is_rolled_back_and_old_ones_are_pruned(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db")
    project.run("automation", "deploy")
    (folder / "jobs.py").write_text(CODE.replace('every="1h"', 'every="2h"'))
    project.forget_code()
    project.run("automation", "deploy", "mails")
    said = project.run("automation", "rollback", "mails", "1").stdout
    assert "mails is back at the code of version 1, as version 3" in said
    assert project.json("automation", "rollback", "mails", "3")["restores"] == 3
    rows = project.json("automation", "versions", "mails")
    assert [row["comment"] for row in rows] == ["restores version 1", None, None]
    assert "has no version 9" in project.error("automation", "rollback", "mails", "9", code=2)
    assert (
        "2 versions of mails deleted"
        in project.run("automation", "prune", "mails", "--keep", "1").stdout
    )
    assert [row["version"] for row in project.json("automation", "versions", "mails")] == [3]


def test_a_refused_deploy_is_listed(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db", BROKEN)
    project.run("automation", "deploy", code=2)
    listed = project.run("automation", "list")
    assert "one is not deployed; refused: " in listed.stderr
    assert "topic lonely has no reader" in listed.stderr
    assert "a deploy was refused" in project.error("automation", "show", "one", code=4)


def test_all_problems_of_all_automations_are_reported_at_once(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db", BROKEN)
    result = project.run("automation", "deploy", code=2)
    assert result.stdout == "good is deployed, version 1\n"
    assert result.stderr.startswith("Error: 2 automations cannot be deployed:\n")
    for name in ("one", "two"):
        assert f"automation {name} cannot be deployed:\n" in result.stderr
    assert result.stderr.count("  - topic lonely has no reader") == 2
    assert "it has neither a producer nor a consumer" in result.stderr
    assert "the version deployed before stays in force" in result.stderr
    alone = project.run("automation", "deploy", "one", code=2)
    assert alone.stderr.startswith("Error: automation one cannot be deployed:\n  - ")


def test_a_deploy_of_what_is_not_there_deploys_nothing(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db")
    said = project.error("automation", "deploy", "asking", "mial", code=4)
    assert "the code declares no automation 'mial'" in said
    assert "Did you mean mails?" in said
    project.run("migrate")
    assert project.json("automation", "list") == []
    (folder / "jobs.py").write_text("from rota import Rota\napp = Rota()\n")
    project.forget_code()
    assert "declares no automation" in project.error("automation", "deploy", code=4)
    (folder / "rota.toml").unlink()
    assert "there is no project here" in project.error("automation", "deploy", code=2)


def test_the_daemon_serves_a_project_that_has_only_automations(
    folder: Path, up: Callable[..., Daemon]
) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db", CODE.replace("@app.workflow\n", ""))
    daemon = up()
    assert "automations asking, mails" in daemon.receives("is up on")
    assert [one["name"] for one in project.json("automation", "list")] == ["asking", "mails"]


# -- publishing --------------------------------------------------------------------------------


def test_an_event_comes_as_json_as_a_file_or_from_stdin(project: AutomationShell) -> None:
    project.run("automation", "pause", "mails")
    publish = ("automation", "publish", "mails", "orders")
    (project.folder / "order.json").write_text('{"how": "file"}')
    project.run(*publish, "o-1", '{"how": "word"}', "--title", "The first order")
    project.run(*publish, "o-2", "@order.json")
    project.run(*publish, "o-3", "-", input='{"how": "stdin"}')
    events = project.json("automation", "events", "mails")
    assert [row["payload"]["how"] for row in events] == ["stdin", "file", "word"]
    assert project.json("automation", "inputs", "mails")[-1]["title"] == "The first order"
    assert project.json("automation", "inputs", "mails", "--pending")[0]["external_id"] == "o-1"


def test_the_same_event_again_corrects_it_until_it_is_taken(project: AutomationShell) -> None:
    publish = ("automation", "publish", "mails", "orders", "o-1")
    project.run("automation", "pause", "mails")
    assert project.json(*publish, '{"how": "late"}')["published"] is True
    project.run(*publish, '{"how": "ok"}')
    project.run("automation", "resume", "mails")
    project.work()
    assert project.sent() == ["ann@example.com: Your tea: ok"]
    said = project.run(*publish, '{"how": "again"}').stdout
    project.work()
    assert "event o-1 of topic orders was consumed already; nothing changed" in said
    assert len(project.sent()) == 1


def test_a_used_event_names_its_run(project: AutomationShell) -> None:
    project.order("mails", "o-1")
    [event] = project.json("automation", "events", "mails")
    runs = project.json("automation", "activity", "mails")
    assert event["status"] == "consumed"
    assert [one["handler"] for one in runs if one["id"] == event["run_id"]] == ["mailer"]
    assert event["run_id"][-8:] in project.run("automation", "events", "mails").stdout


def test_many_events_come_as_json_lines(project: AutomationShell) -> None:
    project.run("automation", "pause", "mails")
    many = ("automation", "publish-many", "mails", "orders")
    lines = [f'{{"id": "o-{number}", "payload": {{"how": "ok"}}}}' for number in range(3)]
    (project.folder / "orders.jsonl").write_text("\n".join([*lines, "", ""]))
    said = project.run(*many, "orders.jsonl").stdout
    assert said.startswith("3 of 3 events of topic orders are new or have changed\n")
    assert project.json(*many, "-", input=lines[0])["published"] == 0
    bad = {'{"id": 1}': "line 1 of stdin: it is not", "{": "line 1 of stdin: ", "[]": "line 1 of"}
    for text, says in bad.items():
        assert says in project.error(*many, "-", code=2, input=text)
    assert "none.jsonl cannot be read" in project.error(*many, "none.jsonl", code=2)
    assert len(project.json("automation", "events", "mails")) == 3


def test_an_input_whose_ledger_was_pruned_claims_nothing(project: AutomationShell) -> None:
    project.order("mails", "o-1")
    [one] = [
        row for row in project.json("automation", "inputs", "mails") if row["external_id"] == "o-1"
    ]
    inputs = ("automation", "inputs", "mails", one["id"])
    assert project.json(*inputs)["ledger_pruned"] is False
    asyncio.run(select(project.url, "delete from reservations"))
    asyncio.run(select(project.url, "delete from mutations"))
    assert project.json(*inputs)["ledger_pruned"] is True
    said = project.run(*inputs).stdout
    assert "were pruned (keep_days)" in said
    assert "no change" not in said


def test_a_payload_for_a_reserved_event_is_kept_and_reported(project: AutomationShell) -> None:
    project.order("asking", "o-1", "old")
    publish = ("automation", "publish", "asking", "orders", "o-1")
    [event] = project.json("automation", "events", "asking")
    said = project.run(*publish, '{"how": "new"}').stdout
    assert f"is reserved by run {event['run_id']}; the new payload is kept" in said
    answer = project.json(*publish, '{"how": "new"}')
    assert (answer["published"], answer["kept"]) == (False, True)
    [event] = project.json("automation", "events", "asking")
    assert (event["payload"], event["correction"]) == ({"how": "old"}, {"how": "new"})
    table = project.run("automation", "events", "asking").stdout
    assert '{"how":"old"}; not used: {"how":"new"}' in table


@pytest.mark.parametrize(
    ("words", "says", "hint"),
    [
        (["mails", "ordres", "1"], "has no topic 'ordres'", "Its topics are: found, orders."),
        (["mails", "found", "1", "x"], "accepts no events from outside", "external=True"),
        (["mails", "orders", "1", "[1]"], "Expected `object`, got `array`", "Hint: "),
        (["mails", "orders", "1", "@none.json"], "none.json cannot be read", "Nothing was"),
        (["mails", "orders", "1", "@jobs.py"], "jobs.py cannot be read as JSON", "Nothing was"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_published(
    project: AutomationShell, words: list[str], says: str, hint: str
) -> None:
    said = project.error("automation", "publish", *words, code=2)
    assert says in said
    assert hint in said
    assert project.json("automation", "events", "mails") == []


def test_an_event_reaches_a_bare_database_too(project: AutomationShell) -> None:
    (project.folder / "rota.toml").unlink()
    words = ("publish", "mails", "orders", "o-1", '{"how": "ok"}')
    said = project.run("automation", *words, "--database", "sqlite:///jobs.db").stdout
    assert said.startswith("event o-1 of topic orders was published\n→ Running")
    bad = ("publish", "mails", "orders", "o-2", '{"how": 1}', "--database", "sqlite:///jobs.db")
    assert "Expected `str`, got `int`" in project.error("automation", *bad, code=2)


# -- commands ----------------------------------------------------------------------------------


def test_a_pause_keeps_events_until_it_is_resumed(project: AutomationShell) -> None:
    said = project.run("automation", "pause", "mails").stdout
    assert said == "mails is paused\n→ Stopped: Paused by you.\n"
    shown = project.order("mails", "o-1")
    assert (shown["status"], shown["pending"]) == ("Stopped", {"orders": 1})
    assert "Resume it first" in project.error("automation", "run-now", "mails", code=5)
    assert project.obey(shown, "resume")["pending"] == {}
    assert len(project.sent()) == 1


def test_run_now_queues_every_producer(project: AutomationShell) -> None:
    done = project.json("automation", "run-now", "mails")
    assert done["queued"] == ["poll"]
    project.work()
    looks = [
        r["cause"]
        for r in project.json("automation", "activity", "mails")
        if r["kind"] != "consumer"
    ]
    assert looks == ["manual", "schedule"]
    project.order("asking", "o-1")
    assert "waiting:approval" in project.error("automation", "run-now", "asking", code=5)


def test_what_is_archived_is_out_of_the_list_and_comes_back(project: AutomationShell) -> None:
    said = project.run("automation", "archive", "mails").stdout
    assert "`rota automation resume mails` brings it back" in said
    assert [one["name"] for one in project.json("automation", "list")] == ["asking"]
    assert len(project.json("automation", "list", "--archived")) == 2
    project.run("automation", "resume", "mails")
    assert len(project.json("automation", "list")) == 2


def test_an_event_or_an_input_is_skipped(project: AutomationShell) -> None:
    project.run("automation", "pause", "mails")
    project.order("mails", "o-1")
    project.order("mails", "o-2")
    said = project.run("automation", "skip", "mails", "orders", "o-1").stdout
    assert said.startswith("event o-1 of topic orders is skipped\n")
    [waits] = project.json("automation", "inputs", "mails", "--pending")
    done = project.json("automation", "skip", "mails", "--input", waits["id"])
    assert done["skipped"] == {"input_id": waits["id"], "event_count": 1}
    statuses = [row["status"] for row in project.json("automation", "events", "mails")]
    assert statuses == ["skipped", "skipped"]
    assert "it cannot be skipped" in project.error(
        "automation", "skip", "mails", "orders", "o-1", code=5
    )
    assert "there is no event orders/o-9" in project.error(
        "automation", "skip", "mails", "orders", "o-9", code=2
    )
    for words in ([], ["orders"], ["orders", "o-1", "--input", "x"]):
        assert "name one thing to skip" in project.error(
            "automation", "skip", "mails", *words, code=2
        )


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["show"], ["inputs"], ["inputs", "--stale"], ["outputs"], ["events"], ["activity"],
        ["versions"], ["pause"], ["resume"], ["archive"], ["run-now"], ["prune"],
    ],
)  # fmt: skip
def test_an_unknown_automation_is_answered_with_the_nearest(
    project: AutomationShell, words: list[str]
) -> None:
    verb, *options = words
    said = project.error("automation", verb, "mals", *options, code=4)
    assert "there is no automation 'mals'" in said
    assert "Did you mean mails?" in said


def test_an_input_or_output_that_is_not_there_is_reported(project: AutomationShell) -> None:
    assert "has no input nope" in project.error("automation", "inputs", "mails", "nope", code=4)
    assert "no change 'nope'" in project.error("automation", "outputs", "mails", "nope", code=2)
    assert "no further pages" in project.error(
        "automation", "inputs", "mails", "--pending", "--before", "x", code=2
    )


def test_a_list_that_is_cut_says_so(project: AutomationShell, folder: Path) -> None:
    (folder / "jobs.py").write_text(CODE.replace('every="1h"', 'every="2h"'))
    project.forget_code()
    project.run("automation", "deploy", "mails")
    cut = project.run("automation", "versions", "mails", "--limit", "1")
    assert cut.stderr == "more: a higher --limit\n"
    assert project.run("automation", "versions", "mails").stderr == ""


def test_stale_inputs_are_counted_beyond_a_page(
    project: AutomationShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "STALE_MAX", 2)
    monkeypatch.setenv("ROTA_STALE_DAYS", "0.0000001")
    for number in range(3):
        project.run("automation", "publish", "asking", "orders", f"q-{number}", "{}")
    assert project.json("automation", "show", "asking")["stale_input_count"] == 2
    assert "2 or more stale" in project.run("automation", "show", "asking").stdout


@pytest.mark.parametrize(
    "words", [["inputs", "--pending"], ["inputs", "--before=x"], ["outputs", "--status=failed"]]
)
def test_one_row_by_its_id_has_no_filters(project: AutomationShell, words: list[str]) -> None:
    said = project.error("automation", words[0], "mails", "some-id", words[1], code=2)
    assert "an ID selects one row" in said


def test_looking_at_automations_makes_no_database(folder: Path) -> None:
    project = AutomationShell(folder, "sqlite:///jobs.db")
    assert "there is no database file" in project.error("automation", "list", code=3)
    project.run("migrate")
    assert "no automations yet" in project.run("automation", "list").stdout
