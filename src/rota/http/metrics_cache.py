"""The exposition of `/metrics`: one read of the store for many scrapers, and this process."""

from __future__ import annotations

from collections.abc import Callable

from rota.client.client import Client
from rota.client.metrics import collect
from rota.core.process_metrics import process_metrics
from rota.core.prometheus_text import Metric, MetricSample
from rota.core.time.instants import SECOND

KEPT_US = 5 * SECOND


class MetricsCache:
    """The exposition, kept for a few seconds."""

    def __init__(self, client: Client, stream_count: Callable[[], int]) -> None:
        self._client = client
        self._stream_count = stream_count
        self._kept: list[Metric] = []
        self._at: int | None = None

    async def metrics(self) -> list[Metric]:
        """All metrics. The numbers of the store are at most five seconds old."""
        now = self._client.clock.now()
        if self._at is None or not 0 <= now - self._at < KEPT_US:
            self._kept = await collect(self._client)
            self._at = now
        count = [MetricSample(self._stream_count())]
        streams = Metric("rota_streams", "Open live-event streams of this process.", count)
        return [*self._kept, *process_metrics(), streams]
