"""A small HTTP client, so that it costs little beside what is measured, and tabs that only listen.

`python -m bench.http_calls HOST PORT TOKEN…` opens tabs: four streams for each token. The first of
each fifth token is one that a person sees, so it fetches the overview again at each hint. It prints
`open` when all streams are there, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
import time

TABS_OF_A_TOKEN = 4
SEEN = 5  # every so many tokens have a tab that a person sees
QUIET_S = 0.25  # as the script of the pages


class Connection:
    """One connection that is kept."""

    def __init__(self, host: str, port: int, token: str = "") -> None:
        self._host, self._port = host, port
        self._auth = f"authorization: Bearer {token}\r\n" if token else ""

    async def open(self) -> None:
        """Connect."""
        self.reader, self.writer = await asyncio.open_connection(self._host, self._port)

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        """Write one request."""
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\n{self._auth}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request and read its whole answer; it must be a good one."""
        self.send(method, path, body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = head.lower().split(b"\r\n")
        length = next(int(one[16:]) for one in fields if one.startswith(b"content-length: "))
        answer = await self.reader.readexactly(length)
        assert fields[0].split()[1].startswith(b"2"), (head, answer)
        return answer

    def close(self) -> None:
        """Hang up."""
        self.writer.close()


async def calls(
    connections: list[Connection], method: str, path: str, body: bytes, count: int
) -> float:
    """Calls per second over all connections."""
    numbers = iter(range(count))

    async def caller(connection: Connection) -> None:
        for _ in numbers:
            await connection.call(method, path, body)

    began = time.perf_counter()
    await asyncio.gather(*map(caller, connections))
    return count / (time.perf_counter() - began)


async def tab(host: str, port: int, token: str, *, is_seen: bool, ready: asyncio.Semaphore) -> None:
    """Read the stream for ever, as a tab does."""
    stream, page = Connection(host, port, token), Connection(host, port, token)
    await stream.open()
    await page.open()
    stream.send("GET", "/api/v1/events")
    await stream.reader.readuntil(b"\r\n\r\n")
    ready.release()
    while await stream.reader.read(65536):
        if is_seen:
            await asyncio.sleep(QUIET_S)
            await page.call("GET", "/")


async def main(host: str, port: int, tokens: list[str]) -> None:
    """Open the tabs."""
    ready = asyncio.Semaphore(0)
    tabs = [
        asyncio.create_task(
            tab(host, port, token, is_seen=n == 0 and number % SEEN == 0, ready=ready)
        )
        for number, token in enumerate(tokens)
        for n in range(TABS_OF_A_TOKEN)
    ]
    for _ in tabs:
        await ready.acquire()
    print("open", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for one in tabs:
        one.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
