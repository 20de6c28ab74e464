"""The bill of a run: its calls with the names that the provider gave them, certain or assumed.

A person compares it with the provider's own, and corrects the cost of an assumed call. A correction
is a step of the chain, `co/<key of the call>`; the budget of a later `resume` counts it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from rota.ai.budget import NANO
from rota.core.time.instants import iso_if_known
from rota.errors import BadInput
from rota.pipelines.outcome import AssumedCost, CostReport
from rota.pipelines.run import call_ledger
from rota.pipelines.run.call_ledger import AssumedCall, Correction, SlotRecord
from rota.pipelines.run.run_store import RunReader
from rota.store.pipelines import steps

if TYPE_CHECKING:
    from rota.client.client import Client

COST_USD_MAX = 1_000_000


async def assumed_calls(reader: RunReader) -> AsyncIterator[tuple[str, AssumedCost]]:
    """The calls of a chain with an assumed cost, and the keys of their steps."""
    corrected = {
        step.key.removeprefix(call_ledger.CORRECTED): step
        async for step in reader.steps(call_ledger.CORRECTED)
    }

    def shown(key: str, call: AssumedCall, at: int | None) -> AssumedCost:
        step = corrected.get(key)
        known = msgspec.json.decode(step.output or "{}", type=Correction) if step else None
        return AssumedCost(
            at=iso_if_known(at), model=call.model, why=call.why, request_id=call.request_id,
            tokens=call.tokens, cost_usd=call.nano_usd / NANO,
            corrected_usd=None if known is None else known.cost_usd,
        )  # fmt: skip

    async for step in reader.steps(call_ledger.ASSUMED):
        call = msgspec.json.decode(step.output or "{}", type=AssumedCall)
        yield step.key, shown(step.key, call, step.finished_at)
    async for step in reader.steps(call_ledger.PREFIX):
        record = msgspec.json.decode(step.output or "{}", type=SlotRecord)
        if record.under_way is not None:
            took = record.under_way
            call = AssumedCall(
                record.model, "in progress, or lost in a crash", took.assumed_tokens,
                took.assumed_nano_usd,
            )  # fmt: skip
            yield step.key, shown(step.key, call, step.finished_at)


async def of_run(reader: RunReader) -> tuple[CostReport, list[tuple[RunReader, str]]]:
    """The report, and where each of its assumed calls is stored."""
    calls: list[AssumedCost] = []
    places: list[tuple[RunReader, str]] = []
    totals = call_ledger.CallTotals()
    for chain in [reader, *await reader.shards()]:
        totals += await chain.call_totals()
        async for key, call in assumed_calls(chain):
            calls.append(call)
            places.append((chain, key))
    report = CostReport(
        calls=totals.calls, cost_usd=round(totals.cost_usd, 9),
        assumed_cost_usd=round(totals.assumed_nano_usd / NANO, 9), assumed=calls,
    )  # fmt: skip
    return report, places


async def correct(client: Client, reader: RunReader, call: str, cost_usd: float) -> None:
    """Write the cost of an assumed call, by its number or by the provider's name for it."""
    if not 0 <= cost_usd < COST_USD_MAX:
        raise BadInput(f"cost={cost_usd!r} is not a cost", hint="Give dollars, 0 or more.")
    report, places = await of_run(reader)
    for number, each in enumerate(report.assumed):
        if call in (str(number + 1), each.request_id):
            chain, key = places[number]
            nano = round(each.cost_usd * NANO)
            text = msgspec.json.encode(Correction(cost_usd, each.tokens, nano)).decode()
            await client.connection.database.write(
                steps.put_correction, root_id=chain.root_id,
                key=f"{call_ledger.CORRECTED}{key}", output=text, now=client.clock.now(),
            )  # fmt: skip
            return
    raise BadInput(
        f"the run has no assumed call {call!r}",
        hint="`rota pipeline bill` lists their numbers and request ids.",
    )
