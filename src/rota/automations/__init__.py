"""Automations: topics, producers and consumers; side effects that happen once."""

from rota.automations.auto_fix import Fix, HandlerFailure
from rota.automations.context import Context, Event, MutationResult, Prepared
from rota.automations.definition import Automation, Topic

__all__ = [
    "Automation",
    "Context",
    "Event",
    "Fix",
    "HandlerFailure",
    "MutationResult",
    "Prepared",
    "Topic",
]
