"""The page of a pipeline run reaches every item: in pages, by status, by number."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from rota.http.pages import pipeline_run
from tests.ai.kit.model_server import Model, Say
from tests.http.kit import browsing
from tests.pipelines.kit.live_app import says, world

COUNT = 47
SQUARE = re.compile(r'<span class="i-\w+" title="(\d+): ')
ROW = re.compile(r'<tr data-key="i(\d+)"')
PIPELINE = f"""
name: Numbers
input: {{items: [{", ".join(f"{{title: t{n}}}" for n in range(COUNT))}]}}
map: {{prompt: "About {{{{title}}}}", retry: {{maxRetries: 0}}, parallel: 10}}
reduce: {{type: json}}
"""


def answer(prompt: str) -> object:
    refused = int(prompt.removeprefix("About t")) % 10 == 3
    return Say(status=400, raw=b'{"error": "no"}') if refused else "fine"


async def test_every_item_is_reached_in_pages_by_status_and_by_number(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_run, "GRID_MAX", 20)
    monkeypatch.setattr(pipeline_run, "ITEMS_SIZE", 7)
    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        await it.run(PIPELINE)
        run_id = (await it.app.runs.list())[0].id
        async with browsing(it.app) as http:

            async def read(path: str) -> str:
                found = await http.get(path)
                assert found.status_code == 200, found.text
                return html.unescape(found.text)

            async def walked(kind: str, pattern: re.Pattern[str], query: str = "") -> list[int]:
                """The numbers that all pages of the squares, or of the rows, have."""
                numbers: list[int] = []
                path: str | None = f"/pipeline-runs/{run_id}{query}"
                while path is not None:
                    text = await read(path)
                    numbers += [int(one) for one in pattern.findall(text)]
                    links = re.findall(rf'href="([^"]+)#{kind}" rel="next"', text)
                    path = links[0] if links else None
                return numbers

            everything = list(range(1, COUNT + 1))
            assert await walked("grid", SQUARE) == everything
            assert await walked("items", ROW) == list(range(COUNT))
            failed = [4, 14, 24, 34, 44]
            assert await walked("grid", SQUARE, "?status=failed") == failed
            assert [one + 1 for one in await walked("items", ROW, "?status=failed")] == failed
            at = await read(f"/pipeline-runs/{run_id}?item=33")
            assert ROW.findall(at)[0] == "32"
            assert SQUARE.findall(at)[0] == "21"
            assert "searched 21 to 40 of 47" in at
            for odd in ("grid=x", "grid=99999999", "item=0", "item=-1", "after=9" * 2):
                await read(f"/pipeline-runs/{run_id}?{odd}")
