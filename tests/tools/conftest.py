"""Every result of a tool of Rota in this folder goes through the encoder of the ledger."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

from rota.core import typed
from rota.tools import Applied, Tool
from tests.tools.kit import same

BYTES_MAX = 64 * 1024 * 1024


def kept(result: Any) -> Any:
    """The result, if JSON gives back the same values of the same types."""
    text = typed.encode(result, what="the result of a tool", bytes_max=BYTES_MAX)
    assert same(json.loads(text), result), f"JSON changes {result!r}"
    return result


@pytest.fixture(autouse=True)
def results_survive_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """`call` and `reconcile` of the tools that Rota ships, checked."""

    def checked(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def wrapped(self: Tool, *args: Any, **kwargs: Any) -> Any:
            given = await method(self, *args, **kwargs)
            if type(self).__module__.startswith("rota.tools."):
                kept(given.result if isinstance(given, Applied) else None)
                kept(None if isinstance(given, tuple) else given)
            return given

        return wrapped

    monkeypatch.setattr(Tool, "call", checked(Tool.call))
    monkeypatch.setattr(Tool, "reconcile", checked(Tool.reconcile))
