"""Files that come, change, break, are fixed and go while a daemon looks after them."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from rota.pipelines.folder.state_file import STATE_FILE
from rota.pipelines.folder.state_file_sync import ARCHIVE
from rota.pipelines.folder.watcher import Watch, scan
from tests.pipelines.kit.virtual_folder import DAILY, FolderWorld, block

BROKEN = DAILY.replace("prompt:", "promt:")
UNSCHEDULED = DAILY.replace('schedule:\n  cron: "0 9 * * *"\n  timezone: UTC\n', "")


# -- the table of the design ---------------------------------------------------------------


async def test_a_schedule_that_is_added_is_loaded_and_runs(folder_world: FolderWorld) -> None:
    async with folder_world.daemon() as scheduler:
        assert await scheduler.list_schedules() == []
        folder_world.write("daily", DAILY)
        await folder_world.tick(scheduler)
        assert folder_world.changes() == [("daily", "added")]
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)


async def test_a_schedule_that_is_modified_gets_its_new_time(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        folder_world.write("daily", DAILY.replace("0 9", "30 7"))
        await folder_world.tick(scheduler)
        assert folder_world.changes() == [("daily", "added"), ("daily", "updated")]
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T07:30:00.000Z"
        folder_world.pass_time("7h30m")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        assert folder_world.state("daily")["nextRun"] == "2030-01-02T07:30:00.000Z"


async def test_a_block_that_is_removed_archives_the_state(folder_world: FolderWorld) -> None:
    folder = folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        folder_world.write("daily", UNSCHEDULED)
        await folder_world.tick(scheduler)
        assert folder_world.changes()[-1] == ("daily", "removed")
        assert not (folder / STATE_FILE).exists()
        assert json.loads((folder / ARCHIVE).read_text())["stats"]["totalRuns"] == 1
        assert await scheduler.list_schedules() == []
        folder_world.pass_time("24h")
        await folder_world.tick(scheduler)
        assert folder_world.model.calls == 2  # those of the first day
        folder_world.write("daily", DAILY)  # it comes back, and so does its history
        await folder_world.tick(scheduler)
        assert folder_world.total("daily") == 1
        assert not (folder / ARCHIVE).exists()


async def test_a_pipeline_that_is_deleted_takes_its_state_along(folder_world: FolderWorld) -> None:
    folder = folder_world.write("daily", DAILY)
    other = folder_world.write("other", DAILY)
    async with folder_world.daemon() as scheduler:
        (folder / "pipeline.yaml").unlink()
        await folder_world.tick(scheduler)
        assert folder_world.changes()[-1] == ("daily", "removed")
        assert not (folder / STATE_FILE).exists()
        shutil.rmtree(other)
        await folder_world.tick(scheduler)
        assert folder_world.changes()[-1] == ("other", "removed")
        assert await scheduler.list_schedules() == []


async def test_a_broken_edit_leaves_the_last_good_definition_in_force(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        with caplog.at_level(logging.WARNING, "rota.pipelines"):
            folder_world.write("daily", BROKEN)
            await folder_world.tick(scheduler)
        assert "its last good definition stays in force" in caplog.text
        assert "pipeline.yaml:10" in caplog.text
        reported = folder_world.of("schedule:changed")[-1]
        assert "promt" in reported.problem
        [info] = await scheduler.list_schedules()
        assert "promt" in str(info.problem)
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        assert folder_world.state("daily")["lastRun"]["success"] is True
        folder_world.write("daily", DAILY)
        await folder_world.tick(scheduler)
        [info] = await scheduler.list_schedules()
        assert not info.problem
        assert folder_world.changes()[-1] == ("daily", "updated")


async def test_an_edit_that_broke_while_nobody_looked_keeps_the_last_good_one(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        pass
    folder_world.write("daily", BROKEN)
    async with folder_world.daemon() as scheduler:
        [info] = await scheduler.list_schedules()
        assert info.config.cron == "0 9 * * *"
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)


async def test_a_pipeline_deleted_while_nobody_looked_is_let_go(folder_world: FolderWorld) -> None:
    folder = folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        pass
    shutil.rmtree(folder)
    async with folder_world.daemon() as scheduler:
        assert await scheduler.list_schedules() == []
    assert folder_world.changes()[-1] == ("daily", "removed")


async def test_a_broken_pipeline_is_skipped_with_a_warning_and_disturbs_no_other(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    folder_world.write("bad", DAILY.replace("0 9 * * *", "99 9 * * *"))
    folder_world.write("daily", DAILY)
    with caplog.at_level(logging.WARNING, "rota.pipelines"):
        async with folder_world.daemon() as scheduler:
            assert [info.pipeline_id for info in await scheduler.list_schedules()] == ["daily"]
            assert "pipeline bad is broken" in caplog.text
            folder_world.write("bad", DAILY)
            await folder_world.tick(scheduler)
            assert folder_world.changes()[-1] == ("bad", "added")


# -- what else is watched ------------------------------------------------------------------


async def test_another_prompt_file_comes_into_force(small: FolderWorld) -> None:
    folder = small.write("daily", DAILY.replace('prompt: "About {{title}}"', "promptFile: ask.md"))
    (folder / "ask.md").write_text("First {{title}}")
    async with small.daemon() as scheduler:
        (folder / "ask.md").write_text("Second {{title}}")
        await small.tick(scheduler)
        small.pass_time("9h")
        await small.until(lambda: small.total("daily") == 1)
    assert {request.prompt for request in small.model.asked} == {"Second one", "Second two"}


async def test_a_run_under_way_ends_with_what_it_began_with(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    async with small.daemon() as scheduler:
        small.model.gate.clear()
        small.pass_time("9h")
        await small.until(lambda: small.model.waiting == 2)
        small.write("daily", DAILY.replace("About", "Rather about"))
        await small.tick(scheduler)
        small.model.gate.set()
        await small.until(lambda: small.total("daily") == 1)
    assert {request.prompt for request in small.model.asked} == {"About one", "About two"}


async def test_a_schedule_removed_while_it_runs_lets_its_run_end(small: FolderWorld) -> None:
    folder = small.write("daily", DAILY)
    async with small.daemon() as scheduler:
        small.model.gate.clear()
        small.pass_time("9h")
        await small.until(lambda: small.of("execution:start"))
        small.write("daily", UNSCHEDULED)
        await small.tick(scheduler)
        small.model.gate.set()
        await small.until(lambda: small.of("execution:complete"))
        assert not (folder / STATE_FILE).exists()


async def test_a_pipeline_may_ask_to_start_paused(folder_world: FolderWorld) -> None:
    folder_world.write("daily", block(DAILY, startPaused=True))
    async with folder_world.daemon() as scheduler:
        assert folder_world.state("daily")["status"] == "paused"
        folder_world.pass_time("25h")
        await folder_world.tick(scheduler)
        assert folder_world.total("daily") == 0
        await scheduler.resume("daily")
        assert folder_world.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z"
    async with folder_world.daemon():  # only where it is new does it wait to be resumed
        assert folder_world.state("daily")["status"] == "idle"


async def test_a_disabled_schedule_rests_until_its_file_enables_it(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", block(DAILY, enabled=False))
    async with folder_world.daemon() as scheduler:
        assert folder_world.state("daily")["status"] == "disabled"
        assert folder_world.state("daily")["enabled"] is False
        folder_world.pass_time("10h")
        folder_world.write("daily", DAILY)
        await folder_world.tick(scheduler)
        assert folder_world.state("daily")["status"] == "idle"
        assert folder_world.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z"
        folder_world.write("daily", block(DAILY, enabled=False))
        await folder_world.tick(scheduler)
        assert folder_world.state("daily")["status"] == "disabled"
        assert folder_world.total("daily") == 0


async def test_a_pause_by_a_person_outlives_an_edit(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        await scheduler.pause("daily", note="holidays")
        folder_world.write("daily", DAILY.replace("0 9", "0 8"))
        await folder_world.tick(scheduler)
        [info] = await scheduler.list_schedules()
        assert (info.state.status, info.note) == ("paused", "holidays")
        await scheduler.resume("daily")
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T08:00:00.000Z"


async def test_a_folder_that_is_away_for_a_while_removes_nothing(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    async with small.daemon() as scheduler:
        away = small.root.with_name("away")
        small.root.rename(away)
        await small.tick(scheduler)
        assert small.changes() == [("daily", "added")]
        away.rename(small.root)
        await small.tick(scheduler)
        assert len(await scheduler.list_schedules()) == 1


async def test_the_watching_goes_by_the_clock_of_the_app(small: FolderWorld) -> None:
    async with small.daemon():
        small.write("daily", DAILY)
        await small.until(lambda: small.changes() == [("daily", "added")])


async def test_without_watching_a_host_says_when_to_look(small: FolderWorld) -> None:
    async with small.daemon(watch=None) as scheduler:
        small.write("daily", DAILY)
        await scheduler.refresh()
        assert small.changes() == [("daily", "added")]


# -- telling changes apart -----------------------------------------------------------------


def test_a_change_counts_after_half_a_second_of_rest(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    watch = Watch(scan(tmp_path) or {})
    (folder / "pipeline.yaml").write_text("name: one")
    first = scan(tmp_path)
    assert first is not None
    assert watch.changed(first, 0) == []
    (folder / "pipeline.yaml").write_text("name: one more")  # still being written
    second = scan(tmp_path)
    assert second is not None
    assert watch.changed(second, 400_000) == []
    assert watch.changed(second, 800_000) == []
    assert watch.changed(second, 900_000) == ["one"]
    watch.took("one", second["one"])
    assert watch.changed(second, 2_000_000) == []


def test_a_file_that_is_changed_and_changed_back_is_no_change(tmp_path: Path) -> None:
    watch = Watch({"one": (("f", 1, 1, 1),)})
    assert watch.changed({"one": (("f", 2, 2, 1),)}, 0) == []
    assert watch.changed({"one": (("f", 1, 1, 1),)}, 250_000) == []
    assert watch.changed({"one": (("f", 1, 1, 1),)}, 900_000) == []


def test_a_folder_that_is_gone_is_distinguished_from_an_empty_one(tmp_path: Path) -> None:
    assert scan(tmp_path) == {}
    assert scan(tmp_path / "away") is None


# -- odd things ----------------------------------------------------------------------------


async def test_a_zone_that_was_not_named_is_guessed_once_and_kept(
    folder_world: FolderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.pipelines.definition.loader.host_zone_name", lambda: "Asia/Tokyo")
    folder_world.write("daily", DAILY.replace("  timezone: UTC\n", ""))
    async with folder_world.daemon():
        assert folder_world.state("daily")["nextRun"] == "2030-01-02T00:00:00.000Z"
    monkeypatch.setattr(
        "rota.pipelines.definition.loader.host_zone_name", lambda: "America/New_York"
    )
    async with folder_world.daemon() as scheduler:
        assert folder_world.state("daily")["nextRun"] == "2030-01-02T00:00:00.000Z"
        folder_world.write("daily", DAILY.replace("  timezone: UTC\n", "").replace("0 9", "0 10"))
        await folder_world.tick(scheduler)
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T01:00:00.000Z"


async def test_a_schedule_that_somebody_deleted_by_hand_comes_back_from_its_file(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        app = folder_world.app()
        await app.connect()
        await app.schedules.delete(folder_world.state("daily")["scheduleId"])
        await folder_world.until(lambda: folder_world.changes() == [("daily", "added")] * 2)
        await app.close()
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)


async def test_a_folder_that_cannot_be_read_is_broken_and_disturbs_no_other(
    small: FolderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = small.write("locked", DAILY)
    small.write("daily", DAILY)
    is_file = Path.is_file

    def refuses(path: Path) -> bool:
        if locked in path.parents:
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    async with small.daemon() as scheduler:
        monkeypatch.setattr(Path, "is_file", refuses)
        await scheduler.refresh()
        shown = {info.pipeline_id: info.problem for info in await scheduler.list_schedules()}
        assert "Permission denied" in str(shown["locked"])
        assert not shown["daily"]
        monkeypatch.undo()


async def test_a_state_file_that_was_deleted_is_written_again(small: FolderWorld) -> None:
    folder = small.write("daily", DAILY)
    async with small.daemon():
        (folder / STATE_FILE).unlink()
        await small.until((folder / STATE_FILE).exists)


async def test_a_link_to_a_pipeline_is_a_pipeline(small: FolderWorld) -> None:
    elsewhere = FolderWorld(small.root.parent / "elsewhere", small.url)
    real = elsewhere.write("real", DAILY)
    (small.root / "link").symlink_to(real, target_is_directory=True)
    async with small.daemon() as scheduler:
        assert [each.pipeline_id for each in await scheduler.list_schedules()] == ["link"]
        small.pass_time("9h")
        await small.until(lambda: small.total("link") == 1)
    async with small.daemon() as scheduler:
        assert len(await scheduler.list_schedules()) == 1
        assert small.total("link") == 1
