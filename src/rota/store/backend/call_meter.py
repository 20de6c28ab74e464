"""Counts calls of the database in the metrics of this process."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from rota.core.meters import OTHER, STORE_ERRORS, STORE_SECONDS_METER
from rota.errors import StoreError

T = TypeVar("T")


async def counted(function: Any, call: Awaitable[T]) -> T:
    """Await a call of a store function, and count it by the name of the function."""
    began = time.perf_counter()
    try:
        value = await call
    except StoreError as error:
        STORE_ERRORS.add(error.code)
        raise
    STORE_SECONDS_METER.observe(time.perf_counter() - began, getattr(function, "__name__", OTHER))
    return value
