"""Values of another type than their hint are refused, not changed."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.errors import BadInput
from rota.testing import virtual
from tests.workflows.kit import trouble


@pytest.mark.parametrize("value", [b"raw", 2**53 + 1])
async def test_a_start_with_a_value_of_another_type_is_refused(
    database_url: str, value: Any
) -> None:
    app = Rota()

    @app.workflow
    async def text(one: str) -> None:
        raise NotImplementedError(one)

    @app.workflow
    async def number(one: float) -> None:
        raise NotImplementedError(one)

    flow = text if isinstance(value, bytes) else number
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match=f"argument one of {flow.name}: `\\$` is "):
            await app.start(flow, value)
        with pytest.raises(BadInput, match=f"argument one of {flow.name}: `\\$` is "):
            await app.start_many(flow, [(value,)])
        assert await app.runs.list() == []


async def test_a_step_with_a_result_of_another_type_fails(database_url: str) -> None:
    app = Rota()

    @app.step
    async def read() -> str:
        return b"raw"  # type: ignore[return-value]

    @app.workflow
    async def flow() -> str:
        return await read()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "which is of type bytes; the type hint says str" in (await trouble(run))["message"]
