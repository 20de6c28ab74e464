"""A shop with its worker and its HTTP server, in a thread of the test process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from rota.http.options import HttpOptions
from rota.http.server import HttpServer
from tests.browser.kit.shop import Shop

T = TypeVar("T")
START_S = 30


class ShopServer:
    """Serves an app until the block ends; `call` runs something in its event loop."""

    def __init__(self, make: Callable[[], Shop], *, works: bool = True, **options: Any) -> None:
        self._make = make
        self._works = works
        self._options = HttpOptions(**({"port": 0, "port_given": True} | options))
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.address = ""
        self.app: Shop

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_S) or self._failure is not None:
            raise RuntimeError("the shop did not start") from self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop, and return what it returns."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:
            self._failure = failure
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self.app = self._make()
        if self._works:
            await self.app.start_worker()
        else:
            await self.app.connect()
        server = HttpServer(self.app, self._options)
        await server.start()
        self.address = server.address
        self._ready.set()
        await self._stop.wait()
        await server.stop()
        if self._works:
            await self.app.stop_worker()
        await self.app.close()
