"""The work of each of the eight kinds of nodes: it takes a list of items and fills one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from rota.pipelines.definition.nodes import (
    AiNode,
    FilterNode,
    LoadNode,
    MapNode,
    MergeNode,
    Node,
    ReduceNode,
    ScriptNode,
    TransformNode,
)
from rota.pipelines.definition.sources import AiSource
from rota.pipelines.outcome import ItemOutcome
from rota.pipelines.run.context import Cache, PipelineContext
from rota.pipelines.run.filter_stage import filter_items, sieve_of_node
from rota.pipelines.run.generated_items import generated
from rota.pipelines.run.inputs import select, source_items, stream
from rota.pipelines.run.map_stage import MapOptions, MapStage, reader_of
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.reduce import AiReduce, put_reply, reduce_by_form, shown
from rota.pipelines.run.results import Spool, outcomes, source_of_node
from rota.pipelines.run.run_store import Item, ItemRecord
from rota.pipelines.run.script import script_items
from rota.pipelines.run.single_call import call
from rota.pipelines.run.stages import ERROR, RESULT, node_output, node_stage
from rota.pipelines.run.transforms import transformer

CHARS_MAX = 200_000


class NodeWork:
    """One node of one run."""

    def __init__(
        self,
        context: PipelineContext,
        node_id: str,
        item_list: str,
        parents: Sequence[str],
        *,
        moved: bool,
    ) -> None:
        if moved:  # earlier results of its items are found by content
            context = context._replace(caches=(Cache(context.run_store), *context.caches))
        self._context, self._id = context, node_id
        self._item_list, self._parents = item_list, parents
        self._stage, self._out = node_stage(node_id), node_output(node_id)
        self._moved = moved

    async def perform(self, node: Node) -> None:
        """Fill the node's item list."""
        match node:
            case LoadNode():
                await self._put(await self._loaded(node))
            case ScriptNode():
                await self._put(script_items(node, self._context.snapshot.path, self._items()))
            case FilterNode():
                sieve = sieve_of_node(self._context.snapshot, node.rule)
                await filter_items(self._context, self._stage, self._item_list, self._out, sieve)
            case MapNode():
                await self._map(node)
            case ReduceNode():
                await self._reduce(node)
            case MergeNode():
                await self._put(self._merged(node))
            case TransformNode():
                await self._put(self._transformed(node))
            case AiNode():
                await self._ai(node)

    async def _put(self, items: AsyncIterator[Item], *, whole: bool = True) -> None:
        await self._context.run_store.put_items(self._out, items, whole=whole)

    def _items(self) -> AsyncIterator[Item]:
        item_lists = [self._item_list] if self._parents else []
        return self._context.run_store.joined(item_lists)

    # -- nodes that call no model ------------------------------------------------------------

    async def _loaded(self, node: LoadNode) -> AsyncIterator[Item]:
        context, source = self._context, node.source
        if isinstance(source, AiSource):
            items = stream(await generated(context, self._stage, source))
        else:
            items = source_items(source, context.snapshot.path, context.stdin)
        limit = context.snapshot.overrides.limit
        return select(items, offset=node.offset, limit=node.limit if limit is None else limit)

    async def _transformed(self, node: TransformNode) -> AsyncIterator[Item]:
        transform = transformer(node.ops, self._context.snapshot.parameters)
        async for item in self._items():
            yield item if ERROR in item else transform(item)

    async def _merged(self, node: MergeNode) -> AsyncIterator[Item]:
        item_lists = [node_output(parent) for parent in self._parents]
        if node.strategy == "concat":
            async for item in self._context.run_store.joined(item_lists):
                yield item
            return
        await self._warn_of_lengths(item_lists)
        columns = [self._context.run_store.joined([item_list]) for item_list in item_lists]
        while True:
            together: Item = {}
            for column in columns:
                try:
                    together |= await anext(column)
                except StopAsyncIteration:
                    return  # the shortest is over
            yield together

    async def _warn_of_lengths(self, item_lists: list[str]) -> None:
        found = [await self._context.run_store.item_list(each) for each in item_lists]
        counts = [each.count if each else 0 for each in found]
        if len(set(counts)) > 1:
            listed = ", ".join(map(str, counts))
            self._context.warnings.append(
                f"node {self._id}: its parents have {listed} items; zip omits those beyond "
                f"number {min(counts)}"
            )

    # -- nodes that ask --------------------------------------------------------------------

    async def _map(self, node: MapNode) -> None:
        context = self._context
        incoming = await context.run_store.item_list(self._item_list)
        total = incoming.count if incoming else 0
        options = MapOptions(parallel_of(context.snapshot, node.concurrency), node.batch_size)
        asking = PromptBuilder(context.snapshot, self._id, node)
        stage = MapStage(context, self._stage, asking, options, total, moved=self._moved)
        items = context.run_store.items(self._item_list)
        # Items that failed in a node before are not asked about.
        await stage.perform(placed async for placed in items if ERROR not in placed.item)
        with Spool() as spool:
            source = await source_of_node(context.run_store, context.snapshot, self._id, node)
            await spool.take(outcomes(source), whole=True)
            spool.check()
            whole = not spool.tally.failed and not spool.tally.skipped
            await self._put(stream(map(item_after, spool.outcomes())), whole=whole)

    async def _reduce(self, node: ReduceNode) -> None:
        context = self._context
        with Spool() as spool:
            await spool.take(_as_outcomes(self._items()))
            if node.strategy != "ai":
                await reduce_by_form(context, self._out, node.strategy, spool.outcomes)
                text = "".join([piece async for piece in context.run_store.text(self._out)])
                await self._put(stream([{RESULT: text}]))
                return
            if not spool.tally.processed:
                context.warnings.append(f"node {self._id}: there was nothing to reduce")
                await self._put(stream([]))
                return
            pieces = partial(shown, spool.outcomes)
            asking = PromptBuilder(context.snapshot, self._id, node)
            reduce = AiReduce(context, self._stage, asking, pieces, spool.tally.counts, CHARS_MAX)
            record = await reduce.perform()
        await put_reply(context, self._out, record)
        await self._put(stream([_item_of(record)]))

    async def _ai(self, node: AiNode) -> None:
        asking = PromptBuilder(self._context.snapshot, self._id, node)
        items = [item async for item in self._items() if ERROR not in item]
        listed: dict[str, Any] = {
            "ITEMS": json.dumps(items, ensure_ascii=False), "COUNT": len(items),
        }  # fmt: skip
        question = asking.without_item(listed)
        record = await call(self._context, self._stage, question, reader_of(asking.fields))
        await self._put(stream([_item_of(record)]))


def item_after(outcome: ItemOutcome) -> Item:
    """The result of a map node: the item with its fields or its text, or with its error."""
    if outcome.status != "completed":
        return {ERROR: outcome.error or "it was not begun", **outcome.item}
    more = outcome.output if outcome.output is not None else {RESULT: outcome.text}
    return {**outcome.item, **more}


async def _as_outcomes(items: AsyncIterator[Item]) -> AsyncIterator[ItemOutcome]:
    """Items of a node as results without input. A failed item is its own input, with its error."""
    position = 0
    async for item in items:
        error = item.pop(ERROR, None)
        is_sound = error is None
        yield ItemOutcome(
            position=position, item={} if is_sound else item, output=item,
            status="completed" if is_sound else "failed", error=None if is_sound else str(error),
        )  # fmt: skip
        position += 1


def _item_of(record: ItemRecord) -> Item:
    return record.output if record.output is not None else {RESULT: record.text}
