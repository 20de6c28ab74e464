"""Automations: topics, producers and consumers; side effects that happen once."""

from rota.automations.auto_fix import Fix, HandlerFailure
from rota.automations.context import Context, Event, MutationResult, Prepared
from rota.automations.definition import Automation, Topic
from rota.automations.dry_run import DryRun
from rota.core.automations.model import DeadLetter
from rota.tools.base import Change

__all__ = [
    "Automation",
    "Change",
    "Context",
    "DeadLetter",
    "DryRun",
    "Event",
    "Fix",
    "HandlerFailure",
    "MutationResult",
    "Prepared",
    "Topic",
]
