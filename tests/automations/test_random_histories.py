"""Any history of publishing, failing, dying, pausing, deciding and deploying: after each step every
invariant holds, and in the end each event was used once, with one effect or none if it was skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota import NeedsLogin, Transient
from rota.errors import NotSent, OutcomeUnknown, RotaError
from rota.testing import World, virtual
from rota.tools import Safety
from tests.automations.kit import UNSURE, Line, dying, event_statuses, raising, sound
from tests.kit.sampling import examples

STEPS = (
    "publish", "publish again", "wait", "transient", "logic", "auth", "unknown after",
    "unknown before", "not sent", "unsure", "die in prepare", "die in mutate", "die in next",
    "die before the effect", "die after the effect", "fail in next", "pause", "resume", "try again",
    "did not happen", "skip", "approve", "reject", "deploy", "skip an event", "run now",
)  # fmt: skip


class History:
    """One app, and what a history may do to it."""

    def __init__(self, app: Line, world: World) -> None:
        self.app = app
        self.world = world
        self.published = 0
        self.versions = 0

    async def step(self, name: str) -> None:
        app, line = self.app, self.app.automations
        plain: dict[str, Callable[[], Awaitable[Any]]] = {
            "publish": self._publish,
            "publish again": lambda: app.feed("e0"),
            "wait": lambda: self.world.advance("15s"),
            "pause": lambda: line.pause("line"),
            "resume": lambda: line.resume("line"),
            "try again": lambda: line.resolve("line", "try-again"),
            "did not happen": self._deny,
            "skip": lambda: line.resolve("line", "skip"),
            "approve": lambda: line.approve("line"),
            "reject": lambda: line.reject("line"),
            "deploy": self._deploy,
            "skip an event": lambda: line.skip_event("line", "work", f"e{self.published - 1}"),
            "run now": lambda: line.run_now("line"),
        }
        if name in plain:
            with contextlib.suppress(RotaError):  # commands that do not apply are refused
                await plain[name]()
        else:
            self._arm(name)
        await self.world.settle()
        await sound(app)

    async def _publish(self) -> None:
        await self.app.feed(f"e{self.published}")
        self.published += 1

    async def _deny(self) -> None:
        """A person who looks before saying that it did not happen."""
        row = (await self.app.automations.show("line")).mutation
        if row is not None and row.id not in self.app.outside.keys:
            await self.app.automations.resolve("line", "did-not-happen")

    async def _deploy(self) -> None:
        self.versions += 1
        self.app.line.topic(f"extra{self.versions}", external=True)
        self.app.line.consumer(
            f"idle{self.versions}", subscribes=[f"extra{self.versions}"], prepare=_idle
        )
        await self.app.automations.deploy("line")

    def _arm(self, name: str) -> None:
        """Make the next call of this type go wrong."""
        app, lost = self.app, OutcomeUnknown("no answer")
        if name == "unsure":
            app.outside.verdict = None if app.outside.verdict else UNSURE
            return
        arms: dict[str, tuple[Any, str, Callable[[], Any]]] = {
            "transient": (app, "in_prepare", raising(Transient("down"))),
            "logic": (app, "in_prepare", raising(ValueError("bug"))),
            "auth": (app.outside, "before", raising(NeedsLogin("expired"))),
            "unknown after": (app.outside, "after", raising(lost)),
            "unknown before": (app.outside, "before", raising(lost)),
            "not sent": (app.outside, "before", raising(NotSent("refused"))),
            "fail in next": (app, "in_next", raising(ValueError("bug in next"))),
            "die in prepare": (app, "in_prepare", dying(app)),
            "die in mutate": (app, "in_mutate", dying(app)),
            "die in next": (app, "in_next", dying(app)),
            "die before the effect": (app.outside, "before", dying(app)),
            "die after the effect": (app.outside, "after", dying(app)),
        }
        target, place, trouble = arms[name]
        setattr(target, place, trouble)

    async def heal(self) -> None:
        """Everything works again, and an operator looks after the automation."""
        app = self.app
        app.in_prepare = app.in_mutate = app.in_next = None
        app.outside.before = app.outside.after = app.outside.verdict = None
        await app.automations.resume("line")
        for _ in range(20):
            await self.world.advance("11m")
            view = await app.automations.show("line")
            if view.status == "Idle":
                return
            assert view.said.actions, view
            if "approve" in view.said.actions:
                await app.automations.approve("line")
            elif "try-again" in view.said.actions:
                await app.automations.resolve("line", "try-again")
            else:
                await app.automations.resolve("line", "skip")
        raise AssertionError(f"it never came to rest: {await app.automations.show('line')}")

    async def judge(self) -> None:
        """Each event is used, and had its effect once; skipped ones at most once."""
        app = self.app
        effects = Counter(
            item["id"] for _, params in app.outside.effects for item in params["items"]
        )
        skipped = {
            message_id
            for row in await app.automations.outputs("line", limit=1000)
            if row.status == "skipped"
            for message_id in [item["id"] for item in msgspec.json.decode(row.params)["items"]]
        }
        for message_id, status in (await event_statuses(app)).items():
            assert status in ("consumed", "skipped"), (message_id, status)
            most = effects[message_id] <= 1
            exact = effects[message_id] == 1 or status == "skipped" or message_id in skipped
            assert most, (message_id, effects)
            assert exact, (message_id, effects)


async def _idle(ctx: Any, state: Any) -> None: ...


async def live(steps: list[str], safety: Safety, approval: bool, url: str) -> None:
    app = Line(safety, approval=approval, recoveries_max=3)
    async with virtual(app, url=url) as world:
        await world.settle()
        history = History(app, world)
        for name in ["publish", *steps]:
            await history.step(name)
        await history.heal()
        await sound(app)
        await history.judge()


@pytest.mark.slow
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck), print_blob=True)
@given(
    steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=16),
    safety=st.sampled_from([Safety.IDEMPOTENT, Safety.RECONCILABLE, Safety.UNKNOWABLE]),
    approval=st.booleans(),
)
def test_every_history_ends_well(steps: list[str], safety: Safety, approval: bool) -> None:
    asyncio.run(live(steps, safety, approval, "sqlite://:memory:"))


@pytest.mark.parametrize("seed", range(6))
async def test_histories_end_well_on_both_databases(database_url: str, seed: int) -> None:
    chance = random.Random(seed)
    steps = chance.choices(STEPS, k=14)
    safety = list(Safety)[1 + seed % 3]
    await live(steps, safety, seed % 2 == 1, database_url)
