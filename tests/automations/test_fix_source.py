"""The fix hook may return the source it was given, changed: methods are indented, producers are
decorated, and functions use names from around them."""

from __future__ import annotations

from typing import Any

from rota import Rota
from rota.automations import Automation, Context, Fix, HandlerFailure, Prepared
from rota.testing import virtual

BROKEN = "int('nonsense')"


async def corrected(failure: HandlerFailure) -> Fix:
    """The work of a language model: the same text with the bug gone."""
    source = {
        name: text.replace(BROKEN, "7") for name, text in failure.source.items() if BROKEN in text
    }
    return Fix(source, "a number")


def app_with(seen: list[Any]) -> tuple[Rota, Automation]:
    """An automation that all three forms of handlers are declared in, each with the same bug."""
    app = Rota("sqlite://:memory:", keep_days=0)
    auto = app.automation("auto", timezone="UTC", fix=corrected)
    work = auto.topic("work", external=True)
    found = auto.topic("found", external=True)
    times = 3

    @auto.producer(
        every="1d",
        publishes=[found],
    )
    async def poll(ctx: Context, state: Any) -> Any:
        """A comment of several
        lines, of which some are not indented."""
        seen.append(("poll", int('nonsense') * times))  # fmt: skip

    @auto.consumer("taker", subscribes=[work])
    class Taker:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(work)
            if events:
                seen.append(("taker", int('nonsense') * times))  # fmt: skip
            return Prepared(events)

    def prepare(ctx: Context, state: Any) -> Prepared:
        events = ctx.peek(found)
        if events:
            seen.append(("finder", int('nonsense') * times))  # fmt: skip
        return Prepared(events)

    auto.consumer("finder", subscribes=[found], prepare=prepare)
    return app, auto


async def test_the_source_of_methods_and_decorated_producers_can_be_given_back(
    database_url: str,
) -> None:
    seen: list[Any] = []
    app, auto = app_with(seen)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert seen == [("poll", 21)]
        for topic in ("work", "found"):
            await app.automations.publish("auto", topic, "e1")
            await world.settle()
        assert seen == [("poll", 21), ("taker", 21), ("finder", 21)]
        remarks = {one.run.remark for one in await app.automations.activity("auto")}
        assert remarks == {None}
        # The decorator did not run again: the automation is what it was.
        assert list(auto.handlers) == ["poll", "taker", "finder"]
        assert len(auto.graph().handlers) == 3
        assert auto.version(now=0).digest == app_with([])[1].version(now=0).digest
    second, _ = app_with(seen)  # the fix outlives the process
    async with virtual(second, url=database_url) as world:
        await world.settle()
        await second.automations.publish("auto", "work", "e2")
        await world.settle()
        assert seen[-1] == ("taker", 21)
