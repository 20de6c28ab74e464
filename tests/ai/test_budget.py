"""Budgets: never passed by what was estimated right, and settled to the last billionth."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from rota.ai import Budget, Budgeted, Estimate, Offline, Prices, Reply, Request
from rota.ai.base import passing
from rota.ai.budget import NANO, NOTHING, Amount, Limit
from rota.errors import BadSetting, BudgetSpent, NeedsLogin, Transient

limits = st.one_of(st.none(), st.integers(0, 3000))


class Call(NamedTuple):
    """A call of the property: its estimate, the share of it that it takes, and whether the oldest
    call in progress is answered next."""

    nano_usd: int
    tokens: int
    share: float
    settles: bool


calls_made = st.lists(
    st.builds(Call, st.integers(0, 1000), st.integers(0, 1000), st.floats(0, 1), st.booleans()),
    max_size=40,
)


@given(limits, limits, st.one_of(st.none(), st.integers(0, 20)), calls_made)
def test_a_budget_is_never_passed_while_estimates_are_high_enough(
    nano_usd: int | None, tokens: int | None, calls: int | None, made: list[Call]
) -> None:
    dollars = None if nano_usd is None else nano_usd / NANO
    asyncio.run(_spend(Budget(dollars, tokens, calls), Limit(nano_usd, tokens, calls), made))


async def _spend(budget: Budget, limit: Limit, made: list[Call]) -> None:
    answers: list[asyncio.Event] = []  # of the calls in progress
    paid: list[Amount] = []

    async def spend(one: Call) -> None:
        answer = asyncio.Event()
        try:
            async with budget.spending(guess(one.tokens, one.nano_usd / NANO)) as call:
                answers.append(answer)
                await answer.wait()
                used = Amount(int(one.nano_usd * one.share), int(one.tokens * one.share), 1)
                call.paid(reply(used.tokens, used.nano_usd / NANO))
                paid.append(used)
        except BudgetSpent:
            assert answer not in answers, "refused after it began"

    async def settled() -> None:
        for _ in range(2 * len(made) + 5):
            await asyncio.sleep(0)
        for most, gone in zip(astuple(limit), astuple(budget.spent + budget.held), strict=True):
            assert most is None or gone <= most

    tasks = []
    for one in made:
        tasks.append(asyncio.create_task(spend(one)))
        await settled()
        if one.settles and answers:
            answers.pop(0).set()
            await settled()
    while answers:
        answers.pop(0).set()
        await settled()
    assert all(task.done() for task in tasks), "waits for nobody"
    await asyncio.gather(*tasks)
    assert budget.held == NOTHING
    assert budget.spent == sum(paid, NOTHING)


def reply(tokens: int, cost: float | None = None) -> Reply:
    return Reply("x", "m", tokens, 0, cost)


def guess(tokens: int, cost: float | None = None) -> Estimate:
    return Estimate("m", tokens, 0, cost)


async def test_a_call_that_would_pass_the_budget_is_not_made() -> None:
    inner = Offline(replies=lambda request: "x" * 40)
    ai = Budgeted(inner, Budget(limit_tokens=100))
    for _ in range(3):
        await ai.ask(Request("m", "x" * 40, max_tokens=10))
    assert ai.budget.spent_tokens == 84
    with pytest.raises(BudgetSpent, match="84 of 100 tokens") as raised:
        await ai.ask(Request("m", "x" * 40, max_tokens=10))
    assert inner.calls == 3
    assert raised.value.facts["spent_tokens"] == 84
    assert ai.budget.spent_tokens == 84


async def test_dollars_are_counted_without_drift() -> None:
    budget = Budget(limit_usd=1.0)
    for _ in range(10):
        async with budget.spending(guess(1, 0.1)) as call:
            call.paid(reply(1, 0.1))
    assert budget.spent_usd == 1.0
    with pytest.raises(BudgetSpent):
        async with budget.spending(guess(1, 0.0000001)):
            pass


async def test_a_call_waits_while_those_under_way_may_leave_tokens() -> None:
    budget = Budget(limit_tokens=100)
    begun: list[str] = []
    gate = asyncio.Event()

    async def first() -> None:
        async with budget.spending(guess(80)) as call:
            begun.append("first")
            await gate.wait()
            call.paid(reply(20))

    async def second() -> None:
        async with budget.spending(guess(60)) as call:
            begun.append("second")
            call.paid(reply(60))

    tasks = [asyncio.create_task(first()), asyncio.create_task(second())]
    for _ in range(5):
        await asyncio.sleep(0)
    assert begun == ["first"]
    gate.set()
    await asyncio.gather(*tasks)
    assert begun == ["first", "second"]
    assert budget.spent_tokens == 80


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (passing("429"), 0),
        (passing("timeout", sent=True), 80),
        (NeedsLogin("no key"), 0),
        (ValueError("ours"), 0),
        (asyncio.CancelledError(), 80),
    ],
)
async def test_a_call_without_an_answer_counts_only_if_it_may_be_billed(
    error: BaseException, counted: int
) -> None:
    budget = Budget(limit_tokens=100)
    with pytest.raises(type(error)):
        async with budget.spending(guess(80)):
            raise error
    assert (budget.spent_tokens, budget.held.tokens) == (counted, 0)


async def test_a_budget_in_dollars_needs_a_price() -> None:
    unknown = Offline("mine", prices=Prices())
    with pytest.raises(BadSetting, match="no price is known for m"):
        await Budgeted(unknown, Budget(limit_usd=1)).ask(Request("m", "x"))
    assert unknown.calls == 0
    await Budgeted(unknown, Budget(limit_tokens=5000)).ask(Request("m", "x"))


async def test_a_budget_goes_on_where_it_was_left() -> None:
    budget = Budget(limit_tokens=100)
    budget.spent = Amount(0, 90, calls=3)
    with pytest.raises(BudgetSpent):
        async with budget.spending(guess(11)):
            pass
    async with budget.spending(guess(10)) as call:
        call.paid(reply(25))
    assert budget.spent_tokens == 115  # an estimate that was too low: reported, and the last one
    with pytest.raises(BudgetSpent):
        async with budget.spending(guess(0)):
            pass


@pytest.mark.parametrize("limit", [-1, float("nan"), float("inf")])
def test_a_budget_that_cannot_be_is_refused(limit: Any) -> None:
    with pytest.raises(BadSetting):
        Budget(limit_usd=limit)


async def test_a_failed_call_under_a_budget_keeps_its_error() -> None:
    ai = Budgeted(Offline(replies=[passing("away")]), Budget(limit_tokens=5000))
    with pytest.raises(Transient, match="away"):
        await ai.ask(Request("m", "x"))
    assert ai.budget.spent_tokens == 0


async def test_a_spent_budget_says_how_much_of_it_is_assumed() -> None:
    budget = Budget(limit_usd=1.0)
    with pytest.raises(Transient):
        async with budget.spending(guess(10, 0.4)):
            raise passing("no answer", sent=True)
    async with budget.spending(guess(10, 0.5)) as call:
        call.paid(reply(10, 0.5))
    with pytest.raises(
        BudgetSpent, match=r"\$0\.9000 of \$1\.0000 \(up to \$0\.4000 of it assumed"
    ):
        async with budget.spending(guess(10, 0.2)):
            pass
