"""Log lines about runs: each start, end, retry and failure; and the run id in every record.

All lines go to the logger `rota.runs`, so that a busy system can silence it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextvars import ContextVar

from rota.core import redaction, spans
from rota.core.meters import RUN_SECONDS, RUN_WAIT_SECONDS, RUNS_FINISHED
from rota.core.redaction import Redactor
from rota.core.runs.lifecycle import FINAL, RULES
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.time.instants import SECOND, span

RUNS = "rota.runs"
log = logging.getLogger(RUNS)

_current: ContextVar[Claim | None] = ContextVar("rota_run", default=None)


def current_claim() -> Claim | None:
    """The run that the code belongs to, if any."""
    return _current.get()


class RunIdFilter(logging.Filter):
    """Adds `run_id`, `run_name`, `root_id`, `attempt` and `trace_id` to each log record.

    They are empty outside of a run, and `trace_id` is empty where nothing is traced.

    Add it to a handler: `handler.addFilter(RunIdFilter())`, and `%(run_id)s` to its format.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, with the run that the code belongs to."""
        claim = _current.get()
        if not hasattr(record, "run_id"):
            record.run_id = claim.id if claim else ""
            record.run_name = claim.name if claim else ""
            record.root_id = claim.root_id if claim else ""
            record.attempt = claim.attempt if claim else 0
        record.trace_id = spans.trace_id()
        return True


def begins(
    claim: Claim, recorded: Sequence[StoredStep] = (), secret_fields: Sequence[str] = ()
) -> None:
    """A run begins or is resumed here: every record of this task belongs to it from now on, and
    errors of it hide the values of its secret fields."""
    _current.set(claim)
    if secret_fields:
        texts = (claim.input, *(step.output for step in recorded))
        redaction.begin_run(Redactor(secret_fields), texts)
    if claim.claim_count > 1:
        log.debug("run %s (%s) resumed", claim.id, claim.name)
    elif log.isEnabledFor(logging.INFO):
        what = f", attempt {claim.attempt}" if claim.attempt > 1 else ""
        log.info("run %s (%s) started%s", claim.id, claim.name, what)


def logs_ends() -> bool:
    """Whether `ended` logs anything."""
    return log.isEnabledFor(logging.INFO)


def ended(outcome: Outcome, now: int, logs: bool) -> None:
    """A run was settled. Failures are logged where the exception is known: see `failed`."""
    claim, target = outcome.claim, RULES[outcome.verb].target
    if target in FINAL:
        count_end(claim, target, now)
    if not logs:
        return
    if outcome.verb == "complete":
        took = span(max(now - claim.started_at, 0))
        log.info("run %s (%s) completed in %s", claim.id, claim.name, took, extra=_of(claim))
    elif outcome.verb == "suspend":
        log.debug(
            "run %s (%s) suspended: %s", claim.id, claim.name, outcome.reason, extra=_of(claim)
        )


def count_waits(claims: Sequence[Claim], now: int) -> None:
    """Count how long claimed runs were ready, in the metrics of this process."""
    for claim in claims:
        wait_s = max(now - claim.available_at, 0) / SECOND
        RUN_WAIT_SECONDS.observe(wait_s, claim.namespace, claim.kind, claim.name)


def count_end(claim: Claim, status: str, now: int) -> None:
    """Count a run that has ended, in the metrics of this process."""
    key = (claim.namespace, claim.kind, claim.name)
    RUNS_FINISHED.add(*key, status)
    RUN_SECONDS.observe(max(now - claim.started_at, 0) / SECOND, *key)


def failed(claim: Claim, error: BaseException, *, retry_in_us: int | None = None) -> None:
    """An attempt of a run failed; the traceback follows the line."""
    said = f"{type(error).__name__}: {error}"
    if retry_in_us is None:
        log.error("run %s (%s) failed: %s", claim.id, claim.name, said, exc_info=error)
        return
    log.warning(
        "run %s (%s) failed, attempt %d in %s: %s", claim.id, claim.name, claim.attempt + 1,
        span(retry_in_us), said, exc_info=error,
    )  # fmt: skip


def asks(claim: Claim, error: BaseException) -> None:
    """A run waits for a person."""
    log.warning(
        "run %s (%s) needs help: %s: %s", claim.id, claim.name, type(error).__name__, error,
        exc_info=error,
    )  # fmt: skip


def step_failed(
    claim: Claim, step: str, attempt: int, error: BaseException, retry_in_us: int
) -> None:
    """A step is tried again; its last failure is reported as that of the run."""
    log.warning(
        "run %s (%s): step %s failed, attempt %d in %s: %s: %s", claim.id, claim.name, step,
        attempt + 1, span(retry_in_us), type(error).__name__, error,
    )  # fmt: skip


def _of(claim: Claim) -> dict[str, str | int]:
    """For lines that are written outside of the run's own task."""
    return {
        "run_id": claim.id, "run_name": claim.name, "root_id": claim.root_id,
        "attempt": claim.attempt,
    }  # fmt: skip
