"""The filter: rules first, the AI only about items they leave open. What is dropped says why.

An item about which the AI cannot be asked is dropped too, with the error as its reason: whatever
goes on was meant to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from rota.core import rules
from rota.core.rules import Rule
from rota.pipelines.document.definition import Filter
from rota.pipelines.document.fields import read_decision
from rota.pipelines.document.parts import Asking as AskingPart
from rota.pipelines.document.rules import NodeRule, questions_of, tree_of_node
from rota.pipelines.running.asking import LOST, STOPPING
from rota.pipelines.running.calling import call
from rota.pipelines.running.notebook import Item, Placed
from rota.pipelines.running.questions import Asking, parallel_of
from rota.pipelines.running.room import Room
from rota.pipelines.running.shaping import tree_of_filter
from rota.pipelines.running.stages import ERROR
from rota.pipelines.running.windows import in_order

UNASKED = "the AI could not be asked"
DROPPED = ".dropped"  # the shelf beside the one with what was kept: items and reasons


class Sieve(NamedTuple):
    """A rule, its questions to the AI by number, and how many may be asked at the same time."""

    rule: Rule
    questions: Sequence[Asking]
    parallel: int
    hands_on: bool = False  # items that failed in a node before


class Judged(NamedTuple):
    """An item and whether it is kept."""

    item: Item
    kept: bool
    reason: str


def sieve_of_filter(room: Room, part: Filter) -> Sieve:
    """The filter of the linear form."""
    questions = []
    if part.ai is not None and part.type != "rule":
        questions = [Asking(room.snapshot, "filter", part.ai)]
    own = part.ai.parallel if part.ai else None
    return Sieve(tree_of_filter(part), questions, parallel_of(room.snapshot, own))


def sieve_of_node(room: Room, rule: NodeRule) -> Sieve:
    """The rule of a filter node."""
    asked = questions_of(rule)
    questions = [
        Asking(
            room.snapshot, "",
            AskingPart(prompt=each.prompt, model=each.model, timeout_ms=each.timeout_ms),
        )
        for each in asked
    ]  # fmt: skip
    own = min((each.concurrency for each in asked if each.concurrency), default=None)
    return Sieve(tree_of_node(rule), questions, parallel_of(room.snapshot, own), hands_on=True)


async def filter_items(room: Room, stage: str, shelf: str, out: str, sieve: Sieve) -> int:
    """Fill the shelf `out` with what is kept of another one; answers how many."""
    notebook = room.notebook
    kept, dropped = notebook.fill(out), notebook.fill(out + DROPPED)
    unasked = 0

    async def judge(placed: Placed) -> Judged:
        return await _judged(room, stage, sieve, placed)

    async with aclosing(in_order(notebook.items(shelf), sieve.parallel, judge)) as judged:
        async for each in judged:
            if each.kept:
                await kept.add(each.item)
            else:
                unasked += each.reason.startswith(UNASKED)
                await dropped.add({"item": each.item, "reason": each.reason})
            room.board.done += 1
            room.board.tell()
    if unasked:
        room.warnings.append(f"{stage} dropped {unasked} items about which it could not ask")
    await dropped.close()
    return await kept.close()


async def _judged(room: Room, stage: str, sieve: Sieve, placed: Placed) -> Judged:
    if sieve.hands_on and ERROR in placed.item:
        return Judged(placed.item, True, "it has failed before")
    answers: dict[int, bool] = {}
    said = ""
    while (verdict := rules.judge(sieve.rule, placed.item, answers)).asks is not None:
        number = verdict.asks
        try:
            answers[number], said = await _asked(room, f"{stage}.{number}", sieve, number, placed)
        except (*LOST, *STOPPING):
            raise
        except Exception as error:
            return Judged(placed.item, False, f"{UNASKED}: {error}")
    reason = f"{verdict.reason}: {said}" if said and answers else verdict.reason
    return Judged(placed.item, verdict.kept, reason)


async def _asked(
    room: Room, stage: str, sieve: Sieve, number: int, placed: Placed
) -> tuple[bool, str]:
    asking = sieve.questions[number]
    question = asking.for_decision(placed.item)

    def read(text: str) -> dict[str, Any]:
        include, reason = read_decision(text, asking.fields)
        return {"include": include, "reason": reason}

    record = await call(room, stage, question, read, placed.position)
    assert record.output is not None
    return bool(record.output["include"]), str(record.output["reason"])
