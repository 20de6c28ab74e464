"""Queues: their weights divide the free slots; limits that contradict each other are refused."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.core.runs.queue_options import Contender, shares, stored_queue
from rota.errors import BadInput


def test_slots_are_divided_by_weight() -> None:
    queues = [Contender("a", 100, 3, 0.0), Contender("b", 100, 1, 0.0)]
    assert shares(40, queues) == {"a": 30, "b": 10}


def test_single_slots_add_up_to_the_same_shares() -> None:
    used = {"a": 0.0, "b": 0.0}
    taken = {"a": 0, "b": 0}
    for _ in range(40):
        queues = [Contender("a", 1, 3, used["a"]), Contender("b", 1, 1, used["b"])]
        [(name, count)] = shares(1, queues).items()
        taken[name] += count
        used[name] += 1 / {"a": 3, "b": 1}[name]
    assert taken == {"a": 30, "b": 10}


def test_a_queue_takes_what_the_others_do_not_want() -> None:
    queues = [Contender("a", 2, 3, 0.0), Contender("b", 100, 1, 0.0)]
    assert shares(10, queues) == {"a": 2, "b": 8}


def test_a_queue_that_had_nothing_to_do_saves_no_slots_up() -> None:
    queues = [Contender("busy", 100, 1, 1000.0), Contender("idle", 100, 1, 0.0)]
    assert shares(11, queues) == {"busy": 5, "idle": 6}


def test_no_queue_and_no_slot_give_nothing() -> None:
    assert shares(5, []) == {}
    assert shares(0, [Contender("a", 1, 1, 0.0)]) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"open_per_key": 1, "concurrency_per_key": 1},
        {"round_robin": True, "age": "1m"},
        {"weight": 0},
        {"open_per_key": 0},
        {"weight": 1.5},
        {"worker_concurrency": 0},
        {"worker_concurrency": -1},
        {"rate": (10, 0)},
        {"rate": (10, -1)},
        {"age": -60},
        {"age": "0s"},
    ],
    ids=str,
)
def test_options_of_a_queue_that_contradict_each_other_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="queue 'q'"):
        Rota().queue("q", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", ["100/1m", (1,), (1, 2, 3), 5])
def test_a_rate_that_is_no_count_and_duration_is_refused(rate: Any) -> None:
    with pytest.raises(BadInput, match="is not a rate"):
        stored_queue("default", "mail", {"rate": rate})
