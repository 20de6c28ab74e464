"""A pipeline with other items than those of its file, for one run: a file, a part, a sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from rota.errors import BadInput
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.nodes import LoadNode
from rota.pipelines.definition.sections import Sample
from rota.pipelines.definition.sources import (
    CsvSource,
    FileSource,
    Format,
    JsonlSource,
    JsonSource,
    ParquetSource,
    StdinSource,
    XlsxSource,
)

STDIN = "-"
_FORMS = {
    ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".xlsx": "xlsx", ".parquet": "parquet",
}  # fmt: skip
_SOURCES: dict[
    str, type[CsvSource | JsonSource | JsonlSource | XlsxSource | ParquetSource]
] = {
    "csv": CsvSource, "json": JsonSource, "jsonl": JsonlSource, "xlsx": XlsxSource,
    "parquet": ParquetSource,
}  # fmt: skip


def adjusted(
    loaded: Loaded,
    *,
    items: str | None = None,
    form: Format | None = None,
    limit: int | None = None,
    sample: int | None = None,
    seed: int | None = None,
) -> Loaded:
    """The pipeline with these items in place of its own; None leaves a value unchanged.

    `items` is a file, or - for standard input, in the format `form` or that of its name.
    """
    pipeline = loaded.pipeline
    mode = pipeline.mode
    if mode == "map-reduce":
        assert pipeline.input is not None
        changes: dict[str, Any] = {}
        if items is not None:
            changes |= {"source": source_of(items, form), "items": None, "generate": None}
        if limit is not None:
            changes["limit"] = limit
        if sample is not None:
            declared_seed = pipeline.input.sample.seed if pipeline.input.sample else 0
            chosen_seed = declared_seed if seed is None else seed
            changes["sample"] = Sample(size=sample, seed=chosen_seed)
        section = msgspec.structs.replace(pipeline.input, **changes)
        return loaded._replace(pipeline=msgspec.structs.replace(pipeline, input=section))
    if items is not None or sample is not None:
        raise BadInput(
            f"{loaded.pipeline_id} takes no items and no sample: it is a {mode}",
            hint="Give parameters instead, or change the file.",
        )
    if limit is None:
        return loaded
    if mode == "job":
        raise BadInput(f"{loaded.pipeline_id} has no items to limit: it is a job")
    return loaded._replace(pipeline=_limited(pipeline, limit))


def source_of(text: str, form: Format | None) -> FileSource:
    """The source that `--items` means."""
    if text == STDIN:
        return StdinSource(format=form or "jsonl")
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise BadInput(f"the items in {text} cannot be read: there is no such file")
    chosen = form or _FORMS.get(path.suffix.lower(), "")
    if chosen in _SOURCES:
        return _SOURCES[chosen](path=str(path))
    if chosen == "lines":
        raise BadInput("lines are read from stdin only", hint=f"Write --items - < {text}.")
    raise BadInput(
        f"the items in {text} have no known format",
        hint="Name it .csv, .json, .jsonl, .xlsx or .parquet, or say --items-format csv.",
    )


def _limited(pipeline: Pipeline, limit: int) -> Pipeline:
    nodes = {
        node_id: msgspec.structs.replace(node, limit=limit) if isinstance(node, LoadNode) else node
        for node_id, node in (pipeline.nodes or {}).items()
    }
    return msgspec.structs.replace(pipeline, nodes=nodes)


def reads_stdin(pipeline: Pipeline) -> bool:
    """Whether the items come from standard input."""
    return any(isinstance(source, StdinSource) for source in pipeline.sources)
