"""Arguments and options never meet: a workflow may name its parameters like options."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

import msgspec
import pytest

from rota import Client, Rota, RunHandle, Start, StartOptions
from rota.automations.definition import Automation, AutomationOptions
from rota.blocking import BlockingClient, block_on
from rota.client.schedules import Schedules
from rota.client.start import RunOptions
from rota.core.runs.filters import RunFilter, RunSelection
from rota.core.runs.queue_options import QueueOptions
from rota.core.schedules.intent import POLICY_NAMES
from rota.errors import BadInput, BadSetting, UnknownOption, UnknownWorkflow, UsageError
from rota.schedules.definition import PolicyOptions, ScheduleOptions
from rota.settings import SettingOptions, Settings
from rota.testing import virtual
from rota.tools.feed import FeedRead
from rota.workflows.definition import Workflow, WorkflowOptions
from rota.workflows.steps import Step, StepOptions
from tests.workflows.kit import result

GIVEN: dict[str, Any] = {
    "external_id": "mine", "on_conflict": "swerve", "queue": "a road", "priority": 3.5,
    "delay": "a while", "at": "home", "key": "of the door", "tags": ["x"], "retries": "many",
    "timeout": 5, "unique_key": "of my own", "detached": "no",
}  # fmt: skip
assert GIVEN.keys() == StartOptions.__annotations__.keys()


def echo_app(url: str = "sqlite://:memory:") -> tuple[Rota, Workflow[..., dict[str, Any]]]:
    """An app with a workflow that has a parameter for every option, and parents that start it."""
    app = Rota(url, migrate=True, poll_s=0.5)

    @app.workflow
    async def echo(  # noqa: PLR0917
        external_id: str, on_conflict: str, queue: str, priority: float, delay: str, at: str,
        key: str, tags: list[str], retries: str, timeout: int = 30,
        unique_key: str = "", detached: str = "",
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "external_id": external_id, "on_conflict": on_conflict, "queue": queue,
            "priority": priority, "delay": delay, "at": at, "key": key, "tags": tags,
            "retries": retries, "timeout": timeout, "unique_key": unique_key,
            "detached": detached,
        }  # fmt: skip

    @app.workflow
    async def parent() -> list[dict[str, Any]]:
        children = [
            await echo.start(**GIVEN),
            await echo.options(priority=7, tags={"own": "tag"}).start(**GIVEN),
            await app.start(echo, **GIVEN),
            await app.options(priority=7).start("echo", **GIVEN),
            *await echo.options(priority=7).start_many([Start(kwargs=GIVEN, key="k")]),
        ]
        return [await echo(**GIVEN), *[await child.result() for child in children]]

    @app.workflow
    def sync_parent() -> list[dict[str, Any]]:
        child = block_on(echo.options(priority=7).start(**GIVEN))
        return [block_on(child.result()), block_on(echo.aio(**GIVEN))]

    return app, echo


Form = Callable[[Rota, Workflow[..., Any]], Coroutine[Any, Any, RunHandle[Any]]]


async def one_of_many(
    started: Coroutine[Any, Any, list[RunHandle[Any]]],
) -> RunHandle[Any]:
    [run] = await started
    return run


FORMS: dict[str, Form] = {
    "workflow": lambda app, echo: echo.start(**GIVEN),
    "workflow with options": lambda app, echo: echo.options(priority=7).start(**GIVEN),
    "app": lambda app, echo: app.start(echo, **GIVEN),
    "app with options": lambda app, echo: app.options(priority=7).start(echo, **GIVEN),
    "name": lambda app, echo: app.start("echo", **GIVEN),
    "name with options": lambda app, echo: app.options(priority=7).start("echo", **GIVEN),
    "many": lambda app, echo: one_of_many(echo.start_many([Start(kwargs=GIVEN)])),
    "many with options": lambda app, echo: one_of_many(
        echo.options(priority=7).start_many([Start(kwargs=GIVEN, key="k", external_id="e")])
    ),
    "many by app": lambda app, echo: one_of_many(app.start_many(echo, [tuple(GIVEN.values())])),
    "many by name": lambda app, echo: one_of_many(
        app.options(priority=7).start_many("echo", [Start(kwargs=GIVEN)])
    ),
}


@pytest.mark.parametrize("starter", FORMS)
async def test_parameters_named_like_options_arrive(database_url: str, starter: str) -> None:
    app, echo = echo_app()
    async with virtual(app, url=database_url) as world:
        run = await FORMS[starter](app, echo)
        await world.drain()
        assert await result(run) == GIVEN
        stored = await run.run()
        assert stored.priority == (7 if "options" in starter or starter == "many by name" else 0)
        assert (stored.queue, stored.attempt, stored.options) == ("default", 1, None)


@pytest.mark.parametrize("name", ["parent", "sync_parent"])
async def test_parameters_named_like_options_arrive_in_children(
    database_url: str, name: str
) -> None:
    app, _ = echo_app()
    async with virtual(app, url=database_url) as world:
        run = await app.start(name)
        await world.drain()
        answers = await result(run)
        assert answers == [GIVEN] * len(answers)
        children = [one for one in await app.runs.list(name="echo") if one.parent_id == run.id]
        assert len(children) == len(answers)
        urgent = [one for one in children if one.priority == 7]
        assert len(urgent) == (3 if name == "parent" else 1)


def test_parameters_named_like_options_arrive_by_a_blocking_client(database_url: str) -> None:
    app, echo = echo_app(database_url)
    with BlockingClient(app) as client:
        runs = [
            client.start(echo, **GIVEN),
            client.start("echo", **GIVEN),
            client.options(priority=7).start(echo, **GIVEN),
            client.options(priority=7).start("echo", **GIVEN),
            *client.options(priority=7).start_many(echo, [Start(kwargs=GIVEN)]),
        ]
        stored = [client.runs.get(run.id) for run in runs]
    assert [msgspec.json.decode(one.input or "") for one in stored] == [GIVEN] * 5
    assert [one.priority for one in stored] == [0, 0, 7, 7, 7]


async def test_a_bare_client_sends_parameters_named_like_options(database_url: str) -> None:
    app, _ = echo_app()
    async with virtual(app, url=database_url) as world:
        async with Client(database_url, clock=world.clock) as client:
            run = await client.options(external_id="e").start("echo", **GIVEN)
        await world.drain()
        assert await result(app.runs.handle(run.id)) == GIVEN


async def test_a_default_stays_the_codes_when_an_option_has_its_name(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def fetch(url: str, timeout: int = 30, key: str = "none") -> str:
        return f"{url} {timeout} {key}"

    async with virtual(app, url=database_url) as world:
        runs = [
            await fetch.options(timeout="1h", key="limit").start("u"),
            await fetch.start("u", timeout=5, key="mine"),
            await fetch.options(timeout="1h", key="limit").start("u", 5, "mine"),
        ]
        await world.drain()
        assert [await result(run) for run in runs] == ["u 30 none", "u 5 mine", "u 5 mine"]
        assert [(await run.run()).limit_key for run in runs] == ["limit", None, "limit"]


async def test_every_option_applies_to_start_many(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow(n: int) -> int:
        return n

    async with virtual(app, url=database_url) as world:
        starter = flow.options(
            queue="slow", priority=2, delay="1h", key="all", tags={"a": "b"}, retries=3,
            timeout="2h",
        )  # fmt: skip
        runs = await starter.start_many(
            [(1,), Start((2,), key="own"), Start((3,), external_id="e")]
        )
        single = await starter.start(4)
        rows = [await run.run() for run in (*runs, single)]
        assert [row.limit_key for row in rows] == ["all", "own", "all", "all"]
        assert [row.external_id for row in rows] == [None, None, "e", None]
        shared = {(r.queue, r.priority, r.available_at, r.tags, r.options) for r in rows}
        assert len(shared) == 1
        assert rows[0].available_at == world.clock.now() + 3600 * 1_000_000


async def test_options_of_a_single_start_are_refused_for_many(database_url: str) -> None:
    app, echo = echo_app()

    @app.workflow(name="mistaken parent")
    async def mistaken(external_id: str | None) -> None:
        if external_id is not None:
            await echo.options(external_id=external_id).start_many([])
        await echo.options(on_conflict="reject").start_many([])

    async with virtual(app, url=database_url) as world:
        with pytest.raises(BadInput, match="external_id='e' applies to one run"):
            await echo.options(external_id="e").start_many([])
        with pytest.raises(BadInput, match="no on_conflict"):
            await echo.options(on_conflict="reject").start_many([])
        for given in ("e", None):
            run = await mistaken.start(given)
            await world.drain()
            assert await run.status() == "failed:logic"
        assert await app.runs.list(name="echo") == []


async def test_an_item_that_is_not_a_tuple_is_refused_whole(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow(a: str, b: str, c: str) -> str:
        return a + b + c

    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="'abc', not a tuple of arguments"):
            await flow.start_many([("a", "b", "c"), "abc"])  # type: ignore[list-item]
        assert await app.runs.list() == []


async def test_a_wrong_conflict_policy_is_refused() -> None:
    app, echo = echo_app()
    with pytest.raises(BadInput, match="'rejct' is not a policy"):
        echo.options(on_conflict="rejct")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="'rejct' is not a policy"):
        app.options(on_conflict="rejct")  # type: ignore[arg-type]


@pytest.mark.parametrize("tags", [["a"], "a", {"a": 1}, {1: "a"}, {"a": None}, 7])
async def test_tags_that_no_filter_could_find_are_refused(tags: Any) -> None:
    app, flow = echo_app()
    async with virtual(app):
        with pytest.raises(BadInput, match="is not a dict of texts"):
            await flow.options(tags=tags).start(**GIVEN)
        with pytest.raises(BadInput, match="is not a dict of texts"):
            await flow.options(tags=tags).start_many([Start(kwargs=GIVEN)])
        assert await app.runs.list() == []


async def test_a_workflow_starts_by_the_app_that_registers_it() -> None:
    app, echo = echo_app()
    with pytest.raises(UsageError, match="not connected"):
        await echo.start(**GIVEN)
    assert not inspect.iscoroutine(echo.options(queue="slow"))
    async with virtual(app) as world:
        runs = await asyncio.gather(*[echo.start(**GIVEN) for _ in range(5)])
        await world.drain()
        assert [await run.result() for run in runs] == [GIVEN] * 5


# -- misspelt options --------------------------------------------------------------------------

APP, ECHO = echo_app()
BLOCKING = BlockingClient("sqlite://:memory:")
MISSPELT: dict[str, tuple[Callable[[], Any], str, str]] = {
    "workflow.options": (lambda: ECHO.options(external_idd="x"), "external_idd", "external_id"),  # type: ignore[call-arg]
    "app.options": (lambda: APP.options(queu="x"), "queu", "queue"),  # type: ignore[call-arg]
    "blocking.options": (lambda: BLOCKING.options(prio=1), "prio", "priority"),  # type: ignore[call-arg]
    "app.workflow": (lambda: APP.workflow(retrys=3), "retrys", "retries"),  # type: ignore[call-overload]
    "app.step": (lambda: APP.step(time_out=3), "time_out", "timeout"),  # type: ignore[call-overload]
    "app.schedule": (lambda: APP.schedule("5m", overlp="skip"), "overlp", "overlap"),  # type: ignore[call-arg]
    "app.schedule, own": (lambda: APP.schedule("5m", timezon="UTC"), "timezon", "timezone"),  # type: ignore[call-arg]
    "app.automation": (lambda: APP.automation("x", aproval=True), "aproval", "approval"),  # type: ignore[call-arg]
    "app.queue": (lambda: APP.queue("x", concurency=1), "concurency", "concurrency"),  # type: ignore[call-arg]
    "schedules.create": (
        lambda: asyncio.run(APP.schedules.create("s", "echo", "5m", replce=True)),  # type: ignore[call-arg]
        "replce", "replace",
    ),
    "schedules.update": (
        lambda: asyncio.run(APP.schedules.update("s", missed_mx=1)), "missed_mx", "missed_max",  # type: ignore[call-arg]
    ),
    "list": (lambda: asyncio.run(APP.runs.list(stat="failed")), "stat", "status"),  # type: ignore[call-arg]
    "feed": (lambda: FeedRead("news", bass="x"), "bass", "base"),  # type: ignore[call-arg]
}  # fmt: skip


@pytest.mark.parametrize("call", MISSPELT)
def test_a_misspelt_option_is_refused_with_the_nearest_one(call: str) -> None:
    ask, misspelt, meant = MISSPELT[call]
    with pytest.raises(UnknownOption, match=f"no option '{misspelt}'") as caught:
        ask()
    assert caught.value.advice == f"Did you mean {meant}?"
    assert isinstance(caught.value, UsageError)
    assert isinstance(caught.value, TypeError)


def test_an_option_that_is_like_no_other_is_refused_with_all_of_them() -> None:
    with pytest.raises(UnknownOption, match="no option 'colour'") as caught:
        APP.queue("x", colour="red")  # type: ignore[call-arg]
    options = (
        "age, concurrency, concurrency_per_key, open_per_key, rate, round_robin, weight, "
        "worker_concurrency"
    )
    assert caught.value.advice == f"Its options: {options}."


def test_a_misspelt_setting_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(BadSetting, match="there is no setting slotz") as caught:
        Rota(slotz=1)  # type: ignore[call-arg]
    assert "Did you mean slots?" in caught.value.advice


# -- one list each -----------------------------------------------------------------------------


def named(call: Callable[..., Any]) -> set[str]:
    """The names of a function's keyword-only parameters."""
    found = inspect.signature(call).parameters.values()
    return {each.name for each in found if each.kind is each.KEYWORD_ONLY}


