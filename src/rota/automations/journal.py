"""The beginnings, reads and ends of handler runs. Those that wait at the same moment share a
transaction and its statements, so that many automations cost few round trips and commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from rota.core.automations.model import DeployedAutomation, StoredEvent
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Claim
from rota.engine.clock import Clock
from rota.engine.journal import insist
from rota.errors import LeaseLost
from rota.settings import Settings
from rota.store.automations import events, state
from rota.store.automations.events import AutomationKey, Peek
from rota.store.automations.handler_runs import begin, commit
from rota.store.automations.handler_runs.begin import Beginning, HandlerRunSettled, Work
from rota.store.automations.handler_runs.commit import Commit, Ending
from rota.store.backend.batching import Batch
from rota.store.backend.database import BRIEF, Database

T = TypeVar("T")

# The size of a group: with more runs, some execute their code while others begin or end.
TOGETHER = 200
# The rows that a handler run writes when it begins or ends, about.
ROWS_OF_RUN = 8


class HandlerJournal:
    """Begins and ends the handler runs of this process, a group at a time."""

    def __init__(self, database: Database, clock: Clock, settings: Settings, ids: IdMaker) -> None:
        self._database = database
        self._clock = clock
        self._recoveries_max = settings.recoveries_max
        self._ids = ids
        self._beginnings = Batch(self._send_beginnings, TOGETHER)
        self._endings = Batch(self._send_endings, TOGETHER)
        self._peeks: Batch[Peek, list[StoredEvent]] = Batch(
            lambda asked: database.read(events.peek_all, asked), TOGETHER
        )
        self._fixes: Batch[DeployedAutomation, dict[str, dict[str, str]]] = Batch(
            lambda deployed: database.read(state.fix_sources, deployed), TOGETHER
        )

    async def begin(self, beginning: Beginning) -> Work | HandlerRunSettled:
        """Decide what the claimed run is for; LeaseLost when it is no longer ours."""
        answer = await self._beginnings.gather(beginning)
        if isinstance(answer, LeaseLost):
            raise answer
        return answer

    async def commit(self, claim: Claim, work: Work, done: Commit) -> HandlerRunSettled:
        """The end of a handler run and the next open run; LeaseLost when it is no longer ours."""
        answer = await self._endings.gather(Ending(claim, work, done))
        if isinstance(answer, LeaseLost):
            raise answer
        return answer

    async def peek(self, key: AutomationKey, topic: str, limit: int) -> list[StoredEvent]:
        """Pending events of a topic, oldest first."""
        return await self._peeks.gather(Peek(key, topic, limit))

    async def fix_sources(self, automation: DeployedAutomation) -> dict[str, dict[str, str]]:
        """The source that fixes since the last deploy have written, by handler and phase."""
        return await self._fixes.gather(automation)

    async def _send_beginnings(
        self, beginnings: Sequence[Beginning]
    ) -> list[Work | HandlerRunSettled | LeaseLost]:
        return await self._write(
            begin.begin_all, beginnings, len(beginnings), recoveries_max=self._recoveries_max
        )

    async def _send_endings(self, endings: Sequence[Ending]) -> list[HandlerRunSettled | LeaseLost]:
        rows = [len(done.events) + len(done.inputs) + done.plan.count for *_, done in endings]
        return await self._write(commit.commit_all, endings, len(endings) + sum(rows))

    async def _write(
        self, function: Callable[..., Awaitable[T]], items: Sequence[Any], rows: int, **shared: Any
    ) -> T:
        """One transaction, repeated while the database cannot be reached."""
        brief = rows * ROWS_OF_RUN <= BRIEF
        write = self._database.write_brief if brief else self._database.write

        async def send() -> T:
            now = self._clock.now()
            return await write(function, items, now=now, new_ids=self._ids.endless(now), **shared)

        return await insist(self._clock, send, function.__name__)
