"""An edit of a schedule's time, laid over the time before. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import EllipsisType
from typing import NamedTuple

import msgspec

from rota.core.schedules.intent import Intent
from rota.core.time.recurrence import Spec, Timing, Written, parse
from rota.schedules.wall_time import to_instant

When = Written | Iterable[Written]
# The values of a retiming that leave a field unchanged; None removes a start or an end.
_UNCHANGED = {"when": None, "zone": None, "gap": None, "repeat": None, "start": ..., "end": ...}


class Retiming(NamedTuple):
    """An edit of the time."""

    when: When | None
    zone: str | None
    gap: str | None
    repeat: str | None
    start: datetime | EllipsisType | None
    end: datetime | EllipsisType | None
    sub_second: bool

    @property
    def fields(self) -> set[str]:
        """The fields that it names."""
        return {key for key, value in _UNCHANGED.items() if getattr(self, key) is not value}

    def of(self, old: Intent, now: int) -> Spec:
        """The old spec with the edit applied."""
        if not self.fields:
            return old.spec
        first = old.spec.timings[0] if old.spec.timings else Timing(zone=self.zone or "UTC")
        zone = first.zone if self.zone is None else self.zone
        return parse(
            self._kept(old) if self.when is None else self.when,
            zone=zone, now=now, gap=self.gap or first.gap, repeat=self.repeat or first.repeat,
            start_at=old.spec.start_at if self.start is ... else bound(self.start, zone),
            end_at=old.spec.end_at if self.end is ... else bound(self.end, zone),
            sub_second=self.sub_second or self.when is None,
        )  # fmt: skip

    def _kept(self, old: Intent) -> When:
        """The same times under other rules; one wall time is read again in another zone."""
        timings = old.spec.timings
        if not timings:  # they could not be read any more; the written text stays
            return old.text
        if len(timings) == 1 and timings[0].at is not None and self.zone is not None:
            return old.text
        return [
            msgspec.structs.replace(
                each, zone=each.zone if self.zone is None else self.zone, gap=self.gap or each.gap,
                repeat=self.repeat or each.repeat,
            )
            for each in timings
        ]  # fmt: skip


def bound(when: datetime | None, zone: str) -> int | None:
    """The instant of a start or an end, if there is one."""
    return None if when is None else to_instant(when, zone)
