"""A cheap wake-up between processes that share a SQLite file: a byte over loopback UDP.

Each listening process leaves an empty file `<database>-wake/<port>`; a teller sends its topic to
every port it finds there. Lost or forged packets do no harm: they only make somebody look, and
polling finds everything anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

_LOOPBACK = "127.0.0.1"
REST_S = 0.002


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: object) -> None:
        if data:  # the empty one only tests whether somebody listens
            self._heard(data.decode(errors="replace"))


class LocalSignal:
    """Tells and hears the processes on one SQLite file."""

    def __init__(self, database_path: str) -> None:
        self._folder = Path(f"{database_path}-wake")
        self._port: str | None = None
        self._resting: dict[str, bool] = {}
        self._closed = False
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self, heard: Callable[[str], None]) -> None:
        """Open the ear. Where that is impossible (no loopback, no write), polling must do."""
        try:
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.create_datagram_endpoint(
                lambda: _Ear(heard), local_addr=(_LOOPBACK, 0)
            )
            self._port = str(self._transport.get_extra_info("sockname")[1])
            self._folder.mkdir(exist_ok=True)
            (self._folder / self._port).touch()
        except OSError:
            self._close_ear()

    def tell(self, topic: str) -> None:
        """Send `topic` to every other listener: the first at once, more of it after a moment."""
        if topic in self._resting:
            self._resting[topic] = True
            return
        self._resting[topic] = False
        asyncio.get_running_loop().call_later(REST_S, self._rested, topic)
        self._send_all(topic)

    def _rested(self, topic: str) -> None:
        if self._resting.pop(topic) and not self._closed:
            self.tell(topic)

    def _send_all(self, topic: str) -> None:
        try:
            ports = os.listdir(self._folder)
        except OSError:
            return
        for port in ports:
            if port != self._port and port.isdigit():
                self._send(topic.encode(), port)

    def _send(self, message: bytes, port: str) -> None:
        # A connected socket learns that nobody listens (ICMP), an unconnected one would not.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            try:
                out.setblocking(False)
                out.connect((_LOOPBACK, int(port)))
                out.send(message)
                out.send(b"")
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    (self._folder / port).unlink()
            except OSError:
                return

    def close(self) -> None:
        """Close the ear and remove its file."""
        for topic, more in self._resting.items():
            if more:
                self._send_all(topic)
        self._closed = True
        self._close_ear()

    def _close_ear(self) -> None:
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                self._transport.close()
            self._transport = None
        if self._port is not None:
            with contextlib.suppress(OSError):
                (self._folder / self._port).unlink()
            self._port = None
