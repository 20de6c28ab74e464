"""Finds the server of a database on this machine; it may listen on another port than the usual."""

from __future__ import annotations

import hashlib
import http.client
from urllib.parse import urlsplit

from rota.client.client import Client
from rota.errors import UsageError
from rota.http.options import PORTS_TRIED, HttpOptions

HEADER = "x-rota-store"
LOOK_S = 0.5


def store_key(client: Client) -> str:
    """A key of the database that a server serves. It reveals nothing of the address."""
    text = f"{client.connection.database.place}|{client.settings.namespace}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find(options: HttpOptions, key: str) -> str | None:
    """The address of the server for a database, or None when none answers."""
    if options.url:
        return options.url.rstrip("/")
    if options.socket:
        raise UsageError(
            f"the server listens on the socket {options.socket}, which no browser opens",
            hint="Name the address of a proxy as url under [http] in rota.toml.",
        )
    host = options.host if options.is_loopback else "127.0.0.1"
    last = options.port + (1 if options.port_given else PORTS_TRIED)
    for port in range(options.port, last):
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if _answers(address, key):
            return address
    return None


def _answers(address: str, key: str) -> bool:
    parts = urlsplit(address)
    asked = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=LOOK_S)
    try:
        asked.request("GET", "/health/live")
        return asked.getresponse().getheader(HEADER) == key
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asked.close()
