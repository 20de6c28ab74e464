"""Budgets in the database: for a day, a month and a shared run, exact across machines and kills."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.ai.base import Reply, Request
from rota.ai.budget import Amount, Budget
from rota.ai.shared_budgets import RESERVED_US, Account, AccountRow, SharedBudget
from rota.engine.clock import SystemClock
from rota.errors import BudgetSpent, RunFailed
from tests.ai.kit.model_server import Model, Say
from tests.pipelines.kit.live_app import echoes, world
from tests.pipelines.kit.virtual_folder import FolderWorld

LIMIT = Budget(limit_tokens=100).limit
DAILY = """
name: Daily
settings: {budget: {perDay: {maxCalls: 3}}, retry: {maxRetries: 0}}
input: {items: [{w: a}, {w: b}]}
map: {prompt: "Say {{w}}", parallel: 1}
reduce: {type: json}
"""
WITH_SCHEDULE = DAILY + 'schedule: {cron: "0 9 * * *", timezone: UTC}\n'

steps = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "kill", "later"]), st.integers(1, 60)),
    max_size=40,
)


@given(steps)
@settings(max_examples=200)
def test_what_is_spent_and_reserved_never_passes_the_limit(said: list[tuple[str, int]]) -> None:
    account, now, numbers, taken = Account(), 0, itertools.count(), 0
    for word, number in said:
        account = account.at("", now)
        if word == "reserve":
            key = f"p{number % 3}/{next(numbers)}"
            amount = Amount(0, number, 1)
            account, verdict = account.reserve(LIMIT, key, amount, now + RESERVED_US)
            taken += number if verdict == "go" else 0  # the provider charges the most
        elif word == "settle" and account.reserved:
            key = min(account.reserved)
            account = account.settle(key, account.reserved[key].amount)
        elif word == "kill":
            account = account.forfeit(f"p{number % 3}/")
        else:
            now += number * RESERVED_US // 30
        held = sum(each.amount.tokens for each in account.reserved.values())
        assert account.spent.tokens + held <= 100
        assert taken == account.spent.tokens + held


def test_a_clock_that_is_behind_brings_no_period_back() -> None:
    today = Account("2026-11-20", Amount(0, 90, 1))
    assert today.at("2026-11-19", 0) == today
    assert today.at("2026-11-21", 0) == Account("2026-11-21")


def test_a_reservation_of_a_dead_process_counts_in_full_and_a_late_settlement_changes_nothing() -> (
    None
):
    account, _ = Account().reserve(LIMIT, "p/1", Amount(0, 60, 1), 5)
    account = account.at("", 5)
    assert (account.spent, account.reserved) == (Amount(0, 60, 1), {})
    assert account.settle("p/1", Amount(0, 1, 1)) == account


async def test_runs_of_one_day_share_a_budget_and_the_next_day_has_its_own(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", WITH_SCHEDULE)
    async with folder_world.daemon() as scheduler:
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        assert folder_world.model.calls == 2
        [shown] = await scheduler.list_schedules()
        with pytest.raises(RunFailed, match="for 2030-01-01 is used up"):
            await scheduler.trigger_now(shown.schedule_id)
        await folder_world.until(lambda: folder_world.total("daily") == 2)
        assert folder_world.model.calls == 3
        error = folder_world.state("daily")["lastRun"]["error"]
        assert "the budget of pipeline daily for 2030-01-01 is used up: 3 of 3 calls" in error
        folder_world.pass_time("1d")
        await folder_world.until(lambda: folder_world.total("daily") == 3)
        assert folder_world.model.calls == 5
        assert folder_world.state("daily")["lastRun"]["success"] is True


async def test_machines_at_the_same_time_pass_no_budget(database_url: str, tmp_path: Path) -> None:
    """Two apps, each with a process of its own in the row, ask as fast as they can."""
    async with world(database_url, tmp_path, Model(answer=echoes)) as it:
        database = it.app.connection.database
        asked = 0

        async def spend(machine: int) -> None:
            nonlocal asked
            row = AccountRow(database, namespace="default", name="p:day")
            budget = SharedBudget(
                row, SystemClock(), Budget(limit_calls=25), holder=f"m{machine}", period="day",
                of="p",
            )  # fmt: skip
            estimate = it.app.pipelines._invoker().estimate(Request("", "hello", max_tokens=10))
            with contextlib.suppress(BudgetSpent):
                for _ in range(20):
                    async with budget.spending(estimate) as call:
                        await asyncio.sleep(0)
                        asked += 1
                        call.paid(Reply("x", "m", 1, 1, 0.0))

        await asyncio.gather(*(spend(machine) for machine in range(3)))
        assert asked == 25


class Impatient:
    """A clock that does not move; a budget that waits by it fails."""

    def now(self) -> int:
        return 1_900_000_000_000_000

    async def wait(self, event: asyncio.Event, until: int) -> None:
        raise AssertionError("the budget waits")


async def test_a_call_of_a_dead_process_counts_when_its_run_is_claimed_again(
    database_url: str, tmp_path: Path
) -> None:
    """The claim after the kill does not wait for a call of the dead process."""
    async with world(database_url, tmp_path) as it:
        database = it.app.connection.database
        estimate = it.app.pipelines._invoker().estimate(Request("", "hello", max_tokens=10))

        def budget(holder: str) -> SharedBudget:
            row = AccountRow(database, namespace="default", name="p:day")
            limit = Budget(limit_calls=2)
            return SharedBudget(row, Impatient(), limit, holder=holder, period="day", of="p")

        first, second = budget("run.1"), budget("run.2")
        async with first.spending(estimate):  # the process is killed: it does not settle in time
            await second.open("run.")
            async with second.spending(estimate) as call:
                call.paid(Reply("x", "m", 1, 1, 0.0))
            with pytest.raises(BudgetSpent, match="2 of 2 calls"):
                async with second.spending(estimate):
                    pass


async def test_the_calls_of_a_run_that_was_killed_count_for_its_day(
    database_url: str, tmp_path: Path
) -> None:
    """The call in progress at the kill may be on the bill, so it takes its place in the budget."""
    async with world(database_url, tmp_path, Model(Say(way="hang"), answer=echoes)) as it:
        ref = await it.app.pipelines.start(it.pipeline(DAILY))
        await asyncio.wait_for(it.model.reached.wait(), 60)
        await it.app.stop_worker(0)  # the claim ends, and the call has no end
        await it.app.start_worker()
        await it.stopped(ref.id)
        result = await it.run(DAILY)
        assert len(it.model.asked) == 3
        assert result.outcome == "failed"


@pytest.mark.pg
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_run_with_a_budget_is_shared_and_keeps_to_it(
    database_url: str, tmp_path: Path
) -> None:
    rows = "\n".join(["w", *map(str, range(600))])
    text = """
name: Many
settings: {budget: {maxCalls: 450}, retry: {maxRetries: 0}}
input: {from: {type: csv, path: rows.csv}}
map: {prompt: "Say {{w}}", parallel: 20}
reduce: {type: csv}
"""
    async with world(database_url, tmp_path, Model(answer=echoes)) as it:
        it.app.pipelines.serve()
        await it.app.stop_worker(0)
        await it.app.start_worker()
        folder = it.pipeline(text)
        (folder / "rows.csv").write_text(rows)
        ref = await it.app.pipelines.start(folder)
        result = await it.stopped(ref.id)
        steps = await it.app.runs.steps(ref.id)
        assert sum(step.key.startswith("pt/") for step in steps) == 3
        assert (result.outcome, len(it.model.asked)) == ("failed", 450)
        assert "450 of 450 calls" in str(result.error)
