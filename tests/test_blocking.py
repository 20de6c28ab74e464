"""Rota from sync code, on both databases, from one thread and from many."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from rota import Rota, blocking
from rota.blocking import BlockingClient
from rota.client.start_many import Start
from rota.errors import (
    BadInput,
    RunCancelled,
    RunFailed,
    StoreUnreachable,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
)


def make_app(url: str) -> Rota:
    """An app of sync workflows that say everything there is to say."""
    app = Rota(url, migrate=True, poll_s=0.5)

    @app.step
    def double(n: int) -> int:
        return 2 * n

    @app.workflow
    def twice(n: int) -> int:
        return double(n)

    @app.workflow
    def trace(n: int) -> dict[str, Any]:
        began = blocking.now()
        blocking.sleep("300ms")
        child = blocking.block_on(app.start(twice, n))
        word = blocking.wait_for("word", timeout="20s", type=str)
        slept_s = (blocking.now() - began).total_seconds()
        return {
            "word": word,
            "child": blocking.block_on(child.result()),
            "direct": twice(n + 1),
            "slept": slept_s >= 0.3,
        }

    @app.workflow
    def impatient() -> str:
        try:
            blocking.wait_for("never", timeout="50ms")
        except TimeoutError:
            return "nobody came"
        return "somebody came"

    @app.workflow
    def fails() -> None:
        raise ValueError("no")

    @app.workflow
    def confused() -> str:
        with BlockingClient(url) as client:
            client.start("twice", n=1)
        return "never"

    @app.workflow
    async def mistaken() -> None:
        blocking.sleep("1s")

    return app


@pytest.fixture
def app(database_url: str) -> Rota:
    """The app, its worker not running."""
    return make_app(database_url)


@pytest.fixture
def client(app: Rota) -> Iterator[BlockingClient]:
    """A blocking client, and a worker of the app in another thread."""
    ready, stop = threading.Event(), threading.Event()

    async def work() -> None:
        async with app:
            ready.set()
            await asyncio.to_thread(stop.wait)

    worker = threading.Thread(target=asyncio.run, args=(work(),))
    worker.start()
    assert ready.wait(20)
    with BlockingClient(app) as opened:
        yield opened
    stop.set()
    worker.join()


def test_a_run_is_started_and_awaited(client: BlockingClient) -> None:
    run = client.options(external_id="a").start("twice", 4)
    assert run.result(timeout="20s") == 8
    assert run.status() == "completed"
    assert client.options(external_id="a").start("twice", 4).existed
    assert client.runs.result(run.id) == 8
    assert client.runs.get(run.id).name == "twice"
    assert [found.id for found in client.runs.list(name="twice")] == [run.id]


def test_sync_workflows_sleep_wait_and_have_children(client: BlockingClient) -> None:
    run = client.start("trace", 5)
    client.runs.signal(run.id, "word", "hello")
    answer = run.result(timeout="20s")
    assert answer == {"word": "hello", "child": 10, "direct": 12, "slept": True}


def test_a_sync_workflow_stops_waiting_in_time(client: BlockingClient) -> None:
    assert client.start("impatient").result(timeout="20s") == "nobody came"


def test_many_threads_share_one_client(client: BlockingClient) -> None:
    refs = client.start_many("twice", [(n,) for n in range(40)])
    answers: list[int] = []

    def collect(part: int) -> None:
        answers.extend(ref.result(timeout="30s") for ref in refs[part::8])

    threads = [threading.Thread(target=collect, args=(part,)) for part in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [2 * n for n in range(40)]


def test_errors_arrive_as_they_are(client: BlockingClient) -> None:
    with pytest.raises(RunFailed, match="ValueError: no"):
        client.start("fails").result(timeout="20s")
    with pytest.raises(UnknownWorkflow) as unknown:
        client.start("twcie", 1)
    assert unknown.value.advice == "Did you mean twice?"
    with pytest.raises(BadInput, match=r"\$\.n"):
        client.start("twice", "x")
    with pytest.raises(UnknownRun):
        client.runs.get("nope")


def test_runs_are_cancelled_and_retried(app: Rota) -> None:
    with BlockingClient(app) as client:
        run = client.options(delay="1h").start("twice", 1)
        run.cancel(reason="enough")
        with pytest.raises(RunCancelled):
            run.result(timeout="20s")
        assert client.runs.retry(run.id).id == run.id
        assert list(client.runs.cancel(run.id)) != [run.id], "the retry is a run of its own"
        [other] = client.options(delay="1h").start_many(
            "twice", [Start(kwargs={"n": 2}, external_id="x")]
        )
        with pytest.raises(TimeoutError):
            other.result(timeout="50ms")


def test_a_failed_run_may_be_retried_from_outside(client: BlockingClient) -> None:
    run = client.start("fails")
    with pytest.raises(RunFailed):
        run.result(timeout="20s")
    with pytest.raises(RunFailed):
        client.runs.retry(run.id).result(timeout="20s")
    assert len(client.runs.list(name="fails")) == 2


def test_a_url_is_enough_for_named_workflows(app: Rota) -> None:
    with BlockingClient(app.url, migrate=True) as client:
        run = client.start("whatever", n=1)
        assert client.runs.get(run.id).input == '{"n":1}'
        assert repr(run) == f"<run {run.id}>"


def test_a_closed_client_says_so(app: Rota) -> None:
    client = BlockingClient(app)
    client.runs.list()
    client.close()
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.runs.list()
    assert not [thread for thread in threading.enumerate() if thread.name == "rota-blocking"]


def test_a_caller_that_waits_gets_an_error_when_its_client_is_closed(app: Rota) -> None:
    client = BlockingClient(app)
    run = client.options(delay="1h").start("twice", 1)
    asked = threading.Event()
    caught: list[Exception] = []

    def wait() -> None:
        asked.set()
        try:
            run.result()
        except Exception as error:
            caught.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    asked.wait(10)
    while not client._async.connection.results.awaited:
        pass
    client.close()
    waiter.join(10)
    assert not waiter.is_alive()
    assert isinstance(caught[0], UsageError)
    assert f"waited for run {run.id}" in str(caught[0])


def test_a_database_that_cannot_be_opened_leaves_no_thread() -> None:
    client = BlockingClient("sqlite:////nowhere/at/all.db")
    for _ in range(2):
        with pytest.raises(StoreUnreachable):
            client.runs.list()
    assert not [thread for thread in threading.enumerate() if thread.name == "rota-blocking"]


def test_a_client_inside_a_workflow_is_refused(client: BlockingClient) -> None:
    with pytest.raises(RunFailed, match="where every replay would repeat the call"):
        client.start("confused").result(timeout="20s")


def test_blocking_in_async_code_is_refused(client: BlockingClient) -> None:
    with pytest.raises(RunFailed, match="was called in async code, which it would block"):
        client.start("mistaken").result(timeout="20s")


def test_outside_of_workflows_they_are_plain_calls() -> None:
    blocking.sleep(0.001)
    assert isinstance(blocking.now(), datetime)
    with pytest.raises(UsageError, match="outside of a workflow"):
        blocking.wait_for("x")


async def test_in_a_running_loop_they_are_refused() -> None:
    with pytest.raises(UsageError, match="was called in async code"):
        blocking.sleep(1)
