"""The reduce: all results into one text; by form in a thread, by AI in as many calls as needed."""

from __future__ import annotations

import asyncio
import copy
import io
import itertools
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rota.core.pipelines.batches import BatchRange
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.map_stage import reader_of
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.reduce_formats import (
    Results,
    joined,
    part_instruction,
    parts_of,
    reduced,
)
from rota.pipelines.run.results import results_file
from rota.pipelines.run.run_store import PIECE_CHARS, ItemRecord
from rota.pipelines.run.single_call import call
from rota.pipelines.run.sliding_window import in_order
from rota.pipelines.run.stages import REDUCE

OUTPUT = "output"
Pieces = Callable[[], Iterable[str]]


async def reduce_by_form(context: PipelineContext, name: str, kind: str, results: Results) -> None:
    """Record the result in one of the five forms."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as file:
        await asyncio.to_thread(file.writelines, reduced(kind, results))
        file.seek(0)
        await context.run_store.put_text(name, _pieces(file.read))


async def put_reply(context: PipelineContext, name: str, record: ItemRecord) -> None:
    """Record a reply as a text: itself, or its fields as JSON."""
    text = record.text or ""
    if record.output is not None:
        text = json.dumps(record.output, ensure_ascii=False, indent=2) + "\n"
    await context.run_store.put_text(name, _pieces(io.StringIO(text).read))


async def _pieces(read: Callable[[int], str]) -> AsyncIterator[str]:
    while piece := read(PIECE_CHARS):
        yield piece


class AiReduce(NamedTuple):
    """The input of an AI reduce; `pieces` gives each result as JSON, from the first."""

    context: PipelineContext
    stage: str
    asking: PromptBuilder
    pieces: Pieces
    counts: dict[str, int]
    chars_max: int

    async def perform(self) -> ItemRecord:
        """Reduce in one call, or in groups; their replies are reduced again until one is left."""
        if "RESULTS" not in self.asking.template.names:
            return await self._last("", 0)
        pieces, level = self.pieces, 0
        while len(parts := await asyncio.to_thread(_parts, pieces, self.chars_max)) > 1:
            replies = await self._level(pieces, parts, level)
            pieces, level = partial(iter, replies), level + 1
        return await self._last(joined(pieces()), level)

    async def _last(self, results: str, level: int) -> ItemRecord:
        stage = f"{self.stage}.{level}"
        if "RESULTS_FILE" not in self.asking.template.names:
            return await self._ask(self.asking, stage, self._filled(results), 0)
        # The same name in every attempt, or the call would not be known again.
        own = "" if self.stage == REDUCE else f"-{self.asking.key}"
        name = f"rota-results-{self.context.run_store.root_id}{own}.json"
        with results_file(iter(self.pieces()), Path(tempfile.gettempdir()) / name) as path:
            filled = {**self._filled(results), "RESULTS_FILE": path}
            return await self._ask(self.asking, stage, filled, 0)

    async def _level(self, pieces: Pieces, parts: list[BatchRange], level: int) -> list[str]:
        """The replies about the parts of one level as JSON, in order."""
        asking = copy.copy(self.asking)
        asking.fields = []

        async def numbered() -> AsyncIterator[tuple[int, str]]:
            """The results of each part; one part at a time is in memory."""
            rest = iter(pieces())
            for number, part in enumerate(parts, start=1):
                yield number, joined(itertools.islice(rest, part.end - part.begin))

        async def ask(part: tuple[int, str]) -> str:
            number, results = part
            more = part_instruction(number, len(parts))
            filled = self._filled(results)
            record = await self._ask(asking, f"{self.stage}.{level}", filled, number, more)
            return json.dumps(record.text or "", ensure_ascii=False)

        parallel = parallel_of(self.context.snapshot, None)
        async with aclosing(in_order(numbered(), parallel, ask)) as replies:
            return [reply async for reply in replies]

    async def _ask(
        self,
        asking: PromptBuilder,
        stage: str,
        filled: dict[str, Any],
        position: int,
        more: str = "",
    ) -> ItemRecord:
        question = asking.without_item(filled, more)
        return await call(self.context, stage, question, reader_of(asking.fields), position)

    def _filled(self, results: str) -> dict[str, Any]:
        return {"RESULTS": results, **self.counts}


def _parts(pieces: Pieces, chars_max: int) -> list[BatchRange]:
    return parts_of(pieces(), chars_max)
