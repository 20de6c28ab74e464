"""The automation that crash tests kill, and one life of a process that works on it.

    look (producer) → found: e1, e2 → send (consumer, one change for both)
                    → sent: s-e1, s-e2 → close (consumer)

Time is virtual, and each life begins half an hour after the one before: the lease of the dead has
lapsed by then, and what takes time to settle has settled. For a slow counterpart a life begins one
second after the one before. Nothing here waits.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sqlite3
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from rota import Rota, faults, testing
from rota.automations import Automation, Change, Context, MutationResult, Prepared, Topic
from rota.core.time.instants import MINUTE, SECOND
from rota.errors import OutcomeUnknown
from rota.testing import START, virtual
from rota.tools import (
    Applied,
    Call,
    Command,
    FileAppend,
    FileWrite,
    HttpWrite,
    Lookup,
    NotApplied,
    SendMail,
    SqlWrite,
    Tool,
    Verdict,
    tool,
)
from tests.kit.builders import raw

NAME = "line"
EFFECT = "e1-e2"  # the text that the counterpart gets, once
BESIDE_SQLITE3 = "sql with sqlite3 beside it"
SLOW = frozenset({"a slow counterpart", "a slow counterpart with a lost answer"})
APPROVED = frozenset({"append with an approval"})  # kinds with a change that a person must approve
BAD_ITEM = "append with a bad item"  # one event is skipped, and leaves a dead letter
CONSUMED = """
select events.message_id from reservations join events on events.id = reservations.event_id
where reservations.act = 'consumed' and events.namespace = '{namespace}'
"""
# The command is its own counterpart: it kills the worker that started it.
SEND = """
[ "$MOMENT" = received ] && kill -9 $PPID && exit 1
echo "$1" >> "$BOOK"
[ "$MOMENT" = applied ] && kill -9 $PPID
exit 0
"""
FIND = '[ -e "$BOOK" ] || exit 1; grep -qx "$1" "$BOOK"'


class Life(NamedTuple):
    """The arguments of one process."""

    url: str
    namespace: str
    kind: str
    place: dict[str, str]  # where the counterpart is
    folder: Path
    number: int = 1
    kill_at: int = 0  # the nth point that is reached; 0 is never
    moment: str = ""  # at which the counterpart kills
    resolve: str = ""  # what a person says first


def make_tool(life: Life, app: Rota) -> tuple[Tool, dict[str, Any]]:
    """The tool of a kind, and the parameters of its call."""
    if life.kind in SLOW:
        return _slow(life, app), {"text": EFFECT}
    kind, _, option = life.kind.partition(" with")
    return _MAKERS[kind](life, option.strip())


def _slow(life: Life, app: Rota) -> Tool:
    """A tool of the user's own. Its counterpart shows an effect 5 s after the request."""
    book = Path(life.place["book"])

    @tool(safety="reconcilable")
    async def enter(text: str, call: Call) -> None:
        with book.open("a") as file:
            file.write(f"{text} {call.key} {app.clock.now()}\n")
        faults.reach("entered")
        if life.moment == "entered":
            os.kill(os.getpid(), signal.SIGKILL)
        if life.kind.endswith("a lost answer"):
            raise OutcomeUnknown("the answer was lost")

    @enter.reconcile
    async def find(call: Call) -> Verdict:
        lines = book.read_text().splitlines() if book.exists() else []
        entered = [int(line.split()[2]) for line in lines if line.split()[1] == call.key]
        there = any(at <= app.clock.now() - 5 * SECOND for at in entered)
        return Applied(None) if there else NotApplied("it is not in the book")

    return enter


def _http(life: Life, option: str) -> tuple[Tool, dict[str, Any]]:
    tool = HttpWrite(
        base=life.place["site"],
        key_header="Idempotency-Key" if option == "a key" else None,
        lookup=Lookup("/effects/{id}") if option == "a lookup" else None,
    )
    return tool, {"url": "/effects", "json": {"id": EFFECT}}


def _mail(life: Life, option: str) -> tuple[Tool, dict[str, Any]]:
    async def is_filed(message_id: str) -> bool:
        return message_id in Path(life.place["filed"]).read_text().splitlines()

    tool = SendMail(
        "127.0.0.1", "us@b.org", port=int(life.place["port"]), tls="none",
        lookup=is_filed if option == "a lookup" else None,
    )  # fmt: skip
    return tool, {"to": ["you@b.org"], "subject": EFFECT, "text": "Hello"}


def _append(life: Life, option: str) -> tuple[Tool, dict[str, Any]]:
    return FileAppend(life.place["folder"]), {"path": "book", "text": EFFECT}


def _file(life: Life, option: str) -> tuple[Tool, dict[str, Any]]:
    return FileWrite(life.place["folder"]), {"path": "book", "text": EFFECT}


def _sql(life: Life, option: str) -> tuple[Tool, dict[str, Any]]:
    """Into the database of Rota, or into a file that user code writes with `sqlite3`."""
    tool = SqlWrite(life.place["sql"], "insert into sent values (:place, :id)")
    return tool, {"place": life.namespace, "id": EFFECT}


def _command(life: Life, option: str) -> tuple[Tool, dict[str, Any]]:
    shell = ["/bin/sh", "-c"]
    env = {"BOOK": life.place["book"], "MOMENT": life.moment}
    lookup = [*shell, FIND, "sh"] if option == "a lookup" else None
    return Command([*shell, SEND, "sh"], env=env, lookup=lookup), {"args": [EFFECT]}


