"""Which handler runs next: tables of cases."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.automations.planner import (
    DeployedHandler,
    NextWork,
    PlannedHandler,
    choose,
    clamp_wake,
    due_of,
    next_due,
)
from rota.core.time.instants import DAY, SECOND, moment

NOW = 1_000_000 * SECOND


def handler(name: str, kind: str = "consumer", **fields: Any) -> DeployedHandler:
    blank: dict[str, Any] = dict.fromkeys(DeployedHandler.__struct_fields__)
    blank |= {"position": 0, "digest": "", "marked": 0, "cleared": 0, "name": name, "kind": kind}
    return DeployedHandler(**blank | fields)


def dirty(name: str, **fields: Any) -> DeployedHandler:
    return handler(name, marked=1, **fields)


def producer(name: str, at: int | None, **fields: Any) -> DeployedHandler:
    return handler(name, "producer", next_run_at=at, **fields)


@pytest.mark.parametrize(
    ("handlers", "oldest", "chosen"),
    [
        ([], {}, None),
        ([handler("a")], {}, None),
        ([handler("a")], {"a": "1"}, None),  # pending events alone do not make a busy loop
        ([dirty("a")], {}, PlannedHandler("a", "event")),
        ([handler("a", wake_at=NOW)], {}, PlannedHandler("a", "wake")),
        ([handler("a", wake_at=NOW + 1)], {}, None),
        ([producer("p", NOW)], {}, PlannedHandler("p", "schedule")),
        ([producer("p", NOW + 1)], {}, None),
        ([producer("p", NOW + 1, queued_at=NOW)], {}, PlannedHandler("p", "manual")),
        ([producer("p", 1), dirty("a")], {}, PlannedHandler("a", "event")),
        ([producer("p", 5), producer("q", 3)], {}, PlannedHandler("q", "schedule")),
        ([dirty("a"), dirty("b", position=1)], {"a": "2", "b": "1"}, PlannedHandler("b", "event")),
        ([dirty("a"), dirty("b", position=1)], {"b": "1"}, PlannedHandler("b", "event")),
        ([dirty("a", position=1), dirty("b")], {}, PlannedHandler("b", "event")),
    ],
)
def test_choosing(
    handlers: list[DeployedHandler], oldest: dict[str, str], chosen: PlannedHandler | None
) -> None:
    assert choose(handlers, oldest, now=NOW) == chosen
    assert choose(list(reversed(handlers)), oldest, now=NOW) == chosen


def test_the_next_due_time_is_the_earliest_of_all() -> None:
    handlers = [producer("p", NOW + 9), handler("a", wake_at=NOW + 5), handler("b")]
    assert next_due(handlers) == NextWork(NOW + 5, "wake")
    assert next_due([*handlers, dirty("c")]) == NextWork(0, "event")
    assert next_due([handler("b")]) == NextWork(None, "event")
    assert due_of(handler("b")) is None


@pytest.mark.parametrize(
    ("after_us", "granted_us"),
    [(-DAY, 30 * SECOND), (0, 30 * SECOND), (45 * SECOND, 45 * SECOND), (9 * DAY, DAY)],
)
def test_wake_times_are_clamped(after_us: int, granted_us: int) -> None:
    wake = clamp_wake(moment(NOW + after_us), now=NOW, least_us=30 * SECOND, most_us=DAY)
    assert wake.at == NOW + granted_us
    assert (wake.remark is None) == (after_us == granted_us)


@pytest.mark.parametrize("asked", ["tomorrow", 5, 5.0, b"", [], "2030-01-01T00:00:00"], ids=repr)
def test_what_is_no_time_is_ignored_with_a_remark(asked: object) -> None:
    wake = clamp_wake(asked, now=NOW, least_us=1, most_us=2)
    assert wake.at is None
    assert "ignored" in (wake.remark or "")
    assert clamp_wake(None, now=NOW, least_us=1, most_us=2) == (None, None)
