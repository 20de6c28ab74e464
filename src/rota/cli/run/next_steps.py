"""The next action of a person about a run, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rota.cli.render import ago
from rota.core.pipelines.names import pipeline_id_of
from rota.core.runs.failures import advice
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run, StoredStep
from rota.explain.run import needed_action, signal_of

SENTENCES: dict[str, str] = {
    Status.COMPLETED: "Completed. Nothing to do.",
    Status.PENDING: "It waits for a worker that serves queue {queue}: see `rota worker list`, "
    "and `rota doctor` if it waits for long.",
    Status.RUNNING: "A worker is executing it. `rota run result {id}` waits for its end.",
    Status.WAITING: "It waits for an operator: {action} (`rota run retry {id}`).",
    Status.CRASHED: "It crashed its worker too often and was quarantined. Fix the cause, then "
    "`rota run retry {id}`.",
    Status.CANCELLED: "Nothing to do. `rota run retry {id}` would continue it.",
}


CUT_OFF = (Status.FAILED, Status.CRASHED, Status.CANCELLED)


def next_step(run: Run, steps: Sequence[StoredStep], now: int) -> str:
    """The sentence for the newest attempt of a chain."""
    if run.kind == "automation" and not run.is_final:
        return f"It is a handler run of an automation: see `rota automation show {run.name}`."
    if run.status == Status.SLEEPING:
        return _sleeping(run, steps, now)
    if run.kind == "pipeline" and run.status in CUT_OFF:
        name = pipeline_id_of(run.name)
        return f"Fix the cause, then `rota pipeline resume {name}`: it continues from what is done."
    if run.status == Status.FAILED:
        return advice(run.reason, run.id)
    sentence = SENTENCES.get(run.status, "Nothing to do.")
    return sentence.format(id=run.id, queue=run.queue, action=needed_action(run.reason))


def _sleeping(run: Run, steps: Sequence[StoredStep], now: int) -> str:
    signals = [step for step in steps if step.kind == "signal" and step.status == "waiting"]
    if signals:
        return f"It waits for a signal: `rota run signal {run.id} {signal_of(signals[0])} VALUE`."
    if run.reason == "child":
        return "It waits for its child runs; they are among the steps above."
    if run.available_at is None:
        return "It waits for an event that wakes it."
    what = "It tries again" if run.reason == "retry" else "It wakes by itself"
    if run.available_at <= now:
        return f"{what} as soon as a worker polls; see `rota worker list`."
    return f"{what} {ago(run.available_at, now)}; nothing to do."
