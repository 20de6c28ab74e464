"""The vocabulary of states: the word, the shape and the tone of everything that has a status."""

from __future__ import annotations

from dataclasses import dataclass

from rota.core.runs.model import Run


@dataclass(frozen=True)
class StatusView:
    """Shape first, word second, colour last: without colour nothing is lost."""

    word: str
    shape: str
    tone: str  # ok | bad | warn | run | rest


STATES: dict[str, StatusView] = {
    "completed": StatusView("Completed", "s-ok", "ok"),
    "partial": StatusView("Partial", "s-half", "warn"),
    "failed": StatusView("Failed", "s-bad", "bad"),
    "crashed": StatusView("Crashed", "s-crash", "bad"),
    "running": StatusView("Running", "s-run", "run"),
    "pending": StatusView("Pending", "s-pend", "rest"),
    "sleeping": StatusView("Sleeping", "s-sleep", "rest"),
    "waiting": StatusView("Waiting for you", "s-person", "warn"),
    "unknown": StatusView("Outcome unknown", "s-unknown", "warn"),
    "cancelled": StatusView("Cancelled", "s-cancel", "rest"),
    "skipped": StatusView("Skipped", "s-skip", "rest"),
    "overlap": StatusView("Skipped", "s-skip", "warn"),
    "missed": StatusView("Missed", "s-miss", "bad"),
    "paused": StatusView("Paused", "s-pause", "rest"),
    "scheduled": StatusView("Scheduled", "s-clock", "rest"),
    "attention": StatusView("Needs attention", "s-warn", "warn"),
    "ended": StatusView("Ended", "s-cancel", "rest"),
}
# Reasons that make another state of a status.
_OF_REASON: dict[tuple[str, str | None], str] = {
    ("completed", "partial"): "partial",
    ("waiting", "reconciliation"): "unknown",
    ("skipped", "missed"): "missed",
    ("skipped", "too late"): "missed",
    ("skipped", "overlap"): "overlap",
    ("skipped", "merged"): "overlap",
    ("skipped", "overtaken"): "overlap",
    ("skipped", "paused"): "paused",
}
# Automations by the word that `rota automation list` has for them.
AUTOMATION_WORDS: dict[str, StatusView] = {
    "Running": STATES["running"],
    "Idle": StatusView("Idle", "s-clock", "rest"),
    "Needs attention": STATES["attention"],
    "Stopped": StatusView("Stopped", "s-pause", "rest"),
}
WORKERS: dict[str, StatusView] = {
    "alive": StatusView("Alive", "s-ok", "ok"),
    "draining": StatusView("Stopping", "s-pause", "rest"),
    "silent": StatusView("Silent", "s-crash", "bad"),
    "gone": StatusView("Gone", "s-crash", "bad"),
    "stopped": StatusView("Stopped", "s-pause", "rest"),
}
MUTATIONS: dict[str, StatusView] = {
    "applied": StatusView("Applied", "s-ok", "ok"),
    "proposed": StatusView("Proposed", "s-person", "warn"),
    "in_flight": StatusView("In progress", "s-run", "run"),
    "needs_reconcile": STATES["unknown"],
    "indeterminate": STATES["unknown"],
    "failed": StatusView("Not made", "s-bad", "bad"),
    "rejected": StatusView("Rejected", "s-skip", "rest"),
    "skipped": StatusView("Skipped", "s-skip", "rest"),
}
EVENTS: dict[str, StatusView] = {
    "pending": STATES["pending"],
    "reserved": StatusView("Reserved", "s-pend", "rest"),
    "consumed": StatusView("Consumed", "s-ok", "ok"),
    "skipped": STATES["skipped"],
    "done": StatusView("Done", "s-ok", "ok"),
}
ITEMS: dict[str, StatusView] = {
    "completed": StatusView("Done", "s-ok", "ok"),
    "failed": STATES["failed"],
    "skipped": StatusView("Not begun", "s-pend", "rest"),
    "pending": StatusView("To come", "s-pend", "rest"),
    "filtered": StatusView("Filtered", "s-skip", "rest"),
    "running": STATES["running"],
}


def run_state(run: Run) -> StatusView:
    """The state of a run, its reason included."""
    return state_of(run.status, run.reason)


def state_of(status: str, reason: str | None) -> StatusView:
    """The state of a run or an occurrence."""
    return named(STATES, _OF_REASON.get((status, reason), status))


def named(table: dict[str, StatusView], word: str) -> StatusView:
    """A state of a table; an unknown word is shown as it is."""
    return table.get(word) or StatusView(word.replace("_", " ").capitalize(), "s-pend", "rest")
