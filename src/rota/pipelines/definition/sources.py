"""The sources of items, as written in a pipeline.yaml."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from rota.net.subprocesses import PassEnv
from rota.pipelines.definition.sections import (
    CallOptions,
    Item,
    OutputField,
    Positive,
    Section,
)

Meta = msgspec.Meta
ColumnType: TypeAlias = Literal["string", "integer", "number", "boolean", "json"]
Format: TypeAlias = Literal["json", "jsonl", "csv", "lines"]

FilePath: TypeAlias = Annotated[
    str, Meta(min_length=1, description="The file; relative to the pipeline's folder.")
]
Encoding: TypeAlias = Annotated[
    str, Meta(description="How the file is encoded; a byte-order mark is removed.")
]
Delimiter: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=1, description="The character between columns.")
]
FoundDelimiter: TypeAlias = Annotated[
    Delimiter | None,
    Meta(description="The character between columns; by default the first line shows it."),
]
Types: TypeAlias = Annotated[
    dict[str, ColumnType],
    Meta(description="Columns that are not text: string, integer, number, boolean or json."),
]


class CsvSource(Section, frozen=True, kw_only=True, tag="csv", tag_field="type"):
    """Rows of a CSV file, read as a stream. Values are text unless `types` says otherwise."""

    path: FilePath
    delimiter: FoundDelimiter = None
    has_headers: Annotated[
        bool, Meta(description="Whether the first row names the columns; otherwise col0, col1, …")
    ] = True
    encoding: Encoding = "utf-8"
    types: Types = msgspec.field(default_factory=dict)


class JsonSource(Section, frozen=True, kw_only=True, tag="json", tag_field="type"):
    """A JSON file: a list of objects, or an object with a list under `items`."""

    path: FilePath
    encoding: Encoding = "utf-8"


class JsonlSource(Section, frozen=True, kw_only=True, tag="jsonl", tag_field="type"):
    """A file with one JSON object in each line, read as a stream."""

    path: FilePath
    encoding: Encoding = "utf-8"


class XlsxSource(Section, frozen=True, kw_only=True, tag="xlsx", tag_field="type"):
    """Rows of an Excel sheet; its first row names the columns. Needs `rota[files]`."""

    path: FilePath
    sheet: Annotated[str | None, Meta(description="Its name; by default the first sheet.")] = None


class ParquetSource(Section, frozen=True, kw_only=True, tag="parquet", tag_field="type"):
    """Rows of a Parquet file. Needs `rota[files]`."""

    path: FilePath


class SqliteSource(Section, frozen=True, kw_only=True, tag="sqlite", tag_field="type"):
    """Rows of a query to a SQLite database, which is opened for reading only."""

    path: FilePath
    query: Annotated[str, Meta(min_length=1, description="Such as select id, title from bugs.")]


class GlobSource(Section, frozen=True, kw_only=True, tag="glob", tag_field="type"):
    """One item for each file: path, name, stem, folder, and content when asked for.

    The content of a PDF file is its text (needs `rota[files]`). A file that cannot be read is a
    failed item.
    """

    pattern: Annotated[
        str, Meta(min_length=1, description="Such as src/**/*.py; relative to the folder.")
    ]
    content: Annotated[bool, Meta(description="Whether to read the files.")] = False
    encoding: Encoding = "utf-8"


class CommandSource(Section, frozen=True, kw_only=True, tag="command", tag_field="type"):
    """The output of a command."""

    run: Annotated[str, Meta(min_length=1, description="The command line, for the shell.")]
    format: Annotated[Format, Meta(description="How to read what it prints.")] = "json"
    delimiter: FoundDelimiter = None
    types: Types = msgspec.field(default_factory=dict)
    timeout_ms: Annotated[Positive, Meta(description="Milliseconds until it is killed.")] = 60_000
    cwd: Annotated[str | None, Meta(description="Its folder; relative to the pipeline's.")] = None
    env: Annotated[dict[str, str], Meta(description="Variables for its environment.")] = (
        msgspec.field(default_factory=dict)
    )
    pass_env: PassEnv = msgspec.field(default_factory=list)


class StdinSource(Section, frozen=True, kw_only=True, tag="stdin", tag_field="type"):
    """The standard input of `rota pipeline run`."""

    format: Annotated[Format, Meta(description="How to read it.")] = "jsonl"
    delimiter: FoundDelimiter = None
    types: Types = msgspec.field(default_factory=dict)


class InlineSource(Section, frozen=True, kw_only=True, tag="inline", tag_field="type"):
    """The items themselves."""

    items: Annotated[list[Item], Meta(description="The items.")]


class Generator(CallOptions, frozen=True, kw_only=True):
    """A request for items."""

    prompt: Annotated[str, Meta(min_length=1, description="The request.")]
    schema: Annotated[
        list[str | OutputField],
        Meta(min_length=1, description="The fields of each item; names, or fields with a type."),
    ]
    model: Annotated[str | None, Meta(description="Model for this call.")] = None


class AiSource(Generator, frozen=True, kw_only=True, tag="ai", tag_field="type"):
    """Items made by an AI call."""


FileSource: TypeAlias = (
    CsvSource | JsonSource | JsonlSource | XlsxSource | ParquetSource | SqliteSource
    | GlobSource | CommandSource | StdinSource
)  # fmt: skip
LoadSource: TypeAlias = FileSource | InlineSource | AiSource
