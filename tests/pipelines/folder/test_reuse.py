"""`reuse: last` of a schedule: an answer is paid for once, however often the pipeline runs."""

from __future__ import annotations

from functools import partial

from rota.errors import Rejected
from tests.pipelines.kit.virtual_folder import FolderWorld, Gated

GROWING = """
name: Growing
schedule:
  cron: "0 9 * * *"
  timezone: UTC
  retryPolicy: {maxRetries: 0}
  reuse: last
settings: {retry: {maxRetries: 0}}
input: {from: {type: csv, path: a.csv}}
map: {prompt: "About {{title}}"}
reduce: {type: csv}
"""


def rows(world: FolderWorld, count: int) -> None:
    """A table of so many rows."""
    lines = ["title", *(f"title {number}" for number in range(count))]
    (world.root / "growing" / "a.csv").write_text("\n".join(lines) + "\n")


async def executions(world: FolderWorld, counts: list[int]) -> None:
    """Let the schedule come once for each number of rows."""
    async with world.daemon():
        for number, count in enumerate(counts, start=1):
            rows(world, count)
            world.pass_time("9h" if number == 1 else "1d")
            await world.until(partial(world.has_run, "growing", number))


async def test_three_executions_of_a_growing_table_pay_for_each_row_once(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("growing", GROWING)
    await executions(folder_world, [51, 52, 53])
    assert folder_world.model.calls == 53
    assert folder_world.state("growing")["lastRun"]["itemsProcessed"] == 53


async def test_without_reuse_every_row_is_asked_about_each_time(small: FolderWorld) -> None:
    small.write("growing", GROWING.replace("  reuse: last\n", ""))
    await executions(small, [3, 4])
    assert small.model.calls == 7


async def test_an_execution_that_failed_early_loses_no_answer(small: FolderWorld) -> None:
    """The second execution fails at once; the third finds the answers of the first."""
    small.model = Gated(*"abcde", Rejected("no"))
    small.write("growing", GROWING.replace("map: {", "map: {failFast: true, parallel: 1, "))
    async with small.daemon():
        rows(small, 5)
        small.pass_time("9h")
        await small.until(lambda: small.total("growing") == 1)
        (small.root / "growing" / "a.csv").write_text("title\nnew\ntitle 4\n")
        small.pass_time("1d")
        await small.until(lambda: small.total("growing") == 2)
        assert small.state("growing")["lastRun"]["success"] is False
        rows(small, 5)
        small.pass_time("1d")
        await small.until(lambda: small.total("growing") == 3)
    assert small.model.calls == 5 + 1
    assert small.state("growing")["lastRun"]["itemsProcessed"] == 5
