"""`rota pipeline run|resume|retry|history`: results on stdout, nothing paid twice, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rota.cli.main import cli
from tests.cli.kit.pipelines import (
    KINDS,
    calls,
    document,
    made,
    rota,
    wait_for,
)
from tests.pipelines.kit import write

pytestmark = pytest.mark.slow


# -- run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_starter_runs_offline(folder: Path, kind: str) -> None:
    rota("init", "one", "--template", kind)
    shown = document("run", "one")
    assert shown["outcome"] == "completed"
    assert shown["success"] is True
    assert shown["output"]
    assert shown["processed"] >= 3
    assert (folder / "one" / shown["result_file"]).is_file()


def test_stdout_has_the_result_and_nothing_else(folder: Path) -> None:
    made(folder, ["tea", "jam"])
    result = rota("run", "words", "--ai", "ai.yaml")
    assert result.stdout.splitlines() == [
        "word,out_text,out_success,out_error", "tea,said tea,true,", "jam,said jam,true,",
    ]  # fmt: skip
    assert "words: completed: 2 of 2 items done; 2 calls" in result.stderr
    assert rota("run", "words", "--ai", "ai.yaml", "--quiet").stderr == ""


def test_runs_are_kept_beside_the_pipelines_unless_a_database_is_named(folder: Path) -> None:
    rota("init", "all/one")
    rota("run", "all/one")
    assert (folder / "all" / ".rota.db").is_file()
    rota("run", "all/one", "--database", "sqlite:///other.db")
    assert (folder / "other.db").is_file()
    assert len(document("history", "all/one")) == 1


def test_the_result_may_go_to_a_file(folder: Path) -> None:
    made(folder, ["tea"])
    result = rota("run", "words", "--ai", "ai.yaml", "-o", "out.csv")
    assert result.stdout == ""
    assert (folder / "out.csv").read_text().splitlines()[1] == "tea,said tea,true,"
    shown = document("run", "words", "--ai", "ai.yaml", "-o", "out.csv")
    assert (shown["output"], shown["file"]) == (None, "out.csv")
    said = rota("run", "words", "--ai", "ai.yaml", "-o", "no/such/out.csv", code=2).stderr
    assert "there is no folder no/such" in said
    assert calls(folder) == ["tea", "tea"]


def test_some_failed_items_are_a_partial_result_with_its_own_code(folder: Path) -> None:
    made(folder, ["tea", "bad", "jam"])
    result = rota("run", "words", "--ai", "ai.yaml", code=7)
    assert result.stdout.splitlines()[1] == "tea,said tea,true,"
    assert "words: partial: 2 of 3 items done, 1 failed" in result.stderr
    assert "item 2: Rejected: sh ended with exit 1: no bad words" in result.stderr
    assert "try the failed items again: rota pipeline retry words" in result.stderr


def test_a_run_whose_items_all_fail_has_failed(folder: Path) -> None:
    made(folder, ["bad", "worse-bad"])
    result = rota("run", "words", "--ai", "ai.yaml", code=1)
    assert result.stdout == ""
    assert "words: failed: 0 of 2 items done, 2 failed" in result.stderr


def test_a_spent_budget_has_its_own_code_and_keeps_what_is_done(folder: Path) -> None:
    made(folder, ["tea", "jam", "milk"], settings={"budget": {"maxCalls": 2}})
    result = rota("run", "words", "--ai", "ai.yaml", code=8)
    assert calls(folder) == ["tea", "jam"]
    assert result.stdout.splitlines()[1:] == ["tea,said tea,true,", "jam,said jam,true,"]
    assert "rota pipeline run words --reuse last" in result.stderr
    rota("resume", "words", "--ai", "ai.yaml", code=8)  # it is the same budget
    made(folder, ["tea", "jam", "milk"], settings={"budget": {"maxCalls": 3}})
    more = rota("run", "words", "--ai", "ai.yaml", "--reuse", "last")
    assert len(more.stdout.splitlines()) == 4
    assert calls(folder) == ["tea", "jam", "milk"]


def test_a_provider_that_is_down_is_reported_and_a_timeout_ends_the_wait(folder: Path) -> None:
    made(folder, [f"word-{number}" for number in range(20)])
    settings = {"down": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"}}
    (folder / "ai.yaml").write_text(json.dumps({"providers": settings}))
    text = (folder / "words" / "pipeline.yaml").read_text()
    (folder / "words" / "pipeline.yaml").write_text(
        text.replace('"maxRetries": 0', '"maxRetries": 9')
    )
    result = rota(
        "run", "words", "--ai", "ai.yaml", "--model", "down:x", "--timeout", "4s", code=1
    )  # fmt: skip
    assert (
        "words: waiting for the provider: down (http://127.0.0.1:9/v1) cannot be" in result.stderr
    )
    assert "took longer than 4 s" in result.stderr


def test_after_a_change_only_what_changed_is_asked_again(folder: Path) -> None:
    made(folder, ["tea", "jam"])
    words = ["run", "words", "--ai", "ai.yaml", "--reuse"]
    assert "has not run yet" in rota(*words, "last", code=4).stderr
    rota("run", "words", "--ai", "ai.yaml")
    made(folder, ["jam", "milk", "tea"])
    run_id = document("history", "words")[0]["run"]
    rota(*words, run_id)
    assert calls(folder) == ["tea", "jam", "milk"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "{{word}} in the prompt of map has no value"),
        (["-p", "wrod=x"], 'uses the parameter "wrod"; did you mean "word"?'),
    ],
)
def test_what_is_missing_is_reported_before_anything_is_started(
    folder: Path, words: list[str], said: str
) -> None:
    made(folder, [])
    (folder / "rows.jsonl").write_text('{"other": 1}\n')
    result = rota("run", "words", "--ai", "ai.yaml", "--items", "rows.jsonl", *words, code=2)
    assert said in result.stderr
    assert result.stdout == ""
    assert not (folder / ".rota.db").exists()


@pytest.mark.parametrize(
    ("model", "said"),
    [("sya:it", "'sya' is not a provider; did you mean \"say\"? Write"), ("", "no model is named")],
)
def test_a_model_that_nobody_knows_is_reported_before_anything_is_started(
    folder: Path, model: str, said: str
) -> None:
    made(folder, ["tea"], settings={"model": model or None})
    assert said in rota("run", "words", "--ai", "ai.yaml", code=2).stderr
    assert not (folder / ".rota.db").exists()


def test_a_missing_extra_is_reported_before_anything_is_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(folder, ["tea"])
    for name in ("rota.net.http", "rota.ai.provider_call", "rota.ai.openai"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    said = rota("run", "words", "--ai", "ai.yaml", "--model", "openai:gpt", code=2).stderr
    assert "needs the httpx2 package. pip install 'rota[http]'" in said
    assert "resume" not in said
    assert not (folder / ".rota.db").exists()


def test_a_broken_definition_starts_nothing(folder: Path) -> None:
    write(folder / "broken", "name: X\nmap: {}\n")
    said = rota("run", "broken", code=2).stderr
    assert "broken/pipeline.yaml:2:" in said
    assert not (folder / ".rota.db").exists()


def test_items_come_from_a_pipe(folder: Path) -> None:
    made(folder, ["tea"])
    words = ["run", "words", "--ai", "ai.yaml", "--items", "-", "--items-format", "csv"]
    assert rota(*words, input="word\nmilk\n").stdout.splitlines()[1:] == ["milk,said milk,true,"]


def test_model_parallel_limit_and_parameters_win_over_the_file(folder: Path) -> None:
    made(
        folder, ["a", "b", "c"], parameters={"mark": "!"},
        map={"prompt": "{{word}}{{mark}}\n", "model": "say:it"},
    )  # fmt: skip
    shown = document(
        "run", "words", "--ai", "ai.yaml", "--model", "offline:x", "--parallel", "2",
        "--limit", "2", "-p", "mark=?",
    )  # fmt: skip
    assert shown["total"] == 2
    assert "(offline) a?" in shown["output"]
    assert calls(folder) == []


def test_a_run_without_items_says_so(folder: Path) -> None:
    made(folder, ["tea"])
    result = rota("run", "words", "--ai", "ai.yaml", "--limit", "0")
    assert "warning: no items came in" in result.stderr
    rule = {"field": "word", "operator": "equals", "value": "coffee"}
    made(folder, ["tea"], filter={"type": "rule", "rule": {"rules": [rule]}})
    result = rota("run", "words", "--ai", "ai.yaml")
    assert "warning: no item passed the filter" in result.stderr


def test_nothing_else_is_performed_by_the_way(folder: Path) -> None:
    """A schedule that is due, and a run that waits, are left to their own workers."""
    made(folder, ["tea"])
    rota("run", "words", "--ai", "ai.yaml")
    database = ["--database", "sqlite:///.rota.db"]
    waiting = rota_run("start", "somebody-elses", *database)
    rota("run", "words", "--ai", "ai.yaml")
    [found] = [each for each in rota_run("list", *database) if each["id"] == waiting["id"]]
    assert found["status"] == "pending"


def rota_run(*words: str) -> Any:
    """`rota run …`, which is another noun."""
    done = subprocess.run(
        [sys.executable, "-m", "rota", "run", *words, "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_a_dry_run_asks_nobody_and_stores_nothing(folder: Path) -> None:
    made(folder, ["tea", "jam"])
    shown = document("render", "words", "--ai", "ai.yaml", "--all")
    assert [each["prompt"] for each in shown["prompts"]] == ["tea\n", "jam\n"]
    assert calls(folder) == []
    assert not (folder / ".rota.db").exists()


def test_generated_items_are_looked_at_before_a_run(folder: Path) -> None:
    rota("init", "one", "--template", "generated")
    file = folder / "one" / "pipeline.yaml"
    file.write_text(file.read_text().replace("autoApprove: true", "autoApprove: false"))
    said = rota("run", "one", code=2).stderr
    assert "rota pipeline generate one > items.jsonl" in said
    result = rota("generate", "one", "-p", "topic=tea")
    assert "3 items, " in result.stderr
    items = [json.loads(line) for line in result.stdout.splitlines()]
    assert [set(item) for item in items] == [{"part", "question"}] * 3
    assert document("generate", "one", "-p", "topic=tea") == items
    (folder / "items.jsonl").write_text(result.stdout)
    shown = document("run", "one", "--items", "items.jsonl")
    assert (shown["outcome"], shown["processed"]) == ("completed", 3)
    rota("init", "two")
    assert "two does not generate its items" in rota("generate", "two", code=2).stderr


# -- history -----------------------------------------------------------------------------------


def test_history_shows_outcome_counts_and_cost(folder: Path) -> None:
    made(folder, ["tea", "bad"])
    assert "no runs yet" in rota("history", "words").stdout
    assert document("history", "words") == []
    rota("run", "words", "--ai", "ai.yaml", code=7)
    rota("run", "words", "--ai", "ai.yaml", "--limit", "1")
    newest, oldest = document("history", "words")
    assert (newest["outcome"], oldest["outcome"]) == ("completed", "partial")
    assert (oldest["result"]["processed"], oldest["result"]["failed"]) == (1, 1)
    assert oldest["result"]["calls"] == 2
    shown = rota("history", "words", "--limit", "1").stdout.splitlines()
    assert len(shown) == 2
    assert "1/1" in shown[1]


def test_history_shows_which_model_and_which_definition_made_a_result(folder: Path) -> None:
    made(folder, ["tea"])
    for _ in range(2):
        rota("run", "words", "--ai", "ai.yaml")
    file = folder / "words" / "pipeline.yaml"
    file.write_text(file.read_text().replace("{{word}}", "{{word}}!"))
    rota("run", "words", "--ai", "ai.yaml")
    entries = document("history", "words")
    third, second, first = (entry["result"]["definition"] for entry in entries)
    assert first == second != third
    [model] = entries[0]["result"]["models"]
    assert model.partition(":")[0] == "say"
    [item] = document("history", "words", "--run", entries[0]["run"])["items"]
    assert item["model"] == model
    line = rota("history", "words", "--limit", "1").stdout.splitlines()[1]
    assert model in line
    assert third[:8] in line
    page = rota("history", "words", "--run", entries[0]["run"]).stdout
    assert third in page


def test_one_run_is_shown_with_its_items_and_its_result(folder: Path) -> None:
    made(folder, ["tea", "bad"])
    assert "has not run yet" in rota("history", "words", "--result", code=4).stderr
    first = rota("run", "words", "--ai", "ai.yaml", code=7).stdout
    [entry] = document("history", "words")
    page = rota("history", "words", "--run", entry["run"]).stdout
    assert '{"word":"bad"}' in page
    assert "Rejected: sh ended with exit 1: no bad words" in page
    shown = rota("history", "words", "--run", entry["run"], "--limit", "1")
    assert "bad" in shown.stdout  # the error comes first
    assert "and 1 more: --limit N" in shown.stderr
    items = document("history", "words", "--run", entry["run"])["items"]
    assert [each["status"] for each in items] == ["completed", "failed"]
    assert rota("history", "words", "--result").stdout == first
    refused = rota("history", "words", "--result", "--limit", "1", code=2)
    assert "--result prints one result: omit --limit" in refused.stderr


# -- a terminal --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of forkpty.*:DeprecationWarning")
def test_a_terminal_shows_a_bar_and_the_result_stays_clean(folder: Path) -> None:
    from tests.cli.kit.terminal import (
        on_terminal,
    )

    made(folder, [f"w{n}" for n in range(30)])
    words = ["pipeline", "run", "words", "--ai", "ai.yaml", "-o", "out.csv"]
    shown = on_terminal(folder, *words, columns=80)
    assert "\r\x1b[2K[" in shown
    assert "/30" in shown
    assert "words: completed: 30 of 30 items done" in shown
    pictures = [part.partition("\r\n")[0] for part in shown.split("\r\x1b[2K")]
    assert all(len(picture) < 80 for picture in pictures[:-1])
    assert "\x1b" not in (folder / "out.csv").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*use of forkpty.*:DeprecationWarning")
def test_a_reply_cannot_play_tricks_on_a_terminal_and_a_pipe_gets_it_as_it_is(folder: Path) -> None:
    from tests.cli.kit.terminal import (
        on_terminal,
    )

    made(folder, ["x"], reduce={"type": "text"})
    (folder / "say.sh").write_text("printf 'a\\033[2Jb\\tc'")
    words = ["pipeline", "run", "words", "--ai", "ai.yaml", "--quiet"]
    assert on_terminal(folder, *words).rstrip() == "a\\x1b[2Jb\tc"
    assert rota(*words[1:]).stdout.rstrip() == "a\x1b[2Jb\tc"


def test_a_filtered_item_is_reported_with_its_reason(folder: Path) -> None:
    rule = {"field": "word", "operator": "equals", "value": "tea"}
    made(folder, ["tea", "jam"], filter={"type": "rule", "rule": {"rules": [rule]}})
    result = rota("run", "words", "--ai", "ai.yaml")
    assert "1 of 2 items done, 1 filtered out" in result.stderr
    [entry] = document("history", "words")
    page = rota("history", "words", "--run", entry["run"]).stdout
    assert page.splitlines()[-1].split()[:3] == ["-", '{"word":"jam"}', "filtered"]
    assert (
        "goes to stdout anyway" in rota("run", "words", "--ai", "ai.yaml", "-o", "-", code=2).stderr
    )


@pytest.mark.slow
def test_resume_continues_the_execution_that_waits_for_a_login(folder: Path) -> None:
    """Not the one that waits behind it: that would never begin."""
    made(folder, ["tea", "bad"], schedule={"cron": "@every 1s"})
    settings = json.loads((folder / "ai.yaml").read_text())
    settings["providers"]["say"]["exits"] = {"1": "login"}
    (folder / "ai.yaml").write_text(json.dumps(settings))
    log = folder / "scheduler.log"
    with log.open("w") as stderr:
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "rota", "scheduler", "start", "."], cwd=folder, stderr=stderr,
            env={**os.environ, "ROTA_AI_FILE": str(folder / "ai.yaml")},
        )  # fmt: skip
        try:
            wait_for(lambda: "was skipped: merged" in log.read_text())
        finally:
            scheduler.send_signal(signal.SIGINT)
            scheduler.wait(60)
    assert "`rota pipeline resume words` continues it" in log.read_text()
    shown = CliRunner().invoke(cli, ["scheduler", "status", "words"]).stdout
    assert "rota pipeline resume words" in shown
    assert "no bad words" in shown
    (folder / "fixed").touch()
    result = rota("resume", "words", "--ai", "ai.yaml")
    assert "2 of 2 items done" in result.stderr
    assert calls(folder) == ["tea", "bad", "bad"]


@pytest.mark.slow
def test_skipped_occurrences_are_reported_and_never_gone_on_with(folder: Path) -> None:
    schedule = {"cron": "@every 1s", "condition": {"file_exists": "ready.txt"}}
    made(folder, ["tea", "bad"], schedule=schedule)
    rota("run", "words", "--ai", "ai.yaml", code=7)
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "rota", "scheduler", "start", "."], cwd=folder,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(lambda: document("history", "words")[0]["outcome"] == "skipped:condition")
    finally:
        scheduler.send_signal(signal.SIGINT)
        scheduler.wait(60)
    skipped = document("history", "words")[0]["run"]
    assert "ready.txt is not there" in rota("history", "words").stdout
    page = rota("history", "words", "--run", skipped).stdout
    assert "skipped:condition: 0 of 0 items done" in page
    assert "was skipped" in rota("resume", "words", "--run", skipped, code=5).stderr
    (folder / "fixed").touch()
    rota("retry", "words", "--ai", "ai.yaml")
    assert calls(folder) == ["tea", "bad", "bad"]


def test_the_hint_of_a_cause_reaches_the_user(folder: Path) -> None:
    made(folder, [], input={"from": {"type": "csv", "path": "words.csv"}})
    (folder / "words" / "words.csv").write_bytes(b"word\nt\xe9a\n")
    hint = "Save the file as UTF-8, or name its encoding, such as encoding: cp1252."
    assert hint in rota("run", "words", "--ai", "ai.yaml", code=2).stderr
    assert hint in rota("validate", "words").stdout
    (folder / "words" / "words.csv").write_bytes(b"word\n" + b"tea\n" * 3000 + b"t\xe9a\n")
    assert hint in rota("run", "words", "--ai", "ai.yaml", code=1).stderr


def test_a_file_of_rows_is_written_or_refused(folder: Path) -> None:
    import openpyxl

    made(folder, ["tea"])
    rota("run", "words", "--ai", "ai.yaml", "-o", "out.xlsx")
    sheet = openpyxl.load_workbook(folder / "out.xlsx").worksheets[0]
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        ["word", "out_text", "out_success", "out_error"], ["tea", "said tea", True, None],
    ]  # fmt: skip
    made(folder, ["tea"], reduce={"type": "ai", "prompt": "Join {{RESULTS}}"})
    said = rota("run", "words", "--ai", "ai.yaml", "-o", "out.xlsx", code=2).stderr
    assert "the result of this pipeline is one text" in said
    assert calls(folder) == ["tea"]
