"""`rota automation dry-run`: text, JSON and exit codes, and nothing is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit.automation_project import AutomationShell


@pytest.fixture
def project(folder: Path, database_url: str) -> AutomationShell:
    """The project with an order that was mailed, at rest; `text` is secret."""
    project = AutomationShell(folder, database_url)
    project.run("migrate")
    project.work()
    project.order("mails", "o-1")
    with (folder / "rota.toml").open("a") as file:
        file.write('secret_fields = ["text"]\n')
    return project


def test_a_used_order_is_shown_with_its_call_and_is_not_mailed_again(
    project: AutomationShell,
) -> None:
    before = project.json("automation", "events", "mails"), project.shown("mails")["status"]
    said = project.run("automation", "dry-run", "mails", "orders", "o-1").stdout
    assert said.splitlines()[0] == "orders/o-1: mailer would call send_mail"
    assert "Mail about o-1" in said
    assert '"to": "ann@example.com"' in said
    assert "tea" not in said
    [found] = project.json("automation", "dry-run", "mails", "orders", "o-1")
    assert found == {
        "consumer": "mailer", "topic": "orders", "event": "o-1", "outcome": "change",
        "tool": "send_mail", "params": {"to": "ann@example.com", "text": "[redacted]"},
        "title": "Mail about o-1", "approval": False, "reason": None,
    }  # fmt: skip
    assert project.sent() == ["ann@example.com: Your tea: ok"]
    after = project.json("automation", "events", "mails"), project.shown("mails")["status"]
    assert after == before


def test_a_consumer_that_fails_gives_the_exit_code_1(project: AutomationShell) -> None:
    project.run("automation", "pause", "asking")
    for number, how in (("o-2", "ok"), ("o-3", "bad")):
        project.run("automation", "publish", "asking", "orders", number, f'{{"how": "{how}"}}')
    said = project.run("automation", "dry-run", "asking", "orders", "o-2", "o-3", code=1).stdout
    assert "orders/o-2: mailer would call send_mail after an approval\n" in said
    assert "orders/o-3: mailer would fail: ValueError: an order without a customer\n" in said
    assert len(project.sent()) == 1


def test_an_event_that_is_not_there_is_refused(project: AutomationShell) -> None:
    said = project.error("automation", "dry-run", "mails", "orders", "none", code=2)
    assert "there is no event orders/none in automation mails" in said
