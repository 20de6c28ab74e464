"""Counts calls of the database in the metrics of this process."""

from __future__ import annotations

import time
from typing import Any

from rota.core.process_metrics import OTHER, STORE_ERRORS, STORE_SECONDS_METRIC
from rota.errors import StoreError


def count_call(function: Any, began: float) -> None:
    """Count a call of a store function by the name of the function."""
    STORE_SECONDS_METRIC.observe(time.perf_counter() - began, getattr(function, "__name__", OTHER))


def count_error(error: BaseException) -> None:
    """Count a call that failed because of the database."""
    if isinstance(error, StoreError):
        STORE_ERRORS.add(error.code)
