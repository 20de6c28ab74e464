"""Bodies of the API: how rows of the client become documents, and the documents about runs,
schedules and automations."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from rota.client.run_pages import RunList
from rota.core.redaction import shown
from rota.core.runs.model import StoredStep
from rota.core.runs.progress import progress_of, result_of
from rota.core.time.instants import instant, iso

Instant = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
S = TypeVar("S", bound=msgspec.Struct)

# Columns that hold JSON.
STORED_JSON = frozenset({
    "input", "output", "error", "tags", "options", "queues", "payload", "params", "result",
    "detail", "graph",
})  # fmt: skip


class ApiDocument(msgspec.Struct, frozen=True):
    """A body of the API."""


def document(kind: type[S], row: Any, **more: Any) -> S:
    """A row as a document: instants as RFC 3339, stored JSON as JSON."""
    values = {}
    for name in kind.__struct_fields__:
        value = more[name] if name in more else getattr(row, name)
        if isinstance(value, datetime) or name == "at" or name.endswith(("_at", "_until")):
            value = written(value)
        elif name in STORED_JSON:
            value = shown(stored(value) if isinstance(value, str) else value)
        values[name] = value
    return kind(**values)


def documents(kind: type[S], rows: Iterable[Any]) -> list[S]:
    """Several rows."""
    return [document(kind, row) for row in rows]


def written(value: int | datetime | str | None) -> str | None:
    """An instant as RFC 3339 in UTC."""
    if isinstance(value, datetime):
        return iso(instant(value))
    return iso(value) if isinstance(value, int) else value


def stored(text: str) -> Any:
    """Stored JSON; text that is not JSON is shown as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


# -- runs --------------------------------------------------------------------------------------


class ListedRun(ApiDocument, frozen=True):
    """A run in a list, without input, output and error."""

    id: str
    kind: str
    name: str
    queue: str
    status: str
    reason: str | None
    label: str
    attempt: int
    trigger: str
    root_id: str
    schedule_id: str | None
    external_id: str | None
    tags: Any
    available_at: Instant | None
    due_at: Instant | None
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None


class RunDocument(ListedRun, frozen=True):
    """One attempt of a run."""

    priority: int
    recoveries: int
    retry_of: str | None
    segment_id: str | None
    parent_id: str | None
    version: str | None
    input: Any
    output: Any
    error: Any


class RunListDocument(ApiDocument, frozen=True):
    """Runs, newest first; `next` is the cursor of the next page. `by_id` has what a search found by
    the beginning of an id or external id, however old."""

    runs: list[ListedRun]
    next: str | None = None
    looked_back_to: Instant | None = None
    by_id: list[ListedRun] = msgspec.field(default_factory=list)


def run_list(listed: RunList) -> RunListDocument:
    """A page of runs for a program."""
    return document(
        RunListDocument, listed, runs=documents(ListedRun, listed.runs),
        by_id=documents(ListedRun, listed.by_id),
    )  # fmt: skip


class StartedRun(ApiDocument, frozen=True):
    """A run that was started, or was there before."""

    id: str
    existed: bool = False


class RunIds(ApiDocument, frozen=True):
    """Ids of runs."""

    ids: list[str]


class BulkDocument(ApiDocument, frozen=True):
    """How many runs fit, and the ids of the chains that were changed, or would be."""

    matched: int
    has_more: bool
    run_ids: list[str]
    refused: dict[str, str]
    dry_run: bool


class ProgressDocument(ApiDocument, frozen=True):
    """The last progress that a step has reported: `done` of `of`."""

    done: float
    of: float | None
    note: str | None
    at: Instant


class StepDocument(ApiDocument, frozen=True):
    """A recorded step. `progress` is set while it has no result."""

    position: int
    key: str
    kind: str
    status: str
    attempt: int
    run_attempt: int
    output: Any
    error: Any
    child_id: str | None
    wake_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    progress: ProgressDocument | None = None

    @classmethod
    def of(cls, step: StoredStep) -> StepDocument:
        """A step as a document."""
        progress = progress_of(step)
        return document(
            cls, step, output=result_of(step),
            progress=None if progress is None else document(ProgressDocument, progress),
        )  # fmt: skip


class LogDocument(ApiDocument, frozen=True):
    """A log line of an attempt."""

    position: int
    at: Instant
    level: str
    logger: str
    message: str


class ResultDocument(ApiDocument, frozen=True):
    """How a run ended. `status` is empty while it has not."""

    id: str
    is_over: bool
    status: str = ""
    reason: str | None = None
    output: Any = None
    error: Any = None


class WhyDocument(ApiDocument, frozen=True):
    """Why something runs, waits or does not run."""

    verdict: str
    sentence: str
    facts: dict[str, Any]
    hint: str | None = None


class WorkflowDocument(ApiDocument, frozen=True):
    """A registered workflow and the JSON Schema of its input."""

    name: str
    queue: str
    priority: int
    version: str | None
    input_schema: Any = None


