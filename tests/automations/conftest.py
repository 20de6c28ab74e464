"""Settings of all tests of automations."""

from __future__ import annotations

import pytest

from rota import testing


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not look like a run that hangs."""
    monkeypatch.setattr(testing, "GRACE_S", 0.3)
