"""A worker process: `python -m bench.worker raw|ours URL noop|steps|steps-grouped HITS`.

Says "ready" when it is connected and begins when a line comes in, so that two of them begin
together. It works until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, cast

from bench import hits
from bench.sides import Work


def main(arguments: list[str]) -> None:
    """Work for ever."""
    kind, url, work, path = arguments
    if count := os.environ.get("BENCH_STATEMENTS"):
        from bench.counting import count_statements

        count_statements(Path(count))
    asyncio.run(_side(kind, url).work(url, cast(Work, work), hits.pen(Path(path)), _ready))


def _side(kind: str, url: str) -> Any:
    if kind == "ours":
        from bench import ours

        return ours
    if url.startswith("sqlite"):
        from bench import raw_sqlite

        return raw_sqlite
    from bench import raw_postgres

    return raw_postgres


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(sys.argv[1:])
