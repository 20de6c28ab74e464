"""The cost of a handler run in the database: how many statements, in how many transactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from rota.store.backend.postgres import PostgresTx
from rota.store.backend.sqlite_threads import SqliteTx
from rota.testing import virtual
from tests.automations.kit import Line, begun, plain, sql

# Statements of the engine for all runs together, whatever their kind.
SHARED = {
    "wake_due", "next_due", "claim_runs_by_code", "ready_runs_by_code", "take_runs", "notify",
    "server_clock",
}  # fmt: skip


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements, in order."""
    found: list[str] = []

    def noting(ask: Callable[..., Any]) -> Callable[..., Any]:
        def note(tx: Any, query: str, *args: Any, **words: Any) -> Any:
            if query not in SHARED:
                found.append(query)
            return ask(tx, query, *args, **words)

        return note

    for kind in (SqliteTx, PostgresTx):
        for method in ("rows", "many", "change"):
            monkeypatch.setattr(kind, method, noting(getattr(kind, method)))
    return found


BEGIN = ["hold_open_runs", "put_handler_runs"]
PREPARE = ["peek_events", "prepare_handler_run", "reserve_events", "note_held"]
CALL = ["move_handler_run", "put_mutation"]
CALLED = ["move_handler_run", "move_mutation"]
COMMIT = [
    "hold_open_runs", "note_used", "use_events", "commit_handler_runs", "commit_handlers",
    "complete_runs", "insert_open_runs",
]  # fmt: skip
# Databases on which one statement may write several times.
FUSED_PREPARE = ["peek_events", "note_prepared"]
FUSED_COMMIT = ["hold_open_runs", "close_handler_runs", "complete_runs", "insert_open_runs"]


@pytest.mark.parametrize("mutates", [True, False])
async def test_an_iteration_asks_for_no_more_than_it_needs(
    database_url: str, asked: list[str], mutates: bool
) -> None:
    app = Line(mutates=mutates)
    async with begun(app, database_url) as world:
        await app.feed("e1")
        asked.clear()
        await world.settle()
        change = [*CALL, *CALLED] if mutates else []
        wanted = [*BEGIN, *PREPARE, *change, *COMMIT]
        if app.connection.database.dialect.fuses:
            change = ["begin_call", "end_call"] if mutates else []
            wanted = [*BEGIN, *FUSED_PREPARE, *change, *FUSED_COMMIT]
        assert asked == wanted


