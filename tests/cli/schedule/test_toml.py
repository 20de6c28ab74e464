"""Schedules in `rota.toml`: applied by a deployment, never reset, quarantined without code."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import Callable

import pytest

from rota import project
from rota.errors import UsageError
from tests.cli.kit import Daemon, Shell

NIGHTLY = """
[schedules.nightly]
workflow = "add"
when = ["0 2 * * *", "0 14 * * *"]
timezone = "Europe/Berlin"
input = { n = 3 }
overlap = "skip"
max_delay = "1h"
start = 2039-01-01
end = "2040-01-01T12:00Z"
"""


def write(shell: Shell, text: str) -> None:
    """Add tables to the project's file; those that were added before are gone."""
    path = shell.folder / "rota.toml"
    path.write_text(path.read_text().partition("\n# added\n")[0] + "\n# added\n" + text)


def deploy(shell: Shell) -> None:
    """Schedules at the start of a worker."""

    async def start() -> None:
        async with shell.app() as app:
            assert app.runtime is not None

    asyncio.run(start())


def test_a_deployment_applies_what_the_file_says(either: Shell) -> None:
    write(either, NIGHTLY)
    deploy(either)
    [found] = either.json("schedule", "list")
    assert (found["name"], found["workflow"], found["input"]) == ("nightly", "add", {"n": 3})
    assert (found["forms"], found["timezone"]) == (["0 2 * * *", "0 14 * * *"], "Europe/Berlin")
    assert (found["policies"]["overlap"], found["policies"]["max_delay"]) == ("skip", "1h")
    assert (found["start_at"], found["end_at"]) == (
        "2038-12-31T23:00:00.000Z", "2040-01-01T12:00:00.000Z",
    )  # fmt: skip
    assert (found["owner"], found["origin"]) == ("code", str(either.folder / "rota.toml"))
    assert "  owner       code, from " in either.run("schedule", "show", "nightly").stdout


def test_a_daemon_applies_it(shell: Shell, up: Callable[..., Daemon]) -> None:
    write(shell, NIGHTLY)
    up().receives("is up")
    assert [row["name"] for row in shell.json("schedule", "list")] == ["nightly"]


def test_a_deployment_again_resets_nothing(either: Shell) -> None:
    write(either, '[schedules.often]\nworkflow = "add"\nwhen = "50m"\ninput = { n = 1 }\n')
    deploy(either)
    [before] = either.json("schedule", "list")
    deploy(either)
    assert either.json("schedule", "list") == [before]
    either.run("schedule", "pause", "often", "--note", "by Ann")
    deploy(either)
    [after] = either.json("schedule", "list")
    assert (after["status"], after["note"], after["id"]) == ("paused", "by Ann", before["id"])


def test_a_deleted_schedule_that_is_still_declared_is_created_again(either: Shell) -> None:
    write(either, '[schedules.often]\nworkflow = "add"\nwhen = "50m"\ninput = { n = 1 }\n')
    deploy(either)
    [before] = either.json("schedule", "list")
    said = either.run("schedule", "delete", "often").stdout
    assert said == (
        f"schedule often is deleted; the runs it fired stay. If {before['origin']} still declares "
        "it, the next worker creates it again\n"
    )
    deploy(either)
    [again] = either.json("schedule", "list")
    assert (again["name"], again["id"] == before["id"]) == ("often", False)


def test_a_change_of_the_file_is_applied_and_history_stays(either: Shell) -> None:
    write(either, '[schedules.s]\nworkflow = "add"\nwhen = "@daily"\ninput = { n = 1 }\n')
    deploy(either)
    [before] = either.json("schedule", "list")
    write(either, '[schedules.s]\nworkflow = "add"\nwhen = "@hourly"\ninput = { n = 2 }\n')
    deploy(either)
    [after] = either.json("schedule", "list")
    assert (after["id"], after["when"], after["input"]) == (before["id"], "@hourly", {"n": 2})


OWN = """
[schedules.s]
workflow = "add"
when = "{when}"
timezone = "UTC"
input = {{ n = 1 }}
"""


