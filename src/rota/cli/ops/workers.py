"""`rota worker …` and `rota queue …`: who works, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from rota.cli import complete, connect, render
from rota.cli.base import CommandGroup, CommonOptions
from rota.client.client import Client
from rota.client.doctor import absence, served
from rota.client.overview import QueueState, WorkerState
from rota.core.runs.ids import short_id
from rota.core.runs.model import WorkerRecord
from rota.core.time.instants import instant, iso_if_known, span
from rota.settings import Settings


@click.group(cls=CommandGroup)
def worker() -> None:
    """List workers."""


@worker.command("list")
@click.option("--all", "everyone", is_flag=True, help="Include stopped workers.")
@click.pass_obj
def list_workers(call: CommonOptions, everyone: bool) -> None:
    """List workers, with the time since each last reported."""

    async def query(client: Client) -> tuple[Sequence[WorkerState], Settings]:
        return await client.overview.workers(everyone=everyone), client.settings

    (states, settings), now = connect.ask_with_time(call, query)
    render.listing(
        call.json, states, lambda state: _document(state, settings, now),
        lambda state: _row(state, settings, now), "no worker is running; start one with `rota up`",
        optional=("pinned",),
    )  # fmt: skip


VERSION_WIDTH = 10


def _row(state: WorkerState, settings: Settings, now: int) -> dict[str, Any]:
    row = state.worker
    return {
        "id": short_id(row.id), "host": row.host.partition("/")[0], "pid": row.pid,
        "slots": row.slots, "status": row.status,
        "version": render.short(row.version, VERSION_WIDTH), "pinned": _pinned(state),
        "heartbeat": _heartbeat(row, settings, now), "started": render.ago(row.started_at, now),
        "queues": ", ".join(served(row)),
    }  # fmt: skip


def _pinned(state: WorkerState) -> str:
    """How many open runs need the version of this worker."""
    return str(state.pinned_runs) if state.pinned_runs else "drained" if state.is_drained else ""


def _document(state: WorkerState, settings: Settings, now: int) -> dict[str, Any]:
    row = state.worker
    return render.record(row) | {
        "heartbeat_age_s": round((now - row.heartbeat_at) / 1e6, 3),
        "absent": absence(row, settings, now), "pinned_runs": state.pinned_runs,
        "is_drained": state.is_drained,
    }  # fmt: skip


def _heartbeat(row: WorkerRecord, settings: Settings, now: int) -> str:
    why = absence(row, settings, now)
    if why is not None:
        return f"{why} for {span(now - row.heartbeat_at)}"
    return render.ago(row.heartbeat_at, now)


@click.group(cls=CommandGroup)
def queue() -> None:
    """List, pause and resume queues."""


@queue.command("list")
@click.pass_obj
def list_queues(call: CommonOptions) -> None:
    """List queues: waiting runs, workers and limits."""
    states, now = connect.ask_with_time(call, lambda client: client.overview.queues())
    render.listing(
        call.json, [_queue(state, now) for state in states], dict,
        lambda row: {
            "name": row["name"], "status": "paused" if row["paused"] else "open",
            "pending": row["pending"], "oldest": row["oldest"], "workers": row["workers"],
            "limits": _limits(row),
        },
        "no queues: nothing waits, no worker is running",
    )  # fmt: skip


def _queue(state: QueueState, now: int) -> dict[str, Any]:
    """A queue for machines, with its limits across all workers."""
    names = (
        "running_max", "key_running_max", "rate_count", "rate_per_us", "key_open_max", "age_us",
        "round_robin",
    )  # fmt: skip
    oldest = None if state.oldest_at is None else instant(state.oldest_at)
    return {name: getattr(state.limits, name, None) for name in names} | {
        "paused": state.is_paused, "name": state.name, "pending": state.pending,
        "oldest_at": iso_if_known(oldest), "oldest": render.ago(oldest, now),
        "workers": state.worker_count,
    }  # fmt: skip


def _limits(row: dict[str, Any]) -> str:
    parts = [
        row["running_max"] and f"{row['running_max']} running",
        row["key_running_max"] and f"{row['key_running_max']} per key",
        row["key_open_max"] and f"{row['key_open_max']} open per key",
        row["age_us"] and f"priority +1 per {span(row['age_us'])}",
        row["round_robin"] and "round-robin by key",
        row["rate_count"] and f"{row['rate_count']} per {span(row['rate_per_us'])}",
    ]
    return ", ".join(part for part in parts if part) or "none"


@queue.command("pause")
@complete.QUEUE
@click.pass_obj
def pause(call: CommonOptions, name: str) -> None:
    """Pause a queue. Runs in progress continue."""
    _set_paused(call, name, True)


@queue.command("resume")
@complete.QUEUE
@click.pass_obj
def resume(call: CommonOptions, name: str) -> None:
    """Resume a paused queue."""
    _set_paused(call, name, False)


def _set_paused(call: CommonOptions, name: str, paused: bool) -> None:
    connect.ask(call, lambda client: client.pause_queue(name, paused=paused))
    text = f"queue {name} is {'paused' if paused else 'resumed'}"
    render.report(call.json, {"name": name, "paused": paused}, text)
