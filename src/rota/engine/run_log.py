"""Log lines about runs: each start, end, retry and failure; and the run id in every record.

All lines go to the logger `rota.runs`, so that a busy system can silence it alone.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import groupby
from operator import attrgetter

from rota.core import redaction, trace_spans
from rota.core.process_metrics import RUN_SECONDS, RUN_WAIT_SECONDS, RUNS_FINISHED
from rota.core.redaction import Redactor
from rota.core.runs.failures import message_of
from rota.core.runs.lifecycle import FINAL, RULES
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.time.instants import SECOND, span
from rota.errors import BudgetSpent, ItemsFailed

RUNS = "rota.runs"
log = logging.getLogger(RUNS)

# A worker serves one namespace.
_kind_and_name = attrgetter("kind", "name")
_current: ContextVar[Claim | None] = ContextVar("rota_run", default=None)


def current_claim() -> Claim | None:
    """The run that the current task belongs to, if any."""
    return _current.get()


class RunIdFilter(logging.Filter):
    """Adds `run_id`, `run_name`, `root_id`, `attempt` and `trace_id` to each log record.

    They are empty outside of a run, and `trace_id` is empty where nothing is traced.

    Add it to a handler: `handler.addFilter(RunIdFilter())`, and `%(run_id)s` to its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the run of the current task to the record; let every record pass."""
        claim = _current.get()
        if not hasattr(record, "run_id"):
            record.run_id = claim.id if claim else ""
            record.run_name = claim.name if claim else ""
            record.root_id = claim.root_id if claim else ""
            record.attempt = claim.attempt if claim else 0
        record.trace_id = trace_spans.trace_id()
        return True


# A run begins in this task: every record of the task belongs to it from now on.
enter = _current.set


def hide_secrets(
    claim: Claim, recorded: Sequence[StoredStep], secret_fields: Sequence[str]
) -> None:
    """Errors of the run of this task hide the values of its secret fields."""
    texts = (claim.input, *(step.output for step in recorded))
    redaction.begin_run(Redactor(secret_fields), texts)


def begin(claims: Sequence[Claim]) -> None:
    """Log that runs begin or resume."""
    if not log.isEnabledFor(logging.INFO):
        return
    for claim in claims:
        if claim.claim_count > 1:
            log.debug("run %s (%s) resumed", claim.id, claim.name, extra=_of(claim))
        else:
            what = f", attempt {claim.attempt}" if claim.attempt > 1 else ""
            log.info("run %s (%s) started%s", claim.id, claim.name, what, extra=_of(claim))


def ended(outcomes: Sequence[Outcome], now: int) -> None:
    """Log settled runs, and count them in the metrics of this process."""
    if log.isEnabledFor(logging.INFO):
        for outcome in outcomes:
            _log_end(outcome, now)
    by_verb: defaultdict[str, list[Claim]] = defaultdict(list)
    for outcome in outcomes:
        by_verb[outcome.verb].append(outcome.claim)
    for verb, claims in by_verb.items():
        if RULES[verb].target in FINAL:
            count_ends(claims, RULES[verb].target, now)


def _log_end(outcome: Outcome, now: int) -> None:
    """Log one end. `failed` logs failures, because it has the exception."""
    claim = outcome.claim
    if outcome.verb == "complete":
        took = span(max(now - claim.started_at, 0))
        log.info("run %s (%s) completed in %s", claim.id, claim.name, took, extra=_of(claim))
    elif outcome.verb == "cancel":
        log.info(
            "run %s (%s) is cancelled: %s", claim.id, claim.name, outcome.reason, extra=_of(claim)
        )
    elif outcome.verb == "continue" and outcome.retry is not None:
        log.info(
            "run %s (%s) continued as new: run %s follows", claim.id, claim.name, outcome.retry.id,
            extra=_of(claim),
        )  # fmt: skip
    elif outcome.verb == "suspend":
        log.debug(
            "run %s (%s) suspended: %s", claim.id, claim.name, outcome.reason, extra=_of(claim)
        )


def count_waits(claims: Sequence[Claim], now: int) -> None:
    """Count how long claimed runs were ready, in the metrics of this process."""
    for (kind, name), group in groupby(claims, _kind_and_name):
        waits = [now - claim.available_at for claim in group]
        RUN_WAIT_SECONDS.observe_all(_seconds(waits), claims[0].namespace, kind, name)


def count_ends(claims: Sequence[Claim], status: str, now: int) -> None:
    """Count runs that have ended with this status, in the metrics of this process."""
    for (kind, name), group in groupby(claims, _kind_and_name):
        times = [now - claim.started_at for claim in group]
        labels = (claims[0].namespace, kind, name)
        RUNS_FINISHED.add(*labels, status, by=len(times))
        RUN_SECONDS.observe_all(_seconds(times), *labels)


def _seconds(times_us: list[int]) -> list[float]:
    """Seconds of a duration; 0 if the clock was set back."""
    if min(times_us) < 0:
        times_us = [max(us, 0) for us in times_us]
    return [us / SECOND for us in times_us]


def failed(claim: Claim, error: BaseException, *, retry_in_us: int | None = None) -> None:
    """Log that an attempt of a run failed, with its traceback.

    A limit that stopped a run as its author wanted is not a defect: it has no traceback.
    """
    trace = None if isinstance(error, BudgetSpent | ItemsFailed) else error
    text = f"{type(error).__name__}: {message_of(error)}"
    if retry_in_us is None:
        log.error("run %s (%s) failed: %s", claim.id, claim.name, text, exc_info=trace)
        return
    log.warning(
        "run %s (%s) failed, attempt %d in %s: %s", claim.id, claim.name, claim.attempt + 1,
        span(retry_in_us), text, exc_info=trace,
    )  # fmt: skip


def asks(claim: Claim, error: BaseException) -> None:
    """Log that a run waits for an operator."""
    log.warning(
        "run %s (%s) waits for an operator: %s: %s",
        claim.id, claim.name, type(error).__name__, message_of(error), exc_info=error,
    )  # fmt: skip


def step_failed(
    claim: Claim, step: str, attempt: int, error: BaseException, retry_in_us: int
) -> None:
    """Log that a step is retried. Its last failure is logged as that of the run."""
    log.warning(
        "run %s (%s): step %s failed, attempt %d in %s: %s: %s", claim.id, claim.name, step,
        attempt + 1, span(retry_in_us), type(error).__name__, message_of(error),
    )  # fmt: skip


def _of(claim: Claim) -> dict[str, str | int]:
    """The fields of a log line that is written outside of the run's own task."""
    return {
        "run_id": claim.id, "run_name": claim.name, "root_id": claim.root_id,
        "attempt": claim.attempt,
    }  # fmt: skip
