"""A small shop: workflows, schedules, two automations and a pipeline, with days of history.

The history is made by the real engine in virtual time, so every row is one that Rota writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rota import Rota, Transient, gather, sleep, wait_for
from rota.ai import Offline, Prices, Request
from rota.automations import Change, Prepared
from rota.testing import World, virtual
from rota.tools import Applied, Call, Safety, Tool, Unknown, Verdict

log = logging.getLogger("shop")
log.setLevel(logging.INFO)
LOOKED_AT_S = 0.05
HOSTILE = '<script>alert("1")</script> & "quotes"'
TRIAGE = """
name: ticket-triage
input: {items: []}
map:
  prompt: "Which area and urgency has {{title}}?"
  output:
    - {name: area, type: string}
    - {name: urgency, type: string}
settings: {retry: {maxRetries: 0}, budget: {maxCost: 2.5}}
reduce: {type: table}
"""
TITLES = (
    "Cannot log in since update", "Invoice shows wrong VAT", "Love the new search",
    "Parcel marked delivered, is not here", "Refund for three orders", "Export stops early",
    "Printer prints dots only", "Address cannot be changed",
)  # fmt: skip


class LedgerMismatch(Exception):
    """Debit and credit differ."""


class Bank(Tool):
    """A counterpart that takes every transfer."""

    name = "bank.transfer"
    safety = Safety.RECONCILABLE
    settle_s = 0.0

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Call) -> Any:
        return {"reference": "7719"}

    async def look_up(self, params: Any, call: Call) -> Verdict:
        return Applied({"reference": "7719"})


class Payments(Bank):
    """A counterpart that does not answer while `is_down`."""

    name = "payments.refund"
    safety = Safety.UNKNOWABLE

    def __init__(self) -> None:
        self.is_down = False
        self.made: list[Any] = []

    async def perform(self, params: Any, call: Call) -> Any:
        if self.is_down:
            raise TimeoutError("the bank did not answer in 30 s")
        self.made.append(params)
        return {"refund": len(self.made)}

    async def look_up(self, params: Any, call: Call) -> Verdict:
        return Unknown("the provider says: processing")


class Shop(Rota):
    """The app."""

    def __init__(self, url: str, **settings: Any) -> None:
        given: Any = {"namespace": "shop", "keep_days": 30} | settings
        super().__init__(url, **given)
        self.broken = False
        self.books_differ = False
        self.pause_s = 0.01
        self.slow = False
        self.payments = Payments()
        self.queue("heavy", concurrency=2)
        self.queue("mail", concurrency=20, rate=(100, "1m"))
        self._workflows()
        self._automations()
        self.ai = Offline(replies=self._reply, prices=Prices({"offline:*": (3.0, 15.0)}))
        self.pipelines.use(self.ai)

    async def work(self, times: int = 1) -> None:
        """Take some real time, while a person looks."""
        if self.pause_s > LOOKED_AT_S:
            await asyncio.sleep(times * self.pause_s)

    def _reply(self, request: Request) -> str:
        text = request.prompt
        if self.broken and "Printer" in text:
            return "no idea"
        area = "billing" if "Invoice" in text or "Refund" in text else "account"
        return f'{{"area": "{area}", "urgency": "normal"}}'

    def _workflows(self) -> None:  # noqa: C901 - many small functions, no branches
        app = self

        @app.step
        async def fetch_page(number: int) -> int:
            return 40 + number

        @app.step
        async def lock_month(month: str) -> str:
            await app.work()
            return month

        @app.step
        async def load_entries(month: str) -> int:
            await app.work(3)
            return 18_204

        @app.step(retries=0)
        async def reconcile(month: str) -> str:
            await app.work(2)
            if app.broken or app.books_differ:
                raise LedgerMismatch(f"debit and credit differ by 0.02 EUR for {month}")
            return "balanced"

        @app.step
        async def flaky(order: str) -> str:
            if app.broken:
                raise Transient("the carrier does not answer")
            return order

        @app.workflow(name="sync_orders")
        async def sync_orders(region: str = "us", pages: int = 3) -> int:
            found = sum([await fetch_page(number) for number in range(pages)])
            await sleep("13m")
            if app.slow:
                await sleep("70m")
            return found

        @app.workflow(name="sum_account")
        async def sum_account(account: int) -> int:
            return account * 2

        @app.workflow(name="close_books", retries=1)
        async def close_books(month: str = "2026-10", currency: str = "EUR") -> str:
            await lock_month(month)
            await load_entries(month)
            await gather(*[sum_account(account) for account in (1000, 1200, 4400)])
            return await reconcile(month)

        @app.workflow(name="nightly_report")
        async def nightly_report() -> str:
            await sleep("78m")
            return "report.pdf"

        @app.workflow(name="poll_carrier")
        async def poll_carrier() -> str:
            return await flaky("parcel")

        @app.workflow(name="fulfil")
        async def fulfil(order_id: str) -> str:
            await flaky(order_id)
            paid = await wait_for("paid")
            return f"{order_id} {paid}"

        @app.step
        async def resize_images(number: int) -> int:
            await asyncio.sleep(app.pause_s)
            log.info("page %d: 240 images", number)
            return 240

        @app.workflow(name="import_catalog")
        async def import_catalog(pages: int = 3) -> int:
            return sum([await resize_images(number) for number in range(pages)])

        @app.workflow(name="quick")
        async def quick(text: str = "") -> str:
            return text

        self.fulfil, self.close_books, self.quick = fulfil, close_books, quick

    def _automations(self) -> None:
        invoices = self.automation("supplier-invoices", timezone="Europe/Berlin", approval=True)
        invoice = invoices.topic("invoice", external=True)
        bank = Bank()

        @invoices.consumer("pay", subscribes=[invoice])
        class Pay:
            async def prepare(self, ctx: Any, state: Any) -> Prepared:
                events = await ctx.peek(invoice, limit=1)
                data = events[0].payload if events else None
                title = f"Pay {data['amount']} to {data['to']}" if data else None
                return Prepared(events, data, title)

            async def mutate(self, ctx: Any, prepared: Any) -> Change:
                return bank.change(**prepared.data)

        refunds = self.automation("refunds", timezone="Europe/Berlin")
        refund = refunds.topic("refund", external=True)
        payments = self.payments

        @refunds.consumer("refund", subscribes=[refund])
        class Refund:
            async def prepare(self, ctx: Any, state: Any) -> Prepared:
                events = await ctx.peek(refund, limit=1)
                data = events[0].payload if events else None
                title = f"Refund of {data['amount']} for order {data['order']}" if data else None
                return Prepared(events, data, title)

            async def mutate(self, ctx: Any, prepared: Any) -> Change:
                return payments.change(**prepared.data)


class EmptyShop(Shop):
    """An app without any code."""

    def _workflows(self) -> None:
        pass

    def _automations(self) -> None:
        pass


SCHEDULES: Sequence[tuple[str, str, str, str, dict[str, Any]]] = (
    ("sync-orders", "sync_orders", "15 * * * *", "America/New_York",
        {"overlap": "skip", "input": {"region": "us"}, "queue": "default"}),
    ("close-books", "close_books", "0 18 16 * *", "Europe/Berlin", {}),
    ("nightly-report", "nightly_report", "daily at 02:00", "Europe/Berlin", {}),
    ("poll-carrier", "poll_carrier", "every 2h", "UTC", {}),
    ("fx-rates", "quick", "weekdays at 16:10", "Europe/Berlin", {"input": {"text": "EUR"}}),
)  # fmt: skip


async def invoice_came(app: Rota, number: str, amount: str, to: str) -> None:
    """An invoice that asks for approval."""
    payload = {"amount": amount, "to": to, "reference": number, "execute_on": "2026-11-20"}
    await app.automations.publish("supplier-invoices", "invoice", number, payload,
        title=f"Invoice {number}")  # fmt: skip


async def refund_asked(app: Rota, order: str, amount: str) -> None:
    """A refund that the provider may not answer."""
    payload = {"amount": amount, "order": order, "reason": "damaged on arrival"}
    await app.automations.publish("refunds", "refund", order, payload, title=f"Ticket of {order}")


async def fill(app: Shop, folder: Path, *, days: int) -> None:
    """Days of history until now: completed, failed, missed, skipped, paused; and what waits."""
    now = datetime.now(UTC)
    async with virtual(app, url=app.url, start=now - timedelta(days=days, minutes=20)) as world:
        for name, workflow, when, zone, options in SCHEDULES:
            await app.schedules.create(name, workflow, when, timezone=zone, **options)
        await _past(app, world, days)
        await _present(app, world, folder)


async def _past(app: Shop, world: World, days: int) -> None:
    await app.schedules.pause("fx-rates", note="feed contract ends")
    await world.advance(f"{days * 24 - 30}h")
    app.slow = True  # one run takes longer than the interval
    await world.advance("3h")
    app.slow, app.broken = False, True
    await world.advance("2h")
    app.broken = False
    await world.advance("7h")
    world.clock.jump("5h")  # no worker is running
    await world.advance("12h")


async def _present(app: Shop, world: World, folder: Path) -> None:
    for number in range(4):
        await invoice_came(app, f"88{number}", f"{310 + number}.90 EUR", "Papier Süd KG")
        await world.settle()
        await approve_next(app)
        await world.settle()
        await refund_asked(app, f"104{number}", f"{19 + number}.00 EUR")
        await world.settle()
    await invoice_came(app, "NL-2211", "1,240.00 EUR", "Nordlicht Papier GmbH")
    app.payments.is_down = True
    await refund_asked(app, "10492", "84.50 EUR")
    await refund_asked(app, "10493", "12.00 EUR")
    await world.settle()
    app.payments.is_down = False
    app.broken = True
    await app.start("close_books", "2026-10")
    await app.options(external_id="order-10512", tags={"shop": "eu"}).start("fulfil", "order-10512")
    await world.advance("5m")
    await triage(app, folder)
    await world.settle()
    app.broken = False
    await app.options(tags={"from": HOSTILE[:40]}).start("quick", HOSTILE)
    await app.options(queue="mail").start("quick", "later")
    await world.advance("15m")


async def approve_next(app: Rota) -> None:
    """Agree to the transfer that waits."""
    view = await app.automations.show("supplier-invoices")
    if view.mutation is not None:
        await app.automations.approve(
            "supplier-invoices", expected=view.mutation.id, by="anna", note="amounts match"
        )


async def triage(app: Shop, folder: Path, count: int = 48) -> str:
    """A pipeline run; while the shop is broken some of its items fail."""
    place = folder / "ticket-triage"
    place.mkdir(parents=True, exist_ok=True)
    (place / "pipeline.yaml").write_text(TRIAGE)
    items = [{"title": f"{TITLES[at % len(TITLES)]} ({at + 1})"} for at in range(count)]
    run = await app.pipelines.start(place, items=items)
    return run.id
