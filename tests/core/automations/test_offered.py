"""Events that are taken alone: what a consumer sees of a topic that has some."""

from __future__ import annotations

import pytest

from rota.core.automations.model import Alone, StoredEvent, offered


def event(name: str, alone: int) -> StoredEvent:
    return StoredEvent(name, "t", name, "{}", "pending", None, None, 1, 0, 0, 0, None, alone)


@pytest.mark.parametrize(
    ("marks", "seen"),
    [
        ([], 0),
        ([Alone.NO, Alone.NO, Alone.NO], 3),
        ([Alone.YES, Alone.NO], 1),
        ([Alone.YES, Alone.YES], 1),
        ([Alone.NO, Alone.NO, Alone.YES, Alone.NO], 2),
        ([Alone.NOT_TAKEN, Alone.NO, Alone.YES], 2),
        ([Alone.NOT_TAKEN, Alone.NOT_TAKEN], 2),
    ],
)
def test_a_marked_event_is_offered_by_itself_and_stops_those_before_it(
    marks: list[int], seen: int
) -> None:
    pending = [event(f"e{number}", mark) for number, mark in enumerate(marks)]
    assert offered(pending) == pending[:seen]
