"""Outages: reads and unsent calls are tried again for as long as it takes, without a person; the
automation says what it waits for, and since when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota import Client, RetryPolicy, Rota, Transient
from rota.automations import Context, Prepared
from rota.core.time.instants import SECOND
from rota.errors import NotSent, OutcomeUnknown, StoreUnreachable, UsageError, WrongState
from rota.explain.automation import explain_automation
from rota.testing import virtual
from rota.tools import Call, NotApplied, Safety, Tool, Unknown, tool
from tests.automations.kit import (
    QUIET,
    Line,
    begun,
    event_statuses,
    last,
    open_run_state,
    raising,
    sound,
)

DOWN = (NotSent, Transient, TimeoutError, ConnectionResetError)
SHORT = RetryPolicy(attempts=3, delay_s=60, delay_s_max=60)


def down(kind: type[Exception] = NotSent, text: str = "refused") -> Callable[[], None]:
    """Something that always raises, each time a new error."""

    def strike() -> None:
        raise kind(text)

    return strike


class Page(Tool):
    """A read of a service that can be down."""

    name = "page"
    safety = Safety.READ
    service = "example.com"

    def __init__(self) -> None:
        self.fails: Any = None
        self.calls = 0

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Call) -> Any:
        self.calls += 1
        if self.fails is not None:
            self.fails()
        return "text"


class Watch(Rota):
    """An automation with one producer that reads a page every hour."""

    def __init__(self, page: Tool, **options: Any) -> None:
        super().__init__("sqlite://:memory:", **QUIET)
        self.seen: list[str] = []
        watch = self.automation("watch", timezone="UTC", **options.pop("automation", {}))
        news = watch.topic("news")

        @watch.producer(every="1h", publishes=[news], **options)
        async def poll(ctx: Context, state: Any) -> None:
            text = await ctx.call(page)
            self.seen.append(f"{ctx.now:%H:%M}")
            ctx.publish(news, f"n{len(self.seen)}", text)

        @watch.consumer(subscribes=[news])
        class Take:
            async def prepare(self, ctx: Context, state: Any) -> Prepared:
                return Prepared(await ctx.peek(news))


async def why(app: Client, name: str) -> str:
    return (await explain_automation(app, name)).clause


@pytest.mark.parametrize("kind", DOWN)
async def test_a_read_of_a_service_that_is_down_is_tried_again_for_hours_without_a_person(
    database_url: str, kind: type[Exception]
) -> None:
    page = Page()
    page.fails = down(kind)
    app = Watch(page)
    async with virtual(app, url=database_url) as world:
        await world.advance("8h")
        view = await app.automations.show("watch")
        assert view.status == "Running"
        assert view.sentence.startswith(
            "Waiting for page (example.com) since 2030-01-01 00:00 UTC; next try in "
        )
        assert view.sentence.endswith(": refused")
        page.fails = None
        await world.advance("10m")
        assert len(app.seen) == 1
        assert (await app.automations.show("watch")).status == "Idle"
        assert (await app.automations.show("watch")).automation.outage is None
        await sound(app)


async def test_a_call_that_was_not_sent_is_tried_again_for_hours_without_a_person(
    database_url: str,
) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.before = down()
        await app.feed("e1")
        await world.advance("8h")
        assert await open_run_state(app) == "sleeping:transient"
        assert (
            "Waiting for outside since 2030-01-01 00:00 UTC"
            in (await app.automations.show("line")).sentence
        )
        assert await last(app, 2) == ["mutating paused:transient"] * 2
        app.outside.before = None
        await world.advance("10m")
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_a_change_that_turned_out_not_to_have_happened_is_tried_again_without_a_person(
    database_url: str,
) -> None:
    app = Line()
    app.outside.verdict = NotApplied("nothing is there")
    async with begun(app, database_url) as world:
        app.outside.before = down(OutcomeUnknown)
        await app.feed("e1")
        await world.advance("8h")
        assert await open_run_state(app) == "sleeping:transient"
        assert (await app.automations.show("line")).sentence.startswith("Waiting for outside since")
        app.outside.before = None
        await world.advance("10m")
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_the_pauses_of_an_outage_grow_to_backoff_s_max_and_stay_there(
    database_url: str,
) -> None:
    app = Line()
    pauses: list[float] = []
    async with begun(app, database_url) as world:
        app.outside.before = down()
        await app.feed("e1")
        for _ in range(9):
            await world.settle()
            open_run = (await app.automations.show("line")).open_run
            assert open_run is not None
            assert open_run.available_at is not None
            pauses.append((open_run.available_at - world.clock.now()) / SECOND)
            world.clock.move_to(open_run.available_at)
        nominal = [10, 20, 40, 80, 160, 320, 600, 600, 600]
        for real, top in zip(pauses, nominal, strict=True):
            assert 0.7 * top <= real <= top


async def test_list_show_and_why_name_what_is_waited_for_and_since_when(database_url: str) -> None:
    page = Page()
    app = Watch(page)
    async with virtual(app, url=database_url) as world:
        await world.advance("30m")
        page.fails = down(text="connection refused")
        await world.advance("3h")
        [listed] = await app.automations.list()
        shown = await app.automations.show("watch")
        assert listed.sentence == shown.sentence
        assert "Waiting for page (example.com) since 2030-01-01 01:00 UTC" in shown.sentence
        outage = shown.automation.outage
        assert outage is not None
        assert outage[:2] == ("page (example.com)", shown.automation.waits_since)
        assert 17 <= outage.tries <= 30  # the pauses are random, up to 10 minutes
        assert shown.said.actions == ("try-again",)
        said = await why(app, "watch")
        assert said.startswith("has been waiting for page (example.com) since ")
        assert f"({outage.tries} tries)" in said
        assert "tries again at" in said
        assert said.endswith(": connection refused")


async def test_an_operator_can_try_again_at_once_when_the_service_is_back(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = down()
        await app.feed("e1")
        await world.advance("3h")
        app.outside.before = None
        with pytest.raises(WrongState, match="it has no side effect with an unknown outcome"):
            await app.automations.resolve("line", "did-not-happen")
        assert (await app.automations.show("line")).said.actions == ("try-again", "skip")
        await app.automations.resolve("line", "try-again")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        await sound(app)


async def test_an_operator_can_skip_the_item_of_a_service_that_never_comes_back(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = down(text="gone")
        await app.feed("e1")
        await world.advance("3h")
        app.outside.before = None
        await app.automations.resolve("line", "skip")
        await app.feed("e2")
        await world.settle()
        assert await event_statuses(app) == {"e1": "skipped", "e2": "consumed"}
        await sound(app)


async def test_failures_of_the_handler_itself_are_counted_apart_from_an_outage(
    database_url: str,
) -> None:
    """After a night's outage the first timeout of the code does not ask a person at once."""
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = down()
        await app.feed("e1")
        await world.advance("8h")
        app.outside.before = None
        app.in_prepare = raising(Transient("own"), 5)
        await world.advance("2h")
        assert await event_statuses(app) == {"e1": "consumed"}
        app.in_prepare = raising(Transient("own"), 6)
        await app.feed("e2")
        await world.advance("2h")
        assert await open_run_state(app) == "waiting:transient"
        assert (await app.automations.show("line")).automation.outage is None


