"""The filter: rules first, the AI only about items they leave open. Drops have a reason.

An item about which the AI cannot be asked has failed: it stays on the list, withheld from what
comes next, and a retry asks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from rota.core.pipelines import filter_rules
from rota.core.pipelines.filter_rules import Rule
from rota.pipelines.definition.fields import read_decision
from rota.pipelines.definition.model import Filter
from rota.pipelines.definition.rules import AiRule, NodeRule, tree_of_node
from rota.pipelines.definition.sections import AiSection
from rota.pipelines.run import withheld_items
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.model_caller import LOST, STOPPING
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.run_store import PositionedItem
from rota.pipelines.run.single_call import call
from rota.pipelines.run.sliding_window import in_order
from rota.pipelines.run.stages import ERROR
from rota.pipelines.run.transforms import tree_of_filter
from rota.pipelines.run.withheld_items import Withheld
from rota.pipelines.snapshot import Snapshot

# The list beside the one with what was kept: the positions of the others, and reasons. The items
# themselves are on the list that came in.
DROPPED = ".dropped"


class Sieve(NamedTuple):
    """A rule, its questions to the AI by number, and how many may be asked at the same time."""

    rule: Rule
    questions: Sequence[PromptBuilder]
    parallel: int
    passes_failed: bool = False  # items that failed in a node before


class Judged(NamedTuple):
    """An item and whether it is kept."""

    placed: PositionedItem  # as it came in
    kept: bool
    reason: str
    error: Exception | None = None  # it could not be asked about


def sieve_of_filter(snapshot: Snapshot, section: Filter) -> Sieve:
    """The filter of the linear form."""
    questions = []
    if section.ai is not None and section.type != "rule":
        questions = [PromptBuilder(snapshot, "filter", section.ai)]
    own = section.ai.parallel if section.ai else None
    return Sieve(tree_of_filter(section), questions, parallel_of(snapshot, own))


def sieve_of_node(snapshot: Snapshot, rule: NodeRule) -> Sieve:
    """The rule of a filter node."""
    asked: list[AiRule] = []
    tree = tree_of_node(rule, asked)
    questions = [
        PromptBuilder(
            snapshot, "",
            AiSection(
                prompt=each.prompt, model=each.model, timeout_ms=each.timeout_ms,
                **each.call_options,
            ),
        )
        for each in asked
    ]  # fmt: skip
    own = min((each.concurrency for each in asked if each.concurrency), default=None)
    return Sieve(tree, questions, parallel_of(snapshot, own), passes_failed=True)


async def filter_items(
    context: PipelineContext, stage: str, item_list: str, out: str, sieve: Sieve
) -> int:
    """Fill the item list `out` with the kept items of another one; returns how many."""
    run_store = context.run_store
    kept, dropped = run_store.fill(out), run_store.fill(out + DROPPED)
    held: list[Withheld] = []

    async def judge(placed: PositionedItem) -> Judged:
        return await _judged(context, stage, sieve, placed)

    async with aclosing(in_order(run_store.items(item_list), sieve.parallel, judge)) as judged:
        async for each in judged:
            item = each.placed.item
            if each.error is not None:
                held.append(withheld_items.failed(kept.count, each.placed.position, each.error))
                context.progress.failed += 1
                await kept.add({ERROR: held[-1].error, **item} if sieve.passes_failed else item)
            elif each.kept:
                await kept.add(item)
            else:
                await dropped.add({"at": each.placed.position, "reason": each.reason})
            context.progress.done += 1
            context.progress.report()
    # The end of `kept` is written last. A writer after a crash replaces the lists beside it: some
    # items may have been asked about in the meantime.
    await dropped.close(replaces=True)
    await withheld_items.write(run_store, out, held)
    return await kept.close(whole=not held)


async def ask_again(context: PipelineContext, stage: str, out: str, sieve: Sieve) -> None:
    """Ask about the items that an earlier attempt could not ask about."""
    run_store = context.run_store
    before = await withheld_items.read(run_store, out)
    held = {position: each for position, each in before.items() if not each.is_failed}

    async def judge(placed: PositionedItem) -> tuple[int, Judged]:
        source = PositionedItem(before[placed.position].source, placed.item)
        return placed.position, await _judged(context, stage, sieve, source)

    failed = {position for position, each in before.items() if each.is_failed}
    items = (placed async for placed in run_store.items(out) if placed.position in failed)
    async with aclosing(in_order(items, sieve.parallel, judge)) as judged:
        async for position, each in judged:
            if each.error is not None:
                held[position] = withheld_items.failed(position, each.placed.position, each.error)
            elif not each.kept:
                held[position] = Withheld(position, each.placed.position, reason=each.reason)
    await withheld_items.write(run_store, out, [held[position] for position in sorted(held)])


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
                context, f"{stage}.{number}", sieve, number, placed
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
