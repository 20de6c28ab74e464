"""The records of automations that travel between store, executor and surfaces. Immutable. Field
order is the column order of the queries that read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import takewhile
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from rota.core.automations.failure_policy import Outage
from rota.core.automations.phases import shown

RECONCILIATION = "reconciliation"  # the run waits: its change may have happened
# How a person ends such a wait.
Resolution = Literal["try-again", "happened", "did-not-happen", "skip"]
RESOLUTIONS: tuple[Resolution, ...] = get_args(Resolution)


class DeployedAutomation(msgspec.Struct, frozen=True, gc=False):
    """A deployed automation. The user sets `status`; the system sets failures, fixes and waits."""

    namespace: str
    name: str
    status: str  # active | paused | archived
    queue: str
    version: int
    digest: str
    failures: int
    fixes: int
    created_at: int
    updated_at: int
    # The thing it waits for, since when, and how often it was tried.
    waits_for: str | None = None
    waits_since: int | None = None
    waits_count: int = 0

    @property
    def outage(self) -> Outage | None:
        """The counterpart that does not answer, if that is what it waits for."""
        if self.waits_for is None or self.waits_since is None:
            return None
        return Outage(self.waits_for, self.waits_since, self.waits_count)

    @property
    def serial_key(self) -> str:
        """The key that keeps it to one open run."""
        return serial_key(self.name)


def serial_key(name: str) -> str:
    """The serial key of an automation's runs."""
    return f"automation:{name}"


class HandlerRun(msgspec.Struct, frozen=True, gc=False):
    """One attempt of one handler: how far it got, and what it left."""

    run_id: str
    root_id: str
    automation: str
    handler: str
    kind: str
    version: int
    cause: str
    phase: str
    seen: int
    prepared: str | None
    state_before: str | None
    state_after: str | None
    logs: str | None
    remark: str | None
    error_kind: str | None
    reserved_count: int
    published_count: int
    started_at: int
    finished_at: int | None