async def test_an_outage_of_another_service_begins_again(database_url: str) -> None:
    first, second = Page(), Page()
    second.name, second.service = "feed", "other.org"
    app = Rota("sqlite://:memory:", **QUIET)
    watch = app.automation("watch", timezone="UTC")
    news = watch.topic("news")

    @watch.producer(every="1h", publishes=[news])
    async def poll(ctx: Context, state: Any) -> None:
        await ctx.call(first)
        await ctx.call(second)

    @watch.consumer(subscribes=[news])
    class Take:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            return Prepared(await ctx.peek(news))

    async with virtual(app, url=database_url) as world:
        first.fails = down(text="down")
        await world.advance("2h")
        first.fails, second.fails = None, down(text="down too")
        await world.advance("1h")
        said = (await app.automations.show("watch")).sentence
        assert "Waiting for feed (other.org) since 2030-01-01 02:" in said


async def test_the_tries_of_an_outage_do_not_count_for_another_service(database_url: str) -> None:
    first, second = Page(), Page()
    second.name, second.service = "feed", "other.org"
    limited = second.options(retries=SHORT)
    app = Rota("sqlite://:memory:", **QUIET)
    watch = app.automation("watch", timezone="UTC")
    news = watch.topic("news")

    @watch.producer(every="1h", publishes=[news])
    async def poll(ctx: Context, state: Any) -> None:
        await ctx.call(first)
        await ctx.call(limited)

    @watch.consumer(subscribes=[news])
    class Take:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            return Prepared(await ctx.peek(news))

    async with virtual(app, url=database_url) as world:
        first.fails = down(text="down")
        await world.advance("2h")
        first.fails, limited.fails = None, down(text="down too")
        await world.advance("1h")
        assert await open_run_state(app, "watch") == "waiting:transient"
        assert limited.calls == 3


