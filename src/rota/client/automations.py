"""Automations for people: see them, pause, run, publish, approve, resolve, skip.

One method per verb; CLI, HTTP and Python all call these. An automation is addressed by its name.
Knows no user code: the app declares and deploys.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from rota.client.answers import (
    Answer,
    BulkAnswer,
    BulkOptions,
    PersonOptions,
    answer_all,
    new_answer,
)
from rota.client.automation_views import AutomationReads
from rota.client.caller import refuse_in_workflow
from rota.core.automations.model import (
    EventName,
    LedgerRow,
    NewAnswer,
    NewEvent,
    NewInput,
    Resolution,
)
from rota.core.runs.names import checked_search
from rota.core.suggest import check_options
from rota.engine.wakeups import READY, TIMER
from rota.errors import BadInput, UnknownAutomation, UsageError
from rota.store.automations import commands, requeue, rollback
from rota.store.automations.deploy import Deployment
from rota.store.backend.batching import Batch

if TYPE_CHECKING:
    from rota.client.client import Client

T = TypeVar("T")

# Events of one transaction, which holds the lock of the automation.
PUBLISHED_MAX = 100
BULK = 1000


def _pair(event: object) -> tuple[str, Any]:
    """The message id and the payload of an event of `publish_many`."""
    if isinstance(event, tuple | list) and len(event) == 2 and isinstance(event[0], str):
        return event[0], event[1]
    raise BadInput(
        f"an event of publish_many is {event!r:.80}, not a pair of message id and payload",
        hint='Write [("m-1", {"text": "hi"})].',
    )


class Automations(AutomationReads):
    """Shows and manages the automations of one namespace."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._publishers: dict[str, Batch[NewEvent, bool]] = {}  # by automation
        self._publishing = 0

    # -- commands --------------------------------------------------------------------------

    async def pause(self, name: str) -> None:
        """Pause an automation: it begins no run. An active run is left to end.

        Args:
            name: The automation.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        await self._command(commands.stop, name, status="paused")

    async def archive(self, name: str) -> None:
        """Pause an automation for good, and hide it from the list; `resume` brings it back.

        Args:
            name: The automation.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        await self._command(commands.stop, name, status="archived")

    async def resume(self, name: str) -> None:
        """Resume an automation after a pause. A run that waits for an operator keeps waiting.

        Args:
            name: The automation.

        Raises:
            UnknownAutomation: There is no automation of that name.
        """
        await self._command(commands.resume, name, new_id=self._client.ids.make(self._now()))

    async def run_now(self, name: str) -> Sequence[str]:
        """Queue every producer now.

        Args:
            name: The automation.

        Returns:
            The names of the producers.

        Raises:
            WrongState: A run is active, or something has to be resolved first.
        """
        return await self._command(commands.run_now, name)

    async def publish(
        self, name: str, topic: str, message_id: str, payload: Any = None, *,
        title: str | None = None,
    ) -> bool:  # fmt: skip
        """Publish an event to an external topic.

        If a run has reserved the event, the new payload is kept and counts if that run releases it.

        Args:
            name: The automation.
            topic: An external topic of the automation.
            message_id: The key of the event: the same id is used once.
            payload: Any JSON value.
            title: A name for people; without one, the message id.

        Returns:
            Whether the event is new or has changed.

        Raises:
            UnknownAutomation: There is no automation of that name.
            BadInput: The payload does not fit the type of the topic.

        Example:
            await app.automations.publish("inbox", "letters", "m-1", {"text": "hi"})
        """
        event = self._new_event(name, topic, message_id, payload, title)
        batch = self._publishers.get(name)
        if batch is None:
            batch = Batch(functools.partial(self._publish, name), PUBLISHED_MAX)
            self._publishers[name] = batch
        try:
            return await batch.put(event)
        except UnknownAutomation:
            self._publishers.pop(name, None)
            await self._found(name)  # its error has the nearest names
            raise

    async def publish_many(self, name: str, topic: str, events: Iterable[tuple[str, Any]]) -> int:
        """Publish many events to an external topic, in few transactions.

        Every payload is checked before the first event is written. If the call fails on the way,
        repeat it: an event that is there already is not published again.

        Args:
            name: The automation.
            topic: An external topic of the automation.
            events: Pairs of message id and payload.

        Returns:
            How many events are new or have changed.

        Raises:
            UnknownAutomation: There is no automation of that name.
            BadInput: A payload does not fit the type of the topic.

        Example:
            await app.automations.publish_many("inbox", "letters", [("m-1", {"text": "hi"})])
        """
        fresh = [self._new_event(name, topic, *_pair(one)) for one in events]
        changed = 0
        try:
            for first in range(0, len(fresh), BULK):
                changed += sum(await self._publish(name, fresh[first : first + BULK]))
        except UnknownAutomation:
            await self._found(name)  # its error has the nearest names
            raise
        return changed

    def _new_event(
        self, name: str, topic: str, message_id: str, payload: Any, title: str | None = None
    ) -> NewEvent:
        text = self._encoded(name, topic, payload)
        came_in = NewInput("external", topic, message_id, title or message_id)
        return NewEvent(topic, message_id, text, (came_in,))

    async def _publish(self, name: str, fresh: Sequence[NewEvent]) -> Sequence[bool]:
        """Calls about one automation at the same moment share a transaction."""
        now = self._now()
        # A single event is written at once; events that come together share a commit.
        is_alone = not self._publishing and len(fresh) == 1
        write = self._database.write_brief if is_alone else self._database.write
        self._publishing += 1
        try:
            changed = await write(
                commands.publish_all, self._namespace, name, fresh, now=now,
                new_ids=self._client.ids.endless(now),
            )  # fmt: skip
        finally:
            self._publishing -= 1
        await self._wakeups.announce(READY, TIMER)
        return changed

    def _encoded(self, name: str, topic: str, payload: Any) -> str:
        """The payload as JSON. An app, which knows the type of the topic, checks it as well."""
        return self._json(payload, f"an event of topic {topic}")

    async def approve(
        self, name: str, *, expected: str | None = None, **person: Unpack[PersonOptions]
    ) -> LedgerRow:
        """Approve the change that waits, with exactly the parameters it shows.

        Args:
            name: The automation.
            expected: The id of the change or run that you have seen. If another one waits by now,
                the answer is refused.
            person: `by` (who answers; the user of this process if not given) and `note` (why).

        Returns:
            The approved change.

        Raises:
            WrongState: No such change waits.

        Example:
            await app.automations.approve("inbox", note="checked")
        """
        answer = self._answer(self.approve, person)
        return await self._command(
            commands.decide, name, "approved", answer=answer, expected=expected
        )

    async def reject(
        self, name: str, *, expected: str | None = None, **person: Unpack[PersonOptions]
    ) -> LedgerRow:
        """Continue without the change that waits; its events are skipped.

        Args:
            name: The automation.
            expected: The id of the change or run that you have seen. If another one waits by now,
                the answer is refused.
            person: `by` (who answers; the user of this process if not given) and `note` (why).

        Returns:
            The rejected change.

        Raises:
            WrongState: No such change waits.
        """
        answer = self._answer(self.reject, person)
        return await self._command(
            commands.decide, name, "rejected", answer=answer, expected=expected
        )

    async def resolve(
        self,
        name: str,
        how: Resolution = "try-again",
        *,
        expected: str | None = None,
        result: Any = None,
        **person: Unpack[PersonOptions],
    ) -> Sequence[EventName]:
        """Resolve the cause that the automation waits for.

        A skip after a failure skips the events that the failed run had pinned or could not read. If
        it took nothing, the oldest event that it would read is skipped.

        Args:
            name: The automation.
            how: try-again, happened, did-not-happen or skip.
            expected: The id of the change or run that you have seen. If another one waits by now,
                the answer is refused.
            result: With "happened": the result that `next` sees.
            person: `by` (who answers; the user of this process if not given) and `note` (why).

        Returns:
            The skipped events.

        Raises:
            WrongState: Nothing waits for this answer.
        """
        answer = self._answer(self.resolve, person)
        return await self._command(
            commands.resolve, name, how, answer=answer, expected=expected,
            result=self._result(how, result),
        )  # fmt: skip

    def _result(self, how: str, result: Any) -> str | None:
        if result is None:
            return None
        if how != "happened":
            raise UsageError(
                f"{how!r} takes no result", hint='Omit `result`, or answer "happened".'
            )
        return self._json(result, "the result of the change")

    async def skip_event(
        self, name: str, topic: str, message_id: str, **person: Unpack[PersonOptions]
    ) -> None:
        """Skip a pending event.

        Args:
            name: The automation.
            topic: The topic of the event.
            message_id: Its message id.
            person: `by` (who answers; the user of this process if not given) and `note` (why).

        Raises:
            WrongState: The event is not pending.
        """
        answer = self._answer(self.skip_event, person)
        await self._command(commands.skip_event, name, topic, message_id, answer=answer)

    async def skip_input(self, name: str, input_id: str, **person: Unpack[PersonOptions]) -> int:
        """Skip an input and all events that it leads to.

        Args:
            name: The automation.
            input_id: An id from `inputs`.
            person: `by` (who answers; the user of this process if not given) and `note` (why).

        Returns:
            The number of events skipped at once.

        Raises:
            UnknownInput: The automation has no such input.
        """
        answer = self._answer(self.skip_input, person)
        return await self._command(commands.skip_input, name, input_id, answer=answer)

    async def requeue(
        self, name: str, topic: str, message_id: str | None = None, **person: Unpack[PersonOptions]
    ) -> Sequence[EventName]:
        """Give a skipped event, or the event behind a dead letter, back to its reader.

        Args:
            name: The automation.
            topic: The topic of the event.
            message_id: Its message id; without one, all events of the topic, in batches of 1,000.
            person: `by` (who answers; the user of this process if not given) and `note` (why).

        Returns:
            The events that were given back.
        """
        answer = self._answer(self.requeue, person)
        new_ids = self._client.ids.endless(self._now())
        back: list[EventName] = []
        before = ""
        while True:
            # Each batch is older than the last, so an event that is skipped again comes once.
            batch, before = await self._command(
                requeue.requeue, name, topic, message_id, new_ids=new_ids, answer=answer,
                before=before,
            )  # fmt: skip
            back += batch
            if not before:
                return back

    async def answer_all(
        self,
        how: Answer,
        *,
        dry_run: bool = False,
        result: Any = None,
        **options: Unpack[BulkOptions],
    ) -> BulkAnswer:
        """Give the same answer to every automation that waits for it.

        Args:
            how: approve, reject, or an answer of `resolve`.
            dry_run: Only count.
            result: As in `resolve`.
            options: `name` (a pattern), `reason`, `tool`; `by` and `note`.

        Returns:
            The automations that were answered, and those that refused.
        """
        check_options(options, BulkOptions, self.answer_all)
        self._result(how, result)
        return await answer_all(self, how, dry_run=dry_run, result=result, options=options)

    def _answer(self, call: Callable[..., Any], person: PersonOptions) -> NewAnswer:
        check_options(person, PersonOptions, call)
        return new_answer(self._client.ids.make(self._now()), person)

    # -- versions --------------------------------------------------------------------------

    async def rollback(self, name: str, version: int) -> Deployment:
        """Put an earlier version in force again, as a new version with its code.

        Workers that have this code run it at once. A start of a worker with the later code does not
        undo the rollback; a deploy of new code, or `deploy`, does.

        Args:
            name: The automation.
            version: A number from `versions`.

        Returns:
            The new version, and the one before.
        """
        new_ids = self._client.ids.endless(self._now())
        return await self._command(rollback.rollback, name, version, new_ids=new_ids)

    async def prune_versions(self, name: str, *, keep: int = 10) -> Sequence[int]:
        """Delete old versions. The version in force and the newest one stay.

        Args:
            name: The automation.
            keep: The number of newest versions to keep.

        Returns:
            The numbers of the deleted versions.

        Raises:
            UsageError: `keep` is below 1.
        """
        if keep < 1:
            raise UsageError(f"keep={keep} is below 1: the version in force is always kept")
        return await self._command(rollback.prune_versions, name, keep=keep)

    # -- how -------------------------------------------------------------------------------

    async def _command(
        self, verb: Callable[..., Awaitable[T]], name: str, *args: Any, **options: Any
    ) -> T:
        refuse_in_workflow(f"automations.{verb.__name__}")
        checked_search(name, "automation name")
        try:
            done = await self._database.write_brief(
                verb, self._namespace, name, *args, now=self._now(), **options
            )
        except UnknownAutomation:
            await self._found(name)  # its error has the nearest names
            raise
        await self._wakeups.announce(READY, TIMER)
        return done