def test_the_log_of_a_deploy_shows_how_a_phrase_of_the_file_was_read(
    either: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(either, OWN.format(when="every friday at 5pm"))
    with caplog.at_level(logging.INFO, "rota.app"):
        deploy(either)
        deploy(either)
    [line] = [r.getMessage() for r in caplog.records if " means: " in r.getMessage()]
    assert line.startswith(
        'schedule s: "every friday at 5pm" means: at 17:00, on Friday (UTC) [0 17 * * FRI]; '
    )


def test_an_operators_change_outlives_a_change_of_the_file_until_it_is_reset(
    either: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(either, OWN.format(when="0 9 * * *"))
    deploy(either)
    either.run("schedule", "update", "s", "0 7 * * *", "--max-delay", "2h")
    write(either, OWN.format(when="0 10 * * *"))
    deploy(either)
    assert "rota.toml: when is 0 7 * * * (declared: 0 10 * * *); max_delay is 2h" in caplog.text
    page = either.run("schedule", "show", "s").stdout
    assert "  changed     when is 0 7 * * * (declared: 0 10 * * *)\n" in page
    assert "  changed     max_delay is 2h (declared: none)\n" in page
    assert "an operator has changed: when, max_delay" in either.run("schedule", "list").stdout
    assert either.json("schedule", "show", "s")["schedule"]["differences"] == [
        {"field": "when", "declared": "0 10 * * *", "value": "0 7 * * *"},
        {"field": "max_delay", "declared": "none", "value": "2h"},
    ]
    said = either.run("schedule", "reset", "s", "max-delay").stdout
    assert said.startswith("schedule s runs at 07:00, every day (UTC); next: ")
    said = either.run("schedule", "reset", "s").stdout
    assert said.startswith("schedule s runs at 10:00, every day (UTC); next: ")
    assert "changed" not in either.run("schedule", "show", "s").stdout


def test_one_whose_workflow_is_gone_is_quarantined_loudly(
    either: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(either, '[schedules.s]\nworkflow = "naps"\nwhen = "@daily"\n')
    deploy(either)
    jobs = either.folder / "jobs.py"
    jobs.write_text(jobs.read_text().replace("async def naps(", "async def dozes("))
    del sys.modules["jobs"]
    with caplog.at_level(logging.ERROR, "rota.app"):
        deploy(either)
    assert "there is no workflow naps in the code, so it does not run" in caplog.text
    [found] = either.json("schedule", "list")
    assert found["status"] == "paused"
    assert found["note"] == "quarantined: workflow naps is gone from the code"
    assert either.json("why", "s")["verdict"] == "quarantined"


def test_one_that_left_the_file_still_fires_and_is_warned_of(
    either: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(either, '[schedules.s]\nworkflow = "naps"\nwhen = "@daily"\n')
    deploy(either)
    write(either, "")
    with caplog.at_level(logging.WARNING, "rota.app"):
        deploy(either)
    assert "schedule s is no longer declared" in caplog.text
    assert either.json("schedule", "list")[0]["status"] == "scheduled"


def test_an_operators_schedule_is_left_alone(
    either: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    either.run("schedule", "create", "mine", "naps", "@daily")
    [before] = either.json("schedule", "list")
    write(either, NIGHTLY)
    deploy(either)
    assert before in either.json("schedule", "list")
    assert "mine" not in caplog.text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('workflow = "add"\nwhen = "61 * * * *"', r"\[schedules.s\]: minute: 61 is outside 0-59"),
        ('workflow = "add"\nwhen = "@daily"\ntimezone = "Nowhere"', "unknown time zone"),
        ('workflow = "add"\nwhen = "@daily"\ntimezone = ""', "unknown time zone ''"),
        ('workflow = "add"\nwhen = "@daily"\noverlap = "maybe"', "overlap='maybe' is not a policy"),
        ('workflow = "add"\nwhen = "@daily"\nmax_delay = "soon"', "'soon' is not a duration"),
        ('workflow = "add"\nwhen = "@daily"\nstart = "soon"', "'soon' is not a time"),
        ('workflow = "add"\nwhen = "5m"\nstart = "tomorrow 9:00"', "start: 'tomorrow 9:00' is not"),
        ('workflow = "add"\nwhen = "5m"\nend = 09:00:00', "end: '09:00:00' is not a time with its"),
        ('workflow = "add"\nwhen = "5m"\ntimeout = "0s"', "timeout='0s' leaves no time"),
        ('workflow = "add"\nwhen = "5m"\nqueue = ""', "queue is empty"),
        (
            'workflow = "add"\nwhen = "5m"\nstart = 2027-02-01\nend = 2027-01-01',
            r"the schedule would end \(2027-01-01",
        ),
        ('workflow = "add"\nwhen = "10ms"', "more than once a second"),
        ('workflow = "add"', "missing required field `when`"),
        (
            'workflow = "add"\nwhen = "@daily"\njiter = "5m"',
            'unknown key "jiter"; did you mean "jitter"',
        ),
    ],
)
def test_a_table_that_makes_no_sense_names_its_place(shell: Shell, text: str, says: str) -> None:
    write(shell, f"[schedules.s]\n{text}\n")
    found = project.find(None, shell.folder)
    assert found is not None
    [(name, error)] = found.bad_schedules.items()
    assert name == "s"
    assert re.search(says, error.message)
    assert "[schedules.s]: " in error.message


BAD = '[schedules.bad]\nworkflow = "naps"\nwhen = "every monday at 25:00"\njiter = "5m"\n'
GOOD = '[schedules.good]\nworkflow = "naps"\nwhen = "@daily"\n'


def test_a_bad_table_stops_no_command_and_no_other_schedule(
    either: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(either, BAD.replace("jiter", "jitter").replace("25:00", "9:00") + GOOD)
    deploy(either)
    before = either.json("schedule", "show", "bad")["schedule"]
    caplog.clear()
    write(either, BAD + GOOD.replace("@daily", "@hourly"))
    deploy(either)
    # The last good definition stays in force; the log says so once, and only about this one.
    assert either.json("schedule", "show", "bad")["schedule"] == before
    assert either.json("schedule", "show", "good")["schedule"]["when"] == "@hourly"
    [line] = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert line.startswith(
        f"schedule bad is not applied: {either.folder / 'rota.toml'} [schedules.bad]: unknown key "
        '"jiter"; did you mean "jitter"? Use one of: workflow, '
    )
    either.run("run", "list")
    either.run("schedule", "list")
    either.run("why", "good")


def test_arguments_that_do_not_fit_the_workflow_stop_only_their_schedule(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(shell, '[schedules.bad]\nworkflow = "add"\nwhen = "@daily"\ninput = {}\n' + GOOD)
    deploy(shell)
    assert [one["name"] for one in shell.json("schedule", "list")] == ["good"]
    assert "is not applied: add: missing a required argument: 'n'. Call it as add(" in caplog.text


def test_the_doctor_names_a_bad_table(shell: Shell) -> None:
    write(shell, BAD)
    deploy(shell)
    found = shell.json("doctor", code=1)
    [finding] = [one for one in found["findings"] if one["what"] == "rota.toml"]
    assert finding["level"] == "bad"
    assert finding["says"].endswith('[schedules.bad]: unknown key "jiter"; did you mean "jitter"?')
    assert finding["hint"].startswith("Use one of: workflow, when")


@pytest.mark.parametrize(
    ("table", "says", "hint"),
    [
        ('workflow = "ad"\nwhen = "@daily"\n', "there is no workflow 'ad'", "Did you mean add"),
        ('workflow = "add"\nwhen = "@daily"\n', "add: missing a required argument: 'n'", "Call it"),
    ],
)
def test_the_doctor_names_a_table_that_the_code_does_not_fit(
    shell: Shell, table: str, says: str, hint: str
) -> None:
    write(shell, "[schedules.bad]\n" + table + GOOD)
    deploy(shell)
    found = shell.json("doctor", code=1)
    [finding] = [one for one in found["findings"] if one["what"] == "rota.toml"]
    assert finding["says"].endswith(f"[schedules.bad]: {says}")
    assert finding["hint"].startswith(hint)


def test_the_doctor_names_code_that_cannot_be_imported(shell: Shell) -> None:
    write(shell, GOOD)
    deploy(shell)
    path = shell.folder / "rota.toml"
    path.write_text(path.read_text().replace("jobs:", "nowhere:"))
    found = shell.json("doctor", code=1)
    [finding] = [one for one in found["findings"] if one["what"] == "rota.toml"]
    assert finding["says"].startswith("there is no module nowhere")


def test_a_time_that_is_over_does_not_keep_a_worker_from_starting(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    write(shell, '[schedules.s]\nworkflow = "naps"\nwhen = "2020-01-01T09:00Z"\n')
    deploy(shell)
    assert "nothing left to fire" in caplog.text
    assert shell.json("schedule", "list") == []


def test_a_name_both_in_code_and_file_is_refused(shell: Shell) -> None:
    jobs = shell.folder / "jobs.py"
    jobs.write_text(
        jobs.read_text().replace(
            "@app.workflow\nasync def login",
            '@app.schedule("@daily")\n@app.workflow\nasync def login',
        )
    )
    write(shell, '[schedules.login]\nworkflow = "login"\nwhen = "@daily"\n')
    with pytest.raises(UsageError, match="both declare schedule login"):
        shell.app()
