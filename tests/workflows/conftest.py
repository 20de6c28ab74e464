"""Settings of all workflow tests."""

from __future__ import annotations

import gc

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A failure may leave tasks behind that complain when they are collected. Python 3.11 breaks
    when that happens while pytest parses source for its report, so let it happen before."""
    if call.excinfo is not None:
        gc.collect()
