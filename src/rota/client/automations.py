"""Automations for people: see them, pause, run, publish, approve, resolve, skip.

One method per verb; CLI, HTTP and Python all call these. An automation is addressed by its name.
Knows no user code: the app declares and deploys.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from rota.client.answers import (
    Answer,
    BulkAnswer,
    BulkOptions,
    PersonOptions,
    answer_all,
    new_answer,
)
from rota.client.caller import refuse_in_workflow
from rota.client.code_state import code_states
from rota.core import typed
from rota.core.automations.model import (
    AnswerRow,
    AutomationVersion,
    CodeState,
    DeployedAutomation,
    EventName,
    InputRow,
    LedgerRow,
    NewAnswer,
    NewEvent,
    NewInput,
    RefusedDeploy,
    Resolution,
    SeenInput,
    SeenRun,
    StoredEvent,
    Touched,
)
from rota.core.automations.planner import DeployedHandler
from rota.core.automations.text import Said, refusal, say, schedule_words
from rota.core.runs.model import Run
from rota.core.runs.names import checked_limit, checked_search
from rota.core.suggest import check_options, suggestion
from rota.core.time.instants import DAY, moment
from rota.engine.wakeups import READY, TIMER
from rota.errors import UnknownAutomation, UnknownInput, UsageError
from rota.settings import Settings
from rota.store.automations import (
    answers,
    commands,
    effects,
    events,
    refused,
    requeue,
    rollback,
    views,
)
from rota.store.automations import state as store
from rota.store.automations.deploy import Deployment
from rota.store.automations.events import AutomationKey
from rota.store.backend.batching import Batch
from rota.store.backend.database import Tx

if TYPE_CHECKING:
    from rota.client.client import Client

# In one transaction, which holds the lock of the automation.
PUBLISHED_MAX = 100


class AutomationView(NamedTuple):
    """An automation as people see it: a word, a sentence, what can be done, and its parts."""

    automation: DeployedAutomation
    said: Said
    schedule: str
    next_at: datetime | None
    open_run: Run | None
    mutation: LedgerRow | None  # the change that waits for approval or is in doubt
    handlers: list[DeployedHandler]
    pending: dict[str, int]  # events by topic
    skips: tuple[EventName, ...] = ()  # what `resolve(name, "skip")` would leave out
    error: str | None = None  # what the run in the way last complained about
    code: CodeState = CodeState()  # whether a live worker has the deployed code

    @property
    def status(self) -> str:
        """Running, Idle, Needs attention or Stopped."""
        return self.said.word

    @property
    def sentence(self) -> str:
        """The same in one plain sentence."""
        return self.said.sentence


class Automations:
    """Shows and manages the automations of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._publishers: dict[str, Batch[NewEvent, bool]] = {}  # by automation
        self._publishing = 0

    # -- seeing ----------------------------------------------------------------------------

    async def list(
        self, *, archived: bool = False, after: str = "", limit: int = 1000, search: str = ""
    ) -> list[AutomationView]:
        """Automations by name, up to `limit` after the name `after`. `search` is a part of it."""
        return await self._client.connection.database.read(
            _list, self._client.settings, archived=archived, after=after, now=self._now(),
            limit=checked_limit(limit), search=checked_search(search),
        )  # fmt: skip

    async def show(self, name: str) -> AutomationView:
        """One automation: its state in words, and its parts."""
        found, settings = await self._found(name), self._client.settings
        read = self._client.connection.database.read
        [view] = await read(_look, settings, [found], now=self._now())
        return view

    async def versions(self, name: str, *, limit: int = 50) -> Sequence[AutomationVersion]:
        """The versions that were deployed or made by a fix, newest first."""
        place = await self._place(name)
        return await self._client.connection.database.read(store.versions, place, limit=limit)

    async def refused_deploys(self) -> dict[str, RefusedDeploy]:
        """The automations of which the last deploy was refused, and why."""
        return await self._client.connection.database.read(
            refused.listing, namespace=self._namespace
        )

    async def events(
        self, name: str, *, topic: str = "", status: str = "", before: str = "", limit: int = 50
    ) -> Sequence[StoredEvent]:
        """Events, newest first."""
        return await self._client.connection.database.read(
            views.list_events, await self._place(name), topic=topic, status=status,
            before=before, limit=limit,
        )  # fmt: skip

    async def event(self, name: str, topic: str, message_id: str) -> StoredEvent | None:
        """One event, by its topic and message id."""
        place = await self._place(name)
        found = await self._client.connection.database.read(
            events.named, place, topic, [message_id]
        )
        return found[0] if found else None

    async def users_of(self, events: Sequence[StoredEvent]) -> dict[str, str]:
        """The ids of the runs that used or skipped these events, by `StoredEvent.id`. Events of
        pruned runs are omitted."""
        return await self._client.connection.database.read(
            views.users_of, [one.id for one in events]
        )

    async def is_pruned(self, input_id: str) -> bool:
        """Whether runs that used events of an input were pruned, with their part of the ledger:
        the changes of `outcome` are not all then."""
        return await self._client.connection.database.read(views.count_forgotten, input_id) > 0

    async def inputs(self, name: str, *, before: str = "", limit: int = 50) -> Sequence[SeenInput]:
        """The inputs and how far each got, newest first."""
        return await self._client.connection.database.read(
            views.list_inputs, await self._place(name), before=before, limit=limit
        )

    async def outcome(self, name: str, input_id: str) -> tuple[SeenInput, Sequence[LedgerRow]]:
        """One input and the changes it led to, as far as they are kept: see `is_pruned`."""
        place = await self._place(name)
        found = await self._client.connection.database.read(
            views.list_inputs, place, input_id=input_id, limit=1
        )
        if not found:
            raise UnknownInput(
                f"automation {name} has no input {input_id}",
                hint=f"List what came in with `rota automation inputs {name}`.",
            )
        led_to = await self._client.connection.database.read(views.outputs_of_input, input_id)
        return found[0], led_to

    async def outputs(
        self, name: str, *, status: str = "", before: str = "", limit: int = 50
    ) -> Sequence[LedgerRow]:
        """Side effects, newest first."""
        return await self._client.connection.database.read(
            views.list_outputs, await self._place(name), status=status, before=before,
            limit=limit,
        )  # fmt: skip

    async def inputs_of(self, mutation_id: str) -> Sequence[InputRow]:
        """The inputs that led to a side effect."""
        return await self._client.connection.database.read(
            views.inputs_of_output, mutation_id, namespace=self._namespace
        )

    async def activity(self, name: str, *, before: str = "", limit: int = 50) -> Sequence[SeenRun]:
        """Handler runs, newest first."""
        return await self._client.connection.database.read(
            views.list_activity, await self._place(name), before=before, limit=limit
        )

    async def handler_run(self, run_id: str) -> SeenRun | None:
        """One handler run with its change; None for a run that is not one."""
        return await self._client.connection.database.read(views.find_activity, run_id)

    async def touched(self, run_id: str) -> Sequence[Touched]:
        """The events of a run, and what it did to them."""
        return await self._client.connection.database.read(views.touched, run_id)

    async def pending(self, name: str, *, limit: int = 50) -> Sequence[SeenInput]:
        """The inputs that are not done, oldest first."""
        return await self._client.connection.database.read(
            views.unfinished_inputs, await self._place(name), limit=limit
        )

    async def stale(self, name: str, *, limit: int = 50) -> Sequence[SeenInput]:
        """The inputs older than `stale_days` that are not done."""
        until = self._now() - round(self._client.settings.stale_days * DAY)
        return await self._client.connection.database.read(
            views.unfinished_inputs, await self._place(name), until=until, limit=limit
        )

    # -- commands --------------------------------------------------------------------------

    async def pause(self, name: str) -> None:
        """Begin nothing new; what runs is left to end."""
        await self._steer(commands.stop, name, status="paused")

    async def archive(self, name: str) -> None:
        """Pause for good, and leave it out of the list; `resume` brings it back."""
        await self._steer(commands.stop, name, status="archived")

    async def resume(self, name: str) -> None:
        """Continue after a pause. A run that waits for a person stays waiting: see `resolve`."""
        await self._steer(commands.resume, name, new_id=self._client.ids.make(self._now()))

    async def run_now(self, name: str) -> Sequence[str]:
        """Queue every producer; refused while a run is active. Returns their names."""
        queued: list[str] = await self._steer(commands.run_now, name)
        return queued

    async def publish(
        self, name: str, topic: str, message_id: str, payload: Any = None, *,
        title: str | None = None,
    ) -> bool:  # fmt: skip
        """Publish to an external topic. False when nothing changed: the same event was there, or
        a run has used it. False as well when a run has reserved it: the new payload is kept, and
        counts if that run lets go of the event."""
        text = self._encoded(name, topic, payload)
        came_in = NewInput("external", topic, message_id, title or message_id)
        event = NewEvent(topic, message_id, text, (came_in,))
        batch = self._publishers.get(name)
        if batch is None:
            batch = Batch(functools.partial(self._publish, name), PUBLISHED_MAX)
            self._publishers[name] = batch
        try:
            return await batch.put(event)
        except UnknownAutomation:
            self._publishers.pop(name, None)
            await self._found(name)  # which knows the nearest names
            raise

    async def _publish(self, name: str, fresh: Sequence[NewEvent]) -> Sequence[bool]:
        """Calls about one automation at the same moment share a transaction."""
        now = self._now()
        database = self._client.connection.database
        # Alone it is done at once; with others it shares their commit.
        write = database.write if self._publishing or len(fresh) > 1 else database.write_brief
        self._publishing += 1
        try:
            changed = await write(
                commands.publish_all, self._namespace, name, fresh, now=now,
                new_ids=self._client.ids.endless(now),
            )  # fmt: skip
        finally:
            self._publishing -= 1
        await self._client.connection.wakeups.announce(READY, TIMER, often=True)
        return changed

    def _encoded(self, name: str, topic: str, payload: Any) -> str:
        limit = self._client.settings.payload_bytes_max
        return typed.encode(payload, what=f"an event of topic {topic}", bytes_max=limit)

    # `expected` is the id of the change (or of the run) that was looked at: where another waits
    # by now, the answer is refused and nothing changes.

    # The ledger records each answer: `by` (the user of this process if not given), when, and the
    # `note`, which says why.

    async def approve(
        self, name: str, *, expected: str | None = None, **person: Unpack[PersonOptions]
    ) -> LedgerRow:
        """Agree to the change that waits, with exactly the parameters it shows."""
        answer = self._answer(self.approve, person)
        row: LedgerRow = await self._steer(commands.approve, name, answer=answer, expected=expected)
        return row

    async def reject(
        self, name: str, *, expected: str | None = None, **person: Unpack[PersonOptions]
    ) -> LedgerRow:
        """Continue without the change that waits; its events are skipped."""
        answer = self._answer(self.reject, person)
        row: LedgerRow = await self._steer(commands.reject, name, answer=answer, expected=expected)
        return row

    async def resolve(
        self,
        name: str,
        how: Resolution = "try-again",
        *,
        expected: str | None = None,
        result: Any = None,
        **person: Unpack[PersonOptions],
    ) -> Sequence[EventName]:
        """Clear what the automation waits for: try again, it happened, it did not happen, or skip
        it. With "happened", `next` sees the change as applied, with this `result`.

        A skip after a failure leaves out what the failed run had pinned or could not read; if it
        took nothing, the oldest event that it would read. Returns these."""
        answer = self._answer(self.resolve, person)
        skipped: list[EventName] = await self._steer(
            commands.resolve, name, how, answer=answer, expected=expected,
            result=self._result(how, result),
        )  # fmt: skip
        return skipped

    def _result(self, how: str, result: Any) -> str | None:
        if result is None:
            return None
        if how != "happened":
            raise UsageError(f"{how} has no result", hint='Only "happened" comes with a result.')
        limit = self._client.settings.payload_bytes_max
        return typed.encode(result, what="the result of the change", bytes_max=limit)

    async def skip_event(
        self, name: str, topic: str, message_id: str, **person: Unpack[PersonOptions]
    ) -> None:
        """Skip a pending event."""
        answer = self._answer(self.skip_event, person)
        await self._steer(commands.skip_event, name, topic, message_id, answer=answer)

    async def skip_input(self, name: str, input_id: str, **person: Unpack[PersonOptions]) -> int:
        """Skip an input and what it leads to; returns how many events were skipped at once."""
        answer = self._answer(self.skip_input, person)
        count: int = await self._steer(commands.skip_input, name, input_id, answer=answer)
        return count

    async def requeue(
        self,
        name: str,
        topic: str,
        message_id: str | None = None,
        **person: Unpack[PersonOptions],
    ) -> Sequence[EventName]:
        """Give a skipped event, or the event behind a dead letter, back to its reader; without an
        id, up to 1000 of the topic. Returns these events."""
        new_ids = self._client.ids.endless(self._now())
        back: list[EventName] = await self._steer(
            requeue.requeue, name, topic, message_id, new_ids=new_ids,
            answer=self._answer(self.requeue, person),
        )  # fmt: skip
        return back

    async def answer_all(
        self,
        how: Answer,
        *,
        dry_run: bool = False,
        result: Any = None,
        **options: Unpack[BulkOptions],
    ) -> BulkAnswer:
        """Give the same answer to every automation that waits for it: approve, reject, or one of
        `resolve`. Options: name (a pattern), reason, tool; by, note. `dry_run` only counts."""
        check_options(options, BulkOptions, self.answer_all)
        self._result(how, result)
        return await answer_all(self, how, dry_run=dry_run, result=result, options=options)

    async def answers(
        self, name: str, *, change_id: str = "", before: str = "", limit: int = 50
    ) -> Sequence[AnswerRow]:
        """The answers of people, newest first; with `change_id`, about one change."""
        return await self._client.connection.database.read(
            answers.list_answers, await self._place(name), change_id=change_id, before=before,
            limit=limit,
        )  # fmt: skip

    def _answer(self, call: Callable[..., Any], person: PersonOptions) -> NewAnswer:
        check_options(person, PersonOptions, call)
        return new_answer(self._client.ids.make(self._now()), person)

    # -- versions --------------------------------------------------------------------------

    async def rollback(self, name: str, version: int) -> Deployment:
        """Put an earlier version in force again, as a new version with its code. Workers that have
        this code run it at once. Starts of workers with the code after it do not undo this; a
        deploy of new code, or `deploy`, does."""
        ids = self._client.ids.endless(self._now())
        done: Deployment = await self._steer(rollback.rollback, name, version, new_ids=ids)
        return done

    async def prune_versions(self, name: str, *, keep: int = 10) -> Sequence[int]:
        """Delete all but the newest `keep` versions; returns their numbers. The version in force
        stays, and so does the newest that was deployed."""
        if keep < 1:
            raise UsageError(f"keep={keep}: the version in force is kept, so at least 1 is")
        pruned: list[int] = await self._steer(rollback.prune_versions, name, keep=keep)
        return pruned

    # -- how -------------------------------------------------------------------------------

    async def _steer(self, verb: Any, name: str, *args: Any, **words: Any) -> Any:
        refuse_in_workflow(f"automations.{verb.__name__}")
        try:
            done = await self._client.connection.database.write_brief(
                verb, self._namespace, name, *args, now=self._now(), **words
            )
        except UnknownAutomation:
            await self._found(name)  # which knows the nearest names
            raise
        await self._client.connection.wakeups.announce(READY, TIMER)
        return done

    async def _found(self, name: str) -> DeployedAutomation:
        database = self._client.connection.database
        found = await database.read(store.find, namespace=self._namespace, name=name)
        if found is None:
            known = await database.read(store.listing, namespace=self._namespace)
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

    async def _place(self, name: str) -> AutomationKey:
        return AutomationKey(self._namespace, (await self._found(name)).name)

    @property
    def _namespace(self) -> str:
        return self._client.settings.namespace

    def _now(self) -> int:
        return self._client.clock.now()


