"""`rota automation …` and the answers to what waits, as a person types them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from rota.cli.automation import page as automation_page
from tests.cli.kit.automation_project import CODE, Desk
from tests.kit import until


@pytest.fixture
def desk(folder: Path) -> Desk:
    """The project on SQLite, deployed and at rest."""
    desk = Desk(folder, "sqlite:///jobs.db")
    desk.work()
    return desk


# -- looking -----------------------------------------------------------------------------------


def test_an_order_is_followed_from_the_door_to_the_mail(folder: Path, database_url: str) -> None:
    desk = Desk(folder, database_url)
    desk.run("migrate")
    desk.work()
    assert desk.order("mails", "o-1")["status"] == "Idle"
    [came_in] = desk.json("automation", "inputs", "mails")
    assert (came_in["status"], came_in["external_id"]) == ("done", "o-1")
    one = desk.json("automation", "inputs", "mails", came_in["id"])
    [output] = one["outputs"]
    assert (output["status"], output["tool"], output["title"]) == (
        "applied", "send_mail", "Mail about o-1",
    )  # fmt: skip
    assert output["parameters"] == {"to": "ann@example.com", "text": "Your tea: ok"}
    back = desk.json("automation", "outputs", "mails", output["id"])
    assert [row["id"] for row in back["inputs"]] == [came_in["id"]]
    assert [row["id"] for row in desk.json("automation", "outputs", "mails")] == [output["id"]]
    [event] = desk.json("automation", "events", "mails", "--topic", "orders")
    assert (event["id"], event["status"], event["payload"]) == ("o-1", "consumed", {"how": "ok"})
    assert desk.json("automation", "events", "mails", "--status", "pending") == []
    handlers = {run["handler"] for run in desk.json("automation", "activity", "mails")}
    assert handlers == {"poll", "mailer"}
    assert desk.sent() == ["ann@example.com: Your tea: ok"]


def test_the_pages_for_people_say_the_same(desk: Desk) -> None:
    desk.order("mails", "o-1")
    page = desk.run("automation", "show", "mails").stdout
    assert page.startswith("automation mails  Idle\n  Next check in ")
    assert "Checks every hour" in page
    assert "events of orders, found" in page
    assert "what you can do" not in page
    [came_in] = desk.json("automation", "inputs", "mails")
    story = desk.run("automation", "inputs", "mails", came_in["id"]).stdout
    assert "what it led to" in story
    assert '"text": "Your tea: ok"' in story
    output = desk.json("automation", "outputs", "mails")[0]["id"]
    assert (
        f"because of\n  {came_in['id']}  o-1"
        in desk.run("automation", "outputs", "mails", output[:20]).stdout
    )
    assert "looked 1 times" in desk.run("automation", "activity", "mails", "--logs").stdout
    assert "deploy" in desk.run("automation", "versions", "mails").stdout
    for noun in ("inputs", "outputs", "events"):
        table = desk.run("automation", noun, "mails").stdout
        assert len(table.splitlines()) == 2
    assert desk.run("automation", "inputs", "mails", "--pending").stdout == "nothing waits\n"


def test_the_list_has_a_sentence_for_each(desk: Desk) -> None:
    desk.order("mails", "o-1", "bad")
    result = desk.run("automation", "list")
    lines = result.stdout.splitlines()
    assert lines[1].split()[:2] == ["asking", "Idle"]
    assert "Needs attention" in lines[2]
    assert "The code failed: an order without a customer" in lines[2]
    assert "rota automation show mails" in result.stderr
    assert [one["name"] for one in desk.json("automation", "list")] == ["asking", "mails"]
    assert [one["name"] for one in desk.json("automation", "list", "--after", "asking")] == [
        "mails"
    ]


def test_long_lists_have_pages(desk: Desk) -> None:
    for number in range(3):
        desk.order("mails", f"o-{number}")
    for noun, key in (("inputs", "id"), ("outputs", "id"), ("events", "id"), ("activity", "id")):
        whole = [row[key] for row in desk.json("automation", noun, "mails")]
        first = desk.run("automation", noun, "mails", "--limit", "2")
        more = first.stderr.splitlines()[-1].removeprefix("more: ").split()
        rest = desk.json("automation", noun, "mails", *more)
        assert [row[key] for row in rest] == whole[2:]


def test_what_came_from_outside_cannot_move_the_cursor(desk: Desk) -> None:
    desk.run("automation", "publish", "asking", "orders", "o\x1b[2J", '{"how": "\\u001b[31m"}')
    desk.work()
    for words in (["show", "asking"], ["inputs", "asking"], ["events", "asking"]):
        assert "\x1b" not in desk.run("automation", *words).stdout
    assert desk.shown("asking")["change"]["parameters"]["text"] == "Your tea: \x1b[31m"


def test_a_turn_that_nobody_takes_is_not_called_running(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automation_page, "PATIENCE_S", 0)
    desk.run("automation", "run-now", "mails")
    page = desk.run("automation", "show", "mails").stdout
    assert "No worker has taken it for " in page
    assert "is `rota up` running" in page


# -- approval ----------------------------------------------------------------------------------


def test_a_change_that_waits_is_shown_whole_and_made_when_approved(
    folder: Path, database_url: str
) -> None:
    desk = Desk(folder, database_url)
    desk.run("migrate")
    desk.work()
    shown = desk.order("asking", "o-1")
    assert shown["status"] == "Needs attention"
    assert shown["sentence"] == "Waiting for your approval: Mail about o-1"
    assert shown["change"]["parameters"] == {"to": "ann@example.com", "text": "Your tea: ok"}
    page = desk.run("automation", "show", "asking").stdout
    assert '"text": "Your tea: ok"' in page
    assert f"rota run approve {shown['change']['id']}\n" in page
    assert f"rota run reject {shown['change']['id']}\n" in page
    assert desk.sent() == []
    after = desk.obey(shown, "approve")
    assert (after["status"], after["actions"]) == ("Idle", [])
    assert desk.sent() == ["ann@example.com: Your tea: ok"]


def test_a_rejected_change_is_never_made(desk: Desk) -> None:
    shown = desk.order("asking", "o-1")
    assert desk.obey(shown, "reject")["status"] == "Idle"
    assert desk.sent() == []
    [output] = desk.json("automation", "outputs", "asking")
    assert (output["status"], output["resolved_by"]) == ("skipped", "rejected")
    assert "skipped (rejected)" in desk.run("automation", "outputs", "asking").stdout
    [event] = desk.json("automation", "events", "asking", "--topic", "orders")
    assert event["status"] == "skipped"


def test_an_answer_says_what_was_agreed_to(desk: Desk) -> None:
    run_id = desk.order("asking", "o-1")["run"]["id"]
    said = desk.run("run", "approve", run_id[-12:]).stdout
    assert said.startswith(
        'approved for asking: Mail about o-1 (send_mail {"to":"ann@example.com",'
    )
    assert "→ Running: Waiting for a worker." in said
    desk.work()
    run_id = desk.order("asking", "o-2")["run"]["id"]
    found = desk.json("run", "reject", run_id)
    assert (found["answer"], found["name"]) == ("rejected", "asking")
    assert found["answered"]["parameters"]["to"] == "ann@example.com"


def test_an_answer_to_what_is_over_changes_nothing(desk: Desk) -> None:
    shown = desk.order("asking", "o-1")
    desk.run("run", "approve", shown["run"]["id"])
    desk.work()
    desk.order("asking", "o-2")
    for first in (shown["run"]["id"], shown["change"]["id"]):
        for words in (["approve", first], ["reject", first], ["resolve", first, "skip"]):
            said = desk.error("run", *words, code=5)
            assert "nothing was changed" in said
            assert "rota automation show asking" in said
    assert desk.shown("asking")["status"] == "Needs attention"
    assert len(desk.sent()) == 1


def test_an_answer_nobody_asked_for_is_refused(desk: Desk) -> None:
    idle = desk.shown("mails")["run"]["id"]
    assert "does not wait for approval" in desk.error("run", "approve", idle, code=5)
    assert "does not wait" in desk.error("run", "resolve", idle, "try-again", code=5)
    waits = desk.order("asking", "o-1")["run"]["id"]
    assert "waits for approval" in desk.error("run", "resolve", waits, "skip", code=5)
    workflow = desk.start("plain")
    assert "not of an automation" in desk.error("run", "approve", workflow, code=5)
    assert "rota automation show NAME" in desk.error("run", "approve", "asking", code=4)
    assert "'maybe' is not one of" in desk.error("run", "resolve", waits, "maybe", code=2)


def test_the_page_of_a_turn_leads_to_its_automation(desk: Desk) -> None:
    run_id = desk.order("asking", "o-1")["run"]["id"]
    assert "`rota automation show asking`" in desk.run("run", "show", run_id).stdout
    assert "rota automation" in desk.error("run", "retry", run_id, code=5)


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
    desk: Desk, how: str, sentence: str, action: str, sent: int
) -> None:
    shown = desk.order("mails", "o-1", how)
    assert (shown["status"], shown["sentence"]) == ("Needs attention", sentence)
    if action == "try-again":
        (desk.folder / "token").touch()  # the person renews it, or corrects the world
    assert desk.obey(shown, action)["status"] == "Idle"
    assert len(desk.sent()) == sent


def test_what_did_not_happen_is_made_again(desk: Desk) -> None:
    shown = desk.order("mails", "o-1", "lost")
    assert [one["action"] for one in shown["actions"]] == ["happened", "did-not-happen", "skip"]
    page = desk.run("automation", "show", "mails").stdout
    assert "the line broke after the body" in page
    assert "only a person can tell whether it happened" in page
    assert "cannot look" in desk.error("run", "resolve", shown["run"]["id"], "try-again", code=5)
    (desk.folder / "sent.txt").unlink()  # it is not there, as the person sees
    again = desk.obey(shown, "did-not-happen")
    assert again["status"] == "Needs attention"  # the line breaks every time
    assert len(desk.sent()) == 1


def test_a_failure_shows_the_line_of_the_users_code(desk: Desk) -> None:
    desk.order("mails", "o-1", "bad")
    page = desk.run("automation", "show", "mails").stdout
    assert "ValueError: an order without a customer" in page
    assert 'jobs.py", line' in page
    assert "src/rota" not in page
    assert "rota automation deploy mails" in page


def test_an_event_that_cannot_even_be_read_is_skipped_by_the_command_shown(desk: Desk) -> None:
    shown = desk.order("mails", "o-1", "early")
    [skip] = [one for one in shown["actions"] if one["action"] == "skip"]
    assert skip["command"] == f"rota run resolve {shown['run']['id']} skip"
    assert skip["means"] == "continue without orders/o-1"
    assert shown["skips"] == [{"topic": "orders", "id": "o-1"}]
    assert desk.obey(shown, "skip")["status"] == "Idle"
    [event] = desk.json("automation", "events", "mails", "--topic", "orders")
    assert event["status"] == "skipped"


def test_a_pause_is_told_behind_what_is_more_urgent(desk: Desk) -> None:
    desk.order("asking", "o-1")
    said = desk.run("automation", "pause", "asking").stdout
    assert said.startswith("asking is paused\n→ Needs attention: Waiting for your approval")
    page = desk.run("automation", "show", "asking").stdout
    assert "it rests after this, until `rota automation resume asking`" in page


def test_activity_tells_what_a_run_did_in_a_sentence(desk: Desk) -> None:
    desk.order("mails", "o-1")
    runs = desk.json("automation", "activity", "mails")
    sentences = {one["sentence"] for one in runs}
    assert sentences == {
        "Checked",
        "Looked and took nothing",
        "Processed 1 event of orders → Mail about o-1",
    }
    page = desk.run("automation", "activity", "mails").stdout
    assert "Processed 1 event of orders → Mail about o-1" in " ".join(page.split())


def test_run_show_of_a_handler_run_shows_handler_events_and_change(desk: Desk) -> None:
    desk.order("mails", "o-1")
    [run] = [one for one in desk.json("automation", "activity", "mails") if one["reserved_count"]]
    shown = desk.json("run", "show", run["id"])
    assert shown["handler_run"]["handler"] == "mailer"
    assert [(one["topic"], one["id"], one["act"]) for one in shown["events"]] == [
        ("orders", "o-1", "reserved"),
        ("orders", "o-1", "consumed"),
    ]
    assert (shown["change"]["tool"], shown["change"]["status"]) == ("send_mail", "applied")
    page = desk.run("run", "show", run["id"]).stdout
    for words in ("consumer mailer", "consumed    orders/o-1", "Mail about o-1", "send_mail"):
        assert words in page


def test_a_change_that_happened_is_answered_with_its_result_and_a_note(desk: Desk) -> None:
    shown = desk.order("mails", "o-1", "lost")
    change = shown["change"]["id"]
    words = ["run", "resolve", change, "happened", "--result", '{"id": 7}']
    desk.run(*words, "--by", "anna", "--note", "the customer has it")
    desk.work()
    output = desk.json("automation", "outputs", "mails", change)
    assert (output["status"], output["result"]) == ("applied", {"id": 7})
    [answer] = output["answers"]
    assert (answer["answer"], answer["by"], answer["note"]) == (
        "happened",
        "anna",
        "the customer has it",
    )
    said = "happened by anna: the customer has it"
    assert said in desk.run("automation", "outputs", "mails", change).stdout
    assert said in desk.run("automation", "show", "mails").stdout
    assert any(one["answers"] for one in desk.json("automation", "activity", "mails"))


def test_one_answer_for_many_is_counted_before_it_is_given(desk: Desk) -> None:
    desk.order("mails", "o-1", "lost")
    counted = desk.run("automation", "resolve", "happened", "--name", "m*")
    assert counted.stdout == "happened would answer 1 automation\n  mails\n"
    assert "--yes" in counted.stderr
    assert desk.json("automation", "show", "mails")["status"] == "Needs attention"
    done = desk.json("automation", "resolve", "happened", "--tool", "other", "--yes")
    assert (done["count"], done["names"]) == (0, [])
    done = desk.json("automation", "resolve", "happened", "--yes", "--by", "anna")
    assert (done["count"], done["names"], done["refused"]) == (1, ["mails"], {})
    desk.work()
    assert desk.json("automation", "show", "mails")["status"] == "Idle"


def test_a_skipped_event_is_given_back(desk: Desk) -> None:
    shown = desk.order("mails", "o-1", "bad")
    desk.obey(shown, "skip")
    [event] = desk.json("automation", "events", "mails", "--status", "skipped")
    words = ["automation", "requeue", "mails", event["topic"]]
    assert "name one event, or give --all" in desk.error(*words, code=2)
    said = desk.run(*words, event["id"], "--note", "corrected").stdout
    assert said.startswith(f"event {event['id']} of topic {event['topic']} is given back")
    assert desk.json("automation", "events", "mails", "--status", "pending")[0]["id"] == event["id"]


def test_the_page_names_the_notification_about_what_it_waits_for(folder: Path) -> None:
    code = CODE + '\napp.notify("ops", command="true")\n'
    desk = Desk(folder, "sqlite:///jobs.db", code)
    desk.work()
    desk.order("asking", "o-1")

    async def dispatch() -> None:
        async def dispatched() -> bool:
            return all(one.rules is not None for one in await app.notifications.list())

        app = desk.app()
        async with app:
            await until(dispatched)

    asyncio.run(dispatch())
    shown = desk.shown("asking")
    told = shown["notification"]
    assert (told["kind"], told["rules"]) == ("approval_wanted", ["ops"])
    page = desk.run("automation", "show", "asking").stdout
    assert re.search(r"\n  Notification approval_wanted of .+ went to ops\.\n", page)
    assert desk.obey(shown, "approve")["notification"] is None
