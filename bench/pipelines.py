"""One pipeline over a CSV file, as Rota runs it and as a bare loop would.

`python -m bench.pipelines ours|lean|bare FOLDER DATABASE MODEL PARALLEL` runs it once in a process
of its own and prints, as JSON. The fields are the seconds it took, the CPU seconds, and the
most memory it ever had. `lean` is Rota with SQLite's page cache at 2 MB: that cache fills up to its
bound with whatever is written, and would hide what grows with the items.
"""

from __future__ import annotations

import asyncio
import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rota import Rota
from rota.ai import Invoker, Offline, OpenAI, Request
from rota.store.backend import sqlite

NAME = "triage"
LEAN_KIB = 2048
PIPELINE = """
name: Triage
input:
  from: {type: csv, path: bugs.csv}
map:
  prompt: "How bad is this: {{title}}"
  model: instant
  output: [severity]
  parallel: %d
reduce:
  type: csv
"""


class Took(NamedTuple):
    """The cost of one run."""

    seconds: float
    cpu_s: float
    peak_mb: float


def make(folder: Path, count: int, parallel: int) -> Path:
    """A folder with a pipeline and so many rows; about 100 bytes each."""
    place = folder / f"{NAME}-{count}" / NAME
    place.mkdir(parents=True, exist_ok=True)
    (place / "pipeline.yaml").write_text(PIPELINE % parallel, encoding="utf-8")
    with (place / "bugs.csv").open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["id", "title", "text"])
        rows.writerows((n, f"Bug number {n}", "nothing works " * 5) for n in range(count))
    return place


def model(address: str) -> Invoker:
    """The client both sides use; `offline` calls no model."""
    return Offline() if address == "offline" else OpenAI(base_url=address, stream=False)


async def ours(place: Path, url: str, address: str) -> float:
    """From the start of the run to its result."""
    app = Rota(url, migrate=True)
    app.pipelines.use(model(address))
    async with app:
        began = time.perf_counter()
        run = await app.pipelines.start(place)
        result: Any = await run.result()
        took = time.perf_counter() - began
    assert result.outcome == "completed", result
    return took


async def bare(place: Path, address: str, parallel: int) -> float:
    """The same questions by the same client, as many at once; the answers end in a file."""
    ai = model(address)
    began = time.perf_counter()
    with (place / "bugs.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        with (place / "bare.csv").open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            await asyncio.gather(*(_worker(ai, rows, writer) for _ in range(parallel)))
    took = time.perf_counter() - began
    close = getattr(ai, "aclose", None)
    if close is not None:
        await close()
    return took


async def _worker(ai: Invoker, rows: Iterator[dict[str, str]], writer: Any) -> None:
    for row in rows:
        reply = await ai.ask(Request("instant", f"How bad is this: {row['title']}"))
        writer.writerow([*row.values(), json.loads(reply.text)["severity"]])


def alone(side: str, place: Path, url: str, address: str, parallel: int) -> Took:
    """One run in a process of its own."""
    words = [side, str(place), url, address, str(parallel)]
    ended = subprocess.run(
        [sys.executable, "-m", "bench.pipelines", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(words)}:\n{ended.stderr[-2000:]}")
    return Took(*json.loads(ended.stdout.splitlines()[-1]))


def main(side: str, place: str, url: str, address: str, parallel: str) -> None:
    """The child process."""
    if side == "lean":
        sqlite.CACHE_KIB = LEAN_KIB
    if side in ("ours", "lean"):
        seconds = asyncio.run(ours(Path(place), url, address))
    else:
        seconds = asyncio.run(bare(Path(place), address, int(parallel)))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([seconds, used.ru_utime + used.ru_stime, _peak_mb()]))


def _peak_mb() -> float:
    """Only this program: `ru_maxrss` would begin with what its parent had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
