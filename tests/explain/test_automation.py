"""`why` of an automation: one sentence for every reason it runs or does not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import NeedsLogin, Rota, Transient
from rota.automations import Context
from rota.errors import UnknownSchedule, UsageError
from rota.explain.schedule import Explanation
from rota.explain.why import why
from rota.testing import virtual
from tests.automations.kit import UNSURE, Line, begun, raising, started


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.explain.automation.host_zone_name", lambda: "UTC")


async def ask(app: Line) -> Explanation:
    """The answer, which is always one sentence."""
    found = await why(app, "line")
    assert found.sentence.startswith("automation line ")
    assert found.sentence.endswith(".")
    return found


async def test_idle(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1"):
        found = await ask(app)
        assert (found.verdict, found.hint) == ("idle", None)
        assert found.sentence == (
            "automation line has nothing to do; it last ran at Tue 2030-01-01 00:00 UTC; "
            "next: when an event comes."
        )


async def test_idle_with_a_next_time(database_url: str) -> None:
    app = Line()

    async def poll(ctx: Context, state: Any) -> None: ...

    app.line.producer(every="5m", publishes=["work"])(poll)
    async with virtual(app, url=database_url) as world:
        await world.advance("2m")
        found = await ask(app)
        assert found.sentence.endswith("next: producer poll at Tue 2030-01-01 00:05 UTC (in 3m).")


async def test_events_that_its_consumer_left_where_they_are(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with virtual(app, url=database_url) as world:
        app.wake_at = world.clock.moment() + timedelta(hours=1)
        await started(world, app, "e1", "e2")
        found = await ask(app)
        assert found.verdict == "left_alone"
        assert "keeps 2 events of topic work: worker ran at" in found.sentence
        assert "and took none of them; next: consumer worker at" in found.sentence
        assert found.facts["pending"] == {"work": 2}


async def test_paused_and_archived(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url):
        await app.automations.pause("line")
        found = await ask(app)
        assert (found.verdict, found.hint) == ("paused", "`rota automation resume line`.")
        await app.automations.archive("line")
        assert (await ask(app)).verdict == "archived"


@pytest.mark.parametrize("approval", [False, True])
async def test_it_waits_for_a_person(database_url: str, approval: bool) -> None:
    app = Line(approval=approval)
    async with begun(app, database_url) as world:
        if not approval:
            app.in_prepare = raising(NeedsLogin("reconnect Gmail"))
        await app.feed("e1")
        await world.settle()
        found = await ask(app)
        assert found.verdict == "needs_person"
        said = "your approval: Work" if approval else "you to renew credentials: reconnect Gmail"
        assert found.sentence == (f"automation line waits for an operator: waiting for {said}.")
        actions = "approve, reject" if approval else "try-again"
        assert found.hint == f"Cleared by: {actions}. See `rota automation show line`."


@pytest.mark.parametrize(("names", "receivers"), [("line", "went to ops"), ("x", "fits no rule")])
async def test_the_notification_about_what_it_waits_for_is_named(
    database_url: str, names: str, receivers: str
) -> None:
    app = Line(approval=True)
    app.notify("ops", command="true", names=[names])
    async with begun(app, database_url, "e1") as world:
        await world.settle()
        found = await ask(app)
        said = (
            f"approval: Work; notification approval_wanted of Tue 2030-01-01 00:00 UTC {receivers}."
        )
        assert found.sentence.endswith(said)
        assert found.facts["notification"] == {
            "kind": "approval_wanted", "at": "2030-01-01T00:00:00.000Z",
            "rules": ["ops"] if names == "line" else [],
        }  # fmt: skip
        open_run = (await app.automations.show("line")).open_run
        assert open_run is not None
        await app.automations.approve("line")
        await world.settle()
        assert await app.notifications.latest(open_run) is None


async def test_a_run_that_waits_for_a_person_names_its_notification(database_url: str) -> None:
    app = Rota()
    app.notify("ops", command="true")

    @app.workflow
    async def login() -> None:
        raise NeedsLogin("reconnect Gmail")

    async with virtual(app, url=database_url) as world:
        run = await login.start()
        await world.settle()
        found = await why(app, run.id)
        assert found.verdict == "needs_person"
        assert "reconnect Gmail; notification needs_attention of Tue 2030-01-01" in found.sentence
        assert "went to ops" in found.sentence
        assert found.facts["notification"]["rules"] == ["ops"]


async def test_it_backs_off(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("rate limit", retry_after_s=60))
        await app.feed("e1")
        await world.settle()
        found = await ask(app)
        assert (found.verdict, found.facts["failures"]) == ("retries", 1)
        assert "failed once and tries again at Tue 2030-01-01 00:01" in found.sentence
        assert found.sentence.endswith("rate limit.")


async def test_it_finds_out(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.after = raising(ConnectionError("gone"))
        app.outside.verdict = UNSURE
        await app.feed("e1")
        await world.settle()
        assert (await ask(app)).verdict == "reconciles"


async def test_it_runs_or_waits_for_a_worker(database_url: str) -> None:
    app = Line()
    seen: list[str] = []
    async with begun(app, database_url) as world:

        async def look() -> None:
            seen.append((await ask(app)).verdict)

        app.in_prepare = look
        await app.feed("e1")
        await look()
        await world.settle()
        assert seen[1] == "running"
        assert seen[0] in ("ready", "no_worker", "unknown_workflow")


async def test_its_open_run_is_answered_as_the_automation(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url):
        open_run = (await app.automations.show("line")).open_run
        assert open_run is not None
        assert await why(app, open_run.id) == await why(app, "line")


async def test_a_time_is_for_schedules(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url):
        with pytest.raises(UsageError, match="not for an automation"):
            await why(app, "line", at=datetime(2030, 1, 1, tzinfo=UTC))
        with pytest.raises(UnknownSchedule) as caught:
            await why(app, "lien")
        assert "no schedule, no automation and no run 'lien'" in caught.value.message
