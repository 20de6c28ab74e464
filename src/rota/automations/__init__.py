"""Automations: topics, producers and consumers; side effects that happen once."""

from rota.automations.context import Context, Event, MutationResult, Prepared
from rota.automations.definition import Automation, Topic
from rota.automations.fixing import Failure, Fix

__all__ = [
    "Automation",
    "Context",
    "Event",
    "Failure",
    "Fix",
    "MutationResult",
    "Prepared",
    "Topic",
]
