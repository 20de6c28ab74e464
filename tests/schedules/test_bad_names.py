"""Names and notes of schedules that not every database can hold are refused alike by both."""

from __future__ import annotations

from typing import Any

import pytest

from rota.errors import BadInput, BadSchedule
from rota.testing import virtual
from tests.schedules.kit import HOURLY, PLAIN, Noted, schedule

BAD = {"NUL": "a\0b", "surrogate": "a\ud800b", "empty": "", "long": "x" * 300}


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
async def test_a_schedule_with_a_bad_name_is_not_made(database_url: str, name: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="schedule name"):
            await app.schedules.create(name, "report", HOURLY, **PLAIN)
        assert await app.schedules.list() == []


@pytest.mark.parametrize("name", BAD.values(), ids=BAD)
@pytest.mark.parametrize("verb", ["get", "pause", "resume", "update", "reset", "delete", "trigger"])
async def test_every_verb_refuses_a_name_that_no_schedule_can_have(
    database_url: str, name: str, verb: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="schedule name") as caught:
            await getattr(app.schedules, verb)(name)
        assert caught.value.code == "bad_input"


@pytest.mark.parametrize(
    "words", [{"queue": BAD["NUL"]}, {"queue": BAD["surrogate"]}, {"priority": 2**31}],
    ids=["queue with NUL", "queue with a surrogate", "priority"],
)  # fmt: skip
async def test_an_update_with_a_bad_queue_or_priority_changes_nothing(
    database_url: str, words: dict[str, Any]
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        before = await schedule(app, "s")
        with pytest.raises(BadInput, match="|".join(words)):
            await app.schedules.update("s", **words)
        assert await schedule(app, "s") == before


@pytest.mark.parametrize("note", [BAD["NUL"], BAD["surrogate"]], ids=["NUL", "surrogate"])
async def test_a_pause_with_a_bad_note_is_refused_and_changes_nothing(
    database_url: str, note: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        before = await schedule(app, "s")
        with pytest.raises(BadInput, match="note="):
            await app.schedules.pause("s", note=note)
        assert await schedule(app, "s") == before


@pytest.mark.parametrize("when", ["0 9 * * *\0", "every day at 9\ud800"])
async def test_a_time_with_a_bad_character_is_refused(database_url: str, when: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadSchedule):
            await app.schedules.create("s", "report", when, **PLAIN)
        assert await app.schedules.list() == []
