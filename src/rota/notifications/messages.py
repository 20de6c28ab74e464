"""The message about an execution: which event it is, its receivers, its text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from rota.core.notifications.model import ERROR_CHARS_MAX, SKIPPED
from rota.core.plurals import counted
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso, iso_if_known, span
from rota.notifications.receivers import Event, Notice, Recipients, receivers
from rota.notifications.webhook import Ping
from rota.store.schedules.attempts import Attempt


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message for one receiver."""

    way: Literal["webhook", "command", "ping"]
    target: str  # an address, `env:` and the name of a variable that holds one, or a command
    event: str
    body: str = ""
    secret_env: str | None = None
    pass_env: list[str] = []  # names of variables that a command is given, never their values
    ping: Ping | None = None
    run_id: str = ""  # of a ping: which calls belong together


class ItemFailure(msgspec.Struct, frozen=True):
    """The error of one item."""

    message: str
    type: str


class ItemTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a run's output that counts items, for work that has them."""

    outcome: str
    pipeline_id: str
    total: int = 0
    processed: int = 0
    failed: int = 0
    skipped: int = 0
    filtered: int = 0
    result_file: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    errors: list[ItemFailure] = []
    error: str | None = None

    @property
    def tokens(self) -> int:
        """Both directions."""
        return self.tokens_in + self.tokens_out


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that is over, or waits for a person."""

    attempts: Sequence[Attempt]
    schedule: str | None
    skipped_count: int = 1

    @property
    def last(self) -> Attempt:
        """How it ended."""
        return self.attempts[-1]


def events_of(what: str, last: Attempt) -> list[Event]:
    """The meaning of a notification to the receivers. None, if the execution was cancelled, or has
    continued since it waited."""
    match last.status:
        case "completed" if last.reason is None:
            return _SUCCESSES.get(what, [])
        # A partial result is a failure of some items; one that waits needs a person.
        case "completed" | "failed" | "crashed" | "waiting":
            return ["failure"]
        case "skipped":
            return ["missed"]
    return []


# An earlier version of Rota recorded "ended" for every end, so it cannot say that an execution
# recovered.
_SUCCESSES: dict[str, list[Event]] = {
    "succeeded": ["success"], "recovered": ["success", "recovery"], "ended": ["success"],
}  # fmt: skip
_PINGS: dict[Event, Ping] = {"success": "success", "failure": "fail", "missed": "missed"}


def deliveries(recipients: Recipients, facts: Facts, what: str) -> list[Delivery]:
    """Every message that follows from a notification, for every receiver."""
    to_send: list[Delivery] = []
    for event in events_of(what, facts.last):
        body = msgspec.json.encode(message(event, recipients, facts)).decode()
        to_send += [_to(notice, event, body) for notice in receivers(recipients.notify, event)]
        if recipients.notify.ping and event in _PINGS:
            to_send.append(ping(recipients.notify.ping, _PINGS[event], facts.last.root_id))
    return to_send


def ping(url: str, event: Ping, run_id: str) -> Delivery:
    """A call of the dead-man's switch."""
    return Delivery(way="ping", target=url, event=f"ping {event}", ping=event, run_id=run_id)


def _to(notice: Notice, event: Event, body: str) -> Delivery:
    is_webhook = notice.webhook is not None
    return Delivery(
        way="webhook" if is_webhook else "command",
        target=(notice.webhook if is_webhook else notice.command) or "",
        event=event,
        body=body,
        secret_env=notice.secret_env,
        pass_env=notice.pass_env,
    )


def message(event: Event, recipients: Recipients, facts: Facts) -> dict[str, Any]:
    """The JSON of a webhook or a command. `text` is all of it in one sentence."""
    first, last = facts.attempts[0], facts.last
    result = _result(last)
    skipped = last.status == "skipped"
    begun = None if skipped else first.started_at
    took = last.finished_at - begun if begun is not None and last.finished_at is not None else None
    failed = "failed" if last.status in ("crashed", "waiting") else None
    names = ("total", "processed", "failed", "skipped", "filtered")
    return {
        "event": event,
        "text": text_of(event, recipients.name, facts, result),
        "pipeline": recipients.pipeline_id,
        "name": recipients.name,
        "schedule": facts.schedule,
        "run": last.root_id,
        "outcome": result.outcome if result else failed or last.status,  # or partial
        "trigger": first.trigger,
        "attempts": 0 if skipped else last.attempt,
        "dueAt": iso_if_known(first.due_at),
        "startedAt": iso_if_known(begun),
        "finishedAt": iso_if_known(last.finished_at),
        "durationMs": None if took is None else took // 1000,
        "items": {name: getattr(result, name) for name in names} if result else None,
        "tokens": result.tokens if result else None,
        "costUsd": result.cost_usd if result else None,
        "resultFile": result.result_file if result else None,
        "error": _error(last, result),
        "reason": _why(last) if skipped else None,
        "occurrences": facts.skipped_count,  # how many were skipped in a row
    }


def text_of(event: Event, name: str, facts: Facts, result: ItemTotals | None) -> str:
    """One sentence for people."""
    last = facts.last
    error = _error(last, result)
    if event == "missed":
        when = f" for {iso(last.due_at)}" if last.due_at is not None else ""
        more = f" ({facts.skipped_count} executions)" if facts.skipped_count > 1 else ""
        return f"{name} was skipped{when}{more}: {_why(last)}."
    if event == "failure":
        if result is not None and result.outcome == "partial":
            sentence = f"{name}: {result.failed} of {result.total} items failed"
        else:
            tries = f" after {last.attempt} attempts" if last.attempt > 1 else ""
            sentence = f"{name} failed{tries}"
        return f"{sentence}: {error}" if error else f"{sentence}."
    verb = "works again" if event == "recovery" else "completed"
    return f"{name} {verb}{_detail(facts, result)}."


def _detail(facts: Facts, result: ItemTotals | None) -> str:
    if result is None:
        return ""
    begun, ended = facts.attempts[0].started_at, facts.last.finished_at
    took = f" in {span(ended - begun)}" if begun is not None and ended is not None else ""
    cost = f", ${result.cost_usd:.2f}" if result.cost_usd else ""
    return f": {counted(result.processed, 'item')}{took}{cost}"


def _result(last: Attempt) -> ItemTotals | None:
    if last.status == "skipped" or not last.output:
        return None
    try:
        return msgspec.json.decode(last.output, type=ItemTotals)
    except msgspec.MsgspecError:
        return None


def _why(last: Attempt) -> str:
    if last.error:
        return read_error(last.error)["message"]
    return SKIPPED.get(last.reason or "", last.reason or "no reason is known")


def _error(last: Attempt, result: ItemTotals | None) -> str | None:
    if last.status == "skipped":
        return None
    if last.error:
        stored = read_error(last.error)
        return f"{stored['type']}: {stored['message']}"[:ERROR_CHARS_MAX]
    if last.status == "crashed":
        return "its worker died, too often to try again"
    if result is not None and (result.error or result.errors):
        text = result.error or f"{result.errors[0].type}: {result.errors[0].message}"
        return text[:ERROR_CHARS_MAX]
    return None
