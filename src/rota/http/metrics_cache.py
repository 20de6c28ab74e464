"""One look at the store for many scrapers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.client.metrics import collect
from rota.core import prometheus_text
from rota.core.time.instants import SECOND

if TYPE_CHECKING:
    from rota.client.client import Client

KEPT_US = 5 * SECOND


class MetricsCache:
    """The exposition, kept for a few seconds."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._text = ""
        self._at: int | None = None

    async def text(self) -> str:
        """The exposition, at most five seconds old."""
        now = self._client.clock.now()
        if self._at is None or not 0 <= now - self._at < KEPT_US:
            self._text = prometheus_text.text(await collect(self._client))
            self._at = now
        return self._text
