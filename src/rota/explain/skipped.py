"""Why occurrences were skipped, in words; and what a range of the ledger held, by outcome. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.core.schedules.intent import Missed, Overlap, Policies
from rota.core.time.instants import span
from rota.core.time.recurrence import Spec, count_between
from rota.store.schedules.outcomes import read_range

_SKIPPED = {
    "overlap": f"the run before it had not ended (overlap: {Overlap.SKIP})",
    "merged": "another occurrence was queued already, and this one was merged into it",
    "overtaken": f"a newer occurrence was due as well (overlap: {Overlap.CANCEL})",
    "paused": "it was paused",
    "expired": "it was fired, but had not begun in time (expires after)",
    "after": "its dependency had not completed",
    "condition": "its condition did not hold",
    # The name of the reason before migration 0022.
    "put aside": "it had been quarantined, because it could not be read",
    "quarantined": "it had been quarantined, because it could not be read",
    "edited": "it was due when the schedule was edited, and the new definition does not have it",
}


def skip_clause(reason: str, policies: Policies) -> str:
    """Why an occurrence of the ledger was skipped."""
    match reason:
        case "missed":
            return f"no scheduler ran to fire it in time, and {missed_words(policies)}"
        case "too late":
            limit = policies.delay_us_max
            most = f"{span(limit)}, the most it allows (max delay)" if limit else "its max delay"
            return f"when it could be fired it was later than {most}"
        case "max runs":
            return f"all its {policies.runs_max or ''} runs were done".replace("  ", " ")
    return _SKIPPED.get(reason, reason)


def detailed(clause: str, row: Run) -> str:
    """The clause with what was noted about this very occurrence."""
    return f"{clause}: {read_error(row.error)['message']}" if row.error else clause


def missed_words(policies: Policies) -> str:
    """The effect of the missed policy."""
    match policies.missed:
        case Missed.RUN:
            return "only the latest missed occurrence runs (missed: run)"
        case Missed.SKIP:
            return "missed occurrences are skipped (missed: skip)"
        case Missed.ALL:
            return f"the latest {policies.missed_max} missed occurrences run (missed: all)"


def tally(
    rows: Iterable[Run], spec: Spec, policies: Policies, first_at: int, last_at: int
) -> tuple[Counter[str], dict[str, Run]]:
    """How many occurrences of a span had which outcome, and the newest row of each."""
    counts: Counter[str] = Counter()
    newest: dict[str, Run] = {}
    for row in rows:
        what, count = row.label, 1
        if row.status == Status.SKIPPED:
            begin, end, count = read_range(row)
            if count > 1:  # of a range that reaches beyond the span only a part lies in it
                count = count_between(spec, max(begin, first_at) - 1, min(end, last_at))
            what = f"skipped: {skip_clause(row.reason or 'skipped', policies)}"
        if count:
            counts[what] += count
            newest.setdefault(what, row)
    return counts, newest
