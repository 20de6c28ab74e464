"""The text and the documents of scheduled pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import UNSET

from rota.cli import render
from rota.core.time.describe import describe
from rota.core.time.instants import SECOND, instant, iso, span
from rota.errors import RotaError
from rota.pipelines.definition.schedule_block import timed
from rota.pipelines.folder.commands import Scheduled, Skipped, Upcoming
from rota.pipelines.folder.events import ExecutionComplete
from rota.pipelines.folder.lock_file import LockContent
from rota.pipelines.folder.state_file import RunRecord, read_time
from rota.pipelines.outcome import PipelineResult
from rota.pipelines.usage import PipelineUsage
from rota.schedules.host_zone import host_zone_name

LAST_COUNT = 5


def broken_document(name: str, problem: str) -> dict[str, Any]:
    """A pipeline that has no schedule because its file is broken, for machines."""
    return {"scheduleId": None, "pipelineId": name, "status": "broken", "problem": problem}


# -- lists -------------------------------------------------------------------------------------


def table(scheduled: Sequence[Scheduled], broken: dict[str, str], now: int, empty: str) -> None:
    """One line for each scheduled pipeline; broken ones after them."""
    rows = [
        {
            "pipeline": info.pipeline_id, "status": info.state.status,
            "next": when(info.state.next_run, now), "last": _last(info, now),
            "runs": _totals(info), "cron": info.config.cron, "note": _note(info),
        }
        for info in scheduled
    ]  # fmt: skip
    rows += [
        {"pipeline": name, "status": "broken", "next": "-", "last": "-", "runs": "-", "cron": "-",
         "note": problem}
        for name, problem in broken.items()
    ]  # fmt: skip
    render.table(rows, empty, optional=["note"])


def when(text: str | None, now: int) -> str:
    """When something comes next, by the time in a state file."""
    return "-" if text is None else render.due(read_time(text), now)


def _last(info: Scheduled, now: int) -> str:
    run = info.state.last_run
    if run is None:
        return "never"
    if run.completed_at is None:
        how = "waits, began" if _waits(info) else "began"
        return f"{how} {render.ago(read_time(run.started_at), now)}"
    how = "ok" if run.success else "failed"
    return f"{how} {render.ago(read_time(run.completed_at), now)}"


def _waits(info: Scheduled) -> bool:
    """Whether its last execution waits for a person."""
    run = info.state.last_run
    return run is not None and run.completed_at is None and run.outcome == "waiting"


def _totals(info: Scheduled) -> str:
    stats = info.state.stats
    failed = f", {stats.failed_runs} failed" if stats.failed_runs else ""
    return f"{stats.total_runs}{failed}"


def _note(info: Scheduled) -> str:
    notes = []
    if info.problem is not UNSET:
        notes.append(f"its file is broken, the last good definition is in force: {info.problem}")
    if info.note is not UNSET:
        notes.append(info.note)
    return "; ".join(notes)


# -- one schedule ------------------------------------------------------------------------------


def print_page(
    info: Scheduled, now: int, *, looked_after: bool, spent: PipelineUsage | None
) -> None:
    """Everything about one schedule."""
    name = click.style(render.clean(info.pipeline_name), bold=True)
    click.echo(f"{info.schedule_id}  {name}  {render.coloured(info.state.status)}")
    zone = f" ({info.config.timezone})" if info.config.timezone else ""
    run = info.state.last_run
    render.facts([
        ("folder", info.pipeline_directory),
        ("cron", f"{info.config.cron}{zone}"),
        ("means", means(info)),
        ("next", f"{_clock(info.state.next_run)} ({when(info.state.next_run, now)})"
            if info.state.next_run else "-"),
        ("runs", _totals(info)),
        ("average", info.state.stats.total_runs and _millis(info.state.stats.average_duration)),
        ("spent", _spent(spent)),
        ("last", _last(info, now)),
        ("result", None if run is None or run.result_file is UNSET else run.result_file),
        ("error", None if run is None or not run.error else run.error),
        ("note", _note(info)),
    ])  # fmt: skip
    if last_runs := info.state.history[:LAST_COUNT]:
        render.heading("last executions")
        render.table([history_row(run) for run in newest_first(last_runs, [])], "")
    click.echo()
    render.say(_advice(info, looked_after=looked_after))


def means(info: Scheduled) -> str | None:
    """The timing in words."""
    try:
        return describe(timed(info.config, workflow="", host_zone=host_zone_name()).intent.spec)
    except RotaError:
        return None


def _spent(spent: PipelineUsage | None) -> str | None:
    if spent is None or not spent.calls:
        return None
    money = f"${spent.cost_usd:.4f}, " if spent.cost_usd else ""
    return f"{money}{spent.tokens:,} tokens in {render.count(spent.calls, 'call')}"


def _advice(info: Scheduled, *, looked_after: bool) -> str:
    name = info.pipeline_id
    if info.problem is not UNSET:
        return f"Fix the file: `rota pipeline validate {name}` lists its problems."
    if _waits(info):
        return f"Fix the cause; `rota pipeline resume {name}` continues the execution that waits."
    if info.state.status == "disabled":
        return "Set `enabled: true` in its pipeline.yaml to let it run."
    if info.state.status == "paused":
        return f"`rota scheduler resume {name}` lets it continue."
    if not looked_after:
        return "No scheduler runs here: nothing is executed until `rota scheduler start`."
    if info.state.status == "error":
        return f"It runs again by itself; `rota scheduler trigger {name}` runs it now."
    return "Nothing to do."


def newest_first(
    records: Sequence[RunRecord], skipped: Sequence[Skipped]
) -> list[RunRecord | Skipped]:
    """Executions, with those that were skipped, newest first."""
    entries: list[RunRecord | Skipped] = [*records, *skipped]
    return sorted(entries, key=_at, reverse=True)


def _at(entry: RunRecord | Skipped) -> str:
    return entry.started_at if isinstance(entry, RunRecord) else iso(entry.due_at)


def history_row(entry: RunRecord | Skipped) -> render.Row:
    """An execution, or a skipped one, for people."""
    if not isinstance(entry, RunRecord):
        return {
            "at": _clock(_at(entry)), "status": "skipped", "trigger": "-", "took": "-",
            "items": "-", "result file": "-", "note": _why(entry),
        }  # fmt: skip
    return {
        "at": _clock(_at(entry)), "status": _outcome(entry), "trigger": _known(entry.trigger),
        "took": _millis(entry.duration), "items": _known(entry.items_processed),
        "result file": _known(entry.result_file), "note": _note_of(entry),
    }  # fmt: skip


def _known(value: object) -> object:
    return "-" if value is UNSET else value


def _note_of(run: RunRecord) -> str:
    """Which retry it was, and the error."""
    retries = 0 if run.retry_attempt is UNSET else run.retry_attempt
    tried = [f"retry {retries}"] if retries else []
    error = [render.short(run.error, 200)] if isinstance(run.error, str) and run.error else []
    return "; ".join([*tried, *error])


def _why(skip: Skipped) -> str:
    count = skip.occurrences
    return skip.reason if count == 1 else f"{skip.reason} ({count} up to here)"


def history_document(entry: RunRecord | Skipped) -> dict[str, Any]:
    """An execution, or a skipped one, as a document."""
    if isinstance(entry, RunRecord):
        fields: dict[str, Any] = msgspec.to_builtins(entry)
        return {"status": _outcome(entry)} | fields
    return {
        "status": "skipped", "dueAt": _at(entry), "reason": entry.reason,
        "count": entry.occurrences,
    }  # fmt: skip


def _outcome(run: RunRecord) -> str:
    """The end of an execution; older state files know only whether it was a success."""
    known = "completed" if run.success else "failed"
    return known if run.outcome is UNSET else run.outcome


def upcoming_row(execution: Upcoming, now: int) -> render.Row:
    """An execution to come, for people."""
    at = instant(execution.next_run)
    return {"at": render.clock(at), "in": render.ago(at, now), "pipeline": execution.pipeline_id}


def upcoming_document(execution: Upcoming) -> dict[str, Any]:
    """The same for machines."""
    return {
        "scheduleId": execution.schedule_id, "pipelineId": execution.pipeline_id,
        "nextRun": execution.next_run.isoformat(),
    }  # fmt: skip


def _clock(text: str | None) -> str:
    return "-" if text is None else render.clock(read_time(text))


def _millis(duration: object) -> str:
    if not isinstance(duration, int | float):
        return "-"
    return render.took(0, round(duration * 1000))


# -- the scheduler itself ----------------------------------------------------------------------


def holder_document(holder: LockContent | None) -> dict[str, Any]:
    """The scheduler of the folder, for machines."""
    return {"running": False} if holder is None else {"running": True} | msgspec.to_builtins(holder)


def holder_line(root: Path, holder: LockContent | None, now: int) -> str:
    """The scheduler of the folder, in a sentence."""
    if holder is None:
        return f"no scheduler runs in {root}; start one with `rota scheduler start`"
    beat = span(max(0, now - read_time(holder.heartbeat)) // SECOND * SECOND)
    since = render.ago(read_time(holder.started_at), now)
    return (
        f"process {holder.pid} on {holder.hostname} runs the scheduler of {root}; "
        f"it began {since}, last heartbeat {beat} ago"
    )


def outcome_of(event: ExecutionComplete) -> str:
    """The same of an event; a result that cannot be read counts as completed."""
    result = event.result
    return outcome_line(result) if isinstance(result, PipelineResult) else "completed"


def outcome_line(result: PipelineResult) -> str:
    """The outcome of an execution, in a line."""
    parts = [f"{result.processed} of {render.count(result.total, 'item')}"]
    if result.failed:
        parts.append(f"{result.failed} failed")
    parts.append(render.took(0, result.duration_ms * 1000))
    if result.cost_usd:
        parts.append(f"${result.cost_usd:.4f}")
    if result.result_file:
        parts.append(f"results in {result.result_file}")
    return f"{result.outcome}: {', '.join(parts)}"