async def _list(tx: Tx, /, settings: Settings, *, now: int, **where: Any) -> list[AutomationView]:
    found = await store.listing(tx, namespace=settings.namespace, **where)
    return await _look(tx, settings, found, now=now) if found else []


async def _look(
    tx: Tx, settings: Settings, found: Sequence[DeployedAutomation], *, now: int
) -> list[AutomationView]:
    """How these are, with a few questions for all of them together."""
    namespace = settings.namespace
    names = [one.name for one in found]
    open_runs = await store.read_open_runs(tx, namespace=namespace, names=names)
    handlers = await store.handlers_of_all(tx, namespace=namespace, names=names)
    pending = await views.count_pending(tx, namespace=namespace, names=names)
    # One that rests without work has nothing to explain: its chain has only this run.
    halted = [
        open_run
        for open_run in open_runs.values()
        if open_run.reason not in (store.IDLE, store.EVENT)
    ]
    roots = [open_run.root_id for open_run in halted]
    ledger = await effects.of_chains(tx, roots) if roots else {}
    errors = await views.last_errors(tx, halted)
    skips = await views.to_skip(tx, namespace, halted, ledger)
    codes = await code_states(tx, found, settings, now=now)
    shown = []
    for one in found:
        open_run, own = open_runs.get(one.name), handlers[one.name]
        root_id = open_run.root_id if open_run else ""
        change, left_out = ledger.get(root_id), tuple(skips.get(one.name, ()))
        error = errors.get(root_id)
        said = say(
            one, open_run, own, error=error, mutation=change, skips=left_out, code=codes[one.name],
            now=now,
        )  # fmt: skip
        next_at = (
            moment(open_run.available_at)
            if open_run and open_run.available_at is not None
            else None
        )
        shown.append(AutomationView(
            one, said, schedule_words(own), next_at, open_run, change, own, pending[one.name],
            left_out, error, codes[one.name],
        ))  # fmt: skip
    return shown
