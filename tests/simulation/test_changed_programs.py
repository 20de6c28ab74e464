"""A program is interrupted in the middle, and continues as another one.

With the same durable calls it ends; with others it is stranded before a new effect.
"""

from __future__ import annotations

import random

import pytest

from rota.testing import START, virtual
from tests.simulation.kit.execution import fast_and_strict
from tests.simulation.kit.operations import Op
from tests.simulation.kit.process_life import ProcessLife
from tests.simulation.kit.program_app import ProgramApp
from tests.simulation.kit.trace import Book
from tests.simulation.kit.variants import CHANGED, EQUAL, BaseMaker

EACH = 5  # programs for each equal variant: 50 in all
EACH_CHANGE = 7  # 56 in all


async def continued(url: str, before: Op, after: Op) -> tuple[str, list[str]]:
    """How a run ends after its code changed in the middle, and the new effects."""
    book = Book()
    run_id, label, at = "", "", START
    with fast_and_strict():
        for number, program in enumerate((before, after)):
            made = ProgramApp(program, book, "changed", by_digest=False)
            async with virtual(made.app, url=url, start=at) as world:
                made.steps.life = ProcessLife(number, world.clock)
                if not run_id:
                    run_id = (await made.app.start("program", program.n)).id
                    await world.advance(100)
                    assert await made.app.runs.handle(run_id).status() == "sleeping:sleep"
                else:
                    await world.drain()
                at = world.clock.now()
                label = (await made.app.runs.handle(run_id).run()).label
        return label, [one.key for one in book.effects if one.life == 1]


@pytest.mark.parametrize("name", EQUAL)
@pytest.mark.parametrize("seed", range(EACH))
async def test_code_with_the_same_durable_calls_continues(
    database_url: str, name: str, seed: int
) -> None:
    program = BaseMaker(seed).program()
    after = EQUAL[name](program, random.Random(seed))
    label, effects = await continued(database_url, program, after)
    assert label == "completed", f"{label}: {program}\nthen\n{after}"
    assert effects


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("seed", range(EACH_CHANGE))
async def test_code_with_other_durable_calls_is_stranded_before_a_new_effect(
    database_url: str, name: str, seed: int
) -> None:
    program = BaseMaker(seed).program()
    after = CHANGED[name](program, random.Random(seed))
    label, effects = await continued(database_url, program, after)
    assert (label, effects) == ("failed:stranded", []), f"{program}\nthen\n{after}"
