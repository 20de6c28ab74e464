"""Fork and second event loops: a client works there, or says what to do. It never hangs."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading

import pytest

from rota import Client, Rota
from rota.errors import UsageError
from tests.kit import ROOT, select

# A real fork in a child process, as gunicorn --preload and prefork pools make them.
BLOCKING = """
import os, sys
from rota.blocking import BlockingClient

client = BlockingClient(sys.argv[1], migrate=True)
before = client.start("work", n=1)
children = []
for number in range(2):
    pid = os.fork()
    if not pid:
        mine = client.start("work", n=number)
        assert before.status() == mine.status() == "pending"
        assert {run.id for run in client.runs.list()} >= {before.id, mine.id}
        client.runs.cancel(mine.id)
        if number:
            client.close()
        sys.exit(0)  # with all that Python does at its end
    children.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0]
after = client.start("work", n=3)  # the parent's connection is none the worse
assert after.status() == "pending"
client.runs.cancel(before.id)
try:
    before.result(timeout=60)
except Exception as error:
    print(type(error).__name__)
client.close()
"""

ASYNC = """
import asyncio, os, sys
from rota import Client
from rota.errors import UsageError

client = Client(sys.argv[1], migrate=True)

async def parent():
    await client.connect()
    await client.start("work")
    pid = os.fork()
    if not pid:
        asyncio.run(child())
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    await client.start("work")
    await client.close()
    print("parent ended")

async def child():
    try:
        await client.start("work")
    except UsageError as error:
        assert "before a fork" in str(error), error
        assert "connect()" in error.advice
    else:
        raise AssertionError("not refused")
    await client.connect()
    await client.start("work")
    await client.close()

asyncio.run(parent())
"""


def _run(script: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", script, url],
        capture_output=True, text=True, timeout=90, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_blocking_client_used_before_a_fork_works_in_both_processes(
    database_url: str,
) -> None:
    assert _run(BLOCKING, database_url).split() == ["RunCancelled"]
    counts = await select(database_url, "select status, count(*) from runs group by status")
    assert sorted(counts) == [("cancelled", 3), ("pending", 1)]


async def test_an_async_client_connected_before_a_fork_says_so_and_connects_again(
    database_url: str,
) -> None:
    assert _run(ASYNC, database_url) == "parent ended\n"
    assert await select(database_url, "select count(*) from runs") == [(3,)]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_of_a_closed_loop_is_refused_in_the_next_until_it_connects_again(
    database_url: str,
) -> None:
    client = Client(database_url, migrate=True)

    async def first() -> str:
        await client.connect()
        return (await client.start("work")).id

    async def second(run_id: str) -> None:
        for verb in (
            client.start("work"),
            client.runs.get(run_id),
            client.runs.handle(run_id).result(),
        ):
            with pytest.raises(UsageError, match="another event loop, which is closed") as caught:
                await verb
            assert "connect()" in caught.value.advice
        await client.connect()
        await client.start("work")
        assert await client.runs.counts() == {"pending": 2}

    async def third() -> None:
        await client.close()
        async with client:
            assert await client.runs.counts() == {"pending": 2}

    run_id = asyncio.run(first())
    asyncio.run(second(run_id))
    asyncio.run(third())
    gc.collect()  # what was not closed warns here


async def test_a_client_of_a_running_loop_is_refused_in_another_one(database_url: str) -> None:
    said: list[str] = []

    async def elsewhere() -> None:
        for verb in (client.runs.counts(), client.connect(), client.close()):
            with pytest.raises(UsageError, match="another event loop") as caught:
                await verb
            said.append(caught.value.advice)

    async with Client(database_url, migrate=True) as client:
        thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(said) == 3
        assert "BlockingClient" in said[0]
        assert await client.runs.counts() == {}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_app_works_in_the_next_loop_though_nobody_closed_it(database_url: str) -> None:
    app = Rota(database_url, migrate=True)

    @app.workflow
    async def add(n: int) -> int:
        return n + 1

    async def once(n: int) -> int:
        await app.start_worker()
        return int(await (await app.start(add, n)).result(timeout=60))

    assert asyncio.run(once(1)) == 2
    assert asyncio.run(once(2)) == 3
    asyncio.run(app.close())
    gc.collect()
