"""Contexts for the tasks that Rota starts for itself.

Such a task works for all callers, so it takes nothing over from the code that happened to start
it. The mark tells it apart from a task that user code starts with a context of its own.
"""

from __future__ import annotations

from contextvars import Context, ContextVar

_is_own: ContextVar[bool] = ContextVar("rota_background", default=False)


def own_context() -> Context:
    """An empty context, marked as Rota's own."""
    context = Context()
    context.run(_is_own.set, True)
    return context


def is_own(context: Context) -> bool:
    """Whether `own_context` made this context."""
    return context.get(_is_own, False)
