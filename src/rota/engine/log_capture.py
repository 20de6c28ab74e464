"""Keeps what user code logs with `logging`, for the run that it belongs to.

The record factory sees every record, so no handler is needed: a handler at the root would keep
`logging.basicConfig` of the user's program from working. Lines are written in batches by a loop of
their own; no run waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from rota.core.redaction import without_secrets
from rota.core.runs.model import Claim
from rota.core.runs.user_log import is_kept, with_trace
from rota.engine.context import EngineContext
from rota.engine.run_log import current_claim
from rota.engine.wakeups import LOG
from rota.errors import StoreError
from rota.store.runs import logs
from rota.store.runs.logs import NewLogLine

log = logging.getLogger("rota.logs")

FLUSH_S = 0.25
BUFFER_MAX = 10_000
BATCH = 500

_formatter = logging.Formatter()
_captures: dict[str, LogCapture] = {}
_factory_before: Callable[..., logging.LogRecord] = logging.LogRecord


class LogCapture:
    """The log lines of the runs of one worker."""

    def __init__(
        self, worker_id: str, base: EngineContext, is_replay: Callable[[], bool] = lambda: False
    ) -> None:
        self._worker_id = worker_id
        self._database = base.database
        self._wakeups = base.wakeups
        self._is_replay = is_replay
        self._lines: deque[NewLogLine] = deque()
        self._lost = 0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to capture records."""
        self._loop = asyncio.get_running_loop()
        if not _captures:
            _install()
        _captures[self._worker_id] = self

    def stop(self) -> None:
        """Stop capturing records."""
        if _captures.pop(self._worker_id, None) is not None and not _captures:
            _uninstall()

    async def run(self) -> None:
        """Write lines in batches, each a moment after its first line, until cancelled."""
        while True:
            if not self._lines:  # otherwise the database refused them in the last attempt
                await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the captured lines. Lines that the database refuses stay for the next attempt."""
        wrote = False
        while self._lines:
            batch = [self._lines.popleft() for _ in range(min(len(self._lines), BATCH))]
            try:
                wrote = bool(await self._database.write(logs.append, batch)) or wrote
            except StoreError:
                self._lines.extendleft(reversed(batch))
                raise
        if self._lost:
            log.warning("dropped %d log lines of runs: the buffer was full", self._lost)
            self._lost = 0
        if wrote:
            self._wakeups.notify_soon(LOG)

    def take(self, claim: Claim, record: logging.LogRecord) -> None:
        """Keep a record of a run; called in the thread that logs."""
        if self._is_replay():
            return
        if len(self._lines) >= BUFFER_MAX:
            self._lost += 1
            return
        self._lines.append(
            NewLogLine(
                claim.id, round(record.created * 1e6), record.levelname, record.name, _text(record)
            )
        )
        if not self._wake.is_set() and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)


def _text(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
    except Exception:  # the handler of the user's program reports it
        message = str(record.msg)
    trace = _formatter.formatException(record.exc_info) if record.exc_info else ""
    return without_secrets(with_trace(message, trace))


def _made(*args: Any, **kwargs: Any) -> logging.LogRecord:
    record = _factory_before(*args, **kwargs)
    claim = current_claim()
    if claim is not None and is_kept(record.name, record.levelno):
        capture = _captures.get(claim.lease_owner)
        if capture is not None:
            capture.take(claim, record)
    return record


def _install() -> None:
    global _factory_before  # noqa: PLW0603  # `logging` has one factory for the process
    found = logging.getLogRecordFactory()
    if found is not _made:
        _factory_before = found
        logging.setLogRecordFactory(_made)


def _uninstall() -> None:
    """Put the factory back, unless another program has put its own around ours."""
    if logging.getLogRecordFactory() is _made:
        logging.setLogRecordFactory(_factory_before)
