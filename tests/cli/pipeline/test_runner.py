"""The runs of a pipeline are read in pages, and no further than needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.ai.offline import Offline
from rota.cli.pipeline.runner import runs_of

PIPELINE = """
name: Words
job:
  prompt: Say tea
"""


@pytest.mark.parametrize(("size", "pages"), [(2, [2, 1]), (3, [3, 0]), (50, [3])])
async def test_a_short_page_of_runs_is_the_last(
    tmp_path: Path, size: int, pages: list[int]
) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(PIPELINE)
    app = Rota(f"sqlite:///{tmp_path}/rota.db")
    app.pipelines.use(Offline())
    await app.connect()
    started = [(await app.pipelines.start(folder, model="offline:x")).id for _ in range(3)]
    read, listed = [], app.runs.list

    async def counted(**filters: Any) -> Any:
        page = await listed(**filters)
        read.append(len(page))
        return page

    app.runs.list = counted  # type: ignore[method-assign]
    assert [run.id async for run in runs_of(app, folder, size)] == started[::-1]
    await app.close()
    assert read == pages
