"""The records that travel between store, engine and surfaces. Immutable; no behaviour beyond
what follows from their own fields. Field order of `Run`, `Claim` and `Step` is the column order
of the queries that read them. `gc=False` spares the collector objects that cannot form cycles.
"""

from __future__ import annotations

import msgspec

from rota.core.runs.lifecycle import FINAL, Trigger, label
from rota.errors import LeaseLost


class Run(msgspec.Struct, frozen=True):
    """One attempt to execute something: the unit of history."""

    id: str
    namespace: str
    kind: str
    name: str
    queue: str
    priority: int
    status: str
    reason: str | None
    available_at: int | None
    due_at: int | None
    schedule_id: str | None
    retry_of: str | None
    root_id: str
    parent_id: str | None
    attempt: int
    recoveries: int
    trigger: str
    external_id: str | None
    serial_key: str | None
    limit_key: str | None
    lease_owner: str | None
    lease_until: int | None
    claim_count: int
    version: str | None
    tags: str | None
    options: str | None
    input: str | None
    output: str | None
    error: str | None
    created_at: int
    started_at: int | None
    finished_at: int | None
    segment_id: str | None = None  # see `segment`
    pinned_version: str | None = None  # the one version of the code that may claim it
    refused_versions: str | None = None  # versions that cannot execute it (code_versions.py)

    @property
    def segment(self) -> str:
        """The first run of its segment: the runs that share one input and one history of steps."""
        return self.segment_id or self.root_id

    @property
    def is_final(self) -> bool:
        """Whether this row will never change again."""
        return self.status in FINAL

    @property
    def label(self) -> str:
        """Status and reason as people read them."""
        return label(self.status, self.reason)


class Schedule(msgspec.Struct, frozen=True, gc=False):
    """A template: a row that knows when to make runs. `spec` is the stored `Intent`."""

    id: str
    namespace: str
    name: str
    queue: str
    priority: int
    status: str
    reason: str | None
    available_at: int | None
    due_at: int | None
    cron_expr: str | None
    spec: str
    options: str | None
    input: str | None
    created_at: int
    parent_id: str | None = None  # the program that declares it
    started_at: int | None = None  # the last occurrence it fired (nominal)

    @property
    def label(self) -> str:
        """Status and reason as people read them."""
        return label(self.status, self.reason)


class NewRun(msgspec.Struct, frozen=True, gc=False):
    """A run to be inserted. `available_at` after now makes it sleep first."""

    id: str
    namespace: str
    name: str
    available_at: int
    input: str | None = None
    kind: str = "workflow"
    queue: str = "default"
    priority: int = 0
    trigger: str = Trigger.MANUAL
    root_id: str | None = None
    retry_of: str | None = None
    parent_id: str | None = None
    attempt: int = 1
    recoveries: int = 0
    external_id: str | None = None
    serial_key: str | None = None
    limit_key: str | None = None
    due_at: int | None = None
    schedule_id: str | None = None
    version: str | None = None
    tags: str | None = None
    options: str | None = None
    reason: str | None = None
    segment_id: str | None = None
    pinned_version: str | None = None


