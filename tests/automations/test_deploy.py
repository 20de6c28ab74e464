"""Deploys: what counts as new code, and what a deploy does with the version before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rota import Rota
from rota.automations import Change, Context, MutationResult, Prepared
from rota.client.doctor import Doctor
from rota.errors import BadAutomation, UnknownAutomation, UsageError
from rota.explain.automation import explain_automation
from rota.explain.run import RunExplainer
from rota.testing import virtual
from tests.automations.kit import QUIET, Outside, event_statuses, sound


def shout(text: str) -> str:
    return text.upper()


def whisper(text: str) -> str:
    return text.lower()


def broken(_text: str) -> str:
    raise ValueError("the helper is wrong")


class Said:
    """An app with a consumer that calls a helper; the answer is kept."""

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


# -- which worker has which version ------------------------------------------------------------


@asynccontextmanager
async def beside(app: Rota, other: Rota) -> AsyncIterator[None]:
    """Connect an app to the database and the clock of another, without a worker."""
    other.url, other.clock = app.url, app.clock
    await other.connect()
    try:
        yield
    finally:
        await other.close()


async def test_a_version_that_no_worker_has_is_reported_by_show_why_and_doctor(
    database_url: str,
) -> None:
    old, new = Said(shout), Said(whisper)
    async with virtual(old.app, url=database_url) as world, beside(old.app, new.app):
        await world.settle()
        await new.app.automations.deploy("line")
        await world.beat()
        view = await new.app.automations.show("line")
        assert view.status == "Needs attention"
        assert view.sentence.startswith("No worker has version 2 of its code: worker ")
        assert view.sentence.endswith(" has version 1")
        assert view.said.actions == ("restart", "rollback")
        why = await explain_automation(new.app, "line")
        assert (why.verdict, why.facts["version"]) == ("no_code", 2)
        assert "no worker has version 2 of its code" in why.clause
        assert "rota automation rollback line 1" in (why.hint or "")
        open_run = view.open_run
        assert open_run is not None
        assert (await RunExplainer(new.app, "UTC").of(open_run)).verdict == "no_code"
        doctor = Doctor(new.app.connection.database, new.app.settings)
        await doctor.worker_rows()
        [finding] = await doctor.deploys()
        assert finding.level == "bad"
        assert "line (version 2)" in finding.says


async def test_a_running_worker_follows_a_rollback_to_the_code_it_has(database_url: str) -> None:
    old, new = Said(shout), Said(whisper)
    async with virtual(old.app, url=database_url) as world, beside(old.app, new.app):
        await world.settle()
        await new.app.automations.deploy("line")
        await new.app.automations.publish("line", "words", "1", "Hello")
        await world.settle()
        assert old.said == []
        done = await new.app.automations.rollback("line", 1)
        assert (done.version, done.before) == (3, 2)
        await world.settle()
        assert old.said == ["HELLO"]
        [newest, *_] = await old.app.automations.versions("line")
        assert (newest.version, newest.restores) == (3, 1)
        assert (await old.app.automations.show("line")).status == "Idle"


async def test_a_worker_that_starts_does_not_undo_a_rollback_but_new_code_and_people_do(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with virtual(Said(shout).app, url=database_url):
        pass
    async with virtual(Said(whisper).app, url=database_url) as world:
        await world.app.automations.rollback("line", 1)
    async with virtual(Said(whisper).app, url=database_url) as world:
        assert (await world.app.automations.show("line")).automation.version == 3
        assert "stays at version 3, which a rollback put in force" in caplog.text
        assert (await world.app.automations.deploy("line")).version == 4
        await world.app.automations.rollback("line", 1)
    async with virtual(Said(str.title).app, url=database_url) as world:
        assert (await world.app.automations.show("line")).automation.version == 6


async def test_a_rollback_to_a_version_that_is_not_there_names_the_command_that_lists_them(
    database_url: str,
) -> None:
    one = Said(shout)
    async with virtual(one.app, url=database_url):
        with pytest.raises(UsageError, match="automation line has no version 7") as caught:
            await one.app.automations.rollback("line", 7)
        assert "rota automation versions line" in caught.value.advice
        assert (await one.app.automations.rollback("line", 1)).version == 1
        with pytest.raises(UnknownAutomation, match="lime"):
            await one.app.automations.rollback("lime", 1)


async def test_old_versions_are_pruned_but_never_the_one_in_force(database_url: str) -> None:
    for helper in (shout, whisper, str.title, str.strip):
        async with virtual(Said(helper).app, url=database_url) as world:
            await world.settle()
    async with virtual(Said(str.strip).app, url=database_url) as world:
        automations = world.app.automations
        assert await automations.prune_versions("line", keep=2) == [1, 2]
        assert [one.version for one in await automations.versions("line")] == [4, 3]
        assert await automations.prune_versions("line", keep=1) == [3]
        assert await automations.prune_versions("line") == []
        with pytest.raises(UsageError, match="keep=0"):
            await automations.prune_versions("line", keep=0)
        await world.app.automations.publish("line", "words", "1", "Hello")
        await world.settle()
        assert (await automations.show("line")).status == "Idle"
        await sound(world.app)


# -- refused -----------------------------------------------------------------------------------


async def test_a_refused_deploy_is_kept_and_reported_until_a_deploy_succeeds(
    database_url: str,
) -> None:
    good, bad = Said(shout), Said(whisper)
    bad.line.topic("lonely")
    async with virtual(good.app, url=database_url) as world:
        await world.settle()
    async with virtual(bad.app, url=database_url) as world:
        automations = world.app.automations
        view = await automations.show("line")
        assert view.code.refused is not None
        assert "topic lonely has no reader" in view.code.refused.problems
        assert view.sentence.startswith("No worker has version 1 of its code")
        assert "a deploy was refused: topic lonely has no reader" in view.sentence
        why = await explain_automation(world.app, "line")
        assert "a deploy was refused" in why.clause
        doctor = Doctor(world.app.connection.database, world.app.settings)
        await doctor.worker_rows()
        levels = {finding.says: finding.level for finding in await doctor.deploys()}
        assert set(levels.values()) == {"bad"}
        assert any("topic lonely" in says for says in levels)
    async with virtual(Said(shout).app, url=database_url) as world:
        assert await world.app.automations.refused_deploys() == {}
        assert "refused" not in (await world.app.automations.show("line")).sentence


async def test_an_automation_that_was_never_deployed_says_why(database_url: str) -> None:
    bad = Said(shout)
    bad.line.topic("lonely")
    async with virtual(bad.app, url=database_url) as world:
        with pytest.raises(UnknownAutomation, match="never deployed: a deploy was refused: topic"):
            await world.app.automations.show("line")
        with pytest.raises(BadAutomation):
            await world.app.automations.deploy("line")
        [refused] = (await world.app.automations.refused_deploys()).values()
        assert len(refused.problems) == 2
    async with virtual(Said(shout).app, url=database_url) as world:
        assert await world.app.automations.refused_deploys() == {}


async def test_a_start_deploys_in_groups_what_is_new_or_changed_and_leaves_the_rest(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.automations.deploy.AT_ONCE", 2)
    monkeypatch.setattr("rota.automations.deploy.IN_A_ROW", 1)

    def declared(helpers: Mapping[str, Callable[[str], str]], bad: str = "") -> Rota:
        app = Rota(**QUIET)
        for name, helper in helpers.items():
            line = app.automation(name)
            line.topic("words", external=True)
            line.consumer("speak", subscribes=["words"], prepare=_speaking(helper))
            if name == bad:
                line.topic("lonely")
        return app

    first = declared(dict.fromkeys("abcde", shout), bad="b")
    async with virtual(first, url=database_url) as world:
        assert set(await world.app.automations.refused_deploys()) == {"b"}
        assert await _versions(world.app) == dict.fromkeys("acde", 1)
    second = declared(dict.fromkeys("abcef", shout) | {"d": whisper})
    async with virtual(second, url=database_url) as world:
        assert await world.app.automations.refused_deploys() == {}
        assert await _versions(world.app) == dict.fromkeys("abcef", 1) | {"d": 2}


def _speaking(helper: Callable[[str], str]) -> Callable[[Context, Any], Any]:
    async def prepare(ctx: Context, _state: Any) -> Prepared | None:
        events = await ctx.peek("words")
        for one in events:
            ctx.log(helper(one.payload))
        return Prepared(events) if events else None

    return prepare


async def _versions(app: Rota) -> dict[str, int]:
    return {one.automation.name: one.automation.version for one in await app.automations.list()}


# -- renamed handlers --------------------------------------------------------------------------


def counting(name: str, renamed_from: str | None = None, step: int = 1) -> Rota:
    """An app with a producer that counts its runs in its state."""
    app = Rota(**QUIET)
    line = app.automation("line", timezone="UTC")
    line.topic("words")

    async def prepare(_ctx: Context, _state: Any) -> None:
        return None

    line.consumer("read", subscribes=["words"], prepare=prepare)

    @line.producer(publishes=["words"], every="1h", name=name, renamed_from=renamed_from)
    async def count(_ctx: Context, state: Any) -> int:
        return int(state or 0) + step

    return app


async def state_of(app: Rota) -> dict[str, str | None]:
    handlers = (await app.automations.show("line")).handlers
    return {one.name: one.state for one in handlers if one.kind == "producer"}


async def test_a_renamed_handler_keeps_its_state_and_its_times(database_url: str) -> None:
    async with virtual(counting("old"), url=database_url) as world:
        await world.advance("90m")
        assert await state_of(world.app) == {"old": "2"}
        start = world.clock.now()
    async with virtual(counting("new", "old"), url=database_url, start=start) as world:
        await world.settle()
        assert await state_of(world.app) == {"new": "2"}
        await world.advance("40m")
        assert await state_of(world.app) == {"new": "3"}
        start = world.clock.now()
    # The old name may stay in the code for ever.
    async with virtual(counting("new", "old", step=5), url=database_url, start=start) as world:
        await world.settle()
        assert await state_of(world.app) == {"new": "8"}


async def test_a_rollback_over_a_rename_takes_the_state_back_to_the_old_name(
    database_url: str,
) -> None:
    async with virtual(counting("old"), url=database_url) as world:
        await world.settle()
    async with virtual(counting("new", "old"), url=database_url) as world:
        await world.settle()
        done = await world.app.automations.rollback("line", 1)
        assert done.lost == ()
        assert await state_of(world.app) == {"old": "1"}


async def test_a_deploy_says_which_state_is_lost(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with virtual(counting("old"), url=database_url) as world:
        await world.settle()
    async with virtual(counting("new"), url=database_url) as world:
        assert "handler old is gone, and its state is lost" in caplog.text
        assert "renamed_from='old'" in caplog.text
        await world.settle()
        assert await state_of(world.app) == {"new": "1"}
        app = counting("newer")
        async with beside(world.app, app):
            assert (await app.automations.deploy("line")).lost == ("new",)


async def test_a_rename_from_a_handler_that_is_still_declared_is_refused(
    database_url: str,
) -> None:
    app = counting("new", "read")
    async with virtual(app, url=database_url):
        with pytest.raises(BadAutomation, match="renamed from read, which is declared"):
            await app.automations.deploy("line")


async def test_a_run_that_waits_for_a_person_goes_on_under_the_new_name(
    database_url: str,
) -> None:
    """The change was made before the name changed; it is not made again."""
    outside = Outside()

    def sending(name: str, renamed_from: str | None, answer: Callable[[], int]) -> Rota:
        app = Rota(**QUIET)
        line = app.automation("line")
        line.topic("work", external=True)

        async def prepare(ctx: Context, _state: Any) -> Prepared | None:
            events = await ctx.peek("work")
            return Prepared(events) if events else None

        async def mutate(ctx: Context, _prepared: Prepared) -> Change:
            return outside.change()

        async def following(_ctx: Context, _prepared: Prepared, _done: MutationResult) -> int:
            return answer()

        line.consumer(
            name, subscribes=["work"], prepare=prepare, mutate=mutate, next=following,
            renamed_from=renamed_from,
        )  # fmt: skip
        return app

    async with virtual(sending("old", None, lambda: int("x")), url=database_url) as world:
        await world.app.automations.publish("line", "work", "1", None)
        await world.settle()
        assert (await world.app.automations.show("line")).status == "Needs attention"
        assert outside.calls == 1
    async with virtual(sending("new", "old", lambda: 7), url=database_url) as world:
        await world.settle()
        assert outside.calls == 1
        [handler] = (await world.app.automations.show("line")).handlers
        assert (handler.name, handler.state) == ("new", "7")
        assert (await event_statuses(world.app)) == {"1": "consumed"}
        await sound(world.app)
