"""kill -9 in the middle of a run: what was paid for is kept, and the result is right."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ai.model import Asked, Model, Say
from tests.kit import ROOT
from tests.pipelines.kit import write
from tests.pipelines.world import prompt_of

PARALLEL = 8

MANY = f"""
name: Many
input:
  from: {{type: csv, path: items.csv}}
map:
  prompt: "Double {{{{n}}}}"
  output: [{{name: double, type: integer}}]
  parallel: {PARALLEL}
reduce:
  type: json
"""


def doubled(asked: Asked) -> Say:
    number = int(prompt_of(asked).split()[1])
    return Say(text=json.dumps({"double": 2 * number}))


class Counting(Model):
    """A model that says when it has answered so many."""

    def __init__(self, at: int) -> None:
        super().__init__(answer=self._answer)
        self._at = at
        self.half = asyncio.Event()

    def _answer(self, asked: Asked) -> Say:
        if len(self.asked) >= self._at:
            self.half.set()
        return doubled(asked)


async def child(*words: str, key: str = "secret") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.pipelines.child", *words, cwd=ROOT,
        env={**os.environ, "ROTA_TEST_KEY": key}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def heard(process: asyncio.subprocess.Process) -> str:
    out, err = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


def put_items(folder: Path, count: int) -> Path:
    write(folder, MANY)
    (folder / "items.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(count)))
    return folder


@pytest.mark.slow
async def test_a_killed_run_pays_for_no_item_twice(database_url: str, tmp_path: Path) -> None:
    count = 1000 if database_url.startswith("sqlite") else 200
    folder = put_items(tmp_path / "many", count)
    model = Counting(count // 2)
    async with model.up():
        words = (database_url, str(folder), model.url)
        first = await child(*words)
        await asyncio.wait_for(model.half.wait(), 60)
        first.kill()
        await first.wait()
        (folder / "items.csv").unlink()  # what the run began with is written down
        (folder / "items.csv").write_text("n\n1\n")
        assert await heard(await child(*words)) == f"completed {count} {count}"
        asked = [prompt_of(each).splitlines()[0] for each in model.asked]
    assert len(set(asked)) == count
    assert count <= len(asked) <= count + PARALLEL
    check_output(folder, count)


def check_output(folder: Path, count: int) -> None:
    [file] = (folder / ".results").glob("*.json")
    stored: dict[str, Any] = json.loads(file.read_text())
    rows = json.loads(stored["output"])
    assert [row["input"]["n"] for row in rows] == [str(n) for n in range(count)]
    assert [row["output"]["double"] for row in rows] == [2 * n for n in range(count)]