def test_options_for_type_checkers_are_those_of_the_code() -> None:
    assert list(StartOptions.__annotations__) == list(RunOptions.__struct_fields__)
    assert get_type_hints(SettingOptions) == get_type_hints(Settings)
    assert PolicyOptions.__annotations__.keys() == POLICY_NAMES.keys()
    assert WorkflowOptions.__annotations__.keys() == named(Workflow.__init__)
    assert StepOptions.__annotations__.keys() == named(Step.__init__)
    checked = {name.removesuffix("_at") for name in RunFilter.__struct_fields__}
    assert RunSelection.__annotations__.keys() == checked
    made = Automation(
        "x", approval=True, timezone="UTC", queue="q", fix=None, dead_letter="d", retries=2,
        failed_reads="skip", skip_after=3,
    )  # fmt: skip
    levels = made.policy._asdict() | vars(made)
    assert {name: levels[name] for name in AutomationOptions.__annotations__} == {
        "approval": True, "timezone": "UTC", "queue": "q", "fix": None, "dead_letter": "d",
        "retries": 2, "failed_reads": "skip", "skip_after": 3,
    }  # fmt: skip
    assert not ScheduleOptions.__annotations__.keys() & named(Schedules.create)
    assert QueueOptions.__annotations__.keys() == {
        "worker_concurrency", "concurrency", "concurrency_per_key", "rate", "open_per_key",
        "weight", "age", "round_robin",
    }  # fmt: skip


async def test_an_app_refuses_to_start_a_workflow_of_another_app() -> None:
    app, other = Rota(), Rota()

    @other.workflow
    async def report() -> None: ...

    async with virtual(app):
        with pytest.raises(UsageError, match="workflow report belongs to another app"):
            await app.start(report)
        with pytest.raises(UsageError, match="workflow report belongs to another app"):
            await app.start_many(report, [()])
        with pytest.raises(UnknownWorkflow, match="there is no workflow 'report'"):
            _at_the_call = app.start("report")
        scheduled = await app.schedules.create("daily", report, "0 9 * * *", timezone="UTC")
        assert scheduled.intent.workflow == "report"  # the other app may execute it
