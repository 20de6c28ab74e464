"""Log lines of runs: appended in batches, bounded for each run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.core.runs.model import LogLine
from rota.store.backend.database import Row, Tx

LINES_MAX = 1_000
BYTES_MAX = 256 * 1024
MESSAGE_CHARS_MAX = 8_192
FULL = "further log lines of this run are not kept"


class NewLogLine(NamedTuple):
    """A line to append to a run's log."""

    run_id: str
    at: int
    level: str
    logger: str
    message: str


async def append(tx: Tx, lines: Sequence[NewLogLine]) -> int:
    """Append lines to the logs of their runs, as far as they fit; returns how many were written.

    The first line that does not fit is replaced by one that says so."""
    runs = sorted({(line.run_id,) for line in lines})
    ends = {row[0]: (row[1], row[2]) for row in await tx.many("last_log_positions", runs)}
    return await tx.change("put_log_lines", list(_fitting(lines, ends)))


def _fitting(lines: Sequence[NewLogLine], ends: dict[str, tuple[int, int]]) -> Iterable[Row]:
    for line in lines:
        position, size = ends.get(line.run_id, (0, 0))
        if position >= LINES_MAX or size >= BYTES_MAX:
            continue
        message = _storable(line.message)[:MESSAGE_CHARS_MAX]
        position, size = position + 1, size + len(message.encode())
        level, logger = line.level, _storable(line.logger)[:MESSAGE_CHARS_MAX]
        if position == LINES_MAX or size >= BYTES_MAX:
            level, logger, message, size = "WARNING", "rota", FULL, BYTES_MAX
        ends[line.run_id] = position, size
        yield line.run_id, position, line.at, level, logger, message, size


def _storable(text: str) -> str:
    """Text that both databases hold."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


async def page(tx: Tx, *, run_id: str, after: int, limit: int) -> list[LogLine]:
    """Lines of one attempt after a position, oldest first."""
    rows = await tx.rows("log_lines", run_id=run_id, after=after, limit=limit)
    return [LogLine(*row) for row in rows]
