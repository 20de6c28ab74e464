"""Settings of all engine tests."""

from __future__ import annotations

import gc

import pytest

from rota import testing


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not look like a run that hangs."""
    monkeypatch.setattr(testing, "GRACE_S", 0.3)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A failure may leave tasks behind that complain when they are collected. Python 3.11 breaks
    when that happens while pytest parses source for its report, so let it happen before."""
    if call.excinfo is not None:
        gc.collect()
