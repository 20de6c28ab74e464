"""Defects that systems of this kind have had, each made impossible here. The names say what was
wrong; tests elsewhere prove the rest of the list.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, Transient
from rota.automations import Context, Prepared
from rota.errors import NeedsPermission, OutcomeUnknown, Rejected
from rota.testing import virtual
from rota.tools import Safety
from tests.automations.kit import (
    QUIET,
    UNSURE,
    Line,
    begun,
    bury,
    dying,
    dying_at,
    event_statuses,
    last,
    open_run_state,
    plain,
    raising,
    sound,
    sql,
    statuses,
)

LOST = OutcomeUnknown("no answer")


async def test_an_uncertain_change_keeps_its_events_and_is_not_repeated(database_url: str) -> None:
    """They were released, and the change was made twice after it was found to be applied."""
    app = Line()
    app.outside.verdict = UNSURE
    async with begun(app, database_url) as world:
        app.outside.after = raising(LOST)
        await app.feed("e1")
        await world.settle()
        assert await event_statuses(app) == {"e1": "reserved"}
        app.outside.verdict = None
        await world.advance("10s")
        assert await event_statuses(app) == {"e1": "consumed"}
        await world.advance("1h")
        assert len(app.outside.effects) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Rejected("404"), "failed:logic"),
        (NeedsPermission("403"), "paused:approval"),
    ],
    ids=["refused", "forbidden"],
)
async def test_a_definite_failure_of_a_change_is_not_an_internal_one(
    database_url: str, error: Exception, status: str
) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.outside.before = raising(error)
        await app.feed("e1")
        await world.settle()
        assert await last(app, 1) == [f"mutating {status}"]


@pytest.mark.parametrize("phase", ["prepare", "next"])
async def test_no_failure_makes_the_scheduler_loop(database_url: str, phase: str) -> None:
    """A failed run once was retried at full speed, creating failed runs for ever."""
    app = Line()
    async with begun(app, database_url) as world:
        setattr(app, f"in_{phase}", raising(ValueError("bug"), times=99))
        await app.feed("e1")
        await world.advance("1d")
        count = len(await statuses(app))
        await world.advance("1d")
        assert len(await statuses(app)) == count


async def test_a_retry_of_next_gets_what_was_applied(database_url: str) -> None:
    """The ledger was looked up by run, so a retry found that nothing had happened."""
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = raising(Transient("down"), times=2)
        await app.feed("e1")
        await world.advance("1m")
        assert app.applied == [("applied", "done")]
        assert app.outside.calls == 1


async def test_without_a_change_a_failure_in_next_starts_from_prepare(database_url: str) -> None:
    """It was taken for one after the change, so that fixing prepare could not help."""
    app = Line(mutates=False)
    async with begun(app, database_url) as world:
        app.in_next = raising(ValueError("prepare gave rubbish"))
        await app.feed("e1")
        await world.settle()
        assert await event_statuses(app) == {"e1": "pending"}
        await app.automations.resolve("line")
        await world.settle()
        assert app.done == [["e1"], ["e1"]]
        await sound(app)


async def test_an_exception_after_sending_is_no_definite_failure(database_url: str) -> None:
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        app.outside.after = raising(KeyError("in the code that reads the answer"))
        await app.feed("e1")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:reconciliation"
        assert await event_statuses(app) == {"e1": "reserved"}
        assert len(app.outside.effects) == 1


async def test_a_crash_in_flight_can_be_settled(database_url: str) -> None:
    """Its ledger row was left in flight, where neither the host nor a person could reach it."""
    app = Line(Safety.UNKNOWABLE)
    async with begun(app, database_url) as world:
        with dying_at("after-call"):
            await app.feed("e1")
            await world.settle()
        await bury(app)
        await world.settle()
        assert (await app.automations.outputs("line"))[0].status == "indeterminate"
        await app.automations.resolve("line", "skip")
        await world.settle()
        assert await event_statuses(app) == {"e1": "skipped"}
        assert len(app.outside.effects) == 1
        await sound(app)


async def test_exhausted_retries_leave_no_orphaned_reservation(database_url: str) -> None:
    app = Line(failures_max=1)
    async with begun(app, database_url) as world:
        app.in_next = raising(Transient("down"), times=2)
        await app.feed("e1")
        await world.advance("1h")
        assert await open_run_state(app) == "waiting:transient"
        assert await event_statuses(app) == {"e1": "reserved"}
        await sound(app)
        await app.automations.resolve("line")
        await world.settle()
        assert await event_statuses(app) == {"e1": "consumed"}
        assert app.outside.calls == 1


async def test_a_restart_changes_no_counter_and_repeats_nothing(database_url: str) -> None:
    first = Line()
    async with begun(first, database_url) as world:
        first.in_prepare = raising(Transient("down"))
        await first.feed("e1")
        await world.settle()
        before = (await first.automations.show("line")).open_run
        stopped_at = world.clock.now()
    second = Line()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        view = await second.automations.show("line")
        assert view.open_run == before  # the back-off is kept too
        assert view.automation.failures == 1


async def test_events_of_a_topic_whose_reader_is_gone_make_no_loop(database_url: str) -> None:
    """77 of them once kept a scheduler busy for ever."""
    first = Line()
    first.take = 0
    async with begun(first, database_url, "e1", "e2") as world:
        stopped_at = world.clock.now()
    second = Rota(**QUIET)
    auto = plain(second, "line")
    auto.topic("other", external=True)
    looks: list[int] = []

    async def look(ctx: Context, state: Any) -> None:
        looks.append(1)

    auto.consumer("reader", subscribes=["other"], prepare=look)
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.advance("1d")
        assert len(looks) == 1
        assert await open_run_state(second) == "sleeping:event"
        await sound(second)


async def test_a_batch_is_not_stranded_after_its_first_part(database_url: str) -> None:
    """Clearing the flag on every commit stopped after one event."""
    app = Line()
    app.take = 10
    async with begun(app, database_url) as world:
        await app.automations.pause("line")
        await app.feed(*(f"e{n:02d}" for n in range(35)))
        await app.automations.resume("line")
        await world.settle()
        assert [len(ids) for ids in app.done] == [10, 10, 10, 5]


async def test_a_failure_after_the_change_with_new_code_repeats_no_change(
    database_url: str,
) -> None:
    first = Line()
    async with begun(first, database_url) as world:
        first.in_next = raising(ValueError("bug"), times=9)
        await first.feed("e1")
        await world.settle()
        stopped_at = world.clock.now()

    class Mended(Line):
        async def _next(self, ctx: Context, prepared: Prepared, mutation: Any) -> int:
            self.reported.append(mutation)
            return 7

    second = Mended()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.settle()
        assert second.applied == [("applied", "done")]
        assert second.outside.calls == 0
        assert await event_statuses(second) == {"e1": "consumed"}
        await sound(second)


async def test_the_result_of_the_tool_is_kept_not_that_of_mutate(database_url: str) -> None:
    app = Line()
    app.outside.result = {"id": 9}
    async with begun(app, database_url, "e1"):
        assert app.applied == [("applied", {"id": 9})]


async def test_a_user_pause_is_never_overwritten_by_the_system(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.in_prepare = raising(Transient("down"), times=9)
        await app.feed("e1")
        await world.settle()
        await app.automations.pause("line")
        await world.advance("1d")
        assert (await app.automations.show("line")).automation.status == "paused"


async def test_a_first_run_does_not_wait_for_its_interval(database_url: str) -> None:
    app = Line()
    ran: list[str] = []

    async def poll(ctx: Context, state: Any) -> None:
        ran.append(f"{ctx.now:%H:%M}")

    app.line.producer(every="24h", publishes=["work"])(poll)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert ran == ["00:00"]


async def test_bad_parameters_of_a_tool_fail_the_run_instead_of_looping(database_url: str) -> None:
    app = Line()

    def refuse(params: Any) -> Any:
        from rota.errors import BadInput

        raise BadInput("text is missing")

    app.outside.read = refuse  # type: ignore[method-assign]
    async with begun(app, database_url, "e1") as world:
        await world.advance("1h")
        assert await last(app, 1) == ["mutating failed:logic"]
        assert await app.automations.outputs("line") == []
        assert len(app.prepared) == 1


async def test_two_workers_never_run_one_automation_at_once(database_url: str) -> None:
    """The lease of its one row is the single thread; the database keeps it to one row."""
    app = Line()
    async with begun(app, database_url):
        with pytest.raises(Exception, match=r"(?i)unique|constraint"):
            await sql(
                app,
                "insert into runs (id, namespace, kind, name, queue, priority, status,"
                " available_at, root_id, attempt, recoveries, trigger, serial_key, created_at)"
                " select 'x', namespace, kind, name, queue, 0, 'pending', 0, 'x', 1, 0, 'event',"
                " serial_key, 0 from runs where status = 'sleeping'",
            )


async def test_a_reservation_survives_transfer_in_the_history(database_url: str) -> None:
    """Which inputs led to an output was lost once its reservation had moved to a retry."""
    app = Line()
    async with begun(app, database_url) as world:
        app.in_next = dying(app)
        await app.feed("e1")
        await world.settle()
        [output] = await app.automations.outputs("line")
        assert [row.title for row in await app.automations.inputs_of(output.id)] == ["e1"]
        [seen] = await app.automations.inputs("line")
        _, led_to = await app.automations.outcome("line", seen.input.id)
        assert [row.id for row in led_to] == [output.id]
