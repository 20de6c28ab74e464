"""A cheap wake-up between processes that share a SQLite file: a packet over loopback UDP.

Each listening process leaves an empty file `<database>-wake/<port>-<token>`; a sender sends the
token and its topic to every port it finds there. The folder is as private as the database, so that
only users who may open the database know the tokens: packets without one are dropped. Lost packets
do no harm: polling finds everything anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

_LOOPBACK = "127.0.0.1"
REST_S = 0.002
TOKEN_BYTES = 8
PORT_MAX = 65535
_LISTENER = re.compile(r"([1-9][0-9]{0,4})-([0-9a-f]{16})", re.ASCII)


class _Listener(asyncio.DatagramProtocol):
    def __init__(self, notified: Callable[[str], None], token: bytes) -> None:
        self._notified = notified
        self._token = token

    def datagram_received(self, data: bytes, addr: object) -> None:
        topic = data.removeprefix(self._token)
        if topic and len(topic) < len(data):  # the empty one only tests whether there is a listener
            self._notified(topic.decode(errors="replace"))


class LocalSignal:
    """Notifies the processes, and listens to them, on one SQLite file."""

    def __init__(self, database_path: str) -> None:
        self._database = database_path
        self._folder = Path(f"{database_path}-wake")
        self._name: str | None = None
        self._resting: dict[str, bool] = {}
        self._sockets: dict[str, socket.socket] = {}  # by the listener's file
        self._closed = False
        self._transport: asyncio.DatagramTransport | None = None

    async def listen(self, notified: Callable[[str], None]) -> None:
        """Open the socket. If that is impossible (no loopback, no write), polling must do."""
        token = secrets.token_bytes(TOKEN_BYTES)
        try:
            loop = asyncio.get_running_loop()
            self._transport, _ = await loop.create_datagram_endpoint(
                lambda: _Listener(notified, token), local_addr=(_LOOPBACK, 0)
            )
            port = self._transport.get_extra_info("sockname")[1]
            self._name = f"{port}-{token.hex()}"
            self._make_folder()
            (self._folder / self._name).touch(mode=0o600)
        except OSError:
            self._close_socket()

    def _make_folder(self) -> None:
        """Readable by users who may open the database, and by no other user."""
        mode = os.stat(self._database).st_mode & 0o777
        with contextlib.suppress(FileExistsError):
            self._folder.mkdir(mode=mode | (mode & 0o444) >> 2)

    def notify(self, topic: str) -> None:
        """Send `topic` to every other listener, now."""
        if topic in self._resting:
            self._resting[topic] = False  # it includes those that wait
        self._send_all(topic)

    def notify_soon(self, topic: str) -> None:
        """Send `topic` to every other listener: the first at once, more of it after a moment."""
        if topic in self._resting:
            self._resting[topic] = True
            return
        self._resting[topic] = False
        asyncio.get_running_loop().call_later(REST_S, self._rested, topic)
        self._send_all(topic)

    def _rested(self, topic: str) -> None:
        if self._resting.pop(topic) and not self._closed:
            self.notify_soon(topic)

    def _send_all(self, topic: str) -> None:
        try:
            names = os.listdir(self._folder)
        except OSError:
            return
        for name in self._sockets.keys() - set(names):
            self._sockets.pop(name).close()
        for name in names:
            found = _LISTENER.fullmatch(name)
            if found and name != self._name and int(found[1]) <= PORT_MAX:
                self._send(name, int(found[1]), bytes.fromhex(found[2]) + topic.encode())

    def _send(self, name: str, port: int, message: bytes) -> None:
        try:
            out = self._sockets.get(name)
            if out is None:
                # A connected socket learns that there is no listener (ICMP), an unconnected one
                # would not.
                out = self._sockets[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                out.setblocking(False)
                out.connect((_LOOPBACK, port))
                out.send(b"")
            out.send(message)
        except ConnectionRefusedError:
            self._sockets.pop(name).close()
            with contextlib.suppress(OSError):
                (self._folder / name).unlink()
        except OSError:
            return

    def close(self) -> None:
        """Close the socket and remove its file."""
        for topic, more in self._resting.items():
            if more:
                self._send_all(topic)
        self._closed = True
        while self._sockets:
            self._sockets.popitem()[1].close()
        self._close_socket()

    def _close_socket(self) -> None:
        if self._transport is not None:
            with contextlib.suppress(RuntimeError):  # its event loop is closed
                self._transport.close()
            self._transport = None
        if self._name is not None:
            with contextlib.suppress(OSError):
                (self._folder / self._name).unlink()
            self._name = None
