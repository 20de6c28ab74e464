"""A durable workflow engine and scheduler on SQLite or PostgreSQL.

Begin with `Rota`; docs/start.md shows a first workflow.
"""

from rota.app import Rota
from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.client.start import StartOptions
from rota.client.start_many import Start
from rota.core.runs.retry import RetryPolicy
from rota.engine.run_log import RunIdFilter
from rota.errors import (
    Fatal,
    NeedsLogin,
    NeedsPermission,
    RotaError,
    RunCancelled,
    RunFailed,
    StepFailed,
    Transient,
)
from rota.settings import Settings
from rota.workflows.compensation import compensate
from rota.workflows.free_steps import run_step, step
from rota.workflows.graceful_end import Cancelled, TimedOut
from rota.workflows.primitives import (
    as_completed,
    continue_as_new,
    gather,
    in_workflow,
    now,
    patched,
    random,
    sleep,
    sleep_until,
    this_run,
    uuid,
    wait_for,
)
from rota.workflows.step_attempt import this_step

__version__ = "0.1.0"

__all__ = [
    "Cancelled",
    "Client",
    "Fatal",
    "NeedsLogin",
    "NeedsPermission",
    "RetryPolicy",
    "Rota",
    "RotaError",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunIdFilter",
    "Settings",
    "Start",
    "StartOptions",
    "StepFailed",
    "TimedOut",
    "Transient",
    "as_completed",
    "compensate",
    "continue_as_new",
    "gather",
    "in_workflow",
    "now",
    "patched",
    "random",
    "run_step",
    "sleep",
    "sleep_until",
    "step",
    "this_run",
    "this_step",
    "uuid",
    "wait_for",
]
