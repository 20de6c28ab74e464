"""Each kind of notification, for each source of work that can cause it, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota import Fatal, NeedsLogin, Rota, Transient
from rota.ai import Offline
from rota.ai.base import Reply, Request
from rota.core.notifications.model import Notification
from rota.errors import OutcomeUnknown
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import UNSURE, Line, begun, raising
from tests.automations.kit import sound as all_sound
from tests.kit import select
from tests.kit.builders import raw
from tests.notifications.kit import keep
from tests.pipelines.kit.offline_folder import offline_world
from tests.schedules.kit import Noted, outage, resume_work, sound


async def test_a_workflow_that_fails_for_good_is_reported_once_with_its_error(
    database_url: str,
) -> None:
    app = Rota()
    kept = keep(app)

    @app.workflow(retries=2)
    async def order(number: int) -> None:
        raise ValueError(f"no order {number}")

    async with virtual(app, url=database_url) as world:
        run = await order.options(tags={"team": "shop"}).start(7)
        await world.advance("1s")
        assert kept == []  # a retry is to come
        await world.drain("1h")
        [one] = kept
        assert (one.kind, one.source, one.name) == ("failed", "workflow", "order")
        assert one.error == "ValueError: no order 7"
        assert one.text == "workflow order failed after 3 attempts: ValueError: no order 7"
        assert one.tags == {"team": "shop"}
        assert one.schedule is None
        last = await app.runs.get(one.run_id)
        assert last.root_id == run.id


async def test_a_chain_that_a_person_retries_recovers(database_url: str) -> None:
    app = Noted()
    kept = keep(app)
    app.broken = True
    async with virtual(app, url=database_url) as world:
        run = await app.start("shaky")
        await world.settle()
        app.broken = False
        await app.runs.retry(run.id)
        await world.settle()
        await app.start("shaky")  # an ordinary success is not news
        await world.settle()
        assert kept.lines == [("failed", "workflow", "shaky"), ("recovered", "workflow", "shaky")]
        assert kept[1].text == "workflow shaky works again."


async def test_a_workflow_that_waits_for_a_login_needs_attention_until_it_works_again(
    database_url: str,
) -> None:
    app = Rota()
    kept = keep(app)
    expired = [True]

    @app.workflow
    async def sync() -> None:
        if expired.pop():
            expired.append(False)
            raise NeedsLogin("token expired", service="mail", account="ann")

    async with virtual(app, url=database_url) as world:
        run = await sync.start()
        await world.settle()
        assert kept.lines == [("needs_attention", "workflow", "sync")]
        assert "token expired" in (kept[0].error or "")
        await app.runs.retry(run.id)
        await world.settle()
        assert kept.kinds == ["needs_attention", "recovered"]


async def test_a_child_is_its_parents_to_judge(database_url: str) -> None:
    app = Rota()
    kept = keep(app)

    @app.workflow
    async def child() -> None:
        raise Fatal("broken")

    @app.workflow
    async def careful() -> str:
        try:
            await child()
        except Exception:
            return "went on"
        return "never"

    async with virtual(app, url=database_url) as world:
        run = await careful.start()
        await world.drain("1h")
        assert await run.result() == "went on"
        assert kept == []


async def test_a_run_that_crashed_too_often_is_quarantined(database_url: str) -> None:
    app = Rota(recoveries_max=0)
    kept = keep(app)

    @app.workflow
    async def poison() -> None:
        return None

    async with virtual(app, url=database_url) as world:
        run = await app.options(delay="1s").start("poison")
        await app.connection.database.write(
            raw,
            "update runs set status = 'running', lease_owner = 'gone', lease_until = 1, "
            f"claim_count = 1, started_at = 1, available_at = 1 where id = '{run.id}'",
        )
        await world.beat()
        await world.settle()
        assert kept.lines == [("quarantined", "workflow", "poison")]
        assert "died 1 times" in kept[0].text


async def test_a_schedule_fails_recovers_and_misses(database_url: str) -> None:
    app = Noted()
    kept = keep(app)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("hourly", "shaky", "0 * * * *", timezone="UTC", missed="skip")
        await world.advance("1h1m")
        assert kept == []
        app.broken = True
        await world.advance("2h")
        app.broken = False
        await world.advance("2h")
        outage(world, "5h30m")
        await resume_work(world)
        await world.settle()
        assert kept.kinds == ["failed", "failed", "recovered", "missed"]
        assert {(one.source, one.name, one.schedule) for one in kept} == {
            ("schedule", "shaky", "hourly")
        }
        assert kept[0].text == "schedule hourly (shaky) failed: Fatal: told to"
        assert kept[3].details.occurrences == 5
        assert "no worker started it in time" in kept[3].text
        await sound(app)


async def test_a_run_that_did_not_begin_in_time_is_missed(database_url: str) -> None:
    app = Noted(slots=1)
    kept = keep(app)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "late", "report", "0 * * * *", timezone="UTC", expires_after="10m", queue="nobody"
        )
        await world.advance("2h")
        assert set(kept.lines) == {("missed", "schedule", "report")}
        assert "it had not begun in time" in kept[0].text


async def test_a_schedule_that_cannot_be_read_is_quarantined(database_url: str) -> None:
    app = Noted()
    kept = keep(app)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("bad", "report", "0 * * * *", timezone="UTC")
        await app.connection.database.write(raw, "update runs set spec = '{}' where name = 'bad'")
        await world.advance("1h")
        assert kept.lines == [("quarantined", "schedule", "bad")]


# -- pipelines -----------------------------------------------------------------------------------


async def test_a_pipeline_fails_recovers_and_is_skipped(database_url: str, tmp_path: Path) -> None:
    app = Rota(keep_days=0)
    kept = keep(app)
    async with offline_world(database_url, tmp_path, app) as place:
        place.broken.add("two")
        block = 'cron: "0 * * * *"\ncondition: {file_missing: stop}'
        await place.add("sums", block, titles=("one", "two"))
        await place.world.advance("1h")
        place.broken.clear()
        await place.world.advance("1h")
        (tmp_path / "sums" / "stop").touch()
        await place.world.advance("1h")
        assert kept.lines == [
            ("failed", "pipeline", "sums"), ("recovered", "pipeline", "sums"),
            ("missed", "pipeline", "sums"),
        ]  # fmt: skip
        assert {one.schedule for one in kept} == {"sums-1"}
        assert kept[0].text.startswith("pipeline sums failed")
        assert "stop" in kept[2].text


class Locked(Offline):
    """A model whose key is not good."""

    async def ask(self, request: Request) -> Reply:
        raise NeedsLogin("the key is not good", service="offline", account="ann")


async def test_a_pipeline_run_that_a_person_retries_recovers(
    database_url: str, tmp_path: Path
) -> None:
    app = Rota(keep_days=0)
    kept = keep(app)
    async with offline_world(database_url, tmp_path, app) as place:
        place.broken.add("two")
        await place.add("sums", 'cron: "0 0 1 1 *"', titles=("one", "two"))
        run = await app.pipelines.start(tmp_path / "sums")
        await place.world.drain("1h")
        place.broken.clear()
        await app.pipelines.retry(run.id)
        await place.world.drain("1h")
        assert kept.lines == [("failed", "pipeline", "sums"), ("recovered", "pipeline", "sums")]


async def test_a_pipeline_that_waits_for_a_login_recovers_when_a_person_resumes_it(
    database_url: str, tmp_path: Path
) -> None:
    app = Rota(keep_days=0)
    kept = keep(app)
    async with offline_world(database_url, tmp_path, app) as place:
        app.pipelines.use(Locked())
        await place.add("sums", 'cron: "0 0 1 1 *"', titles=("one", "two"))
        run = await app.pipelines.start(tmp_path / "sums")
        await place.world.drain("1h")
        assert kept.lines == [("needs_attention", "pipeline", "sums")]
        app.pipelines.use(Offline())
        await app.pipelines.retry(run.id)
        await place.world.drain("1h")
        assert kept.kinds == ["needs_attention", "recovered"]


# -- automations ---------------------------------------------------------------------------------


async def test_an_automation_that_stops_needs_attention_and_recovers(database_url: str) -> None:
    app = Line()
    kept = keep(app)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(ValueError("cannot read it"))
        await app.feed("e1")
        await world.settle()
        assert kept.lines == [("needs_attention", "automation", "line")]
        assert kept[0].reason == "logic"
        assert "ValueError: cannot read it" in kept[0].text
        await app.automations.resolve("line")
        await world.settle()
        assert kept.kinds == ["needs_attention", "recovered"]
        await app.feed("e2")
        await world.settle()
        assert len(kept) == 2
        await all_sound(app)


@pytest.mark.parametrize("where", ["prepare", "tool", "next"])
async def test_a_login_that_a_person_resolves_recovers(database_url: str, where: str) -> None:
    app = Line()
    kept = keep(app)
    expired = raising(NeedsLogin("token expired", service="mail", account="ann"))
    async with begun(app, database_url) as world:
        if where == "prepare":
            app.in_prepare = expired
        elif where == "tool":
            app.outside.before = expired
        else:
            app.in_next = expired
        await app.feed("e1")
        await world.settle()
        assert kept.lines == [("needs_attention", "automation", "line")]
        assert kept[0].reason == "auth"
        await app.automations.resolve("line")
        await world.settle()
        assert kept.kinds == ["needs_attention", "recovered"]
        await app.feed("e2")
        await world.settle()
        assert len(kept) == 2
        await all_sound(app)


async def test_an_item_that_a_person_skips_recovers(database_url: str) -> None:
    app = Line()
    kept = keep(app)
    async with begun(app, database_url) as world:
        app.in_mutate = raising(ValueError("cannot take it"))
        await app.feed("e1")
        await world.settle()
        assert kept.kinds == ["needs_attention"]
        await app.automations.resolve("line", "skip")
        await world.settle()
        await app.feed("e2")
        await world.settle()
        assert kept.kinds == ["needs_attention", "recovered"]
        await all_sound(app)


async def test_an_outage_that_ends_by_itself_is_not_news(database_url: str) -> None:
    app = Line()
    kept = keep(app)
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("away"), 2)
        await app.feed("e1")
        await world.advance("10m")
        assert len(app.outside.effects) == 1
        assert kept == []


async def test_an_approval_is_wanted(database_url: str) -> None:
    app = Line(approval=True)
    kept = keep(app)
    async with begun(app, database_url, "e1") as world:
        await world.settle()
        assert kept.lines == [("approval_wanted", "automation", "line")]
        await app.automations.approve("line")
        await world.settle()
        assert kept.kinds == ["approval_wanted", "recovered"]


@pytest.mark.parametrize("safety", [Safety.UNKNOWABLE, Safety.RECONCILABLE])
async def test_an_unknown_outcome_is_reported_when_only_a_person_can_settle_it(
    database_url: str, safety: Safety
) -> None:
    app = Line(safety)
    kept = keep(app)
    async with begun(app, database_url) as world:
        app.outside.after = raising(OutcomeUnknown("lost"))
        app.outside.verdict = UNSURE
        await app.feed("e1")
        await world.advance("30m")
        assert kept.lines == [("unknown_outcome", "automation", "line")]


# -- who pays, who is asked ----------------------------------------------------------------------


async def test_without_a_rule_nothing_is_written(database_url: str) -> None:
    app = Noted()
    app.broken = True
    async with virtual(app, url=database_url) as world:
        run = await app.start("shaky")
        await world.settle()
        await app.runs.retry(run.id)
        await world.settle()
    assert await select(database_url, "select count(*) from notifications") == [(0,)]
    assert await select(database_url, "select count(*) from notification_rules") == [(0,)]


async def test_filters_choose_by_kind_source_name_queue_and_tag(database_url: str) -> None:
    app = Noted()
    app.broken = True
    calls: dict[str, list[str]] = {}
    filters: dict[str, dict[str, object]] = {
        "kind": {"kinds": ["missed"]},
        "source": {"sources": ["schedule"]},
        "name": {"names": ["sha*"]},
        "other": {"names": ["other*"]},
        "queue": {"queues": ["default"]},
        "elsewhere": {"queues": ["slow"]},
        "tag": {"tags": {"team": "shop"}},
    }
    for name, words in filters.items():
        kinds = words.pop("kinds", ())

        def hook(note: Notification, name: str = name) -> None:
            calls.setdefault(name, []).append(note.name)

        app.on_notification(*kinds, name=name, **words)(hook)  # type: ignore[arg-type,misc]
    async with virtual(app, url=database_url) as world:
        await app.start("shaky")
        await app.options(tags={"team": "shop", "x": "y"}).start("shaky")
        await world.settle()
        listed = await app.notifications.list()
    assert {name: len(found) for name, found in calls.items()} == {"name": 2, "queue": 2, "tag": 1}
    assert sorted(one.rules or [] for one in listed) == [
        ["name", "queue"],
        ["name", "queue", "tag"],
    ]


async def test_rules_that_the_code_no_longer_declares_are_gone(database_url: str) -> None:
    names = []
    for name in ("first", "second"):
        app = Noted()
        app.notify("stays", command="true")
        app.on_notification("failed", name=name)(print)
        app.notifications.declared[name] = app.notifications.declared[name]._replace(origin="shop")
        async with virtual(app, url=database_url):
            rows = await select(database_url, "select name from notification_rules order by name")
            names.append([row[0] for row in rows])
    assert names == [["first", "stays"], ["second", "stays"]]
