"""The registry of what can be measured. A new part is a module here and a line below."""

from __future__ import annotations

from bench.measure import Part
from bench.parts.automations import Automations
from bench.parts.bulk import Bulk
from bench.parts.churn import Churn
from bench.parts.drain import Drain
from bench.parts.fairness import Fairness
from bench.parts.fan_out import FanOut
from bench.parts.growth import Growth
from bench.parts.herd import Herd
from bench.parts.history import History
from bench.parts.http_server import HttpRequests
from bench.parts.idle import Idle
from bench.parts.latency import Latency
from bench.parts.many_automations import ManyAutomations
from bench.parts.pauses import Pauses
from bench.parts.pipelines import Pipelines
from bench.parts.retention import Retention
from bench.parts.schedules import Schedules
from bench.parts.start import Start
from bench.parts.steps import Steps
from bench.parts.surfaces import Surfaces

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        Start(),
        Bulk(),
        Drain(),
        Churn(),
        Retention(),
        History(),
        Steps(),
        FanOut(),
        Growth(),
        Fairness(),
        Latency(),
        Pauses(),
        Idle(),
        Herd(),
        Schedules(),
        Automations(),
        ManyAutomations(),
        Pipelines(),
        Surfaces(),
        HttpRequests(),
    )
}