# -- schedules ---------------------------------------------------------------------------------


class ScheduleDocument(ApiDocument, frozen=True):
    """A schedule, with its timing in words."""

    id: str
    name: str
    workflow: str
    status: str
    reason: str | None
    when: str
    text: str
    timezone: str
    queue: str
    priority: int
    owner: str
    input: Any
    policies: Any
    due_at: Instant | None
    last_due_at: Instant | None
    paused_until: Instant | None
    created_at: Instant
    problem: str | None = None
    etag: str = ""


class ScheduleListDocument(ApiDocument, frozen=True):
    """Schedules by name; `next` is the cursor of the next page."""

    schedules: list[ScheduleDocument]
    next: str | None = None


class OccurrenceDocument(ApiDocument, frozen=True):
    """One future occurrence: nominal and effective instant, with notes about clock changes."""

    schedule: str
    due_at: Instant
    runs_at: Instant
    notes: list[str]


class PreviewDocument(ApiDocument, frozen=True):
    """The meaning of a timing, and when it fires."""

    text: str
    timezone: str
    forms: list[str]
    occurrences: list[OccurrenceDocument]
    remarks: list[str]


class LedgerDocument(ApiDocument, frozen=True):
    """Occurrences with their outcomes, newest first."""

    occurrences: list[ListedRun]
    next: str | None = None
    looked_back_to: Instant | None = None


class CellDocument(ApiDocument, frozen=True):
    """One day, or one hour of it, with its outcomes."""

    day: str
    hour: int | None
    counts: dict[str, int]


class CalendarDocument(ApiDocument, frozen=True):
    """Cells that have an occurrence, oldest first."""

    timezone: str
    unit: str
    is_whole: bool
    cells: list[CellDocument]


class DiffDocument(ApiDocument, frozen=True):
    """The effect of an edit; `burst` says why it needs a confirmation."""

    text_before: str
    text_after: str
    gained: list[Instant]
    lost: list[Instant]
    burst: str | None


class BackfillDocument(ApiDocument, frozen=True):
    """The effect of a backfill, done or planned."""

    occurrence_count: int
    run_count: int
    run_ids: list[str]
    dry_run: bool


# -- automations -------------------------------------------------------------------------------


class ChangeDocument(ApiDocument, frozen=True):
    """A side effect as the ledger knows it."""

    id: str
    run_id: str
    handler: str
    tool: str
    safety: str
    params: Any
    title: str | None
    status: str
    result: Any
    error: Any
    resolved_by: str | None
    approved_at: Instant | None
    created_at: Instant
    updated_at: Instant


class AutomationDocument(ApiDocument, frozen=True):
    """An automation as people see it."""

    name: str
    status: str
    sentence: str
    actions: list[str]
    state: str
    queue: str
    version: int
    failures: int
    schedule: str
    next_at: Instant | None
    run_id: str | None
    change: ChangeDocument | None
    pending: dict[str, int]
    error: Any
    created_at: Instant
    updated_at: Instant
    etag: str = ""


class VersionDocument(ApiDocument, frozen=True):
    """A version of an automation."""

    version: int
    digest: str
    made_by: str
    comment: str | None
    restores: int | None
    graph: Any
    created_at: Instant


class EventDocument(ApiDocument, frozen=True):
    """An event of a topic."""

    id: str
    topic: str
    message_id: str
    status: str
    payload: Any
    attempt: int
    created_at: Instant
    updated_at: Instant


class InputPlain(ApiDocument, frozen=True):
    """An input that led to a side effect."""

    id: str
    source: str
    type: str
    external_id: str
    title: str
    created_at: Instant


class InputDocument(InputPlain, frozen=True):
    """An input, and how far it got."""

    status: str
    event_count: int
    unfinished_count: int


class OutcomeDocument(ApiDocument, frozen=True):
    """An input and the changes it led to."""

    input: InputDocument
    changes: list[ChangeDocument]


class ActivityDocument(ApiDocument, frozen=True):
    """A handler run."""

    run_id: str
    handler: str
    kind: str
    version: int
    cause: str
    phase: str
    status: str
    attempt: int
    error: Any
    remark: str | None
    change: ChangeDocument | None
    started_at: Instant
    finished_at: Instant | None


class EventNames(ApiDocument, frozen=True):
    """Events by topic and message id."""

    events: list[EventKey]


class EventKey(ApiDocument, frozen=True):
    """The topic and the message id of an event."""

    topic: str
    message_id: str


class PublishedEvent(ApiDocument, frozen=True):
    """Whether an event was new, or changed what was there."""

    changed: bool


class Names(ApiDocument, frozen=True):
    """Names of what was queued."""

    names: list[str]


class Count(ApiDocument, frozen=True):
    """How many were skipped."""

    count: int
