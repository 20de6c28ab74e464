"""The patterns a consumer must be able to say: queue, correlation, window, batch, digest; and who
goes first when several could.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rota import Rota
from rota.automations import Automation, Context, Prepared
from rota.testing import virtual
from tests.automations.kit import QUIET, Line, begun, event_statuses, sound


def one_consumer(*topics: str) -> tuple[Rota, Automation]:
    app = Rota(**QUIET)
    auto = app.automation("line", timezone="UTC")
    for name in topics:
        auto.topic(name, external=True)
    return app, auto


async def test_first_in_first_out(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "a", "b", "c"):
        assert app.done == [["a"], ["b"], ["c"]]


async def test_correlation_waits_for_the_partner(database_url: str) -> None:
    app, auto = one_consumer("orders", "payments")
    paired: list[list[str]] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        orders = await ctx.peek("orders")
        payments = {one.id: one for one in await ctx.peek("payments")}
        pairs = [[one, payments[one.id]] for one in orders if one.id in payments]
        paired.append([one.id for pair in pairs for one in pair])
        return Prepared(pairs[0] if pairs else ())

    auto.consumer("match", subscribes=["orders", "payments"], prepare=prepare)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        await app.automations.publish("line", "orders", "7")
        await world.advance("2h")
        assert paired[1:] == [[]]
        await app.automations.publish("line", "payments", "7")
        await world.settle()
        assert paired[2] == ["7", "7"]
        assert {one.status for one in await app.automations.events("line")} == {"consumed"}
        await sound(app)


async def test_a_time_window_takes_events_after_a_delay(database_url: str) -> None:
    app, auto = one_consumer("in")
    taken: list[tuple[str, str]] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek("in")
        old = [one for one in events if ctx.now - one.created_at >= timedelta(hours=1)]
        taken.extend((one.id, f"{ctx.now:%H:%M}") for one in old)
        young = [one.created_at for one in events if one not in old]
        return Prepared(old, wake_at=min(young) + timedelta(hours=1) if young else None)

    auto.consumer("delay", subscribes=["in"], prepare=prepare)
    async with virtual(app, url=database_url) as world:
        await world.advance("5m")
        await app.automations.publish("line", "in", "a")
        await world.advance("20m")
        await app.automations.publish("line", "in", "b")
        await world.advance("3h")
        assert taken == [("a", "01:05"), ("b", "01:25")]


async def test_a_batch_goes_when_it_is_full_or_when_its_time_is_up(database_url: str) -> None:
    app, auto = one_consumer("in")
    batches: list[tuple[int, str]] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        events = await ctx.peek("in")
        if not events:
            return Prepared()
        due = events[0].created_at + timedelta(hours=1)
        if len(events) < 3 and ctx.now < due:
            return Prepared(wake_at=due)
        batches.append((len(events), f"{ctx.now:%H:%M}"))
        return Prepared(events)

    auto.consumer("batch", subscribes=["in"], prepare=prepare)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for n in range(3):
            await app.automations.publish("line", "in", f"a{n}")
            await world.advance("1m")
        await app.automations.publish("line", "in", "b0")
        await world.advance("2h")
        assert batches == [(3, "00:02"), (1, "01:03")]


async def test_a_daily_digest_is_woken_by_events_and_waits_for_its_hour(database_url: str) -> None:
    app, auto = one_consumer("notes")
    digests: list[tuple[str, list[str]]] = []
    looks: list[str] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        looks.append(f"{ctx.now:%d %H:%M}")
        nine = ctx.now.replace(hour=9, minute=0, second=0, microsecond=0)
        events = await ctx.peek("notes")
        if ctx.now < nine:
            return Prepared(wake_at=nine)
        later = nine + timedelta(days=1)
        if state == f"{nine:%d}":
            return Prepared(wake_at=later)
        return Prepared(events, {"day": f"{nine:%d}"}, wake_at=later)

    async def emit(ctx: Context, prepared: Prepared, mutation: Any) -> Any:
        if prepared.events:
            digests.append((f"{ctx.now:%d %H:%M}", [one.id for one in prepared.events]))
            return prepared.data["day"]
        return None

    auto.consumer("digest", subscribes=["notes"], prepare=prepare, next=emit)
    async with virtual(app, url=database_url) as world:
        await world.advance("7h")
        await app.automations.publish("line", "notes", "early")
        await world.advance("3h")
        await app.automations.publish("line", "notes", "late")
        await world.advance("24h")
        assert digests == [("01 09:00", ["early"]), ("02 09:00", ["late"])]
        assert set((await event_statuses(app)).values()) == {"consumed"}


class Stages(Rota):
    """A producer and two consumers that note the order in which they run."""

    def __init__(self) -> None:
        super().__init__(**QUIET)
        self.order: list[str] = []
        self.auto = self.automation("line", timezone="UTC")
        self.auto.topic("x", external=True)
        self.auto.topic("y", external=True)

        async def poll(ctx: Context, state: Any) -> None:
            self.order.append("poll")

        self.auto.producer(every="10m", publishes=["x"])(poll)
        for name in ("x", "y"):
            self.auto.consumer(f"read_{name}", subscribes=[name], prepare=self._reader(name))

    def _reader(self, topic: str) -> Any:
        async def prepare(ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(topic, 1)
            self.order.append(f"{topic}{''.join(one.id for one in events)}")
            return Prepared(events)

        return prepare


async def test_consumers_go_before_producers(database_url: str) -> None:
    app = Stages()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        app.order.clear()
        world.clock.move_to(world.clock.now() + 600_000_000)
        await app.automations.publish("line", "x", "1")
        await world.settle()
        assert app.order == ["x1", "poll"]


async def test_the_consumer_with_the_oldest_pending_event_goes_first(database_url: str) -> None:
    app = Stages()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        app.order.clear()
        for topic, message_id in (("y", "1"), ("x", "2"), ("y", "3")):
            await app.automations.publish("line", topic, message_id)
        await world.settle()
        assert app.order == ["y1", "x2", "y3"]
        await sound(app)


async def test_one_run_at_a_time(database_url: str) -> None:
    app = Stages()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for n in range(3):
            await app.automations.publish("line", "x", f"{n}")
        await world.settle()
        runs = await app.automations.activity("line", limit=100)
        spans = sorted((one.run.started_at, one.run.run_id) for one in runs)
        assert len({run_id for _, run_id in spans}) == len(spans)
        assert await app.connection.database.read(_open_runs) == 1


async def _open_runs(tx: Any) -> int:
    rows = await tx.rows("open_runs", namespace="default", serial_keys=["automation:line"])
    return len(rows)
