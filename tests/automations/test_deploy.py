"""Deploys: what counts as new code, and what a deploy does with the version before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota import Rota
from rota.automations import Context, Prepared
from rota.testing import virtual
from tests.automations.kit import QUIET


def shout(text: str) -> str:
    return text.upper()


def whisper(text: str) -> str:
    return text.lower()


def broken(_text: str) -> str:
    raise ValueError("the helper is wrong")


class Said:
    """An app whose consumer calls a helper; what was said is kept."""

    def __init__(self, helper: Callable[[str], str]) -> None:
        self.said: list[str] = []
        said = self.said
        self.app = Rota(**QUIET)
        self.line = self.app.automation("line")
        self.line.topic("words", external=True)

        async def prepare(ctx: Context, _state: Any) -> Prepared | None:
            events = await ctx.peek("words")
            said.extend(helper(one.payload) for one in events)
            return Prepared(events) if events else None

        self.line.consumer("speak", subscribes=["words"], prepare=prepare)


async def test_a_fixed_helper_is_a_new_version_and_clears_the_failure(database_url: str) -> None:
    before, after = Said(broken), Said(shout)
    async with virtual(before.app, url=database_url) as world:
        await before.app.automations.publish("line", "words", "1", "hello")
        await world.settle()
        assert (await before.app.automations.show("line")).status == "Needs attention"
    async with virtual(after.app, url=database_url) as world:
        await world.settle()
        assert after.said == ["HELLO"]
        [newest, oldest] = await after.app.automations.versions("line")
        assert (newest.version, oldest.version) == (2, 1)


async def test_a_list_in_a_closure_that_grew_is_not_another_version(database_url: str) -> None:
    one = Said(shout)
    async with virtual(one.app, url=database_url) as world:
        await one.app.automations.publish("line", "words", "1", "hello")
        await world.settle()
        assert one.said == ["HELLO"]
        await one.app.automations.deploy("line")
        assert len(await one.app.automations.versions("line")) == 1
