"""Runs that only some versions of the code can execute. Pure.

In a rolling deploy an old worker meets calls that only newer code makes. It hands such a run back,
and the run notes which versions cannot execute it. Each version can do so once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from rota.core.runs.model import WorkerRecord
from rota.core.time.instants import HOUR

# The reason of a pending run that a worker handed back.
NEWER_CODE = "newer code"
# The longest wait of such a run for another version. Then any worker may claim it, and one that
# cannot execute it fails it.
WAIT_US = HOUR
# A worker without a heartbeat for this many leases does not count as online.
ONLINE_LEASES = 2
# The refused versions of a run that has waited long enough.
WAITED = ""

_NAMES = msgspec.json.Decoder(list[str])


def with_version(refused: str | None, version: str) -> str:
    """The refused versions with one more, as the claim statement reads them."""
    return f"{refused or ' '}{version} "


class RefusedRun(NamedTuple):
    """A pending run that waits for another version."""

    id: str
    name: str
    queue: str
    refused: str
    since: int

    def has_taker(self, workers: Iterable[WorkerRecord]) -> bool:
        """Whether one of these workers may execute it."""
        return any(takes(one, self.name, self.queue, self.refused) for one in workers)


def takes(worker: WorkerRecord, name: str, queue: str, refused: str) -> bool:
    """Whether this worker has a version that has not refused such a run, and claims it."""
    return (
        f" {worker.version} " not in refused
        and queue in _NAMES.decode(worker.queues)
        and name in _NAMES.decode(worker.names)
    )


def online(workers: Iterable[WorkerRecord], *, since: int) -> list[WorkerRecord]:
    """The workers that claim runs, and have sent a heartbeat since an instant."""
    return [one for one in workers if one.status == "online" and one.heartbeat_at >= since]


class WaitsOver(NamedTuple):
    """Runs that wait no longer for another version."""

    late: list[str]  # their time is over: they are not handed back again
    without_taker: list[str]  # no online worker can execute them


def waits_over(
    runs: Sequence[RefusedRun], workers: Sequence[WorkerRecord], *, now: int
) -> WaitsOver:
    """The runs that wait no longer."""
    late = [run.id for run in runs if run.since <= now - WAIT_US]
    lost = [run.id for run in runs if run.id not in late and not run.has_taker(workers)]
    return WaitsOver(late, lost)
