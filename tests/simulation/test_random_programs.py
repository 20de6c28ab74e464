"""Random workflow programs: every execution sees what the earlier ones of its run have seen.

Each program is executed twice on virtual time. Once its code is thrown away at every wait, and
nothing else happens. Once its processes are killed or stopped at random. The code sees the same
values in the same order. A step with one key has one list of arguments. A recorded step is not
executed again. The run ends as its code does.

`ROTA_PROGRAMS=17,23 pytest tests/simulation/test_random_programs.py` repeats these programs. A
program that fails is printed, with the smallest part of it that fails too.
"""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.simulation.kit.execution import ProgramRun, fast_and_strict, is_exact
from tests.simulation.kit.operations import Op, make, smaller

COUNT = 2000 if os.environ.get("ROTA_NIGHTLY") else 200
BLOCK = 20
# PostgreSQL shows that the store plays along; the logic does not depend on the database.
POSTGRES_EVERY = 10
SMALLER_MAX = 60
DEADLINE_S = 60


def seeds_of(block: int, url: str) -> list[int]:
    """The programs of one test."""
    if chosen := os.environ.get("ROTA_PROGRAMS"):
        return [int(seed) for seed in chosen.split(",")] if block == 0 else []
    every = POSTGRES_EVERY if url.startswith("postgres") else 1
    return list(range(block * BLOCK, (block + 1) * BLOCK, every))


async def execute(url: str, program: Op, seed: int) -> None:
    """All executions of one program."""
    for warm in (False, True):  # without warm runs the code is thrown away at every wait
        seen = await ProgramRun(url, program, seed, warm=warm).uninterrupted()
        await ProgramRun(url, program, seed, warm=warm).interrupted()
        if is_exact(program):
            held = await ProgramRun(url, program, seed, warm=warm).uninterrupted(held=True)
            assert seen == held, f"thrown away at every wait: {seen}\nnever thrown away: {held}"


def failure_of(url: str, program: Op, seed: int) -> Exception | None:
    """How it fails, if it does."""
    try:
        with fast_and_strict():
            asyncio.run(asyncio.wait_for(execute(url, program, seed), DEADLINE_S))
    except Exception as error:
        return error
    return None


def smallest(url: str, program: Op, seed: int, failure: Exception) -> tuple[Op, Exception]:
    """A part of a failing program that fails too."""
    left = 0 if isinstance(failure, TimeoutError) else SMALLER_MAX
    found = program, failure
    while True:
        for each in smaller(found[0]):
            left -= 1
            if left < 0:
                return found
            if (worse := failure_of(url, each, seed)) is not None:
                found = each, worse
                break
        else:
            return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("block", range(COUNT // BLOCK))
def test_every_execution_of_a_program_sees_the_same(database_url: str, block: int) -> None:
    for seed in seeds_of(block, database_url):
        program = make(seed)
        failure = failure_of(database_url, program, seed)
        if failure is None:
            continue
        part, worse = smallest(database_url, program, seed, failure)
        pytest.fail(
            f"program {seed} (ROTA_PROGRAMS={seed}):\n{program}\n{failure!r}\n\n"
            f"a part of it:\n{part}\n{worse!r}"
        )