class SqliteUser:
    """User code that keeps a connection of `sqlite3` to the file of the tool. It notes each commit
    that SQLite acknowledged."""

    def __init__(self, life: Life) -> None:
        self._noted = life.folder / "noted"
        self._connection: sqlite3.Connection | None = None
        if life.kind == BESIDE_SQLITE3:
            self._connection = sqlite3.connect(life.place["sql"].removeprefix("sqlite:///"))

    def write(self) -> None:
        """Commit one row."""
        if self._connection is None:
            return
        with self._connection:
            row = self._connection.execute("insert into beside default values returning id")
            number = row.fetchone()[0]
        with self._noted.open("a") as file:
            file.write(f"{number}\n")


_MAKERS = {
    "http": _http, "mail": _mail, "append": _append, "file": _file, "sql": _sql,
    "command": _command,
}  # fmt: skip


def one_change(send: Tool, params: dict[str, Any]) -> Change:
    """The work of every other kind."""
    return send.change(**params)


def _two_changes(send: Tool, params: dict[str, Any]) -> Any:
    return [send.change(**params), send.change(**params)]


def _no_return(send: Tool, params: dict[str, Any]) -> Any:
    send.change(**params)


# Kinds with a mutate that would lose a change: it must stop instead.
CALLS: dict[str, Any] = {
    "append with two changes": _two_changes,
    "append without return": _no_return,
}


def make_app(life: Life) -> Rota:
    """The app with its one automation."""
    app = Rota(life.url, namespace=life.namespace, keep_days=0, recoveries_max=1000)
    line = app.automation(NAME, timezone="UTC", approval=life.kind in APPROVED)
    found, sent = line.topic("found"), line.topic("sent")
    send, params = make_tool(life, app)
    user = SqliteUser(life)
    odd = _fail_on_one_item(line) if life.kind == BAD_ITEM else []

    @line.producer(every="24h", publishes=[found, *odd])
    async def look(ctx: Context, state: Any) -> int:
        first = [(found, "e1"), (found, "e2"), *((topic, "bad") for topic in odd)]
        for topic, each in first if state is None else ():
            ctx.publish(topic, each, {"from": "outside"})
        return int(state or 0) + 1

    @line.consumer(subscribes=[found], publishes=[sent])
    class Send:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            user.write()
            events = await ctx.peek(found)
            return Prepared(events, [event.id for event in events], "Send them")

        async def mutate(self, ctx: Context, prepared: Prepared) -> Any:
            assert "-".join(prepared.data) == EFFECT
            return CALLS.get(life.kind, one_change)(send, params)

        async def next(self, ctx: Context, prepared: Prepared, mutation: MutationResult) -> Any:
            user.write()
            for each in prepared.data:
                ctx.publish(sent, f"s-{each}", mutation.status)
            return [*prepared.data, mutation.status] if prepared.data else None

    @line.consumer(subscribes=[sent])
    class Close:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(sent)
            if events:
                faults.reach("closing")
            return Prepared(events, [*(state or []), *(event.id for event in events)])

        async def next(self, ctx: Context, prepared: Prepared, mutation: MutationResult) -> Any:
            return prepared.data

    return app


def _fail_on_one_item(line: Automation) -> list[Topic]:
    """A topic with a consumer that fails on every event, and skips it after the second failure."""
    odd, letters = line.topic("odd"), line.topic("letters")

    @line.consumer(subscribes=[odd], skip_after=2, dead_letter=letters)
    class Odd:
        async def prepare(self, ctx: Context, state: Any) -> Prepared:
            if await ctx.peek(odd):
                raise ValueError("cannot read this one")
            return Prepared()

    return [odd]


async def live(life: Life) -> dict[str, Any]:
    """Take up what there is, continue until nothing moves by itself, and tell how it is."""
    app = make_app(life)
    # A process that is gone loses its runs at once, so a new one may take over within a second.
    pause = SECOND if life.kind in SLOW else 30 * MINUTE
    async with virtual(app, start=START + life.number * pause, url=life.url) as world:
        faults.reach("taking-up")
        if life.resolve == "approve":
            await app.automations.approve(NAME)
        elif life.resolve:
            await app.automations.resolve(NAME, life.resolve)  # type: ignore[arg-type]
        await world.settle()
        await world.beat()
        await world.advance("5m")
        faults.strike = None
        return await _reported(app, life)


async def _reported(app: Rota, life: Life) -> dict[str, Any]:
    view = await app.automations.show(NAME)
    events = await app.automations.events(NAME)
    ledger = await app.automations.outputs(NAME)
    consumed = await app.connection.database.read(raw, CONSUMED.format(namespace=life.namespace))
    return {
        "run": view.open_run.label if view.open_run else "none",
        "word": view.status,
        "sentence": view.sentence,
        "actions": view.said.actions,
        "events": {event.message_id: event.status for event in events if event.topic != "letters"},
        "letters": [
            f"{event.message_id.partition('@')[0]} {event.status}"
            for event in events
            if event.topic == "letters"
        ],
        "consumed": sorted(row[0] for row in consumed),
        "states": {one.name: one.state for one in view.handlers},
        "ledger": sorted(entry.status for entry in ledger),
    }


def begin(life: Life) -> None:
    """The work of the process. It tells how it is, and which points it reached."""
    with (life.folder / "log").open("a") as log:
        os.dup2(log.fileno(), sys.stderr.fileno())
    reached: list[str] = []
    numbers = itertools.count(1)

    def strike(point: str) -> None:
        reached.append(point)
        if next(numbers) == life.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    faults.strike = strike
    testing.GRACE_S = 20.0  # every call of a tool ends by itself
    try:
        reported = asyncio.run(live(life))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    (life.folder / "told.json").write_text(json.dumps(reported | {"points": reached}))
