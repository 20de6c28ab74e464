"""Limits and weights of queues: how they are declared and checked, and how weights divide slots.

A claim applies the limits (`store/runs/claim.py`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from rota.core.runs.model import Queue
from rota.core.runs.names import checked_name, is_whole
from rota.core.time.instants import Duration, micros, shown
from rota.errors import BadInput


class QueueLimits(TypedDict, total=False):
    """The limits of a queue across all workers.

    `open_per_key` counts runs from their first claim to their end, `concurrency_per_key` only
    while a worker executes them. Waiting for `age` raises a run's priority by one."""

    concurrency: int | None
    concurrency_per_key: int | None
    rate: tuple[int, Duration] | None
    open_per_key: int | None
    age: Duration | None
    round_robin: bool


class QueueOptions(QueueLimits, total=False):
    """The limits of `app.queue`. `worker_concurrency` and `weight` count in this process."""

    worker_concurrency: int | None
    weight: int | None


class Contender(NamedTuple):
    """A queue that wants slots: its limit, its weight, and the slots it has had so far."""

    name: str
    wanted: int
    weight: int
    used: float  # runs taken, divided by the weight


def shares(free: int, queues: Sequence[Contender]) -> dict[str, int]:
    """Divide free slots by weight: each goes to the queue that has had least for its weight."""
    # Queues that all have work are never further apart than one: more is credit that a queue got
    # by having nothing to do, and it may not spend that on the others' slots.
    most = max((queue.used for queue in queues), default=0.0)
    used = {queue.name: max(queue.used, most - 1) for queue in queues}
    given = dict.fromkeys(used, 0)
    for _ in range(free):
        open_ = [queue for queue in queues if given[queue.name] < queue.wanted]
        if not open_:
            break
        first = min(open_, key=lambda queue: used[queue.name])
        given[first.name] += 1
        used[first.name] += 1 / first.weight
    return {name: count for name, count in given.items() if count}


COUNT_MAX = 2**31 - 1
RATE_PARTS = 2
_COUNTS = ("concurrency", "concurrency_per_key", "open_per_key", "worker_concurrency", "weight")
_ORDERS = ("concurrency_per_key", "open_per_key", "age", "round_robin")


def stored_queue(namespace: str, name: str, limits: Mapping[str, Any]) -> Queue:
    """The row of a queue. Raises BadInput for limits that conflict or allow no run."""
    checked_name(name, "queue")
    orders = [option for option in _ORDERS if limits.get(option)]
    if len(orders) > 1:
        raise BadInput(
            f"queue {name!r} has {' and '.join(orders)}, but only one of them can decide the order "
            "of its runs",
            hint="Keep one of them, or use two queues.",
        )
    rate, age = limits.get("rate"), limits.get("age")
    count, per_us = (None, None) if rate is None else _checked_rate(name, rate)
    for option, value in [*((one, limits.get(one)) for one in _COUNTS), ("rate", count)]:
        if value is not None and not is_whole(value, 1, COUNT_MAX):
            raise BadInput(
                f"{option}={shown(value)} of queue {name!r} is not a limit",
                hint=f"Give a whole number from 1 to {COUNT_MAX:,}, or leave it out.",
            )
    return Queue(
        namespace, name, limits.get("concurrency"), limits.get("concurrency_per_key"),
        count, per_us, key_open_max=limits.get("open_per_key"),
        age_us=None if age is None else _checked_time(name, "age", age),
        round_robin=int(bool(limits.get("round_robin", False))),
    )  # fmt: skip


def _checked_rate(name: str, rate: Any) -> tuple[Any, int]:
    if not isinstance(rate, tuple | list) or len(rate) != RATE_PARTS:
        raise BadInput(
            f"rate={shown(rate)} of queue {name!r} is not a rate",
            hint='Give a count and a duration, for example (100, "1m").',
        )
    return rate[0], _checked_time(name, "rate", rate[1])


def _checked_time(name: str, option: str, duration: Duration) -> int:
    duration_us = micros(duration)
    if duration_us <= 0:
        raise BadInput(
            f"{option}={shown(duration)} of queue {name!r} is not a time",
            hint='Give a time above zero, such as "1m".',
        )
    return duration_us
