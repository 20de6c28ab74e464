"""The work of each of the eight kinds of nodes: it takes a list of items and fills one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from rota.errors import BadInput, ItemsFailed
from rota.pipelines.definition.compiler import asked_before, place_of, reduced_in_place
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
    parents_of,
)
from rota.pipelines.definition.sources import AiSource, StdinSource
from rota.pipelines.outcome import ItemOutcome
from rota.pipelines.run.context import Cache, PipelineContext
from rota.pipelines.run.filter_stage import filter_items, sieve_of
from rota.pipelines.run.generated_items import generated
from rota.pipelines.run.inputs import select, source_items, stream
from rota.pipelines.run.map_stage import MapStage, reader_of
from rota.pipelines.run.prompt_builder import PromptBuilder
from rota.pipelines.run.reduce import AiReduce, put_reply, reduce_by_form, shown
from rota.pipelines.run.results import Source, Spool, described, outcomes, source_of
from rota.pipelines.run.run_store import Item, ItemList, ItemRecord, RunReader
from rota.pipelines.run.script import script_items
from rota.pipelines.run.single_call import call
from rota.pipelines.run.stages import ERROR, RESULT, node_input
from rota.pipelines.run.transforms import transformer

PHASES = {
    LoadNode: "loading", FilterNode: "filtering", MapNode: "mapping", ReduceNode: "reducing",
    AiNode: "mapping",
}  # fmt: skip


class NodeWork:
    """One node of one run."""

    def __init__(
        self, context: PipelineContext, node_id: str, item_list: ItemList | None, *, moved: bool
    ) -> None:
        """`item_list` is the list of its items. `moved`: earlier results are found by content."""
        if moved:
            context = context._replace(caches=(Cache(context.run_store), *context.caches))
        nodes = context.nodes
        self._context, self._id, self._moved = context, node_id, moved
        self._incoming, self._items_name = item_list, node_input(nodes, node_id)
        self._parents = parents_of(nodes[node_id])
        self._place = place_of(context.snapshot.pipeline, node_id)

    async def perform(self, node: Node) -> None:
        """Fill the node's item list."""
        match node:
            case LoadNode():
                await self._put(await self._loaded(node))
            case ScriptNode():
                await self._put(script_items(node, self._context.snapshot.path, self._items()))
            case FilterNode():
                sieve = sieve_of(self._context.snapshot, self._id, node.rule)
                counts = not asked_before(self._context.nodes, self._id)
                await filter_items(self._context, self._id, self._items_name, sieve, counts=counts)
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
        await self._context.run_store.put_items(self._id, items, whole=whole)

    def _items(self) -> AsyncIterator[Item]:
        return self._context.run_store.joined([self._items_name] if self._parents else [])

    # -- nodes that call no model ------------------------------------------------------------

    async def _loaded(self, node: LoadNode) -> AsyncIterator[Item]:
        context, source = self._context, node.source
        if isinstance(source, AiSource):
            items = stream(await generated(context, self._id, source))
        elif isinstance(source, StdinSource) and context.stdin is None:
            raise BadInput(
                f"{context.snapshot.pipeline_id} reads standard input, and there is none here",
                hint="Run it with `rota pipeline run` and a pipe, or give items at the start.",
            )
        else:
            items = source_items(source, context.snapshot.path, context.stdin)
        return select(items, offset=node.offset, limit=node.limit, sample=node.sample)

    async def _transformed(self, node: TransformNode) -> AsyncIterator[Item]:
        transform = transformer(node.ops, self._context.snapshot.parameters)
        async for item in self._items():
            yield item if ERROR in item else transform(item)

    async def _merged(self, node: MergeNode) -> AsyncIterator[Item]:
        item_lists = self._parents
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
                f"{self._place}: its parents have {listed} items; zip omits those beyond "
                f"number {min(counts)}"
            )

    # -- nodes that ask --------------------------------------------------------------------

    async def _map(self, node: MapNode) -> None:
        context, incoming = self._context, self._incoming
        total, before = (incoming.count, incoming.failed) if incoming else (0, 0)
        shards = await self._shards(node, total)
        if self._moved and shards:  # the positions of their items may be others now
            caches = (*context.caches, *(Cache(shard) for shard in shards))
            context = context._replace(caches=caches)
        stage = MapStage(
            context, self._id, node, total, moved=self._moved, failed_before=before
        )  # fmt: skip
        await stage.mark(() if self._moved else shards)
        await stage.perform(context.run_store.items(self._items_name))
        source = await self._source(self._id)
        failed = before + context.progress.failed
        if failed and failed == total:
            async for first in outcomes(source, passes_failed=True):
                raise ItemsFailed(
                    f"all {failed} items failed; the first: {described(first)}", failed=failed
                )
        if reduced_in_place(context.nodes, self._id):
            await context.run_store.put_no_items(self._id, whole=not failed)
            return
        results = outcomes(source, passes_failed=True)
        await self._put((item_after(each) async for each in results), whole=not failed)

    async def _shards(self, node: MapNode, total: int) -> list[RunReader]:
        sharding = self._context.sharding
        if sharding is None or not sharding.is_worth_it(node):
            return []
        return await sharding.shards_of(self._context, self._id, self._items_name, total)

    async def _source(self, node_id: str) -> Source:
        context = self._context
        return await source_of(context.run_store, context.snapshot, context.nodes, node_id)

    async def _results(self) -> AsyncIterator[ItemOutcome]:
        """The items of a reduce. After a map they are apart from the answers."""
        if len(self._parents) == 1 and isinstance(self._context.nodes[self._parents[0]], MapNode):
            return outcomes(await self._source(self._parents[0]), passes_failed=True)
        return _as_outcomes(self._items())

    async def _reduce(self, node: ReduceNode) -> None:
        context = self._context
        with Spool() as spool:
            await spool.take(await self._results())
            context.progress.total = spool.tally.total
            if node.type != "ai":
                await reduce_by_form(context, self._id, node.type, spool.outcomes)
                text = "".join([piece async for piece in context.run_store.text(self._id)])
                await self._put(stream([{RESULT: text}]))
                return
            if not spool.tally.processed:
                place = "" if context.snapshot.pipeline.nodes is None else f"{self._place}: "
                context.warnings.append(f"{place}there was nothing to reduce")
                await self._put(stream([]))
                return
            pieces = partial(shown, spool.outcomes, failures=node.include_failures)
            asking = PromptBuilder(context.snapshot, self._id, node)
            reduce = AiReduce(context, self._id, asking, pieces, spool.tally.counts, node.max_chars)
            record = await reduce.perform()
        await self._put_reply(record)

    async def _ai(self, node: AiNode) -> None:
        asking = PromptBuilder(self._context.snapshot, self._id, node)
        items = [item async for item in self._items() if ERROR not in item]
        listed: dict[str, Any] = {}
        if self._parents:
            listed = {"ITEMS": json.dumps(items, ensure_ascii=False), "COUNT": len(items)}
        question = asking.without_item(listed)
        record = await call(self._context, self._id, question, reader_of(asking.fields))
        self._context.progress.done += not self._parents
        await self._put_reply(record)

    async def _put_reply(self, record: ItemRecord) -> None:
        await put_reply(self._context, self._id, record)
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
