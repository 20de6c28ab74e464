"""The filter: rules first, the AI only about items they leave open. What is dropped says why.

An item about which the AI cannot be asked is dropped too, with the error as its reason: whatever
goes on was meant to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from rota.core.pipelines import filter_rules
from rota.core.pipelines.filter_rules import Rule
from rota.pipelines.definition.fields import read_decision
from rota.pipelines.definition.model import Filter
from rota.pipelines.definition.rules import NodeRule, questions_of, tree_of_node
from rota.pipelines.definition.sections import AiSection as AskingPart
from rota.pipelines.run.attempts import STOPPING
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.model_caller import LOST
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.run_store import Item, PositionedItem
from rota.pipelines.run.single_call import call
from rota.pipelines.run.sliding_window import in_order
from rota.pipelines.run.stages import ERROR
from rota.pipelines.run.transforms import tree_of_filter

UNASKED = "the AI could not be asked"
DROPPED = ".dropped"  # the shelf beside the one with what was kept: items and reasons


class Sieve(NamedTuple):
    """A rule, its questions to the AI by number, and how many may be asked at the same time."""

    rule: Rule
    questions: Sequence[PromptBuilder]
    parallel: int
    hands_on: bool = False  # items that failed in a node before


class Judged(NamedTuple):
    """An item and whether it is kept."""

    item: Item
    kept: bool
    reason: str


def sieve_of_filter(room: PipelineContext, part: Filter) -> Sieve:
    """The filter of the linear form."""
    questions = []
    if part.ai is not None and part.type != "rule":
        questions = [PromptBuilder(room.snapshot, "filter", part.ai)]
    own = part.ai.parallel if part.ai else None
    return Sieve(tree_of_filter(part), questions, parallel_of(room.snapshot, own))


def sieve_of_node(room: PipelineContext, rule: NodeRule) -> Sieve:
    """The rule of a filter node."""
    asked = questions_of(rule)
    questions = [
        PromptBuilder(
            room.snapshot, "",
            AskingPart(
                prompt=each.prompt, model=each.model, timeout_ms=each.timeout_ms,
                **each.call_options,
            ),
        )
        for each in asked
    ]  # fmt: skip
    own = min((each.concurrency for each in asked if each.concurrency), default=None)
    return Sieve(tree_of_node(rule), questions, parallel_of(room.snapshot, own), hands_on=True)


async def filter_items(
    room: PipelineContext, stage: str, shelf: str, out: str, sieve: Sieve
) -> int:
    """Fill the shelf `out` with what is kept of another one; answers how many."""
    notebook = room.notebook
    kept, dropped = notebook.fill(out), notebook.fill(out + DROPPED)
    unasked = 0

    async def judge(placed: PositionedItem) -> Judged:
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


async def _judged(
    room: PipelineContext, stage: str, sieve: Sieve, placed: PositionedItem
) -> Judged:
    if sieve.hands_on and ERROR in placed.item:
        return Judged(placed.item, True, "it has failed before")
    answers: dict[int, bool] = {}
    said = ""
    while (verdict := filter_rules.judge(sieve.rule, placed.item, answers)).asks is not None:
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
    room: PipelineContext, stage: str, sieve: Sieve, number: int, placed: PositionedItem
) -> tuple[bool, str]:
    asking = sieve.questions[number]
    question = asking.for_decision(placed.item)

    def read(text: str) -> dict[str, Any]:
        include, reason = read_decision(text, asking.fields)
        return {"include": include, "reason": reason}

    record = await call(room, stage, question, read, placed.position)
    assert record.output is not None
    return bool(record.output["include"]), str(record.output["reason"])
