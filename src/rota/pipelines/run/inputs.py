"""The items of a pipeline's sources, as streams: files, globs, commands, standard input.

Nothing is loaded whole except JSON files, which cannot be read otherwise. The order is: source,
offset, limit, sample; the filter comes after.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import itertools
import os
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from rota.core.pipelines.sampling import Reservoir
from rota.errors import BadInput
from rota.net.subprocesses import Child, environment, kill, spawn
from rota.pipelines.definition.nodes import ScriptNode
from rota.pipelines.definition.sections import Sample
from rota.pipelines.definition.sources import (
    CommandSource,
    CsvSource,
    GlobSource,
    InlineSource,
    JsonlSource,
    JsonSource,
    ParquetSource,
    SqliteSource,
    StdinSource,
    XlsxSource,
)
from rota.pipelines.run.row_files import pdf_text, read_parquet, read_sqlite, read_xlsx
from rota.pipelines.run.stages import ERROR
from rota.pipelines.run.tables import read_csv

CHUNK = 500  # items taken in one go from a stream that reads files
STDERR_TAIL = 2000
Item = dict[str, Any]
Readable = (
    CsvSource | JsonSource | JsonlSource | XlsxSource | ParquetSource | SqliteSource
    | GlobSource | StdinSource | InlineSource
)  # fmt: skip


def read_items(source: Readable, folder: Path, stdin: IO[bytes] | None = None) -> Iterator[Item]:
    """Items of a source that needs no command. Blocks while it reads.

    A row without content is not an item: spreadsheets leave such rows at the end.
    """
    rows = _rows(source, folder, stdin)
    return rows if isinstance(source, InlineSource) else filter(_has_content, rows)


def _has_content(item: Item) -> bool:
    return any(
        value.strip() if isinstance(value, str) else value is not None for value in item.values()
    )


def _rows(source: Readable, folder: Path, stdin: IO[bytes] | None) -> Iterator[Item]:
    match source:
        case InlineSource():
            yield from source.items
        case GlobSource():
            yield from _globbed(source, folder)
        case StdinSource():
            yield from parse(
                stdin or sys.stdin.buffer, source.format, name="standard input",
                delimiter=source.delimiter, types=source.types,
            )  # fmt: skip
        case CsvSource():
            with opened(folder / source.path) as raw:
                yield from parse(
                    raw, "csv", name=source.path, delimiter=source.delimiter, types=source.types,
                    has_headers=source.has_headers, encoding=source.encoding,
                )  # fmt: skip
        case JsonSource() | JsonlSource():
            form = "json" if isinstance(source, JsonSource) else "jsonl"
            with opened(folder / source.path) as raw:
                yield from parse(raw, form, name=source.path, encoding=source.encoding)
        case XlsxSource():
            yield from read_xlsx(_present(folder, source.path), source.path, source.sheet)
        case ParquetSource():
            yield from read_parquet(_present(folder, source.path), source.path)
        case SqliteSource():
            yield from read_sqlite(_present(folder, source.path), source.path, source.query)


def _present(folder: Path, name: str) -> Path:
    """The path of a file that can be opened."""
    path = folder / name
    opened(path).close()
    return path


def parse(
    raw: IO[bytes],
    form: str,
    *,
    name: str,
    delimiter: str | None = None,
    types: Mapping[str, str] | None = None,
    has_headers: bool = True,
    encoding: str = "utf-8",
) -> Iterator[Item]:
    """Items from bytes in one of the four formats."""
    if form == "json":
        yield from _json(raw.read(), name, encoding)
        return
    lines = lines_of(raw, name, encoding)
    if form == "csv":
        yield from read_csv(
            lines, name=name, delimiter=delimiter, has_headers=has_headers, types=types
        )
        return
    for number, line in enumerate(lines, start=1):
        text = line.strip().removeprefix("\ufeff")
        if text and form == "lines":
            yield {"line": text}
        elif text:
            yield _object(_decoded(text, f"{name}:{number}"), f"{name}:{number}")


def opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(
            f"{path} cannot be read: {error.strerror}",
            hint="Paths are relative to the pipeline's folder.",
        ) from error


def lines_of(raw: IO[bytes], name: str, encoding: str) -> Iterator[str]:
    """Lines with their ends; an error of encoding names the number of the line."""
    text = io.TextIOWrapper(raw, encoding=_codec(encoding, name), newline="")
    number = 0
    try:
        for line in text:
            number += 1
            yield line
    except UnicodeError as error:
        raise BadInput(
            f"{name}: not {encoding} near line {number + 1}",
            hint="Save the file as UTF-8, or name its encoding, such as encoding: cp1252.",
        ) from error
    finally:
        with contextlib.suppress(ValueError):  # the caller has closed the file already
            text.detach()


def _codec(encoding: str, name: str) -> str:
    """Python's name of a text encoding; that of UTF-8 passes over a byte-order mark."""
    try:
        "".encode(encoding)  # a codec of bytes, such as base64, is not found here
    except (LookupError, ValueError) as error:  # ValueError: a NUL in its name
        raise BadInput(
            f"{name}: {encoding!r} is not a text encoding", hint="Use utf-8, or cp1252."
        ) from error
    plain = encoding.lower().replace("_", "-")
    return "utf-8-sig" if plain in ("utf-8", "utf8") else encoding


