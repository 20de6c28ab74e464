"""How many things wait for a person, kept for a few seconds for the navigation of every page."""

from __future__ import annotations

from time import monotonic
from weakref import WeakKeyDictionary

from rota.client.client import Client

KEPT_S = 5.0

_counts: WeakKeyDictionary[Client, tuple[float, int]] = WeakKeyDictionary()


def remember_count(client: Client, count: int) -> None:
    """Keep a count that was just made."""
    _counts[client] = (monotonic(), count)


def last_count(client: Client) -> int:
    """The newest count, however old."""
    return _counts.get(client, (0.0, 0))[1]


def is_fresh(client: Client) -> bool:
    """Whether the count need not be made again."""
    known = _counts.get(client)
    return known is not None and monotonic() - known[0] < KEPT_S


def outdate_count(client: Client) -> None:
    """An action may have changed what waits: the next page counts again."""
    if client in _counts:
        _counts[client] = (float("-inf"), _counts[client][1])
