"""`@tool`: tools of one's own, and what their failures mean."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import msgspec
import pytest

import rota.tools
from rota.errors import (
    BadInput,
    NeedsLogin,
    NotSent,
    OutcomeUnknown,
    Rejected,
    Transient,
    UsageError,
)
from rota.tools import Applied, Call, NotApplied, Safety, Tool, Unknown, Verdict, tool
from tests.tools.kit import CALL, PERSON, settle

WRITES = ["idempotent", "reconcilable", "unknowable"]


class Item(msgspec.Struct):
    name: str
    count: int = 1


def failing(error: Exception, safety: str) -> Tool:
    @tool(safety=safety)
    async def fail() -> None:
        raise error

    if safety == "reconcilable":

        @fail.reconcile
        async def look() -> Verdict:
            return NotApplied("never")

    return fail


async def test_a_function_becomes_a_tool_with_typed_parameters() -> None:
    @tool(safety="unknowable")
    async def order(item: Item, *, note: str = "none", call: Call) -> dict[str, Any]:
        """Orders."""
        return {"name": item.name, "count": item.count, "note": note, "key": call.key}

    assert (order.name, order.safety, order.__doc__) == ("order", Safety.UNKNOWABLE, "Orders.")
    result = await order.call({"item": {"name": "tea"}}, CALL)
    assert result == {"name": "tea", "count": 1, "note": "none", "key": "key-1"}
    assert (await order(Item("tea"), call=CALL))["name"] == "tea"
    for bad, said in (
        ({}, "item"),
        ({"item": {"name": 1}}, r"\$\.item\.name"),
        ({"item": {"name": "x"}, "extra": 1}, "extra"),
        ({"item": {"name": "x"}, "call": {"key": "forged", "timeout_s": 1}}, "call"),
        ({"item": object()}, "JSON"),
    ):
        with pytest.raises(UsageError, match=said):
            await order.call(bad, CALL)
        with pytest.raises(UsageError, match=said):
            order.check(bad)


async def test_a_plain_function_runs_in_a_thread() -> None:
    @tool(safety=Safety.READ, name="where.am.i")
    def where() -> int:
        return threading.get_ident()

    assert where.name == "where.am.i"
    assert await where.call({}, CALL) != threading.get_ident()


@pytest.mark.parametrize("safety", WRITES)
@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (NotSent("busy", retry_after_s=3), NotSent),
        (Rejected("no"), Rejected),
        (NeedsLogin("who"), NeedsLogin),
        (BadInput("of something it called"), OutcomeUnknown),
        (OutcomeUnknown("hm"), OutcomeUnknown),
        (Transient("says nothing about the effect"), OutcomeUnknown),
        (ValueError("a bug, perhaps after the effect"), OutcomeUnknown),
        (ConnectionResetError("cut"), OutcomeUnknown),
        (TimeoutError("of its own"), OutcomeUnknown),
    ],
)
async def test_an_error_that_does_not_say_what_happened_means_unknown(
    safety: str, error: Exception, becomes: type[Exception]
) -> None:
    with pytest.raises(becomes) as raised:
        await failing(error, safety).call({}, CALL)
    assert type(raised.value) is becomes


async def test_an_error_of_a_read_stays_what_it_is() -> None:
    for error in (ValueError("x"), Transient("x"), ConnectionResetError("x")):
        with pytest.raises(type(error)):
            await failing(error, "read").call({}, CALL)


@pytest.mark.parametrize("safety", ["read", *WRITES])
async def test_a_tool_that_never_returns_is_given_up(safety: str) -> None:
    @tool(safety=safety)
    async def wait() -> None:
        await asyncio.Event().wait()

    if safety == "reconcilable":

        @wait.reconcile
        async def look() -> Verdict:
            await asyncio.Event().wait()
            raise AssertionError

        assert isinstance(await wait.reconcile({}, Call("k", 0.05)), Unknown)
    with pytest.raises(Transient if safety == "read" else OutcomeUnknown, match="did not end"):
        await wait.call({}, Call("k", 0.05))


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("safety", WRITES)
async def test_an_effect_of_ones_own_happens_once(safety: str, fault: str) -> None:
    seen: list[str] = []
    faults = [fault]

    @tool(safety=safety)
    async def create(title: str, call: Call) -> str:
        now = faults.pop() if faults else ""
        if now == "before":
            raise ConnectionResetError
        if safety != "idempotent" or call.key not in seen:
            seen.append(call.key)
        if now == "after":
            raise ConnectionResetError
        return title

    if safety == "reconcilable":

        @create.reconcile
        async def look(call: Call) -> Verdict:
            return Applied("found") if call.key in seen else NotApplied("not there")

    ended = await settle(create, {"title": "tea"})
    assert len(seen) <= 1
    if safety != "unknowable":
        assert len(seen) == 1
    else:
        assert ended == PERSON


async def test_a_look_that_fails_or_answers_nonsense_leaves_it_unknown() -> None:
    for answer in (True, None, {"applied": True}, ValueError("x"), OutcomeUnknown("x")):

        @tool(safety="reconcilable")
        async def create() -> None: ...

        @create.reconcile
        def look(answer: Any = answer) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        assert isinstance(await create.reconcile({}, CALL), Unknown)


async def test_a_declaration_that_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="kind of replay safety"):
        tool(safety="certain")

    @tool(safety="reconcilable")
    async def create(title: str) -> None: ...

    with pytest.raises(UsageError, match="has no reconcile function"):
        await create.call({"title": "x"}, CALL)
    with pytest.raises(UsageError, match="has no reconcile function"):
        create.check({"title": "x"})
    with pytest.raises(BadInput, match="asks for titel"):

        @create.reconcile
        async def look(titel: str) -> None: ...

    @tool(safety="unknowable")
    async def send() -> None: ...

    with pytest.raises(UsageError, match="nothing to reconcile"):
        send.reconcile(lambda: None)
    with pytest.raises(BadInput):

        @tool(safety="read")
        async def star(*args: int) -> None: ...


def test_every_promised_name_is_there() -> None:
    for name in rota.tools.__all__:
        assert getattr(rota.tools, name) is not None
    with pytest.raises(AttributeError):
        _ = rota.tools.Nonsense


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("httpx2", "http", "HttpWrite()"),
        ("httpx2", "http", "FeedRead()"),
        ("asyncpg", "postgres", "SqlWrite('postgresql://h/d', 'insert into t values (1)')"),
    ],
)
def test_a_missing_extra_is_named(package: str, extra: str, use: str) -> None:
    script = f"""
import sys
sys.modules[{package!r}] = None
import rota.tools
from rota.errors import MissingExtra
try:
    rota.tools.{use}
except MissingExtra as error:
    print(error.message, "|", error.advice)
rota.tools.FileWrite("."), rota.tools.Command(["true"])
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert package in ran.stdout
    assert f"rota[{extra}]" in ran.stdout


def test_importing_the_tools_loads_no_extra() -> None:
    script = "import sys, rota.tools; print([m for m in sys.modules if m in ('httpx2','asyncpg')])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout.strip() == "[]", ran.stderr