class Started(msgspec.Struct, frozen=True, gc=False):
    """The answer to a start: the run's id, and whether it was there before."""

    id: str
    existed: bool


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A run this worker holds: everything needed to execute it. `claim_count` and
    `lease_owner` are the fence: a server that lost commits may give the same number twice."""

    id: str
    claim_count: int
    lease_owner: str
    namespace: str
    kind: str
    name: str
    queue: str
    priority: int
    available_at: int
    root_id: str
    parent_id: str | None
    attempt: int
    recoveries: int
    trigger: str
    external_id: str | None
    serial_key: str | None
    limit_key: str | None
    due_at: int | None
    schedule_id: str | None
    version: str | None
    tags: str | None
    options: str | None
    started_at: int
    created_at: int
    input: str | None
    segment_id: str | None = None
    pinned_version: str | None = None
    refused_versions: str | None = None

    @property
    def segment(self) -> str:
        """The first run of its segment: the runs that share one input and one history of steps."""
        return self.segment_id or self.root_id

    @property
    def is_fresh(self) -> bool:
        """Whether no worker can have recorded a step for this segment yet."""
        return self.claim_count == 1 and self.trigger not in _WITH_HISTORY

    def lost(self) -> LeaseLost:
        """The error of a worker that no longer holds the run: none of its writes count."""
        return LeaseLost(f"run {self.id} is no longer held by this worker", run_id=self.id)


_WITH_HISTORY = frozenset({Trigger.RETRY, Trigger.RECOVERY, Trigger.FORK})


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How a held run is settled: a verb of the lifecycle table and what goes with it."""

    claim: Claim
    verb: str
    reason: str | None = None
    output: str | None = None
    error: str | None = None
    wake_at: int | None = None
    retry: NewRun | None = None  # the next run of the chain; after `continue`, of a new segment
    again: tuple[str, ...] = ()  # failed steps that a further attempt tries again
    handling: tuple[str, ...] = ()  # calls that handled these failures: it makes them again too
    untaken: tuple[str, ...] = ()  # waits: the code has not got their signals, which go back
    refused: str | None = None  # of a run that is handed back: the versions that cannot execute it


class StoredStep(msgspec.Struct, frozen=True, gc=False):
    """A memoised piece of a segment. Status: completed, failed (may be tried again) or waiting."""

    root_id: str  # the first run of the segment
    key: str
    position: int
    kind: str
    status: str
    attempt: int
    run_attempt: int
    output: str | None
    error: str | None
    wake_at: int | None
    child_id: str | None
    started_at: int
    finished_at: int | None
    digest: int | None = None  # of the arguments; None: not compared

    @property
    def is_forgotten(self) -> bool:
        """Whether it ended its attempt, or handled that failure: it is not part of the next one."""
        return self.wake_at == 0


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line that user code logged in a run; positions of a run begin with 1."""

    run_id: str
    position: int
    at: int
    level: str
    logger: str
    message: str


class StepRecord(msgspec.Struct, frozen=True, gc=False):
    """A step to write, with the claim that fences it."""

    claim: Claim
    step: StoredStep


class WorkerRecord(msgspec.Struct, frozen=True):
    """One worker process, as it last reported itself."""

    id: str
    namespace: str
    host: str
    pid: int
    pid_started: str
    queues: str
    names: str
    slots: int
    status: str
    version: str
    started_at: int
    heartbeat_at: int
    stopped_at: int | None
    code_id: str | None = None  # the code set of its automations
    held_threads: str | None = None  # the steps that hold them after a timeout, as JSON
    workflow_blocks: str | None = None  # a list of `WorkflowBlock`, as JSON


class WorkflowBlock(msgspec.Struct, frozen=True):
    """Code of a workflow that blocked its worker for a second: the last time since the worker's
    start, and how many times there were."""

    workflow: str
    run_id: str
    line: str
    at: int
    count: int = 1


class Queue(msgspec.Struct, frozen=True):
    """A queue's limits across all workers; None means no limit."""

    namespace: str
    name: str
    running_max: int | None = None
    key_running_max: int | None = None
    rate_count: int | None = None
    rate_per_us: int | None = None
    ready_at: int = 0
    paused: int = 0
    key_open_max: int | None = None  # held by a chain from its first claim to its end
    age_us: int | None = None  # the wait that counts as much as one step of priority
    round_robin: int = 0  # whether keys take turns

    @property
    def is_limited(self) -> bool:
        """Whether claiming from it takes the queue's lock."""
        return bool(
            self.running_max or self.key_running_max or self.rate_count or self.paused
            or self.key_open_max or self.age_us or self.round_robin
        )  # fmt: skip
