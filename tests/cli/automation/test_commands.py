"""`rota automation …` and the answers to what waits, as a person types them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from rota.cli.automation import page as automation_page
from tests.cli.kit.automation_project import CODE, AutomationShell
from tests.kit import until


@pytest.fixture
def project(folder: Path) -> AutomationShell:
    """The project on SQLite, deployed and at rest."""
    project = AutomationShell(folder, "sqlite:///jobs.db")
    project.work()
    return project


# -- looking -----------------------------------------------------------------------------------


def test_an_order_is_followed_from_the_start_to_the_mail(folder: Path, database_url: str) -> None:
    project = AutomationShell(folder, database_url)
    project.run("migrate")
    project.work()
    assert project.order("mails", "o-1")["status"] == "Idle"
    [came_in] = project.json("automation", "inputs", "mails")
    assert (came_in["status"], came_in["external_id"]) == ("done", "o-1")
    one = project.json("automation", "inputs", "mails", came_in["id"])
    [output] = one["outputs"]
    assert (output["status"], output["tool"], output["title"]) == (
        "applied", "send_mail", "Mail about o-1",
    )  # fmt: skip
    assert output["parameters"] == {"to": "ann@example.com", "text": "Your tea: ok"}
    back = project.json("automation", "outputs", "mails", output["id"])
    assert [row["id"] for row in back["inputs"]] == [came_in["id"]]
    assert [row["id"] for row in project.json("automation", "outputs", "mails")] == [output["id"]]
    [event] = project.json("automation", "events", "mails", "--topic", "orders")
    assert (event["id"], event["status"], event["payload"]) == ("o-1", "consumed", {"how": "ok"})
    assert project.json("automation", "events", "mails", "--status", "pending") == []
    handlers = {run["handler"] for run in project.json("automation", "activity", "mails")}
    assert handlers == {"poll", "mailer"}
    assert project.sent() == ["ann@example.com: Your tea: ok"]


def test_the_pages_for_people_say_the_same(project: AutomationShell) -> None:
    project.order("mails", "o-1")
    page = project.run("automation", "show", "mails").stdout
    assert page.startswith("automation mails  Idle\n  Next check in ")
    assert "Checks every hour" in page
    assert "events of orders, found" in page
    assert "what you can do" not in page
    [came_in] = project.json("automation", "inputs", "mails")
    page = project.run("automation", "inputs", "mails", came_in["id"]).stdout
    assert "what it led to" in page
    assert '"text": "Your tea: ok"' in page
    output = project.json("automation", "outputs", "mails")[0]["id"]
    assert (
        f"because of\n  {came_in['id']}  o-1"
        in project.run("automation", "outputs", "mails", output[:20]).stdout
    )
    assert "looked 1 times" in project.run("automation", "activity", "mails", "--logs").stdout
    assert "deploy" in project.run("automation", "versions", "mails").stdout
    for noun in ("inputs", "outputs", "events"):
        table = project.run("automation", noun, "mails").stdout
        assert len(table.splitlines()) == 2
    assert project.run("automation", "inputs", "mails", "--pending").stdout == "nothing waits\n"


def test_the_list_has_a_sentence_for_each(project: AutomationShell) -> None:
    project.order("mails", "o-1", "bad")
    result = project.run("automation", "list")
    lines = result.stdout.splitlines()
    assert lines[1].split()[:2] == ["asking", "Idle"]
    assert "Needs attention" in lines[2]
    assert "The code failed: an order without a customer" in lines[2]
    assert "rota automation show mails" in result.stderr
    assert [one["name"] for one in project.json("automation", "list")] == ["asking", "mails"]
    assert [one["name"] for one in project.json("automation", "list", "--after", "asking")] == [
        "mails"
    ]
    found = project.json("automation", "list", "--search", "ail")
    assert [one["name"] for one in found] == ["mails"]
    said = project.run("automation", "list", "--search", "nothing").stdout
    assert said == "no automation has 'nothing' in its name\n"


def test_long_lists_have_pages(project: AutomationShell) -> None:
    for number in range(3):
        project.order("mails", f"o-{number}")
    for noun, key in (("inputs", "id"), ("outputs", "id"), ("events", "id"), ("activity", "id")):
        whole = [row[key] for row in project.json("automation", noun, "mails")]
        first = project.run("automation", noun, "mails", "--limit", "2")
        more = first.stderr.splitlines()[-1].removeprefix("more: ").split()
        rest = project.json("automation", noun, "mails", *more)
        assert [row[key] for row in rest] == whole[2:]


def test_what_came_from_outside_cannot_move_the_cursor(project: AutomationShell) -> None:
    project.run("automation", "publish", "asking", "orders", "o\x1b[2J", '{"how": "\\u001b[31m"}')
    project.work()
    for words in (["show", "asking"], ["inputs", "asking"], ["events", "asking"]):
        assert "\x1b" not in project.run("automation", *words).stdout
    assert project.shown("asking")["change"]["parameters"]["text"] == "Your tea: \x1b[31m"


def test_an_open_run_that_nobody_takes_is_not_called_running(
    project: AutomationShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automation_page, "PATIENCE_S", 0)
    project.run("automation", "run-now", "mails")
    page = project.run("automation", "show", "mails").stdout
    assert "No worker has claimed it for " in page
    assert "is `rota up` running" in page


# -- approval ----------------------------------------------------------------------------------


def test_a_change_that_waits_is_shown_whole_and_made_when_approved(
    folder: Path, database_url: str
) -> None:
    project = AutomationShell(folder, database_url)
    project.run("migrate")
    project.work()
    shown = project.order("asking", "o-1")
    assert shown["status"] == "Needs attention"
    assert shown["sentence"] == "Waiting for your approval: Mail about o-1"
    assert shown["change"]["parameters"] == {"to": "ann@example.com", "text": "Your tea: ok"}
    page = project.run("automation", "show", "asking").stdout
    assert '"text": "Your tea: ok"' in page
    assert f"rota run approve {shown['change']['id']}\n" in page
    assert f"rota run reject {shown['change']['id']}\n" in page
    assert project.sent() == []
    after = project.obey(shown, "approve")
    assert (after["status"], after["actions"]) == ("Idle", [])
    assert project.sent() == ["ann@example.com: Your tea: ok"]


def test_a_rejected_change_is_never_made(project: AutomationShell) -> None:
    shown = project.order("asking", "o-1")
    assert project.obey(shown, "reject")["status"] == "Idle"
    assert project.sent() == []
    [output] = project.json("automation", "outputs", "asking")
    assert (output["status"], output["resolved_by"]) == ("skipped", "rejected")
    assert "skipped (rejected)" in project.run("automation", "outputs", "asking").stdout
    [event] = project.json("automation", "events", "asking", "--topic", "orders")
    assert event["status"] == "skipped"


def test_an_answer_says_what_was_agreed_to(project: AutomationShell) -> None:
    run_id = project.order("asking", "o-1")["run"]["id"]
    said = project.run("run", "approve", run_id[-12:]).stdout
    assert said.startswith(
        'approved for asking: Mail about o-1 (send_mail {"to":"ann@example.com",'
    )
    assert "→ Running: Waiting for a worker." in said
    project.work()
    run_id = project.order("asking", "o-2")["run"]["id"]
    found = project.json("run", "reject", run_id)
    assert (found["answer"], found["name"]) == ("rejected", "asking")
    assert found["answered"]["parameters"]["to"] == "ann@example.com"


def test_an_answer_to_what_is_over_changes_nothing(project: AutomationShell) -> None:
    shown = project.order("asking", "o-1")
    project.run("run", "approve", shown["run"]["id"])
    project.work()
    project.order("asking", "o-2")
    for first in (shown["run"]["id"], shown["change"]["id"]):
        for words in (["approve", first], ["reject", first], ["resolve", first, "skip"]):
            said = project.error("run", *words, code=5)
            assert "nothing was changed" in said
            assert "rota automation show asking" in said
    assert project.shown("asking")["status"] == "Needs attention"
    assert len(project.sent()) == 1


def test_an_answer_nobody_asked_for_is_refused(project: AutomationShell) -> None:
    idle = project.shown("mails")["run"]["id"]
    assert "does not wait for approval" in project.error("run", "approve", idle, code=5)
    assert "does not wait" in project.error("run", "resolve", idle, "try-again", code=5)
    waits = project.order("asking", "o-1")["run"]["id"]
    assert "waits for approval" in project.error("run", "resolve", waits, "skip", code=5)
    workflow = project.start("plain")
    assert "not of an automation" in project.error("run", "approve", workflow, code=5)
    assert "rota automation show NAME" in project.error("run", "approve", "asking", code=4)
    assert "'maybe' is not one of" in project.error("run", "resolve", waits, "maybe", code=2)


def test_the_page_of_an_open_run_leads_to_its_automation(project: AutomationShell) -> None:
    run_id = project.order("asking", "o-1")["run"]["id"]
    assert "`rota automation show asking`" in project.run("run", "show", run_id).stdout
    assert "rota automation" in project.error("run", "retry", run_id, code=5)


# -- what blocks, and what clears it -----------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "sentence", "action", "sent"),
    [
        ("login", "Waiting for you to renew credentials: the token has expired", "try-again", 1),
        ("lost", "It is unknown whether a change happened: Mail about o-1", "skip", 1),
        ("bad", "The code failed: an order without a customer", "try-again", 1),
        ("bad", "The code failed: an order without a customer", "skip", 0),
    ],
)
def test_every_blocked_automation_shows_the_command_that_clears_it(
    project: AutomationShell, how: str, sentence: str, action: str, sent: int
) -> None:
    shown = project.order("mails", "o-1", how)
    assert (shown["status"], shown["sentence"]) == ("Needs attention", sentence)
    if action == "try-again":
        (project.folder / "token").touch()  # the person renews it, or corrects the world
    assert project.obey(shown, action)["status"] == "Idle"
    assert len(project.sent()) == sent


def test_what_did_not_happen_is_made_again(project: AutomationShell) -> None:
    shown = project.order("mails", "o-1", "lost")
    assert [one["action"] for one in shown["actions"]] == ["happened", "did-not-happen", "skip"]
    page = project.run("automation", "show", "mails").stdout
    assert "the line broke after the body" in page
    assert "only an operator can find out whether it happened" in page
    assert "cannot find out" in project.error(
        "run", "resolve", shown["run"]["id"], "try-again", code=5
    )
    (project.folder / "sent.txt").unlink()  # it is not there, as the person sees
    again = project.obey(shown, "did-not-happen")
    assert again["status"] == "Needs attention"  # the line breaks every time
    assert len(project.sent()) == 1


def test_a_failure_shows_the_line_of_the_users_code(project: AutomationShell) -> None:
    project.order("mails", "o-1", "bad")
    page = project.run("automation", "show", "mails").stdout
    assert "ValueError: an order without a customer" in page
    assert 'jobs.py", line' in page
    assert "src/rota" not in page
    assert "rota automation deploy mails" in page


def test_an_event_that_cannot_even_be_read_is_skipped_by_the_command_shown(
    project: AutomationShell,
) -> None:
    shown = project.order("mails", "o-1", "early")
    [skip] = [one for one in shown["actions"] if one["action"] == "skip"]
    assert skip["command"] == f"rota run resolve {shown['run']['id']} skip"
    assert skip["means"] == "continue without orders/o-1"
    assert shown["skips"] == [{"topic": "orders", "id": "o-1"}]
    assert project.obey(shown, "skip")["status"] == "Idle"
    [event] = project.json("automation", "events", "mails", "--topic", "orders")
    assert event["status"] == "skipped"


def test_a_pause_is_reported_behind_what_is_more_urgent(project: AutomationShell) -> None:
    project.order("asking", "o-1")
    said = project.run("automation", "pause", "asking").stdout
    assert said.startswith("asking is paused\n→ Needs attention: Waiting for your approval")
    page = project.run("automation", "show", "asking").stdout
    assert "it pauses after this, until `rota automation resume asking`" in page


def test_activity_shows_what_a_run_did_in_a_sentence(project: AutomationShell) -> None:
    project.order("mails", "o-1")
    runs = project.json("automation", "activity", "mails")
    sentences = {one["sentence"] for one in runs}
    assert sentences == {
        "Checked",
        "Took no events",
        "Processed 1 event of orders → Mail about o-1",
    }
    page = project.run("automation", "activity", "mails").stdout
    assert "Processed 1 event of orders → Mail about o-1" in " ".join(page.split())


def test_run_show_of_a_handler_run_shows_handler_events_and_change(
    project: AutomationShell,
) -> None:
    project.order("mails", "o-1")
    [run] = [
        one for one in project.json("automation", "activity", "mails") if one["reserved_count"]
    ]
    shown = project.json("run", "show", run["id"])
    assert shown["handler_run"]["handler"] == "mailer"
    assert [(one["topic"], one["id"], one["act"]) for one in shown["events"]] == [
        ("orders", "o-1", "reserved"),
        ("orders", "o-1", "consumed"),
    ]
    assert (shown["change"]["tool"], shown["change"]["status"]) == ("send_mail", "applied")
    page = project.run("run", "show", run["id"]).stdout
    for words in ("consumer mailer", "consumed    orders/o-1", "Mail about o-1", "send_mail"):
        assert words in page


def test_a_change_that_happened_is_answered_with_its_result_and_a_note(
    project: AutomationShell,
) -> None:
    shown = project.order("mails", "o-1", "lost")
    change = shown["change"]["id"]
    words = ["run", "resolve", change, "happened", "--result", '{"id": 7}']
    project.run(*words, "--by", "anna", "--note", "the customer has it")
    project.work()
    output = project.json("automation", "outputs", "mails", change)
    assert (output["status"], output["result"]) == ("applied", {"id": 7})
    [answer] = output["answers"]
    assert (answer["answer"], answer["by"], answer["note"]) == (
        "happened",
        "anna",
        "the customer has it",
    )
    said = 'resolved as "happened" by anna: the customer has it'
    assert said in project.run("automation", "outputs", "mails", change).stdout
    assert said in project.run("automation", "show", "mails").stdout
    assert any(one["answers"] for one in project.json("automation", "activity", "mails"))


def test_one_answer_for_many_is_counted_before_it_is_given(project: AutomationShell) -> None:
    project.order("mails", "o-1", "lost")
    counted = project.run("automation", "resolve", "happened", "--name", "m*")
    assert counted.stdout == "happened would answer 1 automation\n  mails\n"
    assert "--yes" in counted.stderr
    assert project.json("automation", "show", "mails")["status"] == "Needs attention"
    done = project.json("automation", "resolve", "happened", "--tool", "other", "--yes")
    assert (done["count"], done["names"]) == (0, [])
    done = project.json("automation", "resolve", "happened", "--yes", "--by", "anna")
    assert (done["count"], done["names"], done["refused"]) == (1, ["mails"], {})
    project.work()
    assert project.json("automation", "show", "mails")["status"] == "Idle"


def test_a_skipped_event_is_given_back(project: AutomationShell) -> None:
    shown = project.order("mails", "o-1", "bad")
    project.obey(shown, "skip")
    [event] = project.json("automation", "events", "mails", "--status", "skipped")
    words = ["automation", "requeue", "mails", event["topic"]]
    assert "name one event, or give --all" in project.error(*words, code=2)
    said = project.run(*words, event["id"], "--note", "corrected").stdout
    assert said.startswith(f"event {event['id']} of topic {event['topic']} is requeued")
    assert (
        project.json("automation", "events", "mails", "--status", "pending")[0]["id"] == event["id"]
    )


def test_the_page_names_the_notification_about_what_it_waits_for(folder: Path) -> None:
    code = CODE + '\napp.notify("ops", command="true")\n'
    project = AutomationShell(folder, "sqlite:///jobs.db", code)
    project.work()
    project.order("asking", "o-1")

    async def dispatch() -> None:
        async def dispatched() -> bool:
            return all(one.rules is not None for one in await app.notifications.list())

        app = project.app()
        async with app:
            await until(dispatched)

    asyncio.run(dispatch())
    shown = project.shown("asking")
    output = shown["notification"]
    assert (output["kind"], output["rules"]) == ("approval_wanted", ["ops"])
    page = project.run("automation", "show", "asking").stdout
    assert re.search(r"\n  Notification approval_wanted of .+ went to ops\.\n", page)
    assert project.obey(shown, "approve")["notification"] is None
