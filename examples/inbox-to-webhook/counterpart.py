"""A small shop on this machine: an inbox to read from, and an unreliable webhook.

    GET  /inbox?after=N   the messages after number N
    POST /hook            writes a message to received.jsonl and answers; every second answer
                          is lost, and every third message is refused
    GET  /hook/ID         200 if that message was received, otherwise 404

Start it with `python counterpart.py`.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

HERE = Path(__file__).resolve().parent


class Shop(ThreadingHTTPServer):
    """The state of the shop: its messages, and the requests it received."""

    def __init__(self, port: int = 8766, folder: Path = HERE) -> None:
        super().__init__(("127.0.0.1", port), Visit)
        self.messages: list[dict[str, Any]] = json.loads((folder / "inbox.json").read_text())
        self.book = folder / "received.jsonl"
        self.call_count = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """The address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def taken(self) -> list[str]:
        """The ids of all received messages, in order; none may be here twice."""
        lines = self.book.read_text().splitlines() if self.book.exists() else []
        return [json.loads(line)["id"] for line in lines]


class Visit(BaseHTTPRequestHandler):
    """One request."""

    server: Shop

    def do_GET(self) -> None:
        """The inbox, or whether a message was received."""
        asked = urlsplit(self.path)
        if asked.path == "/inbox":
            after = int(parse_qs(asked.query).get("after", ["0"])[0])
            self.answer(200, [one for one in self.server.messages if one["number"] > after])
        else:
            name = asked.path.rpartition("/")[2]
            found = name in self.server.taken()
            self.answer(200 if found else 404, {"id": name, "taken": found})

    def do_POST(self) -> None:
        """The webhook."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.call_count += 1
            number = self.server.call_count
            if number % 3 == 0:
                self.answer(503, {"error": "busy"})  # not received, but the caller cannot know
                return
            with self.server.book.open("a") as book:
                book.write(json.dumps(message) + "\n")
        if number % 2 == 0:
            self.close_connection = True  # received, and the answer is lost
            return
        self.answer(200, {"taken": True})

    def answer(self, status: int, value: Any) -> None:
        """JSON with a status."""
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log no requests; received.jsonl has the messages."""


if __name__ == "__main__":
    shop = Shop()
    print(f"The shop is at {shop.url} and writes messages to {shop.book.name}.", flush=True)
    shop.serve_forever()
