"""The first stage: items from wherever the pipeline says, written down before anything is paid.

From then on the run no longer depends on the file, the command or the pipe they came from.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from rota.errors import BadInput
from rota.pipelines.definition.model import Generate, Input
from rota.pipelines.definition.sources import StdinSource
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.generated_items import generated
from rota.pipelines.run.inputs import Item, items_of, select, stream
from rota.pipelines.run.stages import INPUT


async def load_input(context: PipelineContext) -> int:
    """Write the items of the linear form down, unless that was done; answers how many."""
    found = await context.run_store.item_list(INPUT)
    if found is not None:
        return found.count
    context.progress.enter("loading")
    part = context.snapshot.pipeline.input
    assert part is not None, "checked when the pipeline was read"
    return await context.run_store.put_items(INPUT, await _items(context, part))


async def _items(context: PipelineContext, part: Input) -> AsyncIterator[Item]:
    given = context.snapshot.items
    limit = context.snapshot.overrides.limit
    if limit is not None:
        part = msgspec.structs.replace(part, limit=limit)
    if isinstance(part.source, StdinSource) and given is None and context.stdin is None:
        raise BadInput(
            f"{context.snapshot.pipeline_id} reads standard input, and there is none here",
            hint="Run it with `rota pipeline run` and a pipe, or give items at the start.",
        )
    if given is not None and (part.generate is not None or isinstance(part.source, StdinSource)):
        return _chosen(part, given)
    if part.generate is not None:
        return _chosen(part, await _generate(context, part.generate))
    return items_of(part, context.place, given=given, stdin=context.stdin)


def _chosen(part: Input, items: Sequence[Item]) -> AsyncIterator[Item]:
    return select(stream(items), offset=part.offset, limit=part.limit, sample=part.sample)


async def _generate(context: PipelineContext, part: Generate) -> list[Item]:
    return await generated(context, "generate", part)
