"""The reduce: all results into one text, by form in a thread, or by AI in as many calls as needed.

Nothing is cut off in any form. Results come as a function that gives them again from the start:
tables need to know all columns before the first row, and results may be too many for memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import itertools
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

from rota.core.pipelines.batches import BatchRange, tree_parts
from rota.core.pipelines.templates import text_of
from rota.pipelines.outcome import ItemOutcome
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.map_stage import reader_of
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.run_store import PIECE_CHARS, ItemRecord
from rota.pipelines.run.single_call import call
from rota.pipelines.run.sliding_window import in_order
from rota.pipelines.run.tables import write_csv

PREFIX = "out_"  # of output columns, so that a field may be called like a column of the input
# The items that have ended: fields (`output`) or a text; or an error.
Results = Callable[[], Iterable[ItemOutcome]]
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


# -- by form -----------------------------------------------------------------------------


def reduced(kind: str, results: Results) -> Iterator[str]:
    """The result in one of the five forms, piece by piece."""
    forms = {
        "list": as_list, "table": as_table, "json": as_json, "csv": as_csv, "text": as_text,
    }  # fmt: skip
    return forms[kind](results)


def as_json(results: Results) -> Iterator[str]:
    """A JSON array of input, output, success and error."""
    first = True
    for each in results():
        record: dict[str, Any] = {
            "input": each.item, "output": _value(each), "success": each.error is None,
        }  # fmt: skip
        if each.error is not None:
            record["error"] = each.error
        yield ("[\n" if first else ",\n") + json.dumps(record, ensure_ascii=False)
        first = False
    yield "[]\n" if first else "\n]\n"


def as_csv(results: Results) -> Iterator[str]:
    """Input columns, output columns with a prefix, success and error."""
    head, rows = as_rows(results)
    yield from write_csv(head, rows())


def as_rows(results: Results) -> tuple[list[str], Callable[[], Iterable[Sequence[Any]]]]:
    """The names of the columns of a result, and its rows."""
    inputs, outputs = _columns(results)
    head = list(inputs)
    for column in (*outputs, "success", "error"):
        name = PREFIX + column
        while name in head:  # the input is the result of another pipeline, or has such a field
            name = PREFIX + name
        head.append(name)
    return head, lambda: (_cells(each, inputs, outputs) for each in results())


def _cells(each: ItemOutcome, inputs: Sequence[str], outputs: Sequence[str]) -> list[Any]:
    fields = _fields(each)
    return [
        *(each.item.get(column) for column in inputs),
        *(fields.get(column) for column in outputs),
        each.error is None,
        each.error,
    ]


def as_table(results: Results) -> Iterator[str]:
    """A markdown table: input columns, output columns, status."""
    inputs, outputs = _columns(results)
    yield _row([*inputs, *(f"→ {column}" for column in outputs), "status"])
    yield _row(["---"] * (len(inputs) + len(outputs) + 1), escape=False)
    for each in results():
        cells = _cells(each, inputs, outputs)[:-2]
        yield _row([*cells, "ok" if each.error is None else f"failed: {each.error}"])


def _row(cells: Sequence[Any], *, escape: bool = True) -> str:
    texts = [_escaped(text_of(cell)) if escape else str(cell) for cell in cells]
    return f"| {' | '.join(texts)} |\n"


def _escaped(text: str) -> str:
    """Text in one cell of a markdown table."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|")
    return plain.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "<br>")


def as_list(results: Results) -> Iterator[str]:
    """Markdown: a section for each item, and a count at the end."""
    count = failed = 0
    for count, each in enumerate(results(), start=1):
        failed += each.error is not None
        yield f"### Item {count}\n\n"
        yield "".join(f"- **{name}**: {_indented(value)}\n" for name, value in each.item.items())
        if each.error is not None:
            yield f"\nFailed: {each.error}\n\n"
        elif each.output is not None:
            lines = (f"- {name}: {_indented(value)}\n" for name, value in each.output.items())
            yield "\nOutput:\n\n" + "".join(lines) + "\n"
        else:
            yield f"\n{each.text or ''}\n\n"
    yield f"---\n{count} items: {count - failed} succeeded, {failed} failed\n"


def _indented(value: Any) -> str:
    """A value of several lines stays within its entry."""
    return text_of(value).replace("\n", "\n  ")


