"""kill -9 in the middle of a run: paid results are kept, and the result is right."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.pipelines.kit.killed_child import (
    PARALLEL,
    Counting,
    check_output,
    child,
    put_items,
    received,
)
from tests.pipelines.kit.live_app import prompt_of


@pytest.mark.slow
async def test_a_killed_run_pays_for_no_item_twice(database_url: str, tmp_path: Path) -> None:
    count = 400 if database_url.startswith("sqlite") else 200
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
        outcome, processed, calls, unanswered = (await received(await child(*words))).split()
        asked = [prompt_of(each).splitlines()[0] for each in model.asked]
    assert (outcome, int(processed)) == ("completed", count)
    # The model was asked again only for calls that were in progress at the kill. The end of a call
    # is in the commit of its result, so each item has one answered call.
    answered = int(calls) - int(unanswered)
    assert len(set(asked)) == count == answered
    assert int(unanswered) <= PARALLEL
    assert len(asked) - count <= PARALLEL
    check_output(folder, count)


@pytest.mark.slow
async def test_a_killed_run_shows_exactly_the_calls_that_the_model_counted(
    database_url: str, tmp_path: Path
) -> None:
    """At the kill every call in progress has arrived, and none will be answered."""
    count = 40
    folder = put_items(tmp_path / "many", count)
    model = Counting(20, hanging=PARALLEL)
    async with model.up():
        words = (database_url, str(folder), model.url)
        first = await child(*words)
        await asyncio.wait_for(model.half.wait(), 60)
        first.kill()
        await first.wait()
        shown = await received(await child(*words))
    assert shown == f"completed {count} {model.usage.calls} {PARALLEL}"
    assert model.usage.calls == count + PARALLEL
    check_output(folder, count)
