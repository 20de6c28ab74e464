"""The app: declaring workflows, steps and queues, and running them for real."""

from __future__ import annotations

import pytest

from rota import RetryPolicy, Rota, Settings, sleep
from rota.errors import BadInput, BadSetting, UsageError
from tests.workflows.kit import result


def test_a_workflow_is_known_by_its_name() -> None:
    app = Rota()

    @app.workflow
    async def plain() -> None:
        """The code of the workflow."""

    @app.workflow(name="other", version="3")
    async def named() -> None:
        return None

    assert list(app.workflows) == ["plain", "other"]
    assert plain.__doc__ == "The code of the workflow."
    assert repr(named) == "<workflow other>"
    assert named.version == "3"


def test_a_name_may_be_registered_once() -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        return None

    with pytest.raises(UsageError, match="flow is registered twice"):

        @app.workflow(name="flow")
        async def other() -> None:
            return None


def test_a_workflow_names_all_its_parameters() -> None:
    app = Rota()
    with pytest.raises(BadInput, match="args"):

        @app.workflow
        async def flow(*args: int) -> None:
            return None


def test_a_decorator_with_options_may_be_used_twice() -> None:
    app = Rota()
    patient = app.step(retries=4)
    insistent = app.workflow(retries=2)

    @patient
    async def one() -> None:
        return None

    @patient
    async def two() -> None:
        return None

    @insistent
    async def three() -> None:
        return None

    @insistent
    async def four() -> None:
        return None

    assert (one.retry.attempts, two.retry.attempts) == (5, 5)
    assert (three.retry.attempts, four.retry.attempts) == (3, 3)


def test_policies_that_make_no_sense_are_refused_where_they_are_written() -> None:
    app = Rota()
    with pytest.raises(BadSetting, match="negative"):
        app.step(retries=-1)(sleep)
    with pytest.raises(BadSetting):
        RetryPolicy(attempts=0)
    with pytest.raises(BadSetting):
        RetryPolicy(factor=0.5)
    with pytest.raises(BadInput, match="not a duration"):
        app.step(timeout="soon")(sleep)


def test_settings_come_as_values_or_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SLOTS", "7")
    assert Rota(threads=3).settings.threads == 3
    assert Rota().settings.slots == 7
    assert Rota(slots=8).settings.slots == 7  # a deployment wins over the code
    assert Rota(settings=Settings(slots=9)).settings.slots == 9
    monkeypatch.delenv("ROTA_SLOTS")
    with pytest.raises(UsageError, match="not both"):
        Rota(settings=Settings(), slots=3)
    monkeypatch.setenv("ROTA_SEATS", "7")
    with pytest.raises(BadSetting, match="ROTA_SEATS is no longer read"):
        Rota()
    monkeypatch.delenv("ROTA_SEATS")
    with pytest.raises(BadSetting, match="there is no setting seats") as caught:
        Rota(seats=7)  # type: ignore[call-arg]
    assert caught.value.advice == "It is called slots now."
    with pytest.raises(BadSetting, match="slot_count"):
        Rota(slot_count=3)  # type: ignore[call-arg]
    with pytest.raises(BadSetting, match="slots"):
        Rota(slots=0)


def test_the_version_of_a_workflow_follows_its_source() -> None:
    one, two = Rota(), Rota()

    @one.workflow(name="flow")
    async def first() -> int:
        return 1

    @two.workflow(name="flow")
    async def second() -> int:
        return 2

    assert first.version != second.version


async def test_the_example_of_the_first_page_runs_for_real(database_url: str) -> None:
    app = Rota(database_url, migrate=True, poll_s=0.5)
    calls: list[str] = []

    @app.step(retries=5)
    async def charge(order_id: str) -> str:
        calls.append(order_id)
        return f"receipt of {order_id}"

    @app.workflow
    async def fulfil(order_id: str) -> str:
        receipt = await charge(order_id)
        await sleep("50ms")
        return receipt

    async with app:
        run = await app.options(external_id="order-7").start(fulfil, "order-7")
        assert await result(run) == "receipt of order-7"
        assert calls == ["order-7"]
        assert app.healthy()


async def test_an_app_can_be_used_again_after_it_was_closed(database_url: str) -> None:
    app = Rota(database_url, migrate=True)

    @app.workflow
    async def flow() -> int:
        return 1

    for _ in range(2):
        async with app:
            assert await result(await app.start(flow)) == 1


async def test_connecting_twice_is_harmless(database_url: str) -> None:
    app = Rota(database_url, migrate=True)
    assert await app.connect() is app
    database = app.connection.database
    await app.connect()
    assert app.connection.database is database
    await app.close()
    await app.close()


async def test_a_connected_app_starts_but_does_not_perform(database_url: str) -> None:
    app = Rota(database_url, migrate=True)

    @app.workflow
    async def flow() -> int:
        return 1

    async with app.connected():
        run = await app.start(flow)
        assert await app.workers() == []
        assert await run.status() == "pending"
    async with app:
        assert await app.runs.handle(run.id).result(timeout=60) == 1