async def test_handler_runs_of_many_automations_share_their_statements(
    database_url: str, asked: list[str]
) -> None:
    """30 automations with a consumer each: their first runs begin, look and end in groups."""
    app = Line()
    for number in range(30):
        _declare(app, f"other-{number:02}")
    async with virtual(app, url=database_url) as world:
        asked.clear()
        await world.settle()
        assert {one.status for one in await app.automations.list()} == {"Idle"}
        for query in ("hold_open_runs", "put_handler_runs", "insert_open_runs", "complete_runs"):
            assert 1 <= asked.count(query) <= 6, query
        assert asked.count("fix_sources") <= 3
        looks = asked.count("peek_topics") + asked.count("peek_events")
        assert looks <= (3 if app.connection.database.dialect.fuses else 40)


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_handler_run_that_leaves_nothing_costs_few_round_trips(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four for its beginning (begin, lock, insert, commit), six for its end."""
    app = Line()
    idle = plain(app, "idle")

    topic = idle.topic("in")
    idle.consumer("reader", subscribes=[topic], prepare=_trips)

    @idle.producer(every="1d", publishes=[topic])
    async def look(ctx: Any, state: Any) -> None:
        return None

    async with begun(app, database_url) as world:
        await app.automations.run_now("idle")
        trips: defaultdict[Any, list[str]] = defaultdict(list)  # by connection
        for method in ("fetch", "execute"):
            send = getattr(asyncpg.Connection, method)
            monkeypatch.setattr(asyncpg.Connection, method, _noting_trips(send, trips))
        await world.settle()
        monkeypatch.undo()
        runs = await app.automations.activity("idle")
        assert [one.run.cause for one in runs] == ["manual", "schedule", "event"]
        ours = [
            sent[at : sent.index("commit", at) + 1]
            for sent in trips.values()
            for at, text in enumerate(sent)
            if text == "begin"
        ]
        assert sorted(len(one) for one in ours if "handlers" in str(one)) == [4, 6], ours


def _noting_trips(
    send: Callable[..., Any], trips: defaultdict[Any, list[str]]
) -> Callable[..., Any]:
    def note(connection: Any, text: str, *values: Any, **words: Any) -> Any:
        trips[connection].append(" ".join(text.split()))
        return send(connection, text, *values, **words)

    return note


async def test_a_publish_asks_for_no_more_than_it_needs(
    database_url: str, asked: list[str]
) -> None:
    app = Line()
    async with begun(app, database_url):
        await app.automations.pause("line")
        asked.clear()
        await app.feed("e1")
        assert asked == [
            "lock_automation", "topics_of", "put_inputs", "publish_events", "put_causes",
            "has_skipped_input", "mark_readers", "poke_open_run",
        ]  # fmt: skip


async def test_a_list_is_read_with_few_statements_however_long_it_is(
    database_url: str, asked: list[str]
) -> None:
    app = Line()
    for number in range(7):
        other = plain(app, f"other-{number}")
        topic = other.topic("in", external=True)
        other.consumer("reader", subscribes=[topic], prepare=_trips)
    async with begun(app, database_url) as world:
        for number in range(0, 7, 2):
            await app.automations.publish(f"other-{number}", "in", "e1", 1)
        await world.settle()
        alone = [await app.automations.show(f"other-{number}") for number in range(7)]
        asked.clear()
        found = await app.automations.list()
        assert len(asked) <= 12
        assert found[1:] == alone
        assert [one.status for one in alone] == ["Needs attention", "Idle"] * 3 + [
            "Needs attention"
        ]
        assert [one.message_id for one in found[1].skips] == ["e1"]
        assert found[1].pending == {"in": 1}


async def _trips(ctx: Any, state: Any) -> None:
    if await ctx.peek("in"):
        raise ValueError("a bug")


async def test_versions_are_read_up_to_a_limit(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for number in range(3):
            app.line.topic(f"more-{number}", external=True)
            app.line.consumer(f"reader-{number}", subscribes=[f"more-{number}"], prepare=_trips)
            await app.automations.deploy("line")
        assert [one.version for one in await app.automations.versions("line", limit=2)] == [4, 3]
        assert len(await app.automations.versions("line")) == 4


async def test_new_automations_are_deployed_with_few_statements(
    database_url: str, asked: list[str]
) -> None:
    app = Line()
    for number in range(30):
        _declare(app, f"other-{number:02}")
    async with virtual(app, url=database_url) as world:
        put = [query for query in asked if query not in ("put_worker", "put_queue")]
        for query in ("add_automations", "put_definitions", "put_handlers", "insert_open_runs"):
            assert put.count(query) == 1
        await world.settle()
        assert {one.status for one in await app.automations.list()} == {"Idle"}
        asked.clear()
        await app.automations.deploy_all()
        assert asked == ["automation_digests", "refused_deploys"]


def _declare(app: Line, name: str) -> None:
    other = plain(app, name)
    topic = other.topic("in", external=True)
    other.consumer("reader", subscribes=[topic], prepare=_trips)


async def test_an_automation_that_another_process_deploys_first_is_deployed_by_both(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither knew of it when it looked."""
    first, second = Line(), Line()
    async with virtual(first, url=database_url) as world:
        await world.settle()

        async def nothing(tx: Any, *, namespace: str) -> dict[str, str]:
            return {}

        monkeypatch.setattr("rota.store.automations.state.digests", nothing)
        async with virtual(second, url=database_url):
            assert [one.version for one in await second.automations.versions("line")] == [1]
            assert second.automations.executor is not None
            assert list(second.automations.executor.code.digests) == ["line"]


async def test_a_claim_sends_no_more_for_many_automations_than_for_few(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements that a worker sends for an event, by the number of automations it has."""

    async def sent_bytes(count: int) -> int:
        app = Line()
        for number in range(count):
            _declare(app, f"other-{number:04}")
        sent: list[str] = []
        async with begun(app, database_url) as world:
            with monkeypatch.context() as patch:
                for kind in (SqliteTx, PostgresTx):
                    for method in ("rows", "many", "change"):
                        patch.setattr(kind, method, _noting_values(getattr(kind, method), sent))
                await app.feed("e1")
                await world.settle()
        assert app.done == [["e1"]]
        return sum(map(len, sent))

    few = await sent_bytes(1)
    async with virtual(Line(), url=database_url) as world:
        await sql(world.app, "delete from events")
    assert await sent_bytes(300) <= few * 1.1


def _noting_values(ask: Callable[..., Any], sent: list[str]) -> Callable[..., Any]:
    def note(tx: Any, query: str, *args: Any, **words: Any) -> Any:
        sent.append(repr((args, words)))
        return ask(tx, query, *args, **words)

    return note
