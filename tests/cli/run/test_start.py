"""`rota run start`: arguments, checks, options, and waiting."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kit import Shell


def test_values_are_json_where_they_are_json(shell: Shell) -> None:
    run_id = shell.start("add", "n=2", "text=two words")
    assert shell.json("run", "show", run_id)["run"]["input"] == {"n": 2, "text": "two words"}


def test_a_number_for_a_string_is_taken_as_a_string(shell: Shell) -> None:
    run_id = shell.start("add", "n=2", "text=007", "key=7")
    assert shell.json("run", "show", run_id)["run"]["input"] == {"n": 2, "text": "007", "key": "7"}


def test_the_whole_input_may_come_as_json_file_or_stdin(shell: Shell) -> None:
    Path("input.json").write_text('{"n": 5}')
    for source, given in (('{"n": 5}', None), ("@input.json", None), ("-", '{"n": 5}')):
        answer = shell.json("run", "start", "add", "--input", source, "text=x", input=given)
        page = shell.json("run", "show", answer["id"])
        assert page["run"]["input"] == {"n": 5, "text": "x"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["n=abc"], "add: Expected `int`, got `str` - at `$.n`"),
        (["n=true"], "add: Expected `int`, got `bool` - at `$.n`"),
        (["n=x", "text=7"], "add: Expected `int`, got `str` - at `$.n`"),
        ([], "add needs n"),
        (["n=1", "m=2"], "add has no parameter m"),
        (["n"], "'n' is not an argument"),
        (["n=1", "n=2"], "n is given twice"),
        (["--input", '{"n": 1}', "n=2"], "n is given twice: in --input and as n=…"),
        (["--input", "{"], "--input is not JSON"),
        (["--input", "[1]"], "--input is a JSON list, not an object"),
        (["--input", "@nowhere.json"], "nowhere.json cannot be read"),
        (["n=1", "--tag", "x"], "'x' is not a tag"),
        (["n=1", "--delay", "soon"], "'soon' is not a duration"),
        (["n=1", "--at", "noon"], "'noon' is not a time"),
        (["n=1", "--at", "2030-01-01", "--delay", "1s"], "give --delay or --at, not both"),
        (["n=1", "--wait", "--timeout", "x"], "'x' is not a duration"),
        (["n=1", "--timeout", "5s"], "--timeout means something only with --wait"),
        (["n=1", "--delay", "99999999d"], "a duration of '99999999d' is too long"),
        (["n=1", "--delay", "2925000d"], "delay='2925000d' is too far away"),
        (["n=1", "--delay", f"{'9' * 400}d"], "is not a duration"),
        (["n=1", "--at", "0001-01-01T00:00"], "is too far away"),
        (["n=1", "--at", "9999-12-31T23:59:59-12:00"], "is too far away"),
        (["n=" + "[" * 100_000], "is nested too deeply"),
        (["--input", "[" * 100_000], "--input is nested too deeply"),
        (["n=1", "--priority", "9" * 20], f"priority={'9' * 20} is not a priority"),
        (["n=1", "--external-id", ""], "external_id is empty"),
        (["n=1", "--external-id", "a\udcff"], "is not valid Unicode"),
        (["n=1", "--key", "k" * 2_000], "key has 2,000 bytes"),
        (["n=1", "--priority", "high"], "'high' is not a valid integer"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_started(
    shell: Shell, words: list[str], says: str
) -> None:
    shell.run("migrate")
    assert says in shell.error("run", "start", "add", *words, code=2)
    assert shell.json("run", "list") == []


ECHOES = """
from typing import Any
from rota import Rota

app = Rota("sqlite:///from_code.db")

@app.workflow
async def echo(
    external_id: str, on_conflict: str, queue: str, priority: float, delay: str, at: str,
    key: str, tags: list[str], retries: str, timeout: int = 30,
) -> None:
    pass
"""


@pytest.mark.parametrize("source", ["project", "database"])
def test_parameters_named_like_options_arrive_beside_the_options(
    either: Shell, source: str
) -> None:
    Path("echoes.py").write_text(ECHOES)
    given = {
        "external_id": "mine", "on_conflict": "swerve", "queue": "road", "priority": 3.5,
        "delay": "a while", "at": "home", "key": "door", "tags": ["x"], "retries": "many",
        "timeout": 5,
    }  # fmt: skip
    said = [f"{name}={json.dumps(value)}" for name, value in given.items()]
    where = ["--database", either.url]
    Path("rota.toml").unlink()
    if source == "project":
        where += ["--project", "echoes:app"]
    answer = either.json(
        "run", "start", "echo", *said, *where, "--external-id", "e", "--queue", "slow",
        "--priority", "4", "--delay", "1h", "--key", "limit", "--tag", "a=b",
    )  # fmt: skip
    row = either.json("run", "show", answer["id"], "--database", either.url)["run"]
    assert row["input"] == given
    assert (row["external_id"], row["queue"], row["priority"]) == ("e", "slow", 4)
    assert (row["limit_key"], row["tags"], row["status"]) == ("limit", {"a": "b"}, "sleeping")


def test_an_unknown_workflow_is_answered_with_the_nearest(shell: Shell) -> None:
    said = shell.error("run", "start", "anser", code=4)
    assert said == "Error: there is no workflow 'anser'.\nHint: Did you mean answer?\n"


LONG = "12345678901234567890.12"
NUMBERS = """
from decimal import Decimal
from rota import Rota

