"""The filter: rules first, the AI only about items they leave open. Drops have a reason.

An item about which the AI cannot be asked has failed: it is passed on with its error, and a retry
asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec

from rota.core.pipelines import filter_rules
from rota.core.pipelines.filter_rules import Rule
from rota.pipelines.definition.compiler import question_key
from rota.pipelines.definition.fields import read_decision
from rota.pipelines.definition.rules import AiRule, NodeRule, tree_of_node
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.model_caller import LOST, STOPPING
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.run_store import MESSAGE_CHARS_MAX, PositionedItem
from rota.pipelines.run.single_call import call
from rota.pipelines.run.sliding_window import in_order
from rota.pipelines.run.stages import ERROR, dropped_list, failed_list
from rota.pipelines.snapshot import Snapshot


class Sieve(NamedTuple):
    """A rule, its questions to the AI by number, and how many may be asked at the same time."""

    rule: Rule
    questions: Sequence[PromptBuilder]
    parallel: int


class Judged(NamedTuple):
    """An item and whether it is kept."""

    placed: PositionedItem  # as it came in
    kept: bool
    reason: str
    error: Exception | None = None  # it could not be asked about


class Unasked(msgspec.Struct, frozen=True):
    """An item that failed in the filter."""

    position: int  # on the list of the filter
    error: str
    error_type: str


def sieve_of(snapshot: Snapshot, node_id: str, rule: NodeRule) -> Sieve:
    """The rule of a filter node."""
    asked: list[AiRule] = []
    tree = tree_of_node(rule, asked)
    questions = [
        PromptBuilder(snapshot, question_key(node_id, number), each)
        for number, each in enumerate(asked)
    ]
    own = min((each.parallel for each in asked if each.parallel), default=None)
    return Sieve(tree, questions, parallel_of(snapshot, own))


async def filter_items(
    context: PipelineContext, stage: str, item_list: str, sieve: Sieve, *, counts: bool
) -> None:
    """Fill the list of a filter with the kept items of another list.

    `counts`: the dropped items count as items of the run that were filtered out.
    """
    run_store = context.run_store
    kept, dropped = run_store.fill(stage), run_store.fill(dropped_list(stage))
    failed = run_store.fill(failed_list(stage))

    async def judge(placed: PositionedItem) -> Judged:
        return await _judged(context, stage, sieve, placed)

    async with aclosing(in_order(run_store.items(item_list), sieve.parallel, judge)) as judged:
        async for each in judged:
            item = each.placed.item
            if each.error is not None:
                message = f"the filter could not ask: {each.error}"[:MESSAGE_CHARS_MAX]
                unasked = Unasked(kept.count, message, type(each.error).__name__)
                await failed.add(msgspec.to_builtins(unasked))
                await kept.add({ERROR: message, **item})
                context.progress.failed += 1
            elif each.kept:
                await kept.add(item)
            else:
                await dropped.add({"at": each.placed.position, "reason": each.reason})
                context.progress.usage.filtered += counts
            context.progress.done += 1
            context.progress.report()
    # The end of `kept` is written last. A writer after a crash replaces the lists beside it: some
    # items may have been asked about in the meantime.
    await dropped.close(replaces=True)
    await failed.close(replaces=True)
    await kept.close(whole=not failed.count)


async def _judged(
    context: PipelineContext, stage: str, sieve: Sieve, placed: PositionedItem
) -> Judged:
    if ERROR in placed.item:
        return Judged(placed, True, "it has failed before")
    answers: dict[int, bool] = {}
    answer = ""
    while (verdict := filter_rules.judge(sieve.rule, placed.item, answers)).asks is not None:
        number = verdict.asks
        try:
            answers[number], answer = await _asked(
                context, f"{stage}:{number}", sieve, number, placed
            )
        except (*LOST, *STOPPING):
            raise
        except Exception as error:
            return Judged(placed, False, "", error)
    reason = f"{verdict.reason}: {answer}" if answer else verdict.reason
    return Judged(placed, verdict.kept, reason)


async def _asked(
    context: PipelineContext, stage: str, sieve: Sieve, number: int, placed: PositionedItem
) -> tuple[bool, str]:
    asking = sieve.questions[number]
    question = asking.for_decision(placed.item)

    def read(text: str) -> dict[str, Any]:
        include, reason = read_decision(text, asking.fields)
        return {"include": include, "reason": reason}

    record = await call(context, stage, question, read, placed.position)
    assert record.output is not None
    return bool(record.output["include"]), str(record.output["reason"])
