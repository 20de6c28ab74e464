"""A model that answers at once: `python -m bench.answering` prints its port and serves until its
standard input ends. A process of its own, so that what it takes is in no figure.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

BODY = json.dumps(
    {
        "model": "instant",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": '{"severity": "low"}'},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7},
    }
).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
) + BODY
LENGTH = b"content-length: "


class Answering(asyncio.Protocol):
    """One connection: for each request that is whole, the same answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Answer what is whole, keep the rest."""
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            at = head.find(LENGTH)
            length = int(head[at + len(LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._rest) < end + 4 + length:
                return
            self._rest = self._rest[end + 4 + length :]
            self._transport.write(ANSWER)


async def serve() -> None:
    """Until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextlib.contextmanager
def answering() -> Iterator[str]:
    """The base URL of a model that is ready."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.answering"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve())