app = Rota("sqlite:///from_code.db")

@app.workflow
async def pay(amount: Decimal, share: float = 0.0, note: str = "") -> None:
    pass
"""


def test_a_number_keeps_its_digits_or_is_refused(shell: Shell) -> None:
    Path("numbers.py").write_text(NUMBERS)
    pay = ("--project", "numbers.py", "run", "start", "pay")
    answer = shell.json(*pay, f"amount={LONG}", "share=0.12345678901234567890", f"note={LONG}")
    page = shell.json("--project", "numbers.py", "run", "show", answer["id"])
    assert page["run"]["input"] == {"amount": LONG, "share": 0.12345678901234568, "note": LONG}
    assert shell.json(*pay, "amount=0.1")["id"]
    refused = shell.error(*pay, "--input", f'{{"amount": {LONG}}}', code=2)
    assert f"the number {LONG} has more digits" in refused
    assert "write it as text" in refused
    for huge in ("1e400", f"-1e{'9' * 30}"):
        said = shell.error(*pay, "amount=1", f"share={huge}", code=2)
        assert "Expected `float`, got `str`" in said
    assert "has more digits" in shell.error(*pay, "--input", f'{{"amount": 1e-{"9" * 30}}}', code=2)


def test_without_a_project_the_input_is_sent_as_it_is(shell: Shell, tmp_path: Path) -> None:
    shell.run("migrate")
    url = f"sqlite:///{shell.folder / 'jobs.db'}"
    Path("rota.toml").unlink()
    answer = shell.json("run", "start", "whatever", "n=2", "--database", url)
    page = shell.json("run", "show", answer["id"], "--database", url)
    assert (page["run"]["name"], page["run"]["input"]) == ("whatever", {"n": 2})


def test_an_external_id_starts_once(shell: Shell) -> None:
    first = shell.json("run", "start", "add", "n=1", "--external-id", "a")
    second = shell.json("run", "start", "add", "n=1", "--external-id", "a")
    assert second == first | {"existed": True}
    assert "existed already" in shell.run("run", "start", "add", "n=1", "--external-id", "a").stdout


def test_options_reach_the_run(shell: Shell) -> None:
    run_id = shell.start(
        "add", "n=1", "--queue", "slow", "--priority", "7", "--key", "k", "--tag", "a=1",
        "--tag", "b=x=y", "--delay", "1h",
    )  # fmt: skip
    run = shell.json("run", "show", run_id)["run"]
    assert (run["queue"], run["priority"], run["limit_key"]) == ("slow", 7, "k")
    assert run["tags"] == {"a": "1", "b": "x=y"}
    assert run["status"] == "sleeping"


def test_a_run_may_start_at_an_instant(shell: Shell) -> None:
    run_id = shell.start("add", "n=1", "--at", "2100-01-01T09:00:00Z")
    run = shell.json("run", "show", run_id)["run"]
    assert run["available_at"].startswith("2100-01-01T09:00:00.0")
    past = shell.start("add", "n=1", "--at", "2001-01-01T09:00")
    assert shell.json("run", "show", past)["run"]["status"] == "pending"


def test_names_of_options_may_be_arguments_too(shell: Shell) -> None:
    run_id = shell.start("add", "n=1", "key=mine", "--key", "limit")
    run = shell.json("run", "show", run_id)["run"]
    assert run["input"] == {"n": 1, "key": "mine"}
    assert run["limit_key"] == "limit"


def test_wait_prints_the_result_and_nothing_else_on_stdout(shell: Shell) -> None:
    done = shell.json("run", "start", "add", "n=1", "--external-id", "w")
    shell.work()
    again = ["run", "start", "add", "n=1", "--external-id", "w", "--wait"]
    result = shell.run(*again)
    assert json.loads(result.stdout)["sum"] == 2
    assert result.stderr == f"run {done['id']} (add) existed already\n"
    assert shell.json(*again) == {
        "id": done["id"], "existed": True, "output": {"sum": 2, "text": "", "key": ""},
    }  # fmt: skip


def test_wait_fails_when_the_run_fails_or_takes_too_long(shell: Shell) -> None:
    shell.start("fails", "n=1", "--external-id", "f")
    shell.work()
    said = shell.error("run", "start", "fails", "n=1", "--external-id", "f", "--wait", code=1)
    assert "cannot do 2" in said
    said = shell.error("run", "start", "naps", "--wait", "--timeout", "50ms", code=6)
    assert "it continues" in said


def test_too_much_input_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_PAYLOAD_BYTES_MAX", "1024")
    said = shell.error("run", "start", "add", "n=1", f"text={'x' * 2000}", code=2)
    assert "the limit is 1,024" in said
