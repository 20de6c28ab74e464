"""`after` and `condition`: executions that begin, wait or are skipped, and what is reported it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.core.runs.stored_errors import read_error
from rota.explain.why import why
from rota.notifications import command
from rota.pipelines.definition.schedule_block import Condition
from rota.pipelines.run.conditions import unmet_condition
from rota.store.pipelines import dependencies
from rota.store.schedules import attempts
from tests.kit.builders import raw
from tests.pipelines.kit import discover, problem_lines, write
from tests.pipelines.kit.offline_folder import OfflineWorld, offline_world, written
from tests.pipelines.kit.receiver import Receiver
from tests.schedules.kit import at, outage, resume_work

# -- condition -----------------------------------------------------------------------------


async def test_an_execution_whose_file_is_missing_is_skipped_and_says_so(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("import", 'cron: "0 * * * *"\ncondition: {file_exists: in/data.csv}')
        await place.world.advance("1h")
        assert await place.ends("import") == ["skipped:condition"]
        assert await place.reason("import") == "in/data.csv is not there"
        assert place.asked == []
        (tmp_path / "import" / "in").mkdir()
        (tmp_path / "import" / "in" / "data.csv").touch()
        await place.world.advance("1h")
        assert await place.ends("import") == ["skipped:condition", "completed"]
        answer = await why(place.app, "import-1", at=at("01 01:00"))
        assert "in/data.csv is not there" in answer.sentence


async def test_a_person_who_starts_it_is_not_held_back(database_url: str, tmp_path: Path) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("import", 'cron: "0 9 * * *"\ncondition: {file_exists: never}')
        await place.app.schedules.trigger("import-1")
        await place.world.settle()
        assert await place.ends("import") == ["completed"]


@pytest.mark.parametrize(
    ("condition", "unmet"),
    [
        (Condition(), None),
        (Condition(file_exists="here.txt"), None),
        (Condition(file_exists=["here.txt", "sub"]), None),
        (Condition(file_exists="*.txt"), None),
        (Condition(file_exists="**/deep.csv"), None),
        (Condition(file_exists=["here.txt", "gone.txt"]), "gone.txt is not there"),
        (Condition(file_exists="*.xls"), "*.xls is not there"),
        (Condition(file_missing="gone.txt"), None),
        (Condition(file_missing=["gone.txt", "here.txt"]), "here.txt is there"),
        (Condition(file_missing="*.txt"), "*.txt is there"),
        (Condition(command="test -e here.txt"), None),
        (Condition(command="echo no >&2; exit 3"), "`echo no >&2; exit 3` ended with exit 3: no"),
        (Condition(command="kill -9 $$"), "`kill -9 $$` ended with signal 9"),
        (Condition(file_exists="gone.txt", command="touch ran"), "gone.txt is not there"),
    ],
)
async def test_what_a_condition_asks_for(
    tmp_path: Path, condition: Condition, unmet: str | None
) -> None:
    (tmp_path / "here.txt").touch()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.csv").touch()
    assert await unmet_condition(condition, tmp_path) == unmet
    assert not (tmp_path / "ran").exists()


async def test_a_command_that_does_not_end_is_killed_and_is_no_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "COMMAND_S", 0.1)
    unmet = await unmet_condition(Condition(command="sleep 60"), tmp_path)
    assert unmet == "`sleep 60` did not end within 0.1 s and was killed"


# -- after ---------------------------------------------------------------------------------


async def test_it_begins_when_the_one_before_it_has_completed(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("report", 'cron: "0 * * * *"\nafter: fetch')
        await place.add("fetch", 'cron: "0 * * * *"')
        await place.world.advance("1h")
        await place.world.advance("10s")
        assert place.asked == ["fetch", "report"]
        await place.world.advance("1h")
        assert place.asked == ["fetch", "report"] * 2
        assert await place.ends("report") == ["completed", "completed"]


async def test_it_waits_without_a_slot_while_the_one_before_it_is_tried_again(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        place.broken.add("fetch")
        await place.add("fetch", 'cron: "0 * * * *"')
        await place.add("report", 'cron: "0 * * * *"\nafter: [fetch]')
        await place.app.connection.database.write(
            _retries, place.rows["fetch"], '{"retry":{"attempts":3,"delay_s":600}}'
        )
        await place.world.advance("1h")
        await place.world.advance("5m")
        assert (await place.ends("report"))[-1] == "sleeping:after"
        assert (
            "waits for a pipeline that it depends on" in (await why(place.app, "report-1")).sentence
        )
        place.broken.clear()
        await place.world.advance("10m")
        assert (await place.ends("report"))[-1] == "completed"
        assert place.asked[-1] == "report"


async def _retries(tx: Any, schedule_id: str, options: str) -> None:
    await raw(tx, f"update runs set options = '{options}' where id = '{schedule_id}'")


async def test_it_is_skipped_when_the_one_before_it_has_failed(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        place.broken.add("fetch")
        await place.add("fetch", 'cron: "0 8 * * *"')
        await place.add("report", 'cron: "0 9 * * *"\nafter: fetch')
        await place.world.advance("10h")
        assert await place.ends("report") == ["skipped:after"]
        assert "fetch is failed" in await place.reason("report")
        # An operator fixes it and runs it by hand: today's is over, tomorrow's is not.
        place.broken.clear()
        await place.app.schedules.trigger("fetch-1")
        await place.world.advance("24h")
        assert await place.ends("report") == ["skipped:after", "completed"]


async def test_a_run_by_hand_since_the_last_time_counts(database_url: str, tmp_path: Path) -> None:
    async with offline_world(database_url, tmp_path) as place:
        place.broken.add("fetch")
        await place.add("fetch", 'cron: "0 8 * * *"')
        await place.add("report", 'cron: "0 9 * * *"\nafter: fetch')
        await place.world.advance("8h30m")
        place.broken.clear()
        await place.app.schedules.trigger("fetch-1")
        await place.world.advance("1h")
        assert await place.ends("report") == ["completed"]


async def test_a_weekly_one_before_a_daily_one_counts_until_it_is_due_again(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("fetch", 'cron: "0 8 * * 3"')  # Wednesdays; time begins on a Tuesday
        await place.add("report", 'cron: "0 9 * * *"\nafter: fetch')
        await place.world.advance("4d")
        assert await place.ends("report") == [
            "skipped:after",
            "completed",
            "completed",
            "completed",
        ]
        assert "no execution for 2029-12-26" in await _sentence(place, "report")


async def _sentence(place: OfflineWorld, name: str) -> str:
    runs = await place.app.schedules.history(f"{name}-1", limit=100)
    return read_error(runs[-1].error)["message"]


async def test_a_paused_or_missing_one_before_it_is_reported(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("fetch", 'cron: "0 8 * * *"\nenabled: false')
        await place.add("report", 'cron: "0 9 * * *"\nafter: fetch')
        await place.add("other", 'cron: "0 9 * * *"\nafter: nobody')
        await place.world.advance("10h")
        assert await place.ends("report") == ["skipped:after"]
        assert "paused" in await place.reason("report")
        assert await place.reason("other") == "nobody has no schedule in this folder"


async def test_it_waits_no_longer_than_to_its_own_next_time(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        place.broken.add("fetch")
        await place.add("fetch", 'cron: "0 0 * * *"')
        await place.add("report", 'cron: "0 * * * *"\nafter: fetch\noverlap: skip')
        await place.app.connection.database.write(
            _retries, place.rows["fetch"], '{"retry":{"attempts":9,"delay_s":86400}}'
        )
        await place.world.advance("24h")
        await place.world.advance("61m")
        found = await place.ends("report")
        assert "skipped:after" in found
        assert "completed" not in found[-2:]


async def test_after_an_outage_both_are_caught_up_on_in_their_order(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("report", 'cron: "0 9 * * *"\nafter: fetch')
        await place.add("fetch", 'cron: "0 8 * * *"')
        outage(place.world, "33h30m")
        await resume_work(place.world)
        await place.world.advance("1m")
        assert place.asked == ["fetch", "report"]


async def test_a_crash_between_the_decision_and_the_first_item_asks_again(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("import", 'cron: "0 * * * *"\ncondition: {file_exists: data.csv}')
        (tmp_path / "import" / "data.csv").touch()
        await place.world.advance("1h")
        [root] = [one[0] for one in await _chains(place, "import")]
        assert await place.ends("import") == ["completed"]
        # A run that has recorded something is not asked again, whatever became of the file.
        (tmp_path / "import" / "data.csv").unlink()
        begun = await place.app.connection.database.read(dependencies.has_begun, root.root_id)
        assert begun


async def _chains(place: OfflineWorld, name: str) -> list[Any]:
    return await place.app.connection.database.read(attempts.latest, place.rows[name], limit=10)


async def test_what_was_left_out_is_reported_as_missed(database_url: str, tmp_path: Path) -> None:
    async with Receiver().up() as receiver, offline_world(database_url, tmp_path) as place:
        notify = f'notify: {{on_missed: "{receiver.url}/hook", ping: "{receiver.url}/ping"}}'
        condition = "condition: {file_exists: data.csv}"
        await place.add("import", f'cron: "0 * * * *"\n{condition}\n{notify}')
        await place.world.advance("1h")
        await place.world.settle()
        message = next(call.message for call in receiver.calls if call.method == "POST")
        assert message["event"] == "missed"
        assert message["reason"] == "data.csv is not there"
        assert sorted(receiver.paths) == ["/hook", "/ping/log"]
        (tmp_path / "import" / "data.csv").touch()
        receiver.calls.clear()
        await place.world.advance("1h")
        await place.world.settle()
        assert receiver.paths == ["/ping/start", "/ping"]
        rids = {call.path.partition("rid=")[2] for call in receiver.calls}
        assert len(rids) == 1


# -- validation ----------------------------------------------------------------------------


def test_a_ring_of_afters_is_refused(tmp_path: Path) -> None:
    for name, other in (("one", "two"), ("two", "three"), ("three", "one")):
        write(tmp_path / name, written(name, f'cron: "0 9 * * *"\nafter: {other}'))
    found = discover(tmp_path)
    assert all(each.loaded is None for each in found)
    assert all("wait for each other" in str(each.problems) for each in found)


def test_one_that_waits_for_itself_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "mine", written("mine", 'cron: "0 9 * * *"\nafter: mine'))
    [each] = discover(tmp_path)
    assert each.loaded is None
    assert "a pipeline cannot wait for itself" in str(each.problems)


def test_an_unknown_condition_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    said = problem_lines(
        tmp_path / "p", written("p", 'cron: "0 9 * * *"\ncondition: {file_exist: x}')
    )
    assert any("file_exists" in each for each in said)
