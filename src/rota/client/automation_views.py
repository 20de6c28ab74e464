"""Automations as people see them: state, events, inputs, side effects, activity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from rota.client.connection import ClientPart
from rota.client.doctor import live_workers
from rota.client.findings import worker_name
from rota.core.automations.model import (
    AnswerRow,
    AutomationVersion,
    CodeState,
    DeployedAutomation,
    EventName,
    InputRow,
    LedgerRow,
    RefusedDeploy,
    SeenInput,
    SeenRun,
    StoredEvent,
    Touched,
    WorkerCode,
)
from rota.core.automations.phases import EventStatus, Mutation
from rota.core.automations.planner import DeployedHandler
from rota.core.automations.text import Said, refusal, say, schedule_words
from rota.core.runs.model import Run
from rota.core.runs.names import checked_limit, checked_search
from rota.core.suggest import suggestion
from rota.core.time.instants import DAY, moment, shown
from rota.errors import BadInput, UnknownAutomation, UnknownInput
from rota.settings import Settings
from rota.store.automations import answers, effects, events, refused, views
from rota.store.automations import state as store
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Tx
from rota.store.runs import workers

P = ParamSpec("P")
T = TypeVar("T")


class AutomationView(NamedTuple):
    """An automation for display: status, sentence, applicable verbs, and its parts."""

    automation: DeployedAutomation
    said: Said
    schedule: str
    next_at: datetime | None
    open_run: Run | None
    mutation: LedgerRow | None  # the change that waits for approval or is in doubt
    handlers: list[DeployedHandler]
    pending: dict[str, int]  # events by topic
    skips: tuple[EventName, ...] = ()  # what `resolve(name, "skip")` would leave out
    error: str | None = None  # the last error of the run that waits
    code: CodeState = CodeState()  # whether a live worker has the deployed code

    @property
    def status(self) -> str:
        """Running, Idle, Needs attention or Stopped."""
        return self.said.word

    @property
    def sentence(self) -> str:
        """The same in one plain sentence."""
        return self.said.sentence

    @property
    def blocking_change(self) -> LedgerRow | None:
        """The change that waits for approval or is in doubt, if it is what blocks."""
        reason = self.open_run.reason if self.open_run else None
        blocks = reason in ("approval", "reconciliation") and self.said.actions
        return self.mutation if blocks else None


class AutomationReads(ClientPart):
    """Shows the automations of one namespace."""

    async def list(
        self, *, archived: bool = False, after: str = "", limit: int = 1000, search: str = ""
    ) -> list[AutomationView]:
        """List automations by name.

        Args:
            archived: Also those that were archived.
            after: The last name of the page before.
            limit: The most automations to return, up to 1,000.
            search: A part of the name.
        """
        return await self._database.read(
            _list, self._client.settings, archived=archived, after=after, now=self._now(),
            limit=checked_limit(limit), search=checked_search(search),
        )  # fmt: skip

    async def show(self, name: str) -> AutomationView:
        """Show one automation: its state in words, and its parts.

        Args:
            name: The automation.

        Returns:
            The automation with its open run, its handlers and its pending events.

        Raises:
            UnknownAutomation: There is no automation of that name.

        Example:
            view = await app.automations.show("inbox")
            print(view.status, view.sentence)
        """
        found = await self._found(name)
        [view] = await self._database.read(_views, self._client.settings, [found], now=self._now())
        return view

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[AutomationVersion]:
        """List the versions that were deployed or made by a fix, newest first.

        Args:
            name: The automation.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        return await self._rows(store.versions, name, limit=limit)

    async def refused_deploys(self) -> dict[str, RefusedDeploy]:
        """The automations of which the last deploy was refused, and why."""
        return await self._database.read(refused.listing, namespace=self._namespace)

    async def events(
        self, name: str, *, topic: str = "", status: str = "", before: str = "", limit: int = 50
    ) -> Sequence[StoredEvent]:
        """List events, newest first.

        Args:
            name: The automation.
            topic: Only events of this topic.
            status: Only events with this status.
            before: The last id of the page before.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
            BadInput: There is no such status.
        """
        return await self._rows(
            views.list_events, name, topic=topic, status=_checked(status, EventStatus),
            before=before, limit=limit,
        )  # fmt: skip

    async def event(self, name: str, topic: str, message_id: str) -> StoredEvent | None:
        """Find one event.

        Args:
            name: The automation.
            topic: Its topic.
            message_id: Its message id.

        Returns:
            The event, or None.
        """
        found = await self._rows(events.named, name, topic, [message_id])
        return found[0] if found else None

    async def users_of(self, events: Sequence[StoredEvent]) -> dict[str, str]:
        """The ids of the runs that used or skipped these events, by `StoredEvent.id`.

        Events of pruned runs are omitted.

        Args:
            events: Events from `events`.
        """
        return await self._database.read(views.users_of, [one.id for one in events])

    async def is_pruned(self, input_id: str) -> bool:
        """Whether runs that used events of an input were pruned, with their part of the ledger: the
        changes of `outcome` are not all then.

        Args:
            input_id: An id from `inputs`.
        """
        return await self._database.read(views.count_forgotten, input_id) > 0

    async def inputs(self, name: str, *, before: str = "", limit: int = 50) -> Sequence[SeenInput]:
        """List inputs and how far each got, newest first.

        Args:
            name: The automation.
            before: The last id of the page before.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        return await self._rows(views.list_inputs, name, before=before, limit=limit)

    async def outcome(self, name: str, input_id: str) -> tuple[SeenInput, Sequence[LedgerRow]]:
        """One input and the changes it led to, as far as they are kept: see `is_pruned`.

        Args:
            name: The automation.
            input_id: An id from `inputs`.

        Raises:
            UnknownInput: The automation has no such input.
        """
        found = await self._rows(views.list_inputs, name, input_id=input_id, limit=1)
        if not found:
            raise UnknownInput(
                f"automation {name} has no input {input_id}",
                hint=f"List what came in with `rota automation inputs {name}`.",
            )
        led_to = await self._database.read(views.outputs_of_input, input_id)
        return found[0], led_to

    async def outputs(
        self, name: str, *, status: str = "", before: str = "", limit: int = 50
    ) -> Sequence[LedgerRow]:
        """List side effects, newest first.

        Args:
            name: The automation.
            status: Only side effects with this status.
            before: The last id of the page before.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
            BadInput: There is no such status.
        """
        return await self._rows(
            views.list_outputs, name, status=_checked(status, Mutation), before=before, limit=limit
        )

    async def inputs_of(self, mutation_id: str) -> Sequence[InputRow]:
        """The inputs that led to a side effect.

        Args:
            mutation_id: An id from `outputs`.
        """
        return await self._database.read(
            views.inputs_of_output, mutation_id, namespace=self._namespace
        )

    async def activity(self, name: str, *, before: str = "", limit: int = 50) -> Sequence[SeenRun]:
        """List handler runs, newest first.

        Args:
            name: The automation.
            before: The last id of the page before.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        return await self._rows(views.list_activity, name, before=before, limit=limit)

    async def handler_run(self, run_id: str) -> SeenRun | None:
        """One handler run with its change; None for a run that is not one.

        Args:
            run_id: The id of the run.
        """
        return await self._database.read(views.find_activity, run_id)

    async def touched(self, run_id: str) -> Sequence[Touched]:
        """The events of a run, and what it did to them.

        Args:
            run_id: The id of the run.
        """
        return await self._database.read(views.touched, run_id)

    async def pending(self, name: str, *, limit: int = 50) -> Sequence[SeenInput]:
        """List the inputs that are not done, oldest first.

        Args:
            name: The automation.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        return await self._rows(views.unfinished_inputs, name, limit=limit)

    async def stale(self, name: str, *, limit: int = 50) -> Sequence[SeenInput]:
        """List the inputs older than `stale_days` that are not done.

        Args:
            name: The automation.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        until = self._now() - round(self._client.settings.stale_days * DAY)
        return await self._rows(views.unfinished_inputs, name, until=until, limit=limit)

    async def answers(
        self, name: str, *, change_id: str = "", before: str = "", limit: int = 50
    ) -> Sequence[AnswerRow]:
        """List the answers of people, newest first.

        Args:
            name: The automation.
            change_id: Only answers about this change.
            before: The last id of the page before.
            limit: At most so many.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        return await self._rows(
            answers.list_answers, name, change_id=change_id, before=before, limit=limit
        )

    # -- how -------------------------------------------------------------------------------

    async def _found(self, name: str) -> DeployedAutomation:
        checked_search(name, "automation name")
        found = await self._database.read(store.find, namespace=self._namespace, name=name)
        if found is None:
            known = await self._database.read(store.listing, namespace=self._namespace)
            hint = suggestion(name, [one.name for one in known])
            refusals = await self.refused_deploys()
            if name in refusals:
                raise UnknownAutomation(
                    f"automation {name} was never deployed: {refusal(refusals[name])}",
                    hint="Correct the code, then `rota up` or `rota automation deploy`.",
                    name=name, problems=list(refusals[name].problems),
                )  # fmt: skip
            raise UnknownAutomation(f"there is no automation {name!r}", hint=hint, name=name)
        return found

    async def _rows(
        self,
        function: Callable[Concatenate[Tx, AutomationKey, P], Awaitable[T]],
        name: str,
        /,
        *args: P.args,
        **where: P.kwargs,
    ) -> T:
        """Read about the automation of that name, which has to exist."""
        key = AutomationKey(self._namespace, (await self._found(name)).name)
        return await self._database.read(function, key, *args, **where)


def _checked(status: str, known: type[StrEnum]) -> str:
    """A status by its name, or BadInput; an empty text selects all."""
    if status and status not in set(known):
        listed = f"There are: {', '.join(known)}."
        raise BadInput(
            f"there is no status {shown(status)}", hint=suggestion(status, known, listed)
        )
    return status


async def _list(tx: Tx, /, settings: Settings, *, now: int, **where: Any) -> list[AutomationView]:
    found = await store.listing(tx, namespace=settings.namespace, **where)
    return await _views(tx, settings, found, now=now) if found else []


async def _views(
    tx: Tx, settings: Settings, found: Sequence[DeployedAutomation], *, now: int
) -> list[AutomationView]:
    """The views of these automations, with a few queries for all of them."""
    namespace = settings.namespace
    names = [one.name for one in found]
    open_runs = await store.read_open_runs(tx, namespace=namespace, names=names)
    handlers = await store.handlers_of_all(tx, namespace=namespace, names=names)
    pending = await views.count_pending(tx, namespace=namespace, names=names)
    # A run that waits for work has nothing to explain: its chain has only this run.
    halted = [
        open_run
        for open_run in open_runs.values()
        if open_run.reason not in (store.IDLE, store.EVENT)
    ]
    roots = [open_run.root_id for open_run in halted]
    ledger = await effects.of_chains(tx, roots) if roots else {}
    errors = await views.last_errors(tx, halted)
    skips = await views.to_skip(tx, namespace, halted, ledger)
    codes = await _code_states(tx, found, settings, now=now)
    shown = []
    for one in found:
        open_run, own = open_runs.get(one.name), handlers[one.name]
        root_id = open_run.root_id if open_run else ""
        change, left_out = ledger.get(root_id), tuple(skips.get(one.name, ()))
        error = errors.get(root_id)
        sentence = say(
            one, open_run, own, error=error, mutation=change, skips=left_out, code=codes[one.name],
            now=now,
        )  # fmt: skip
        at = open_run.available_at if open_run else None
        next_at = None if at is None else moment(at)
        shown.append(AutomationView(
            one, sentence, schedule_words(own), next_at, open_run, change, own, pending[one.name],
            left_out, error, codes[one.name],
        ))  # fmt: skip
    return shown


async def _code_states(
    tx: Tx, found: Sequence[DeployedAutomation], settings: Settings, *, now: int
) -> dict[str, CodeState]:
    """The live workers with the deployed code of each automation, and its refused deploys."""
    namespace = settings.namespace
    rows = await workers.listing(tx, namespace=namespace)
    live = {row.id: row for row in live_workers(rows, settings, now)}
    names = [one.name for one in found]
    code = await store.code_of_workers(tx, namespace=namespace, names=names) if live else {}
    refusals = await refused.listing(tx, namespace=namespace)
    states = {}
    for one in found:
        known = [row for row in code.get(one.name, ()) if row.worker_id in live]
        others = tuple(
            WorkerCode(worker_name(live[row.worker_id]), row.version)
            for row in known
            if row.digest != one.digest
        )
        states[one.name] = CodeState(
            len(live), len(known) - len(others), others, refusals.get(one.name)
        )
    return states