class Alone(IntEnum):
    """Whether an event is taken alone, because its batch failed and one of it may be bad."""

    NO = 0
    YES = 1
    NOT_TAKEN = 2  # it was offered alone, and its consumer did not take it


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a topic."""

    id: str
    topic: str
    message_id: str
    payload: str
    status: str
    reserved_by: str | None
    created_by: str | None
    attempt: int
    created_at: int
    updated_at: int
    revision: int = 0  # how often the payload has changed
    # A newer payload, published while a run had the event. It counts when that run lets go.
    correction: str | None = None
    alone: int = 0  # see `Alone`


def offered(pending: Sequence[StoredEvent]) -> list[StoredEvent]:
    """The pending events of a topic that a consumer sees: those before one that is taken alone, or
    that one by itself."""
    if pending and pending[0].alone == Alone.YES:
        return [pending[0]]
    return list(takewhile(lambda one: one.alone != Alone.YES, pending))


class DeadLetter(msgspec.Struct, frozen=True):
    """The payload of an event in a dead-letter topic: what was skipped, and why. `topic` and `id`
    name the event as it was published."""

    topic: str
    id: str
    payload: Any
    error: dict[str, str]  # type, message and kind
    handler: str
    run_id: str  # the run that failed last
    failures: int
    failed_at: str


class RefusedDeploy(NamedTuple):
    """A deploy that was refused: all that is wrong, on which host, and when."""

    automation: str
    problems: tuple[str, ...]
    host: str
    refused_at: int


class WorkerCode(NamedTuple):
    """A live worker that has other code of an automation than the deployed one."""

    worker: str  # its host and process
    version: int | None  # which version its code is, if it was ever deployed


class CodeState(NamedTuple):
    """Which live workers have the deployed code of an automation, and what was refused."""

    live: int = 0  # workers, whatever their code
    serving: int = 0  # those that have the deployed code
    others: tuple[WorkerCode, ...] = ()
    refused: RefusedDeploy | None = None

    @property
    def is_missing(self) -> bool:
        """Whether workers are running, and none of them can run the version in force."""
        return self.live > 0 and self.serving == 0


class EventName(NamedTuple):
    """Which event: for people, its topic and message id."""

    id: str
    topic: str
    message_id: str


class LedgerRow(msgspec.Struct, frozen=True, gc=False):
    """One side effect as the ledger knows it. The id is its idempotency key."""

    id: str
    root_id: str
    run_id: str
    automation: str
    handler: str
    tool: str
    safety: str
    params: str
    title: str | None
    status: str
    approved_at: int | None
    result: str | None
    error: str | None
    resolved_by: str | None
    reconcile_count: int
    created_at: int
    updated_at: int

    def moved(
        self,
        status: str,
        *,
        now: int,
        result: str | None = None,
        error: str | None = None,
        resolved_by: str | None = None,
        reconcile_count: int | None = None,
    ) -> LedgerRow:
        """The entry with another status, and all that is known of that one."""
        count = self.reconcile_count if reconcile_count is None else reconcile_count
        return msgspec.structs.replace(
            self, status=status, result=result, error=error, resolved_by=resolved_by,
            reconcile_count=count, updated_at=now,
        )  # fmt: skip


class NewAnswer(NamedTuple):
    """Who answers, and why; the id is that of the row to be."""

    id: str
    person: str
    note: str | None = None


class AnswerRow(msgspec.Struct, frozen=True, gc=False):
    """The answer of a person: about a change, a run, an event or an input."""

    id: str
    act: str
    mutation_id: str | None
    run_id: str | None
    event_id: str | None
    input_id: str | None
    person: str
    note: str | None
    at: int

    @property
    def words(self) -> str:
        """In one line: "approved by anna: the amount is right"."""
        act = f'resolved as "{self.act}"' if self.act in RESOLUTIONS else self.act
        return f"{act} by {self.person}" + (f": {self.note}" if self.note else "")


class InputRow(msgspec.Struct, frozen=True, gc=False):
    """Something that came in, for people."""

    id: str
    source: str
    type: str
    external_id: str
    title: str
    created_at: int
    skipped_at: int | None


class SeenInput(NamedTuple):
    """Something that came in, and how far it got."""

    input: InputRow
    event_count: int
    unfinished_count: int
    skipped_count: int = 0

    @property
    def status(self) -> str:
        """pending | done | skipped."""
        if self.input.skipped_at is not None:
            return "skipped"
        if self.unfinished_count or not self.event_count:
            return "pending"
        return "skipped" if self.skipped_count == self.event_count else "done"


class SeenRun(NamedTuple):
    """A handler run, with the status of its run."""

    run: HandlerRun
    status: str
    reason: str | None
    attempt: int
    retry_of: str | None
    error: str | None
    change: LedgerRow | None = None  # its side effect, if there was one
    answers: tuple[AnswerRow, ...] = ()  # what people answered to this run

    @property
    def shown(self) -> str:
        """Status and reason in the words of the model."""
        return shown(self.status, self.reason)


class Touched(NamedTuple):
    """The effect of a run on an event."""

    topic: str
    message_id: str
    act: str
    at: int


class AutomationVersion(msgspec.Struct, frozen=True, gc=False):
    """One version of an automation."""

    automation: str
    version: int
    digest: str
    made_by: str  # deploy | fix
    graph: str
    source: str | None
    comment: str | None
    created_at: int
    parts: str | None = None  # what a rollback needs; None in versions of an older Rota
    restores: int | None = None  # the version that a rollback put in force again


class NewInput(NamedTuple):
    """An input about to be registered: its key, and how people call it."""

    source: str
    type: str
    external_id: str
    title: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that makes it the same input again."""
        return (self.source, self.type, self.external_id)


class NewEvent(NamedTuple):
    """An event about to be published, and the inputs it comes from."""

    topic: str
    message_id: str
    payload: str
    inputs: tuple[NewInput, ...] = ()


class HandlerPlan(msgspec.Struct, frozen=True):
    """The decision of `prepare`, as stored: pinned events, its own values, and the wake time."""

    reservations: dict[str, list[str]] = {}
    data: msgspec.Raw = msgspec.Raw("null")
    title: str | None = None
    wake_at: int | None = None

    @property
    def count(self) -> int:
        """How many events it pins."""
        return sum(len(ids) for ids in self.reservations.values())
