"""The HTTP server: requests per second against the bare framework, and what open tabs cost.

The bare framework is Starlette on the same server with the same options; it answers a fixed
document. Tabs are streams of live events of another process: 52 of them, three of which a person
sees, so that they fetch the overview again at each hint.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.http_calls import TABS_OF_A_TOKEN, Connection, calls
from bench.measure import Sample, Sizes, Target, percentile
from bench.ours import make_app
from bench.places import Place
from rota import Rota
from rota.http.options import HttpOptions
from rota.http.server import HttpServer

CONNECTIONS = 16
READERS = 13
SLICES = 6
HELD = 50
ANSWER = json.dumps({"id": "0" * 32, "name": "noop", "status": "pending", "input": {"number": 1}})


class HttpRequests:
    """Requests per second (`raw`: the bare framework), and the price of tabs (`raw`: none)."""

    name = "http"
    about = "start and show over HTTP against the bare framework; 52 open tabs against none"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Both on every database."""
        found: list[Sample] = []
        for place in places:
            found += await _rates(place, sizes.together // 5)
            found += await _tabs(place, 4 * sizes.latency)
        return found


@contextlib.asynccontextmanager
async def _connected(address: str) -> AsyncIterator[list[Connection]]:
    host, _, port = address.removeprefix("http://").rpartition(":")
    made = [Connection(host, int(port)) for _ in range(CONNECTIONS)]
    for one in made:
        await one.open()
    try:
        yield made
    finally:
        for one in made:
            one.close()


@contextlib.asynccontextmanager
async def _bare() -> AsyncIterator[str]:
    """The bare framework: reads the body, answers a fixed document."""

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(ANSWER, media_type="application/json")

    routes = [Route("/runs", answer, methods=["POST"]), Route("/runs/{run_id}", answer)]
    config = uvicorn.Config(
        Starlette(routes=routes), port=0, http="httptools", loop="none", lifespan="off",
        log_config=None, access_log=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


async def _rates(place: Place, count: int) -> list[Sample]:
    app, _ = make_app(place.url())
    body = json.dumps({"workflow": "noop", "input": {"number": 1}}).encode()
    async with app.connected(), _served(app) as ours, _bare() as bare:
        shown = f"/runs/{(await app.start('noop', 1)).id}"
        async with _connected(ours) as near, _connected(bare) as raw:
            found = []
            for what, method, path, text in (
                ("start", "POST", "/runs", body), ("show", "GET", shown, b""),
            ):  # fmt: skip
                rates: tuple[list[float], list[float]] = ([], [])
                for _ in range(SLICES):  # interleaved: both meet the same load
                    rates[0].append(
                        await calls(near, method, f"/api/v1{path}", text, count // SLICES)
                    )
                    rates[1].append(await calls(raw, method, path, text, count // SLICES))
                line = f"{what}, {CONNECTIONS} connections; raw: bare framework"
                best = max(rates[0]), max(rates[1])
                found.append(Sample(line, place.name, "requests/s", *best))
            return found


@contextlib.asynccontextmanager
async def _served(app: Rota) -> AsyncIterator[str]:
    server = HttpServer(app, HttpOptions(port=0))
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop()


async def _tabs(place: Place, count: int) -> list[Sample]:
    """Starts and renewals, a slice with tabs and a slice without, interleaved."""
    app, _ = make_app(place.url())
    done: dict[int, asyncio.Event] = {}
    began: dict[int, float] = {}
    took: dict[bool, tuple[list[float], list[float]]] = {True: ([], []), False: ([], [])}

    @app.workflow
    async def mark(number: int) -> None:
        began[number] = time.perf_counter()
        done[number].set()

    @app.workflow
    async def hold() -> None:
        await asyncio.sleep(3600)

    async with app, _served(app) as address:
        tokens = [(await app.tokens.create(f"t{n}", role="read")).text for n in range(READERS)]
        for _ in range(HELD):
            await app.start(hold)
        for part in range(2 * SLICES):
            with_tabs = part % 2 == 1
            async with _open_tabs(address, tokens if with_tabs else []):
                for number in range(part * count, part * count + count // SLICES):
                    done[number] = asyncio.Event()
                    at = time.perf_counter()
                    await app.start(mark, number)
                    await done[number].wait()
                    took[with_tabs][0].append(1000 * (began[number] - at))
                    at = time.perf_counter()
                    assert app.runtime is not None
                    await app.runtime.worker.renew()
                    took[with_tabs][1].append(1000 * (time.perf_counter() - at))
                    await asyncio.sleep(0.02)
        await app.stop_worker(0)
    tabs = READERS * TABS_OF_A_TOKEN
    return [
        Sample(
            f"{what}, p50, {tabs} tabs open; raw: none", place.name, "ms",
            percentile(took[True][n], 50), percentile(took[False][n], 50), Target("<=", 1.1),
        )
        for n, what in enumerate(("start to user code", f"renewal of {HELD} leases"))
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _open_tabs(address: str, tokens: list[str]) -> AsyncIterator[None]:
    if not tokens:
        yield
        return
    host, _, port = address.removeprefix("http://").rpartition(":")
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.http_calls", host, port, *tokens],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert await asyncio.to_thread(child.stdout.readline) == b"open\n"
        yield
    finally:
        child.stdin.close()
        await asyncio.to_thread(child.wait)
        child.stdout.close()
