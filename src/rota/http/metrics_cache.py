"""The exposition of `/metrics`: one look at the store for many scrapers, and this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.client.metrics import collect
from rota.core import prometheus_text
from rota.core.meters import process_metrics
from rota.core.prometheus_text import Metric, MetricSample
from rota.core.time.instants import SECOND

if TYPE_CHECKING:
    from rota.client.client import Client

KEPT_US = 5 * SECOND


class MetricsCache:
    """The exposition, kept for a few seconds."""

    def __init__(self, client: Client, stream_count: Callable[[], int]) -> None:
        self._client = client
        self._stream_count = stream_count
        self._text = ""
        self._at: int | None = None

    async def text(self) -> str:
        """The exposition. The numbers of the store are at most five seconds old."""
        now = self._client.clock.now()
        if self._at is None or not 0 <= now - self._at < KEPT_US:
            self._text = prometheus_text.text(await collect(self._client))
            self._at = now
        return self._text + prometheus_text.text([*process_metrics(), *self._own()])

    def _own(self) -> list[Metric]:
        streams = [MetricSample(self._stream_count())]
        return [Metric("rota_streams", "Open streams of live events of this process.", streams)]