def as_text(results: Results) -> Iterator[str]:
    """The replies; a single one as it is, several with a line between. Failed ones are skipped."""
    numbered = enumerate(results(), start=1)
    kept = ((number, each) for number, each in numbered if each.error is None)
    first, second = next(kept, None), next(kept, None)
    if first is None:
        return
    if second is None:
        yield text_of(_value(first[1]))
        return
    separator = ""
    for number, each in itertools.chain([first, second], kept):
        yield f"{separator}--- Item {number} ---\n{text_of(_value(each))}\n"
        separator = "\n"


def _columns(results: Results) -> tuple[list[str], list[str]]:
    """All columns of inputs and outputs, in the order of their first use."""
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {}
    for each in results():
        inputs.update(dict.fromkeys(each.item))
        outputs.update(dict.fromkeys(_fields(each)))
    return list(inputs), list(outputs)


def _value(each: ItemOutcome) -> Any:
    """Its fields, or its text in text mode."""
    return each.output if each.output is not None else each.text


def _fields(each: ItemOutcome) -> dict[str, Any]:
    if each.output is not None:
        return each.output
    return {} if each.text is None else {"text": each.text}


# -- by AI -------------------------------------------------------------------------------


def shown(results: Results, *, failures: bool = False) -> Iterator[str]:
    """Each result as the JSON that {{RESULTS}} is made of; failed ones only when asked for."""
    for each in results():
        if each.error is None:
            yield json.dumps(_value(each), ensure_ascii=False)
        elif failures:
            yield json.dumps({"input": each.item, "error": each.error}, ensure_ascii=False)


def joined(pieces: Iterable[str]) -> str:
    """{{RESULTS}}: a JSON array."""
    return f"[{','.join(pieces)}]"


def parts_of(pieces: Iterable[str], chars_max: int) -> list[BatchRange]:
    """The calls of one level of an AI reduce; one part means that it all fits."""
    return tree_parts([len(piece) for piece in pieces], chars_max - len("[]"))


def part_instruction(number: int, count: int) -> str:
    """The text after the prompt of one part; the replies are reduced again by the same prompt."""
    return (
        f"\n\n[Part {number} of {count}] These are not all results. Keep everything that "
        "is needed to combine your reply with those about the other parts."
    )


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
        return await self._reduced(self.pieces, 0)

    async def _reduced(self, pieces: Pieces, level: int) -> ItemRecord:
        parts = await asyncio.to_thread(parts_of, pieces(), self.chars_max)
        if len(parts) <= 1:
            return await self._last(joined(pieces()), level)
        replies = await self._level(pieces, parts, level)
        return await self._reduced(lambda: replies, level + 1)

    async def _last(self, results: str, level: int) -> ItemRecord:
        stage = f"{self.stage}:{level}"
        if "RESULTS_FILE" not in self.asking.template.names:
            return await self._ask(self.asking, stage, self._filled(results), 0)
        # The same name in every attempt, or the call would not be known again.
        name = f"rota-results-{self.context.run_store.root_id}-{self.asking.key}.json"
        with results_file(iter(self.pieces()), Path(tempfile.gettempdir()) / name) as path:
            filled = {**self._filled(results), "RESULTS_FILE": path}
            return await self._ask(self.asking, stage, filled, 0)

    async def _level(self, pieces: Pieces, parts: list[BatchRange], level: int) -> list[str]:
        """The replies about the parts of one level as JSON, in order."""
        asking = copy.copy(self.asking)
        asking.fields = []

        async def numbered() -> AsyncIterator[tuple[int, str]]:
            """The results of each part; `in_order` takes only a few parts ahead."""
            rest = iter(pieces())
            for number, part in enumerate(parts, start=1):
                yield number, joined(itertools.islice(rest, part.end - part.begin))

        async def ask(part: tuple[int, str]) -> str:
            number, results = part
            more = part_instruction(number, len(parts))
            filled = self._filled(results)
            record = await self._ask(asking, f"{self.stage}:{level}", filled, number, more)
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


@contextlib.contextmanager
def results_file(text: Iterator[str], target: Path) -> Iterator[str]:
    """A JSON array in a file for a prompt that names it; private, and gone afterwards.

    A file or a link of that name that is there already is not followed but replaced.
    """
    try:
        target.unlink(missing_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("[")
            for number, piece in enumerate(text):
                file.write(("," if number else "") + piece)
            file.write("]")
        yield str(target)
    finally:
        target.unlink(missing_ok=True)
