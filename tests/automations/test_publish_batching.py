"""Events that many callers publish at the same moment: few transactions, an answer for each
caller.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rota.core.automations.model import NewEvent
from rota.errors import BadInput, UnknownAutomation
from rota.store.automations.commands import _waves
from tests.automations.kit import (
    Line,
    begun,
    event_statuses,
    payloads,
    sound,
)
from tests.engine.kit import StoreTap


def _resting() -> Line:
    """A line that uses nothing up."""
    app = Line()
    app.take = 0
    return app


async def _together(app: Line, *events: tuple[str, str, Any]) -> list[Any]:
    publish = app.automations.publish
    return await asyncio.gather(
        *(publish("line", topic, one, payload) for topic, one, payload in events),
        return_exceptions=True,
    )


async def test_they_share_transactions_and_none_is_lost(database_url: str) -> None:
    app = _resting()
    async with begun(app, database_url) as world:
        tap = StoreTap(app)
        answers = await _together(app, *(("work", f"e{n}", n) for n in range(40)))
        assert answers == [True] * 40
        assert tap.count("publish_all") == 2  # the first went alone, the others waited for it
        assert await payloads(app) == {f"e{n}": str(n) for n in range(40)}
        await world.settle()
        await sound(app)


async def test_their_order_is_that_of_the_calls(database_url: str) -> None:
    app = Line()
    app.take = 1
    async with begun(app, database_url) as world:
        await _together(app, *(("work", f"e{n}", {"id": f"e{n}"}) for n in range(5)))
        await world.settle()
        assert app.done == [[f"e{n}"] for n in range(5)]


async def test_one_message_id_twice_is_answered_as_one_after_the_other(database_url: str) -> None:
    app = _resting()
    async with begun(app, database_url):
        said = [("a", 1), ("b", 1), ("b", 1), ("b", 2), ("c", 1), ("b", 2)]
        answers = await _together(app, *(("work", one, value) for one, value in said))
        assert answers == [True, True, False, True, True, False]
        assert await payloads(app) == {"a": "1", "b": "2", "c": "1"}


async def test_a_bad_one_fails_alone(database_url: str) -> None:
    app = _resting()
    async with begun(app, database_url):
        first, second, bad, third = await _together(
            app, ("work", "a", 1), ("work", "b", 2), ("wrok", "x", 3), ("work", "c", 4)
        )
        assert [first, second, third] == [True, True, True]
        assert isinstance(bad, BadInput)
        assert set(await event_statuses(app)) == {"a", "b", "c"}


async def test_an_unknown_automation_is_nobody_elses_fault(database_url: str) -> None:
    app = _resting()
    async with begun(app, database_url):
        good, bad = await asyncio.gather(
            app.automations.publish("line", "work", "a", 1),
            app.automations.publish("lime", "work", "a", 1),
            return_exceptions=True,
        )
        assert good is True
        assert isinstance(bad, UnknownAutomation)
        assert "line" in bad.advice


def test_waves_keep_the_order_and_repeat_no_message_id() -> None:
    fresh = [NewEvent("t", one, "1", ()) for one in "abacab"]
    waves = [list(wave) for wave in _waves(fresh)]
    assert waves == [[0, 1, 3], [2, 5], [4]]
