"""The table for people and the JSON for machines."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.measure import Line

RESULTS = Path(__file__).parent / "results" / "latest.json"
HEAD = ("part", "line", "database", "ours", "raw", "unit", "ratio", "spread", "target", "")


def table(lines: Sequence[Line]) -> str:
    """All lines, columns aligned."""
    rows = [HEAD, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    right = {3, 4, 6}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.part, line.line, line.database, _number(line.ours), _number(line.raw), line.unit,
        "" if line.ratio is None else f"{line.ratio:.3g}", line.spread, str(line.target or ""),
        line.verdict,
    )  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def write(lines: Sequence[Line], facts: dict[str, Any]) -> Path:
    """Keep the numbers beside the code; git ignores them."""
    RESULTS.parent.mkdir(exist_ok=True)
    content = {"facts": facts, "lines": [line.plain() for line in lines]}
    RESULTS.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return RESULTS


def machine() -> dict[str, Any]:
    """The environment of the numbers."""
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "before": strain(),
    }


def strain() -> dict[str, float]:
    """How busy disk and cores are with other things. A slow disk flatters us: where both sides
    mostly wait for it, their ratio goes to 1."""
    return {"sync_ms": round(_sync_ms(), 3), "load": round(os.getloadavg()[0], 2)}


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def _sync_ms() -> float:
    """Writing 8 kB and having it on disk: the floor under every commit."""
    with tempfile.NamedTemporaryFile() as file:
        began = time.perf_counter()
        for _ in range(100):
            os.pwrite(file.fileno(), b"x" * 8192, 0)
            os.fdatasync(file.fileno())
        return (time.perf_counter() - began) * 10
