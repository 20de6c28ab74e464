"""A child process that maps many items and may be killed; the model counts its calls."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.ai.kit.model_server import Asked, Model, Say
from tests.kit import ROOT
from tests.pipelines.kit import write
from tests.pipelines.kit.live_app import prompt_of

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


GRAPH = f"""
name: Many
nodes:
  rows: {{kind: load, source: {{type: csv, path: items.csv}}}}
  all: {{kind: filter, from: rows, rule: {{type: field, field: n, op: gte, value: 0}}}}
  twice:
    kind: map
    from: all
    prompt: "Double {{{{n}}}}"
    output: [{{name: double, type: integer}}]
    parallel: {PARALLEL}
  end: {{kind: reduce, from: twice, type: json}}
"""
FORMS = {"linear": MANY, "graph": GRAPH}


def doubled(asked: Asked) -> Say:
    number = int(prompt_of(asked).split()[1])
    return Say(text=json.dumps({"double": 2 * number}))


class Counting(Model):
    """A model that says when it has been asked so often; the last `hanging` of these get no
    answer."""

    def __init__(self, at: int, hanging: int = 0) -> None:
        super().__init__(answer=self._answer)
        self._at, self._hanging = at, hanging
        self.half = asyncio.Event()

    def _answer(self, asked: Asked) -> Say:
        hangs = self._at - self._hanging < len(self.asked) <= self._at
        if len(self.asked) >= self._at:
            self.half.set()
        return Say(way="hang") if hangs else doubled(asked)


async def child(*words: str, key: str = "secret") -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.pipelines.kit.child", *words, cwd=ROOT,
        env={**os.environ, "ROTA_TEST_KEY": key}, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def received(process: asyncio.subprocess.Process) -> str:
    out, err = await asyncio.wait_for(process.communicate(), 100)
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


def put_items(folder: Path, count: int, form: str = "linear") -> Path:
    write(folder, FORMS[form])
    (folder / "items.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(count)))
    return folder


def check_output(folder: Path, count: int) -> None:
    [file] = (folder / ".results").glob("*.json")
    stored: dict[str, Any] = json.loads(file.read_text())
    rows = json.loads(stored["output"])
    assert [row["input"]["n"] for row in rows] == [str(n) for n in range(count)]
    assert [row["output"]["double"] for row in rows] == [2 * n for n in range(count)]
