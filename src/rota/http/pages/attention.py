"""Everything that waits for an operator, each with one action: approvals, unknown outcomes,
failures, missed occurrences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from rota.client.overview import AttentionItem
from rota.client.schedule_pages import LastOutcomes
from rota.core.pipelines.names import pipeline_id_of
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import cause_line
from rota.core.time.instants import DAY, instant, moment
from rota.explain.schedule import range_of
from rota.http.pages.occurrence_view import outcome_of, outcome_word
from rota.http.pages.run_row import run_href
from rota.http.pages.status import STATES, StatusView, run_state
from rota.http.pages.text import Stamp, WallClock, automation_href, clipped, counted, schedule_href
from rota.http.pages.view import clock_of
from rota.http.request import WebRequest

FAILED_LOOK = 50
FAILED_US = DAY
TEXT_WIDTH = 200
SCHEDULES_MAX = 200
LAST = 20
KEPT_S = 5.0  # until the next page counts again


@dataclass(frozen=True)
class InboxItem:
    """One thing that waits, and the one action."""

    key: str
    state: StatusView
    name: str
    href: str
    run_id: str
    what: str
    text: str
    since: Stamp | None
    since_at: int
    action: str
    post: str = ""  # where the action is sent; empty: it is a page


async def count_attention(request: WebRequest) -> None:
    """Count what waits, unless that was done a moment ago."""
    client = request.client
    if monotonic() - request.site.attention[0] < KEPT_S:
        return
    names = [view.schedule.name for view in await client.schedules.list(limit=SCHEDULES_MAX)]
    outcomes = await client.schedules.last_outcomes(names, last=LAST) if names else {}
    await inbox_of(request, outcomes, clock_of(request))


async def inbox_of(
    request: WebRequest, outcomes: Mapping[str, LastOutcomes], clock: WallClock
) -> list[InboxItem]:
    """Everything that waits for an operator: decisions first, then failures and misses of a day.
    The navigation of every page shows how many for a few seconds."""
    client = request.client
    inbox, seen = [], set()
    for item in await client.overview.attention():
        inbox.append((_automation if item.kind == "automation" else _waiting)(item, clock))
        seen.add(item.run_id)
    since = moment(clock.now - FAILED_US)
    failed = await client.overview.failures(since=since, limit=FAILED_LOOK, top_level=True)
    inbox += [_failed(run, clock) for run in failed.runs if run.id not in seen]
    if failed.looked_back_to is not None:
        inbox.append(_unread(instant(failed.looked_back_to), clock))
    for name, known in outcomes.items():
        if any(
            outcome.due_at >= clock.now - FAILED_US
            and outcome_word(outcome.status, outcome.reason) == "missed"
            for outcome in known.outcomes
        ):
            # A gap is one row of the ledger; only the row knows how many occurrences it holds.
            rows = await client.schedules.history(name, start=since, limit=FAILED_LOOK)
            lost = [run for run in rows if outcome_of(run) == "missed"]
            first = min((run.due_at or run.created_at for run in lost), default=clock.now)
            count = sum(range_of(run)[2] for run in lost)
            inbox.append(_missed(name, first, count, clock))
    request.site.attention = (monotonic(), len(inbox))
    return inbox


def _automation(item: AttentionItem, clock: WallClock) -> InboxItem:
    name, at = item.name, instant(item.since)
    unknown, approval = item.reason == "reconciliation", item.reason == "approval"
    state = STATES["unknown" if unknown else "waiting" if approval else "attention"]
    what = "Outcome unknown" if unknown else "Waiting for your approval" if approval else state.word
    text = item.sentence.partition(": ")[2] or item.sentence
    return InboxItem(
        f"automation/{name}", state, name, automation_href(name), "", what,
        clipped(text, TEXT_WIDTH), clock.stamp(at), at,
        "Answer" if unknown else "Review and approve" if approval else "Show",
    )  # fmt: skip


_STATES = {"schedule": STATES["attention"], "run": STATES["waiting"], "pipeline": STATES["waiting"]}
_ACTIONS = {"update": "Edit", "retry": "Retry", "show": "Show"}


def _waiting(item: AttentionItem, clock: WallClock) -> InboxItem:
    """A run, a pipeline run or a schedule that waits."""
    name = pipeline_id_of(item.name)
    at = instant(item.since)
    href = {
        "schedule": schedule_href(item.name), "pipeline": f"/pipeline-runs/{item.run_id}",
    }.get(item.kind, f"/runs/{item.run_id}")  # fmt: skip
    what, _, text = item.sentence.partition(": ")
    return InboxItem(
        f"{item.kind}/{item.run_id or item.name}", _STATES.get(item.kind, STATES["attention"]),
        name, f"{href}/edit" if item.action == "update" else href, item.run_id or "", what,
        clipped(text, TEXT_WIDTH), clock.stamp(at), at, _ACTIONS.get(item.action, "Show"),
        f"{href}/retry" if item.action == "retry" else "",
    )  # fmt: skip


def _failed(run: Run, clock: WallClock) -> InboxItem:
    at, href = run.finished_at or run.created_at, run_href(run)
    return InboxItem(
        run.id, run_state(run), pipeline_id_of(run.name), href, run.id,
        f"{run_state(run).word}, no attempt left", clipped(cause_line(run.error), TEXT_WIDTH),
        clock.stamp(at), at, "Retry", f"{href}/retry",
    )  # fmt: skip


def _unread(at: int, clock: WallClock) -> InboxItem:
    """More runs have failed than one page searches."""
    return InboxItem(
        "unread", STATES["attention"], "Failed runs", "/runs?status=failed", "",
        "more runs failed than the overview reads", f"Looked back to {clock.day(at)}.",
        clock.stamp(at), at, "Show",
    )  # fmt: skip


def _missed(name: str, at: int, count: int, clock: WallClock) -> InboxItem:
    href = schedule_href(name)
    return InboxItem(
        f"missed/{name}", STATES["missed"], name, f"{href}#backfill", "",
        f"{counted(count, 'occurrence')} missed",
        f"The first was due {clock.day(at)}; nothing fired it in time.",
        clock.stamp(at), at, "Backfill…",
    )  # fmt: skip
