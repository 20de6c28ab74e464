"""A site in this process: requests go through the adapter, without a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from rota import Rota
from rota.automations import Context, Prepared
from rota.client.client import Client
from rota.http.dispatch import Site
from rota.http.options import HttpOptions
from rota.http.router import Page
from rota.http.starlette_adapter import asgi

PORT = 8420
BASE = f"http://127.0.0.1:{PORT}"
API = "/api/v1"


@asynccontextmanager
async def browsing(
    client: Client, table: Sequence[Page] = (), *, peer: str = "127.0.0.1", **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of a site for `client`; it sends what a program on this machine sends."""
    site = Site(client, HttpOptions(**options), port=PORT, table=table)
    site.open()
    transport = httpx2.ASGITransport(app=asgi(site), client=(peer, 1234))
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as http:
        http.headers["content-type"] = "application/json"
        yield http
    site.close()


def app_on(url: str) -> Rota:
    """An app with a workflow and an automation with an external topic."""
    app = Rota(url)

    @app.workflow
    async def add(a: int, b: int = 1) -> int:
        return a + b

    inbox = app.automation("inbox")
    inbox.topic("letters", external=True)
    inbox.consumer("read", subscribes=["letters"], prepare=_nothing)
    return app


async def _nothing(ctx: Context, state: object) -> Prepared:
    return Prepared()


async def seed(app: Rota) -> None:
    """One of everything, in a connected app: runs in several states, a schedule, an event."""
    await app.automations.deploy_all()
    await app.options(external_id="seven").start("add", 7)
    cancelled = await app.start("add", 8)
    await app.runs.cancel(cancelled.id)
    await app.schedules.create("daily", "add", "daily at 9:00", timezone="UTC", input={"a": 1})
    await app.automations.publish("inbox", "letters", "m-1", {"from": "ann"})
    await app.tokens.create("reader", role="read")
