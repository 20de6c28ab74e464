"""`python -m bench`: rounds of raw and ours interleaved, then one table of ratios."""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench import report
from bench.measure import QUICK, Line, Part, Sample, Sizes, combine
from bench.parts import PARTS
from bench.places import DATABASES, Place, open_places

Found = dict[tuple[str, str, str], list[Sample]]


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments."""
    parts = "; ".join(f"{part.name}: {part.about}" for part in PARTS.values())
    parser = argparse.ArgumentParser("python -m bench", description=__doc__, epilog=parts)
    parser.add_argument("--only", metavar="PART,PART", help="these parts alone")
    parser.add_argument("--database", choices=DATABASES, help="this database alone")
    parser.add_argument("--rounds", type=int, help="how often (5; 2 with --quick)")
    parser.add_argument("--quick", action="store_true", help="less of everything: a first look")
    parser.add_argument(
        "--history", type=int, metavar="N", help="finished runs of the part history"
    )
    parser.add_argument("--stored", type=int, metavar="N", help="runs of the part surfaces")
    chosen = parser.parse_args(arguments)
    unknown = set((chosen.only or "").split(",")) - {"", *PARTS}
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return chosen


async def run(places: Sequence[Place], parts: Sequence[Part], rounds: int, sizes: Sizes) -> None:
    """Measure, and report even what an error cut short."""
    found: Found = {}
    facts = report.machine() | {"versions": [await place.version() for place in places]}
    print(*(f"{key}: {value}" for key, value in facts.items()), "", sep="\n", flush=True)
    began = time.monotonic()
    try:
        for number in range(1, rounds + 1):
            for part in parts:
                if number == 1 or not part.once:
                    await _round(part, places, sizes, found, f"round {number} of {rounds}")
    finally:
        took_s = round(time.monotonic() - began)
        _conclude(found, facts | {"rounds": rounds, "took_s": took_s, "after": report.strain()})


async def _round(
    part: Part, places: Sequence[Place], sizes: Sizes, found: Found, when: str
) -> None:
    print(f"{when}: {part.name}", file=sys.stderr, flush=True)
    for sample in await part.round(places, sizes):
        found.setdefault((part.name, sample.line, sample.database), []).append(sample)


def _conclude(found: Found, facts: dict[str, Any]) -> None:
    lines: list[Line] = [combine(part, samples) for (part, _, _), samples in found.items()]
    print(report.table(lines))
    print(f"\n{facts['took_s']} s; strain at the end: {facts['after']}")
    print(f"written to {report.write(lines, facts).name}")


def main(arguments: Sequence[str]) -> None:
    """Measure what was asked for."""
    chosen = options(arguments)
    names = (chosen.only or ",".join(PARTS)).split(",")
    sizes = QUICK if chosen.quick else Sizes()
    if chosen.history:
        sizes = sizes._replace(history=chosen.history)
    if chosen.stored:
        sizes = sizes._replace(stored=chosen.stored)
    rounds = chosen.rounds or (2 if chosen.quick else 5)
    # All parts together import twice as much as a program that uses Rota. A full collection would
    # walk through that in the middle of a measurement.
    gc.collect()
    gc.freeze()
    with open_places([chosen.database] if chosen.database else DATABASES) as places:
        asyncio.run(run(places, [PARTS[name] for name in names], rounds, sizes))


if __name__ == "__main__":
    main(sys.argv[1:])
