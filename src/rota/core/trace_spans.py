"""Spans of Rota's own work, for a tracer that an app may install. Off, each costs one check.

The tracer is one for the process: models and tools know no app. Rota never touches the tracer
provider of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Protocol

from rota.core.runs.model import Claim, Outcome
from rota.core.time.instants import SECOND, iso

SpanKind = Literal["producer", "consumer", "internal", "client"]
Attributes = Mapping[str, str | int | float | bool]


class Span(Protocol):
    """A span in progress."""

    def note(self, attributes: Attributes, *, failed: str = "") -> None:
        """Add what is known now; `failed` is the class of an error."""
        ...


class Tracer(Protocol):
    """Makes spans. `traceparent` is the header of the W3C recommendation."""

    def span(
        self, name: str, kind: SpanKind, attributes: Attributes, within: Any = None
    ) -> AbstractContextManager[Span]:
        """A span below the current one, or below that of the place `within`."""
        ...

    def here(self) -> Any:
        """The place of the current span, for spans that begin elsewhere."""
        ...

    def run_span(
        self, name: str, attributes: Attributes, *, traceparent: str | None, root_id: str
    ) -> AbstractContextManager[Span]:
        """The span of a claimed run, in the trace of its start, which may be days ago."""
        ...

    def traceparent(self) -> str | None:
        """The current span, for a run that is about to be stored."""
        ...

    def trace_id(self) -> str:
        """The id of the current trace in hex; empty without one."""
        ...


class NoSpan:
    """The span while nothing is traced."""

    def note(self, attributes: Attributes, *, failed: str = "") -> None:
        """Nothing."""


_OFF: AbstractContextManager[Span] = nullcontext(NoSpan())
_tracer: Tracer | None = None


def install(tracer: Tracer | None) -> None:
    """Trace with this from now on; None turns it off."""
    global _tracer  # noqa: PLW0603  # one for the process, as the module says
    _tracer = tracer


def is_on() -> bool:
    """Whether anything is traced."""
    return _tracer is not None


def traceparent() -> str | None:
    """The current span, for a run that is about to be stored."""
    return None if _tracer is None else _tracer.traceparent()


def trace_id() -> str:
    """The id of the current trace; empty without one."""
    return "" if _tracer is None else _tracer.trace_id()


def start(name: str, count: int = 1) -> AbstractContextManager[Span]:
    """A start of runs."""
    if _tracer is None:
        return _OFF
    return _tracer.span(f"start {name}", "producer", {"rota.name": name, "rota.count": count})


def here() -> Any:
    """The place of the current span, for steps that begin elsewhere."""
    return None if _tracer is None else _tracer.here()


def step(name: str, key: str, attempt: int, within: Any = None) -> AbstractContextManager[Span]:
    """An executed step; one that is answered from memory has no span."""
    if _tracer is None:
        return _OFF
    return _tracer.span(
        f"step {name}", "internal", {"rota.step.key": key, "rota.step.attempt": attempt}, within
    )


def tool(name: str, safety: str, mutation_id: str = "") -> AbstractContextManager[Span]:
    """A call of a tool; without an id it changes nothing."""
    if _tracer is None:
        return _OFF
    known = {"rota.mutation.id": mutation_id, "rota.mutation.safety": safety}
    return _tracer.span(
        f"tool {name}", "client", {"rota.tool": name, **(known if mutation_id else {})}
    )


def chat(provider: str, model: str) -> AbstractContextManager[Span]:
    """A question to a language model. Prompts and answers are never part of a span."""
    if _tracer is None:
        return _OFF
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }  # fmt: skip
    return _tracer.span(f"chat {model}", "client", attributes)


def run(claim: Claim, traceparent: str | None, now: int) -> AbstractContextManager[Span]:
    """One claim of an attempt."""
    if _tracer is None:
        return _OFF
    known: dict[str, str | int | float | bool] = {
        "rota.run.id": claim.id, "rota.root.id": claim.root_id, "rota.kind": claim.kind,
        "rota.name": claim.name, "rota.queue": claim.queue, "rota.namespace": claim.namespace,
        "rota.attempt": claim.attempt, "rota.claim": claim.claim_count,
        "rota.lateness_s": max(now - claim.available_at, 0) / SECOND,
    }  # fmt: skip
    if claim.schedule_id is not None:
        known["rota.schedule"] = claim.schedule_id
    if claim.due_at is not None:
        known["rota.due"] = iso(claim.due_at)
    return _tracer.run_span(
        f"run {claim.name}", known, traceparent=traceparent, root_id=claim.root_id
    )


def note_outcome(span: Span, outcome: Outcome | None) -> None:
    """How the claim ended; None: its executor has settled it."""
    if outcome is None:
        return
    failed = (outcome.reason or "error") if outcome.verb == "fail" else ""
    span.note({"rota.outcome": outcome.verb}, failed=failed)
