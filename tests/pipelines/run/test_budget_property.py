"""Random answers, parallelism, failures and crashes: what is charged never passes the budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.ai.base import Request, passing
from rota.ai.budget import NANO, Budget
from rota.ai.finish import CHAT
from rota.ai.openai import OpenAI
from rota.ai.prices import Prices
from rota.ai.provider_call import ReplyParser
from rota.ai.routes import ModelRoute
from rota.core.runs.model import StoredStep
from rota.engine.clock import SystemClock
from rota.errors import BadReply, BudgetSpent, RotaError
from rota.pipelines.definition.sections import CallOptions, PipelineBudget, Retry
from rota.pipelines.run import call_ledger
from rota.pipelines.run.call_ledger import CallLedger, CallTotals, Slot
from rota.pipelines.run.model_caller import ModelCaller, Usage
from rota.pipelines.run.prompt_builder import ModelPrompt

PRICES = Prices({"bank:*": [1.0, 2.0]})
EXACT = "exact"
NOT_CHARGED = (429, 500, 503, 529)


class Answer(NamedTuple):
    """How the provider behaves about one call."""

    tokens: int  # it would like to say
    way: str  # answer, break (charged, no reply)
    rounds: int  # of the event loop until then
    status: int = 200
    finish: str = "stop"
    usage: Any = EXACT  # what it reports


class Bank(OpenAI):
    """A provider that keeps to `max_tokens`, and counts what it charges. Only the network is not
    real."""

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__("bank", prices=PRICES, env={"OPENAI_API_KEY": "sk"})
        self._answers = iter(answers)
        self.calls = self.tokens = 0
        self.cost_usd = 0.0

    async def _post(self, request: Request, parser: ReplyParser) -> None:
        answer = next(self._answers, Answer(1, "answer", 0))
        if answer.status in NOT_CHARGED:
            raise self._refused(answer.status, b"{}", {})
        asked = len(request.prompt)
        said = min(answer.tokens, request.max_tokens or answer.tokens)
        self.calls += 1  # charged from here on, whatever the caller gets
        self.tokens += asked + said
        self.cost_usd += (asked + 2 * said) / 1e6
        for _ in range(answer.rounds):
            await asyncio.sleep(0)
        if answer.way == "break":
            raise passing("hung up", sent=True)
        if answer.status != 200:
            raise self._refused(answer.status, b"{}", {})
        exact = {"prompt_tokens": asked, "completion_tokens": said}
        usage = exact if answer.usage == EXACT else answer.usage
        choice = {"message": {"content": "x"}, "finish_reason": answer.finish}
        parser.whole({"model": "m", "choices": [choice], "usage": usage})


class Disk:
    """The records written before the process died."""

    def __init__(self) -> None:
        self.steps: dict[str, str] = {}
        self.crashed = False

    async def put(self, slots: Sequence[Slot]) -> None:
        written = {slot.key: msgspec.json.encode(slot.record).decode() for slot in slots}
        await asyncio.sleep(0)
        if self.crashed:
            raise asyncio.CancelledError
        self.steps |= written
        await asyncio.sleep(0)

    async def read(self) -> AsyncIterator[StoredStep]:
        for key, text in self.steps.items():
            yield StoredStep(
                root_id="r", key=key, position=0, kind="usage", status="completed", attempt=1,
                run_attempt=1, output=text, error=None, wake_at=None, child_id=None,
                started_at=0, finished_at=0,
            )  # fmt: skip


def question(tokens_max: int | None) -> ModelPrompt:
    return ModelPrompt(
        "7 " * 500, ModelRoute("", "m", "m"), [], 10.0, Retry(max_retries=1, retry_delay_ms=0),
        options=CallOptions(max_tokens=tokens_max),
    )  # fmt: skip


counts = st.sampled_from([None, 0, -5, 12.7, 1e20, "12", True, 10**30])
usages: st.SearchStrategy[Any] = st.none() | st.just({}) | st.just("many") | st.fixed_dictionaries(
    {"prompt_tokens": counts, "completion_tokens": counts}
)  # fmt: skip
answers = st.builds(
    Answer,
    st.integers(1, 9000),
    st.sampled_from(["answer", "answer", "answer", "break"]),
    st.integers(0, 6),
    st.sampled_from([200] * 12 + [408, 499, 504, 520, 524, *NOT_CHARGED]),
    st.sampled_from(["stop"] * 10 + [*CHAT, "quantum_flux"]) | st.text(max_size=5),
    st.just(EXACT) | st.just(EXACT) | usages,
)
budgets = st.builds(
    PipelineBudget,
    max_cost=st.none() | st.floats(0, 0.1),
    max_tokens=st.none() | st.integers(1, 60_000),
    max_calls=st.none() | st.integers(1, 30),
)


class Scenario:
    """The processes of one run, one after the other."""

    def __init__(self, budget: PipelineBudget, said: list[Answer], tokens_max: int | None) -> None:
        self.bank, self.disk = Bank(said), Disk()
        self._budget, self._question = budget, question(tokens_max)
        self.unreadable = 0  # so many replies

    async def live(self, number: int, parallel: int, rounds: int | None) -> None:
        """One process: it works until its budget is spent, or it is killed."""
        self.disk.crashed = False
        ledger = CallLedger(self.disk.put, f"w{number}")
        limits = self._budget
        budget = Budget(limits.max_cost, limits.max_tokens, limits.max_calls)
        budget.spent = (await call_ledger.totals(self.disk.read())).spent
        caller = ModelCaller(self.bank, SystemClock(), ledger, [budget])
        work = iter(range(40))
        slots = [asyncio.create_task(self._slot(caller, ledger, work)) for _ in range(parallel)]
        if rounds is not None:
            for _ in range(rounds):
                await asyncio.sleep(0)
            self.disk.crashed = True  # nothing is written any more
            for task in slots:
                task.cancel()
        await asyncio.gather(*slots, return_exceptions=True)

    async def _slot(self, caller: ModelCaller, ledger: CallLedger, work: Iterator[int]) -> None:
        for _ in work:
            usage = Usage()
            try:
                await caller.ask(self._question, usage, self._read)
                await ledger.write(usage.owed)  # with the result
            except BudgetSpent:
                return
            except RotaError:
                continue

    def _read(self, text: str) -> str:
        if self.unreadable:
            self.unreadable -= 1
            raise BadReply("no number")
        return text

    @property
    def is_bounded(self) -> bool:
        """Whether something bounds the answers: without that, nothing is the most they take."""
        limits = self._budget
        bounds = (limits.max_cost, limits.max_tokens, self._question.options.max_tokens)
        return any(bound is not None for bound in bounds)

    def check(self) -> None:
        bank, budget = self.bank, self._budget
        assert budget.max_calls is None or bank.calls <= budget.max_calls
        assert budget.max_tokens is None or bank.tokens <= budget.max_tokens
        assert budget.max_cost is None or bank.cost_usd <= budget.max_cost + 1e-9


@settings(deadline=None)
@given(
    budget=budgets,
    said=st.lists(answers, max_size=60),
    parallel=st.integers(1, 12),
    crashes=st.lists(st.integers(1, 60), max_size=3),
    tokens_max=st.none() | st.integers(1, 5000),
)
def test_no_run_is_charged_more_than_its_budget(
    budget: PipelineBudget,
    said: list[Answer],
    parallel: int,
    crashes: list[int],
    tokens_max: int | None,
) -> None:
    trace = Scenario(budget, said, tokens_max)

    async def reported() -> CallTotals:
        for number, rounds in enumerate([*crashes, None]):
            await trace.live(number, parallel, rounds)
        return await call_ledger.totals(trace.disk.read())

    found = asyncio.run(reported())
    trace.check()
    assert found.calls - found.unanswered <= trace.bank.calls <= found.calls
    # The bill is at least the certain part, and at most the certain and the assumed part.
    assert found.tokens <= trace.bank.tokens
    assert found.cost_usd <= trace.bank.cost_usd + 1e-9
    if trace.is_bounded:
        assert trace.bank.tokens <= found.tokens + found.assumed_tokens
        most_usd = found.cost_usd + found.assumed_nano_usd / NANO
        assert trace.bank.cost_usd <= most_usd + 1e-9
    if not found.unanswered and not found.estimated:
        assert found.tokens == trace.bank.tokens


async def test_a_failed_try_is_written_before_the_next_one() -> None:
    """A kill during the next try must not count the failed one, which was never charged."""
    trace = Scenario(
        PipelineBudget(), [Answer(1, "answer", 0, status=500), Answer(1, "answer", 50)], None
    )
    life = asyncio.create_task(trace.live(0, 1, None))
    while not trace.bank.calls:
        await asyncio.sleep(0)
    shown = await call_ledger.totals(trace.disk.read())
    life.cancel()
    assert (shown.calls, shown.unanswered) == (1, 1)


async def test_a_call_that_is_cancelled_before_it_is_sent_does_not_count() -> None:
    trace = Scenario(PipelineBudget(), [Answer(1, "answer", 0)], None)
    life = asyncio.create_task(trace.live(0, 1, None))
    while not trace.disk.steps:  # announced, and the model has not been asked yet
        await asyncio.sleep(0)
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    assert trace.bank.calls == 0
    assert await call_ledger.totals(trace.disk.read()) == CallTotals()


async def test_an_unreadable_reply_is_written_before_it_is_asked_for_again() -> None:
    """A kill during the second question must not make the first one a call without an answer."""
    trace = Scenario(PipelineBudget(), [Answer(1, "answer", 0), Answer(1, "answer", 50)], None)
    trace.unreadable = 1
    life = asyncio.create_task(trace.live(0, 1, None))
    while trace.bank.calls < 2:
        await asyncio.sleep(0)
    shown = await call_ledger.totals(trace.disk.read())
    life.cancel()
    assert (shown.calls, shown.unanswered) == (2, 1)
