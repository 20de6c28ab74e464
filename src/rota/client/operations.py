"""Operations on a database as a whole: disarm a copy, archive what is over."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from rota.client.caller import refuse_in_workflow
from rota.client.connection import ClientPart
from rota.core.runs.ids import id_bound
from rota.core.runs.names import checked_key
from rota.core.time.instants import instant, iso
from rota.errors import BadInput, WrongState
from rota.store import disarm
from rota.store.disarm import Disarmed
from rota.store.runs import archive
from rota.store.runs.archive import ArchivedChain, ArchiveMonth

__all__ = ["ARM_HINT", "ArchiveMonth", "ArchivedChain", "Disarmed", "Operations", "disarmed_clause"]

ARCHIVE_BATCH = 250
_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")

ARM_HINT = "`rota arm` lets this database act, if no other copy of it does."


def disarmed_clause(found: Disarmed) -> str:
    """The state for people, as the end of a sentence about the database."""
    since = iso(found.at)
    return f"has been disarmed since {since} ({found.reason}): nothing fires, runs or is sent"


class Operations(ClientPart):
    """Verbs about the whole database, with all its namespaces."""

    async def disarm(self, *, reason: str = "by an operator") -> Disarmed:
        """Keep every worker from acting until `arm`: no schedule fires, no run is claimed, nothing
        is sent.

        Running workers notice at their next heartbeat.

        Args:
            reason: Why; `rota doctor` shows it.

        Returns:
            The reason and the time.
        """
        refuse_in_workflow("disarm")
        checked_key(reason, "reason")
        database = self._database
        await database.write(disarm.disarm, reason=reason, now=self._now())
        return await database.read(disarm.state) or Disarmed(self._now(), reason)

    async def arm(self) -> Disarmed | None:
        """Let workers act again, at their next heartbeat; None if the database was armed."""
        refuse_in_workflow("arm")
        return await self._database.write(disarm.arm)

    async def disarmed(self) -> Disarmed | None:
        """Since when the database does not act, and why; None while it is armed."""
        return await self._database.read(disarm.state)

    async def must_be_armed(self) -> None:
        """Raise unless the database is armed, before code waits for a run of this process."""
        found = await self.disarmed()
        if found is not None:
            place = self._database.place
            raise WrongState(f"{place} {disarmed_clause(found)}", hint=ARM_HINT)

    # -- the archive -----------------------------------------------------------------------

    async def archive(self, before: str) -> int:
        """Move finished chains of this namespace into the archive, in batches.

        On PostgreSQL the owner of the tables calls it.

        Args:
            before: A month such as 2026-10 (UTC): chains that ended before it are moved.

        Returns:
            The number of chains.
        """
        refuse_in_workflow("archive")
        before_at = _month_start(before)
        if before_at > self._now():
            raise BadInput(f"{before} has not begun", hint="Name this month, or an earlier one.")
        moved, after_id = 0, ""
        while True:
            done = await self._database.write(
                archive.move, namespace=self._namespace,
                before_id=id_bound(before_at), before_at=before_at, after_id=after_id,
                limit=ARCHIVE_BATCH,
            )  # fmt: skip
            moved += done.chains
            if done.after_id is None:
                return moved
            after_id = done.after_id

    async def archive_months(self) -> list[ArchiveMonth]:
        """The months that the archive holds, of all namespaces, oldest first."""
        return await self._database.read(archive.months)

    async def drop_archive(self, month: str) -> None:
        """Delete a month of the archive, of all namespaces.

        Args:
            month: A month such as 2026-10.
        """
        refuse_in_workflow("drop_archive")
        _month_start(month)
        if not await self._database.read(archive.has_month, month=month):
            raise BadInput(
                f"the archive has no month {month}", hint="`rota archive list` names them."
            )
        await self._database.write(archive.drop, month=month)

    async def archived(self, run_id: str) -> ArchivedChain | None:
        """Find a chain of the archive.

        Args:
            run_id: The id of its first run, or a beginning of it.

        Returns:
            The chain, or None.
        """
        return await self._database.read(archive.find, namespace=self._namespace, run_id=run_id)


def _month_start(month: str) -> int:
    if not _MONTH.fullmatch(month):
        raise BadInput(f"{month!r} is not a month", hint="Write year and month: 2026-10.")
    year, number = map(int, month.split("-"))
    return instant(datetime(year, number, 1, tzinfo=UTC))