def _json(raw: bytes, name: str, encoding: str) -> Iterator[Item]:
    value = _decoded("".join(lines_of(io.BytesIO(raw), name, encoding)), name)
    if isinstance(value, dict) and isinstance(value.get("items"), list):
        value = value["items"]
    if not isinstance(value, list):
        raise BadInput(
            f"{name} holds neither a list nor an object with a list under items",
            hint='Write [{"a": 1}, …] or {"items": [{"a": 1}, …]}.',
        )
    for number, each in enumerate(value, start=1):
        yield _object(each, f"{name}, item {number}")


def _decoded(text: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise BadInput(f"{where}: not JSON: {error}") from error
    except RecursionError:
        raise BadInput(f"{where}: this JSON is nested too deeply") from None


def _object(value: Any, where: str) -> Item:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: an item must be an object; this is {type(value).__name__}")
    return value


def _globbed(source: GlobSource, folder: Path) -> Iterator[Item]:
    pattern = Path(source.pattern)
    base = Path(pattern.anchor) if pattern.is_absolute() else folder
    inner = str(pattern.relative_to(pattern.anchor)) if pattern.is_absolute() else source.pattern
    try:
        paths = sorted(path for path in base.glob(inner) if path.is_file())
    except (ValueError, NotImplementedError) as error:
        raise BadInput(f"{source.pattern!r} is not a pattern: {error}") from error
    for path in paths:
        shown = path if pattern.is_absolute() else path.relative_to(base)
        item: Item = {
            "path": shown.as_posix(), "name": path.name, "stem": path.stem,
            "folder": shown.parent.as_posix(),
        }  # fmt: skip
        yield item | (_content(path, item["path"], source.encoding) if source.content else {})


def _content(path: Path, name: str, encoding: str) -> Item:
    """The content of a file; a file that cannot be read is an item that has failed."""
    try:
        if path.suffix.lower() == ".pdf":
            return {"content": pdf_text(path, name)}
        with opened(path) as raw:
            return {"content": "".join(lines_of(raw, name, encoding))}
    except BadInput as error:
        return {"content": None, ERROR: error.explained}


# -- commands ------------------------------------------------------------------------------


async def command_items(source: CommandSource, folder: Path) -> AsyncIterator[Item]:
    """Items that a command prints. Its output goes through a file, so memory stays flat."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = functools.partial(asyncio.create_subprocess_shell, source.run)
        await run_command(start, source, folder, stdin=asyncio.subprocess.DEVNULL, out=out, err=err)
        out.seek(0)
        rows = parse(
            out, source.format, name=f"`{source.run}`", delimiter=source.delimiter,
            types=source.types,
        )  # fmt: skip
        async for item in stream(filter(_has_content, rows)):
            yield item


async def run_command(
    start: Callable[..., Coroutine[Any, Any, Child]],
    command: CommandSource | ScriptNode,
    folder: Path,
    *,
    stdin: IO[bytes] | int,
    out: IO[bytes],
    err: IO[bytes],
) -> None:
    """Run a command to its end; BadInput with its stderr when it fails or takes too long."""
    cwd = folder / (command.cwd or ".")
    if not cwd.is_dir():
        raise BadInput(
            f"`{command.run}` cannot run: its folder {cwd} is not there",
            hint="Correct cwd, which is relative to the pipeline's folder, or make the folder.",
        )
    child = await spawn(
        start(
            stdin=stdin,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=environment(command.pass_env, command.env),
            start_new_session=True,  # so that what the shell starts can be ended with it
        )
    )
    try:
        code = await asyncio.wait_for(child.wait(), command.timeout_ms / 1000)
    except TimeoutError as error:
        raise BadInput(
            f"`{command.run}` did not end within {command.timeout_ms} ms", hint="Raise timeoutMs."
        ) from error
    finally:
        await kill(child)
    if code != 0:
        err.seek(max(0, err.seek(0, os.SEEK_END) - STDERR_TAIL))
        output = err.read().decode("utf-8", "replace").strip() or "it said nothing"
        raise BadInput(f"`{command.run}` ended with exit code {code}: {output}")


# -- streams and choices -------------------------------------------------------------------


async def stream(items: Iterable[Item]) -> AsyncIterator[Item]:
    """A blocking stream as an async one: read ahead a little, in a thread."""
    iterator = iter(items)
    while chunk := await asyncio.to_thread(lambda: list(itertools.islice(iterator, CHUNK))):
        for item in chunk:
            yield item


async def select(
    items: AsyncIterator[Item],
    *,
    offset: int = 0,
    limit: int | None = None,
    sample: Sample | None = None,
) -> AsyncIterator[Item]:
    """Some of the items: after offset, at most limit, then a seeded choice in their order."""
    if sample is None:
        async for item in _slice(items, offset, limit):
            yield item
        return
    chance = random.Random(sample.seed).random  # stable over versions of Python
    reservoir: Reservoir[Item] = Reservoir(sample.size, chance)
    async for item in _slice(items, offset, limit):
        reservoir.show(item)
    for item in reservoir.chosen():
        yield item


async def _slice(items: AsyncIterator[Item], offset: int, limit: int | None) -> AsyncIterator[Item]:
    taken = 0
    if limit == 0:
        return
    async for item in items:
        if offset > 0:
            offset -= 1
            continue
        yield item
        taken += 1
        if taken == limit:
            return


def source_items(
    source: Readable | CommandSource, folder: Path, stdin: IO[bytes] | None = None
) -> AsyncIterator[Item]:
    """The items of any source that needs no AI."""
    if isinstance(source, CommandSource):
        return command_items(source, folder)
    return stream(read_items(source, folder, stdin))
