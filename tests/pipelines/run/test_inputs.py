"""Items from files, globs, commands and standard input; and choices among them."""

from __future__ import annotations

import io
import random
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pipelines.sampling import Reservoir
from rota.errors import BadInput
from rota.pipelines.definition.compiler import graph_of
from rota.pipelines.definition.model import Input, Pipeline
from rota.pipelines.definition.nodes import LoadNode
from rota.pipelines.definition.sources import AiSource, CsvSource
from rota.pipelines.run.inputs import read_items, select, source_items
from tests.kit.process_trees import PARENT, given_up, gone, until


def part(**keys: Any) -> Input:
    return msgspec.convert(keys, Input)


def taking(
    folder: Path, keys: dict[str, Any], stdin: IO[bytes] | None = None
) -> AsyncIterator[dict[str, Any]]:
    """The items as the node of an input takes them."""
    node = graph_of(Pipeline(name="n", input=part(**keys)))["input"]
    assert isinstance(node, LoadNode)
    assert not isinstance(node.source, AiSource)
    items = source_items(node.source, folder, stdin)
    return select(items, offset=node.offset, limit=node.limit, sample=node.sample)


async def taken(folder: Path, keys: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    return [item async for item in taking(folder, keys, **options)]


async def refused(folder: Path, keys: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        await taken(folder, keys)
    return str(caught.value)


async def test_inline_items_under_items_or_from(tmp_path: Path) -> None:
    assert await taken(tmp_path, {"items": [{"a": 1}]}) == [{"a": 1}]
    assert await taken(tmp_path, {"from": [{"model": "m"}]}) == [{"model": "m"}]


async def test_csv_in_another_encoding_and_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "u.csv").write_bytes(b"\xef\xbb\xbfname\r\nJos\xc3\xa9\r\n")
    (tmp_path / "l.csv").write_bytes(b"name\nJos\xe9\n")
    assert await taken(tmp_path, {"from": {"type": "csv", "path": "u.csv"}}) == [{"name": "José"}]
    source = {"type": "csv", "path": "l.csv", "encoding": "latin-1"}
    assert await taken(tmp_path, {"from": source}) == [{"name": "José"}]
    said = await refused(tmp_path, {"from": {"type": "csv", "path": "l.csv"}})
    assert said == "l.csv: not utf-8 near line 1"


async def test_an_encoding_that_python_does_not_decode_text_with_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l").write_bytes(b"name\nJos\xe9\n")
    for encoding in ("elvish", "base64", "rot13", "zlib", "\0", ""):
        for form in ("csv", "json", "jsonl"):
            source = {"type": form, "path": "l", "encoding": encoding}
            said = await refused(tmp_path, {"from": source})
            assert said == f"l: {encoding!r} is not a text encoding"
    for form in ("csv", "json", "jsonl"):
        said = await refused(tmp_path, {"from": {"type": form, "path": "l", "encoding": "idna"}})
        assert said.startswith("l: not idna near line")


@pytest.mark.parametrize(
    "text", ['[{"a": 1}, {"a": false}]', '{"items": [{"a": 1}, {"a": false}]}']
)
async def test_json_is_a_list_or_an_object_with_items(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    assert await taken(tmp_path, {"from": {"type": "json", "path": "x.json"}}) == [
        {"a": 1}, {"a": False},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("json", "{}", "x holds neither a list nor an object with a list under items"),
        ("json", "[1]", "x, item 1: an item must be an object; this is int"),
        ("json", "[", "x: not JSON"),
        ("jsonl", '{"a": 1}\n\n{"a"\n', "x:3: not JSON"),
        ("jsonl", '{"a": 1}\n[]\n', "x:2: an item must be an object; this is list"),
    ],
)
async def test_bad_json_is_reported_with_its_place(
    tmp_path: Path, form: str, text: str, said: str
) -> None:
    (tmp_path / "x").write_text(text)
    assert (await refused(tmp_path, {"from": {"type": form, "path": "x"}})).startswith(said)


async def test_json_lines_skip_blank_ones(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('\ufeff{"a": 1}\r\n\r\n{"a": 2}')
    found = await taken(tmp_path, {"from": {"type": "jsonl", "path": "x.jsonl"}})
    assert found == [{"a": 1}, {"a": 2}]


async def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    said = await refused(tmp_path, {"from": {"type": "csv", "path": "no.csv"}})
    assert said == f"{tmp_path / 'no.csv'} cannot be read: No such file or directory"


async def test_paths_may_lead_to_the_parent_or_be_absolute(tmp_path: Path) -> None:
    (tmp_path / "shared.csv").write_text("a\n1\n")
    folder = tmp_path / "p"
    folder.mkdir()
    for path in ("../shared.csv", str(tmp_path / "shared.csv")):
        assert await taken(folder, {"from": {"type": "csv", "path": path}}) == [{"a": "1"}]


async def test_a_glob_gives_files_in_order(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "in/c.py", "in/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    source = {"type": "glob", "pattern": "**/*.py", "content": True}
    found = await taken(tmp_path, {"from": source})
    assert [item["path"] for item in found] == ["a.py", "b.py", "in/c.py"]
    assert found[2] == {
        "path": "in/c.py", "name": "c.py", "stem": "c", "folder": "in", "content": "# in/c.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "printed", "items"),
    [
        ("json", '[{"a": 1}]', [{"a": 1}]),
        ("jsonl", '{"a": 1}', [{"a": 1}]),
        ("csv", "a\\n1", [{"a": "1"}]),
        ("lines", "one\\n\\ntwo", [{"line": "one"}, {"line": "two"}]),
    ],
)
async def test_a_command_gives_what_it_prints(
    tmp_path: Path, form: str, printed: str, items: list[dict[str, Any]]
) -> None:
    source = {"type": "command", "run": f"printf '{printed}'", "format": form}
    assert await taken(tmp_path, {"from": source}) == items


async def test_a_command_runs_in_the_folder_with_its_environment(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = {
        "type": "command", "run": 'echo "$(basename "$PWD") $WORD"', "format": "lines",
        "cwd": "in", "env": {"WORD": "hi"},
    }  # fmt: skip
    assert await taken(tmp_path, {"from": source}) == [{"line": "in hi"}]


async def test_a_command_that_fails_is_reported_with_what_it_said(tmp_path: Path) -> None:
    said = await refused(tmp_path, {"from": {"type": "command", "run": "echo oh no >&2; exit 3"}})
    assert said == "`echo oh no >&2; exit 3` ended with exit code 3: oh no"


@pytest.mark.wall_clock("the command must begin within the moment that it has")
async def test_a_command_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    run = "sleep 600 & echo $! > pid; wait"
    source = {"type": "command", "run": run, "timeoutMs": 300}
    assert "did not end within 300 ms" in await refused(tmp_path, {"from": source})
    child = int((tmp_path / "pid").read_text())
    await until(lambda: gone(child))


async def test_a_command_given_up_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    source = {"type": "command", "run": PARENT}
    await given_up(lambda: taken(tmp_path, {"from": source}), tmp_path, forks=8)


async def test_standard_input_is_read(tmp_path: Path) -> None:
    raw = io.BytesIO(b"a,b\n1,2\n")
    found = await taken(tmp_path, {"from": {"type": "stdin", "format": "csv"}}, stdin=raw)
    assert found == [{"a": "1", "b": "2"}]
    assert not raw.closed


async def test_offset_then_limit_then_sample(tmp_path: Path) -> None:
    items = [{"n": n} for n in range(20)]
    chosen = await taken(tmp_path, {"items": items, "offset": 5, "limit": 3})
    assert [item["n"] for item in chosen] == [5, 6, 7]
    assert await taken(tmp_path, {"items": items, "limit": 0}) == []
    assert len(await taken(tmp_path, {"items": items, "limit": 99})) == 20
    keys = {"items": items, "offset": 5, "limit": 10, "sample": {"size": 4, "seed": 7}}
    one, again = await taken(tmp_path, keys), await taken(tmp_path, keys)
    assert one == again
    numbers = [item["n"] for item in one]
    assert numbers == sorted(numbers)
    assert set(numbers) <= set(range(5, 15))


async def test_a_limit_reads_no_further_than_it_must(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n' * 2000 + "broken\n")
    keys = {"from": {"type": "jsonl", "path": "x.jsonl"}, "limit": 3}
    assert await taken(tmp_path, keys) == [{"a": 1}] * 3


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers())
def test_a_sample_is_a_part_in_order_and_the_same_for_a_seed(
    count: int, size: int, seed: int
) -> None:
    def choose() -> list[int]:
        reservoir: Reservoir[int] = Reservoir(size, random.Random(seed).random)
        for number in range(count):
            reservoir.show(number)
        return reservoir.chosen()

    chosen = choose()
    assert chosen == choose() == sorted(set(chosen))
    assert len(chosen) == min(size, count)


def test_every_item_has_the_same_chance() -> None:
    hits = [0] * 10
    rng = random.Random(1)
    for _ in range(4000):
        reservoir: Reservoir[int] = Reservoir(3, rng.random)
        for number in range(10):
            reservoir.show(number)
        for number in reservoir.chosen():
            hits[number] += 1
    assert all(1050 <= hit <= 1350 for hit in hits), hits  # 1200 expected


async def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    async def peak(count: int) -> int:
        path = tmp_path / f"{count}.csv"
        with path.open("w") as file:
            file.write("a,b\n")
            file.writelines(f"{n},{'x' * 50}\n" for n in range(count))
        source = CsvSource(path=path.name)
        tracemalloc.start()
        seen = sum(1 for _ in read_items(source, tmp_path))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert seen == count
        return used

    assert await peak(12_000) < await peak(1_500) * 1.5


async def test_a_stream_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a\n" + "1\n" * 5000)
    found = taking(tmp_path, {"from": {"type": "csv", "path": "x.csv"}})
    assert await anext(found) == {"a": "1"}
    await found.aclose()  # type: ignore[attr-defined]
