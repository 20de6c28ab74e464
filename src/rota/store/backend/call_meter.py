"""Counts calls of the database in the metrics of this process."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from rota.core.meters import OTHER, STORE_ERRORS, STORE_SECONDS_METER
from rota.errors import StoreError

T = TypeVar("T")


async def counted(function: Any, call: Awaitable[T]) -> T:
    """Await a call of a store function, and count it."""
    began = time.perf_counter()
    try:
        value = await call
    except StoreError as error:
        count_error(error)
        raise
    count_call(function, began)
    return value


def count_call(function: Any, began: float) -> None:
    """Count a call of a store function by the name of the function."""
    STORE_SECONDS_METER.observe(time.perf_counter() - began, getattr(function, "__name__", OTHER))


def count_error(error: Exception) -> None:
    """Count a call that failed because of the database."""
    if isinstance(error, StoreError):
        STORE_ERRORS.add(error.code)
