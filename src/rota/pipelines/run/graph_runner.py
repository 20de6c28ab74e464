"""The executor of pipelines: every node begins as soon as its parents are done.

A node with a full item list was done before. A retry does again what failed, and all that came of
it. The answers to a node's questions are found by content, so nothing is paid for twice. A failed
node aborts the run, or warns and continues without items, by its own option or by that of the
settings.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from rota.pipelines.definition.compiler import place_of
from rota.pipelines.definition.graph import end_of, leaves
from rota.pipelines.definition.nodes import AiNode, MergeNode, Node, ReduceNode, parents_of
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.inputs import stream
from rota.pipelines.run.model_caller import LOST, STOPPING
from rota.pipelines.run.nodes import PHASES, NodeWork
from rota.pipelines.run.results import may_have_moved
from rota.pipelines.run.run_store import ItemList
from rota.pipelines.run.sharding import ShardsRunning
from rota.pipelines.run.sliding_window import first_of
from rota.pipelines.run.stages import OUTPUT, node_input


class GraphRunner:
    """One run of a pipeline."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._nodes = context.nodes
        self._parents = {each: parents_of(node) for each, node in self._nodes.items()}
        self._ended = {each: asyncio.Event() for each in self._nodes}
        self._waiting: set[str] = set()  # nodes that wait for shards, and all after them

    async def perform(self) -> None:
        """Execute all nodes, then write the output of those that no other takes items from.

        Raises what aborted the run; or ShardsRunning, when nothing is left to do meanwhile.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for node_id, node in self._nodes.items():
                    group.create_task(self._placed(node_id, node))
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        if self._waiting:
            raise ShardsRunning
        await self._output()

    async def _placed(self, node_id: str, node: Node) -> None:
        for parent in self._parents[node_id]:
            await self._ended[parent].wait()
        if self._waiting.isdisjoint(self._parents[node_id]):
            try:
                await self._unless_done(node_id, node)
            except ShardsRunning:
                self._waiting.add(node_id)
        else:
            self._waiting.add(node_id)
        self._ended[node_id].set()

    async def _unless_done(self, node_id: str, node: Node) -> None:
        done = await self._context.run_store.item_list(node_id)
        moved = done is not None and await self._is_older(done, self._parents[node_id])
        claim = self._context.run_store.claim
        if done is None or moved or (not done.whole and done.attempt < claim.attempt):
            await self._performed(node_id, node, moved=moved)

    async def _is_older(self, done: ItemList, parents: list[str]) -> bool:
        """Whether a parent was done again since. The item lists show it, also after a crash."""
        for parent in parents:
            item_list = await self._context.run_store.item_list(parent)
            if item_list is not None and item_list.attempt > done.attempt:
                return True
        return False

    async def _performed(self, node_id: str, node: Node, *, moved: bool) -> None:
        context, parents = self._context, self._parents[node_id]
        item_list = node_input(self._nodes, node_id)
        if len(parents) > 1 and not isinstance(node, MergeNode):
            await context.run_store.put_items(item_list, context.run_store.joined(parents))
        incoming = await context.run_store.item_list(item_list) if parents else None
        moved = moved or may_have_moved(incoming)
        total = incoming.count if incoming else None
        is_linear = context.snapshot.pipeline.nodes is None
        phase, name = (PHASES[type(node)], "") if is_linear else ("node", node_id)
        own = context._replace(progress=context.progress.apart(phase, name, total))
        try:
            await NodeWork(own, node_id, incoming, moved=moved).perform(node)
        except (*LOST, *STOPPING, ShardsRunning):
            raise
        except Exception as error:
            if (node.on_error or context.snapshot.pipeline.settings.on_error) == "abort":
                raise
            context.warnings.append(f"{place_of(context.snapshot.pipeline, node_id)}: {error}")
            await context.run_store.put_items(node_id, stream([]), whole=False)

    async def _output(self) -> None:
        """A single reduce or AI node at the end is the output as it is; otherwise the items of all
        ends."""
        run_store = self._context.run_store
        end = end_of(self._nodes)
        if end is not None and isinstance(self._nodes[end], ReduceNode | AiNode):
            await run_store.put_text(OUTPUT, run_store.text(end))
        else:
            await run_store.put_text(OUTPUT, self._ends(leaves(self._parents)))

    async def _ends(self, ends: list[str]) -> AsyncIterator[str]:
        count = 0
        async for item in self._context.run_store.joined(ends):
            yield ("[\n" if not count else ",\n") + json.dumps(item, ensure_ascii=False)
            count += 1
        yield "\n]\n" if count else "[]\n"