async def test_an_outage_of_the_own_database_needs_no_person(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(StoreUnreachable("no route"), 20)
        await app.feed("e1")
        await world.advance("12h")
        assert await event_statuses(app) == {"e1": "consumed"}


# -- retry policies ----------------------------------------------------------------------------


async def tries_until_a_person(app: Rota, url: str, page: Page) -> int:
    async with virtual(app, url=url) as world:
        page.fails = down(text="down")
        before = page.calls
        await world.advance("12h")
        assert await open_run_state(app, "watch") == "waiting:transient"
        await sound(app)
        return page.calls - before


async def test_the_retry_policy_of_the_automation_limits_an_outage(database_url: str) -> None:
    page = Page()
    app = Watch(page, automation={"retries": 4})
    assert await tries_until_a_person(app, database_url, page) == 5


async def test_the_retry_policy_of_the_handler_wins_over_that_of_the_automation(
    database_url: str,
) -> None:
    page = Page()
    app = Watch(page, automation={"retries": 4}, retries=2)
    assert await tries_until_a_person(app, database_url, page) == 3


async def test_the_retry_policy_of_the_tool_wins_over_all_others(database_url: str) -> None:
    page = Page()
    mine = page.options(retries=1)
    app = Watch(mine, automation={"retries": 4}, retries=2)
    async with virtual(app, url=database_url) as world:
        mine.fails = down(text="down")
        await world.advance("12h")
        assert await open_run_state(app, "watch") == "waiting:transient"
        assert mine.calls == 2
    assert page.policy.retries is None  # the tool itself is as it was


async def test_the_pauses_of_a_policy_are_kept(database_url: str) -> None:
    page = Page()
    app = Watch(page, retries=SHORT)
    async with virtual(app, url=database_url) as world:
        page.fails = down(text="down")
        before = page.calls
        await world.advance("1h")
        before = page.calls
        counts = []
        for _ in range(4):
            await world.advance("1m")
            counts.append(page.calls - before)
        assert counts == [0, 0, 0, 0]
        assert await open_run_state(app, "watch") == "waiting:transient"


async def test_a_policy_of_the_handler_is_for_its_own_failures_too(database_url: str) -> None:
    app = Rota("sqlite://:memory:", **QUIET)
    line = app.automation("line", timezone="UTC")
    work = line.topic("work", external=True)
    tries: list[str] = []

    async def prepare(ctx: Context, state: Any) -> Prepared:
        if not await ctx.peek(work):
            return Prepared()
        tries.append("try")
        raise Transient("own")

    line.consumer("worker", subscribes=[work], prepare=prepare, retries=1)
    async with virtual(app, url=database_url) as world:
        await app.automations.publish("line", "work", "e1")
        await world.advance("2h")
        assert len(tries) == 2
        assert await open_run_state(app) == "waiting:transient"


async def test_an_error_that_the_policy_names_is_never_tried_again(database_url: str) -> None:
    page = Page()
    app = Watch(page, retries=RetryPolicy(attempts=9, never=("NotSent",)))
    assert await tries_until_a_person(app, database_url, page) == 1


async def test_an_idempotent_tool_with_a_policy_still_needs_no_person_for_an_unknown_outcome(
    database_url: str,
) -> None:
    app = Line(Safety.IDEMPOTENT)
    app.outside.policy = app.outside.options(retries=SHORT).policy
    async with begun(app, database_url) as world:
        app.outside.after = down(OutcomeUnknown)
        await app.feed("e1")
        before = app.outside.calls
        await world.advance("1h")
        assert (
            app.outside.calls - before == 62
        )  # two at once, then the pauses are those of the policy
        assert await open_run_state(app) == "sleeping:reconciliation"


BAD: list[dict[str, Any]] = [
    {"retries": -1},
    {"retries": True},
    {"retries": "often"},
    {"failed_reads": "ignore"},
    {"skip_after": 0},
    {"skip_after": 1.5},
    {"skip_after": True},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_declared(
    options: dict[str, Any],
) -> None:
    app = Rota("sqlite://:memory:")
    line = app.automation("line")
    with pytest.raises(UsageError):
        line.consumer("worker", subscribes=["work"], prepare=lambda ctx, state: None, **options)
    with pytest.raises(UsageError):
        app.automation("other", **options)


def test_a_tool_refuses_what_is_not_an_option_of_tools() -> None:
    with pytest.raises(UsageError, match="skip_after"):
        Page().options(skip_after=3)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="retries"):
        tool(safety="read", retries=-1)


async def test_a_look_that_nobody_answers_needs_no_person(database_url: str) -> None:
    """The counterpart breaks during the call, and is down for two days. Then it answers without a
    verdict for some minutes, which alone needs no person."""
    app = Line(reconcile_max=50)
    down_now = [True]
    looked_up = app.outside.look_up

    async def look_up(params: Any, call: Call) -> Any:
        if down_now[0]:
            app.outside.looks += 1
            raise ConnectionRefusedError("connection refused")
        return await looked_up(params, call)

    app.outside.look_up = look_up  # type: ignore[method-assign]
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("the line broke"))
        await app.feed("e1")
        await world.advance("2d")
        assert await open_run_state(app) == "sleeping:reconciliation"
        assert 50 < app.outside.looks < 2 * 24 * 60
        [run] = await app.automations.activity("line", limit=1)
        assert "waiting for outside since 2030-01-01 00:00:00 UTC" in (run.error or "")
        down_now[0] = False
        app.outside.verdict = Unknown("still starting")
        await world.advance("10m")
        assert await open_run_state(app) == "sleeping:reconciliation"
        app.outside.verdict = None
        await world.advance("1h")
        assert app.applied == [("applied", "done")]
        assert len(app.outside.effects) == 1
        await sound(app)
