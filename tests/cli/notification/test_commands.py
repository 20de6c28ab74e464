"""`rota notification …`: what was recorded, and whether a rule works."""

from __future__ import annotations

from rota.cli.base import CommonOptions
from rota.cli.pipeline import location
from tests.cli.kit import Shell


def _rule(shell: Shell, text: str) -> None:
    with (shell.folder / "rota.toml").open("a") as file:
        file.write(text)


def test_what_was_recorded_is_listed(either: Shell) -> None:
    assert "no notification was recorded" in either.run("notification", "list").stdout
    _rule(either, '[notifications.ops]\ncommand = "true"\n')
    either.work()  # which deploys the rule
    run_id = either.start("fails", "n=1")
    either.work()
    [row] = either.json("notification", "list")
    assert (row["kind"], row["source"], row["name"]) == ("failed", "workflow", "fails")
    assert row["run"] == run_id
    assert "cannot do 2" in row["text"]
    head, line = either.run("notification", "list").stdout.splitlines()
    assert head.split() == ["WHEN", "KIND", "ABOUT", "RUN", "RULES", "ERROR"]
    assert "workflow fails" in line
    assert either.json("notification", "list", "--kind", "missed") == []
    either.start("fails", "n=2")
    either.work()
    newest = either.json("notification", "list")[0]["id"]
    page = either.run("notification", "list", "--limit", "1")
    assert page.stderr == f"more: --before {newest}\n"
    [older] = either.json("notification", "list", "--before", newest)
    assert older["id"] == row["id"]


def test_a_rule_is_tested_without_a_worker(either: Shell) -> None:
    out = either.folder / "out"
    _rule(either, f"[notifications.ops]\ncommand = \"cat > '{out}'\"\n")
    said = either.run("notification", "test", "ops").stdout
    assert said.startswith("ops took the test message ")
    assert "rota notification test" in out.read_text()
    assert "Declared rules: ops." in either.error("notification", "test", "opps", code=2)


def test_a_rule_that_cannot_send_says_why(either: Shell) -> None:
    _rule(either, '[notifications.ops]\ncommand = "echo no >&2; exit 3"\n')
    result = either.run("notification", "test", "ops", code=1)
    assert "exit" in result.stderr


def test_the_scheduler_of_pipelines_has_the_rules_of_the_file(either: Shell) -> None:
    _rule(either, '[notifications.ops]\ncommand = "true"\n')
    app = location.app_of(CommonOptions(), either.folder)
    assert list(app.notifications.declared) == ["ops"]
    assert app.notifications.declared["ops"].origin == str(either.folder / "rota.toml")
