"""Commands about runs, schedules and pipelines print `[redacted]` for declared secret fields."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kit import Shell
from tests.cli.kit.pipelines import document, made, rota

SECRET = "hunter2-hunter2"


def test_no_command_prints_a_declared_secret(either: Shell) -> None:
    file = either.folder / "rota.toml"
    file.write_text(file.read_text() + 'secret_fields = ["text"]\n')
    run_id = either.start("add", "n=2", f"text={SECRET}")
    either.work()
    either.run("schedule", "create", "nightly", "add", "daily at 3:00", "--timezone", "UTC",
        "--input", json.dumps({"n": 1, "text": SECRET}))  # fmt: skip
    said = [
        either.run(*words).stdout
        for words in (
            ("run", "result", run_id), ("run", "show", run_id), ("run", "show", run_id, "--json"),
            ("run", "list", "--json"), ("schedule", "show", "nightly"),
            ("schedule", "show", "nightly", "--json"), ("schedule", "list", "--json"),
        )
    ]  # fmt: skip
    assert not [text for text in said if SECRET in text]
    assert json.loads(said[0]) == {"sum": 3, "text": "[redacted]", "key": ""}
    assert all("[redacted]" in said[at] for at in (1, 2, 4, 5))


def test_items_of_a_pipeline_hide_a_declared_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_SECRET_FIELDS", "word")
    made(folder, [SECRET])
    rota("run", "words", "--ai", "ai.yaml")
    [run] = document("history", "words")
    [item] = document("history", "words", "--run", run["run"])["items"]
    assert item["item"] == {"word": "[redacted]"}
    assert '{"word":"[redacted]"}' in rota("history", "words", "--run", run["run"]).stdout
