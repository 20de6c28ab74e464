"""All results into one, without an AI; and what an AI reduce is shown, in parts that fit.

Nothing is cut off in any form. Results come as a function that gives them again from the start:
tables need to know all columns before the first row, and results may be too many for memory.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rota.core.pipelines.batches import BatchRange, tree_parts
from rota.core.pipelines.templates import text_of
from rota.pipelines.outcome import ItemOutcome
from rota.pipelines.run.tables import write_csv

PREFIX = "out_"  # of output columns, so that a field may be called like a column of the input


# The items that have ended: fields (`output`) or a text; or an error.
Results = Callable[[], Iterable[ItemOutcome]]


def reduced(kind: str, results: Results) -> Iterator[str]:
    """The result in one of the five forms, piece by piece."""
    forms = {
        "list": as_list, "table": as_table, "json": as_json, "csv": as_csv, "text": as_text,
        "concat": as_text,
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
    inputs, outputs = _columns(results)
    head = list(inputs)
    for column in (*outputs, "success", "error"):
        name = PREFIX + column
        while name in head:  # the input is the result of another pipeline, or has such a field
            name = PREFIX + name
        head.append(name)
    yield from write_csv(head, (_cells(each, inputs, outputs) for each in results()))


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


# -- for an AI -----------------------------------------------------------------------------


def counts(success: int, failure: int = 0) -> dict[str, int]:
    """The values about the items that a reduce prompt may use, by their names in a template."""
    return {"COUNT": success + failure, "SUCCESS_COUNT": success, "FAILURE_COUNT": failure}


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
