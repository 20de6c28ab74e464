"""The context of every loop of a process."""

from __future__ import annotations

from typing import NamedTuple

from rota.core.runs.ids import IdMaker
from rota.engine.clock import Clock
from rota.engine.results import Results
from rota.engine.wakeups import Wakeups
from rota.settings import Settings
from rota.store.backend.database import Database


class EngineContext(NamedTuple):
    """One process's database, clock, settings and listeners."""

    database: Database
    clock: Clock
    settings: Settings
    wakeups: Wakeups
    results: Results
    ids: IdMaker
    kept_kinds: frozenset[str]  # kinds of runs that always keep an open one
