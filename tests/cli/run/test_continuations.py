"""`rota run show` of a chain that continues as new."""

from __future__ import annotations

import pytest

import rota
from rota import Rota
from rota.cli.run import page
from rota.testing import virtual


async def test_show_names_the_runs_before_and_after(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Rota()

    @app.step
    async def note(n: int) -> int:
        return n

    @app.workflow
    async def count(n: int) -> int:
        await note(n)
        if n < 3:
            raise rota.continue_as_new(n + 1)
        return n

    async with virtual(app, url=database_url) as world:
        run = await count.options(external_id="c").start(1)
        await world.drain()
        chain = await app.runs.chain(run.id)
        ids = [one.id[-8:] for one in chain]
        for name in ("c", run.id, chain[1].id):
            content = await page.read(app, name)
            page.print_page(content)
            text = capsys.readouterr().out
            assert text.startswith(f"run {ids[2]}  count  completed\n")
            assert f"continues   run {ids[1]} (2 continuations in all)" in text
            assert f"continued as {ids[1]}" in text
            assert f"continued as {ids[2]}" in text
            assert 'input       {"n":3}' in text
            assert page.document(content)["run"]["segment_id"] == chain[2].id
            assert [step["output"] for step in page.document(content)["steps"]] == [3]
