"""Two apps in one process: a workflow of one never starts a workflow of the other by accident."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import Rota, Start
from rota.blocking import block_on
from rota.errors import UsageError
from rota.testing import virtual
from tests.workflows.kit import result, trouble

Call = Callable[[Rota, Any], Awaitable[Any]]


def shard(url: str = "sqlite://:memory:") -> tuple[Rota, Any, list[str]]:
    """An app with a workflow `invoice`, and what that has sent."""
    app, sent = Rota(url), []

    @app.workflow
    async def invoice(order: str) -> str:
        sent.append(order)
        return f"sent {order}"

    return app, invoice, sent


async def gone_through(handle: Any) -> Any:
    return await (await handle).result()


CALLS: dict[str, Call] = {
    "invoice(...)": lambda app, invoice: invoice("o"),
    "invoice.aio(...)": lambda app, invoice: invoice.aio("o"),
    "invoice.keyed(...)": lambda app, invoice: invoice.keyed("k")("o"),
    "invoice.start": lambda app, invoice: gone_through(invoice.start("o")),
    "invoice.start_many": lambda app, invoice: invoice.start_many([("o",), Start(("p",))]),
    "invoice.options": lambda app, invoice: gone_through(invoice.options(key="k").start("o")),
    "invoice.options, many": lambda app, invoice: invoice.options(key="k").start_many([("o",)]),
    "app.start": lambda app, invoice: gone_through(app.start(invoice, "o")),
    "app.start by name": lambda app, invoice: gone_through(app.start("invoice", "o")),
    "app.start_many": lambda app, invoice: app.start_many(invoice, [("o",)]),
    "app.options": lambda app, invoice: gone_through(app.options(key="k").start(invoice, "o")),
}


@pytest.mark.parametrize("has_name", [True, False])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_workflow_of_another_app_does_not_start_in_a_workflow(
    call: Call, has_name: bool, database_url: str
) -> None:
    other, invoice, sent = shard()
    app, _, own = shard() if has_name else (Rota(), None, [])

    @app.workflow
    async def order() -> Any:
        return await call(other, invoice)

    async with other.connected(), virtual(app, url=database_url) as world:
        run = await order.start()
        await world.drain()
        error = await trouble(run)
        assert error["type"] == "UsageError"
        assert "workflow invoice belongs to another app" in error["message"]
        assert "Start it in a step" in error["notes"]
        assert [each.id for each in await app.runs.list()] == [run.id]
        assert await other.runs.list() == []
        assert (sent, own) == ([], [])


@pytest.mark.parametrize("name", ["app.start", "app.start_many", "app.options"])
async def test_a_workflow_of_another_app_is_refused_though_the_app_has_one_of_that_name(
    name: str, database_url: str
) -> None:
    _, invoice, _ = shard()
    app, _, _ = shard()
    async with virtual(app, url=database_url):
        with pytest.raises(UsageError, match="workflow invoice belongs to another app") as refused:
            await CALLS[name](app, invoice)
        assert "invoice.start(…)" in refused.value.advice
        assert await app.runs.list() == []


async def test_a_sync_workflow_does_not_start_one_of_another_app_either(database_url: str) -> None:
    other, invoice, _ = shard()
    app = Rota()

    @app.workflow
    def order() -> Any:
        return block_on(invoice.start("o"))

    async with other.connected(), virtual(app, url=database_url) as world:
        run = await order.start()
        await world.drain()
        assert "workflow invoice belongs to another app" in (await trouble(run))["message"]
        assert await other.runs.list() == []


async def test_a_step_starts_a_run_of_another_app_in_its_own_database(database_url: str) -> None:
    other, invoice, sent = shard()
    app, own_invoice, own_sent = shard()

    @app.step
    async def start_invoice(order: str) -> str:
        return str((await invoice.options(external_id=order).start(order)).id)

    @app.workflow
    async def order(name: str) -> list[str]:
        return [await start_invoice(name), await own_invoice(name)]

    async with other, virtual(app, url=database_url) as world:
        run = await order.start("o-1")
        await world.drain()
        invoice_id, own = await result(run)
        assert own == "sent o-1"
        assert await other.runs.handle(invoice_id).result(timeout=60) == "sent o-1"
        assert {each.name for each in await app.runs.list()} == {"order", "invoice"}
        assert [each.id for each in await other.runs.list()] == [invoice_id]
        assert (sent, own_sent) == (["o-1"], ["o-1"])
