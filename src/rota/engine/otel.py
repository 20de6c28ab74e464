"""Spans by OpenTelemetry: the extra `otel` brings its API; the SDK is the program's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any

from rota.core import trace_spans
from rota.core.trace_spans import Attributes, SpanKind
from rota.errors import MissingExtra

try:
    from opentelemetry import context, trace
    from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode
    from opentelemetry.trace import SpanKind as OtelKind
except ImportError as missing:
    raise MissingExtra(
        "traces need the package opentelemetry-api", hint="pip install 'rota[otel]'"
    ) from missing

KINDS = {
    "producer": OtelKind.PRODUCER,
    "consumer": OtelKind.CONSUMER,
    "internal": OtelKind.INTERNAL,
    "client": OtelKind.CLIENT,
}
_SAMPLED = trace.TraceFlags(trace.TraceFlags.SAMPLED)


class OtelSpan:
    """A span of the API, with the names that Rota uses."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def note(self, attributes: Attributes, *, failed: str = "") -> None:
        """Add what is known now."""
        self._span.set_attributes(dict(attributes))
        if failed:
            self._span.set_attribute("error.type", failed)
            self._span.set_status(Status(StatusCode.ERROR, failed))


class OtelTracer:
    """Makes spans with the tracer of a provider; without one, with the program's own."""

    def __init__(self, provider: Any = None) -> None:
        self._provider = provider or trace.get_tracer_provider()
        self._tracer: trace.Tracer = self._provider.get_tracer("rota", version("rota"))

    def span(
        self, name: str, kind: SpanKind, attributes: Attributes, within: Any = None
    ) -> AbstractContextManager[OtelSpan]:
        """A span below the current one, or below that of the place `within`."""
        return self._entered(name, kind=KINDS[kind], attributes=dict(attributes), context=within)

    def here(self) -> Any:
        """The place of the current span."""
        return context.get_current()

    def run_span(
        self, name: str, attributes: Attributes, *, traceparent: str | None, root_id: str
    ) -> AbstractContextManager[OtelSpan]:
        """A span in the trace of the start, and a link to it. Without a start in a trace, all
        claims of a chain share the trace with the id of the chain."""
        began = _read(traceparent) if traceparent else None
        parent = began or self._of_chain(root_id, name)
        return self._entered(
            name, kind=OtelKind.CONSUMER, attributes=dict(attributes),
            links=[Link(began)] if began else [],
            context=trace.set_span_in_context(NonRecordingSpan(parent)),
        )  # fmt: skip

    @contextmanager
    def _entered(self, name: str, **options: Any) -> Iterator[OtelSpan]:
        with self._tracer.start_as_current_span(name, **options) as span:
            yield OtelSpan(span)

    def _of_chain(self, root_id: str, name: str) -> SpanContext:
        trace_id = int(root_id, 16)
        # The sampler of the SDK decides by the trace id, so alike for every claim of the chain.
        sampler = getattr(self._provider, "sampler", None)
        flags = _SAMPLED
        if (
            sampler is not None
            and not sampler.should_sample(None, trace_id, name).decision.is_sampled()
        ):
            flags = trace.TraceFlags(trace.TraceFlags.DEFAULT)
        return SpanContext(trace_id, trace_id & (2**64 - 1), is_remote=True, trace_flags=flags)

    def traceparent(self) -> str | None:
        """The current span as the header of the W3C recommendation."""
        context = trace.get_current_span().get_span_context()
        if not context.is_valid:
            return None
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def trace_id(self) -> str:
        """The id of the current trace."""
        context = trace.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else ""


def _read(traceparent: str) -> SpanContext | None:
    try:
        _, trace_id, span_id, flags = traceparent.split("-")
        found = SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True,
            trace_flags=trace.TraceFlags(int(flags, 16)),
        )  # fmt: skip
    except ValueError:  # a row that another program wrote
        return None
    return found if found.is_valid else None


def install(provider: Any = None) -> None:
    """Trace this process with a provider."""
    trace_spans.install(OtelTracer(provider))
