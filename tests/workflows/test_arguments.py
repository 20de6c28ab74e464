"""Arguments are part of what a step is: a call with others than recorded never gets its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from rota import Rota, gather, sleep, wait_for
from rota.cli.run.next_steps import next_step
from rota.core.runs.argument_digest import digest_of
from rota.errors import Stranded, UsageError
from rota.explain.why import why
from rota.testing import virtual
from tests.workflows.kit import keys, result, sound, step_named, trouble

Code = Callable[["Shop"], Coroutine[Any, Any, Any]]


class Shop:
    """One version of the code; every execution is noted."""

    def __init__(self, code: Code, *, check_arguments: bool = True) -> None:
        self.app = app = Rota()
        self.calls: list[str] = []

        @app.step(check_arguments=check_arguments)
        async def pay(who: str, amount: int = 1, note: Any = None) -> str:
            self.calls.append(who)
            return f"paid {who}"

        @app.workflow(name="child")
        async def child(who: str) -> str:
            self.calls.append(f"child {who}")
            return f"paid {who}"

        @app.workflow(name="flow")
        async def flow() -> Any:
            return await code(self)

        self.pay, self.child = pay, child


async def deploy(url: str, before: Shop, after: Shop) -> tuple[Any, Shop]:
    """Begin a run with one code and continue with another, after its first sleep."""
    async with virtual(before.app, url=url) as world:
        run = await before.app.start("flow")
        await world.settle()
        assert (await before.app.runs.get(run.id)).status == "sleeping"
        later = world.clock.now() + 7_200_000_000
    async with virtual(after.app, url=url, start=later) as world:
        await world.drain()
        await sound(after.app)
        return (await after.app.runs.chain(run.id))[-1], after


async def ann_first(s: Shop) -> dict[str, str]:
    found = {"ann": await s.pay("ann")}
    await sleep("1h")
    return found | {"bob": await s.pay("bob")}


async def bob_first(s: Shop) -> dict[str, str]:
    found = {"bob": await s.pay("bob")}
    await sleep("1h")
    return found | {"ann": await s.pay("ann")}


async def test_swapped_calls_of_one_step_strand_the_run_and_pay_nobody_twice(
    database_url: str,
) -> None:
    row, after = await deploy(database_url, Shop(ann_first), Shop(bob_first))
    assert row.label == "failed:stranded"
    assert after.calls == []
    assert "pay#0" in (row.error or "")
    assert "pay('bob')" in (row.error or "")


async def test_a_stranded_run_goes_on_when_the_old_code_is_back(database_url: str) -> None:
    row, _ = await deploy(database_url, Shop(ann_first), Shop(bob_first))
    old = Shop(ann_first)
    async with virtual(old.app, url=database_url, start=row.created_at + 9_000_000_000) as world:
        await old.app.runs.retry(row.id)
        await world.drain()
        assert await old.app.runs.handle(row.root_id).result() == {
            "ann": "paid ann",
            "bob": "paid bob",
        }
        assert old.calls == ["bob"]


async def children_ann_first(s: Shop) -> list[str]:
    found = [await s.child("ann")]
    await sleep("1h")
    return [*found, await s.child("bob")]


async def children_bob_first(s: Shop) -> list[str]:
    found = [await s.child("bob")]
    await sleep("1h")
    return [*found, await s.child("ann")]


async def test_swapped_children_strand_the_run(database_url: str) -> None:
    row, after = await deploy(database_url, Shop(children_ann_first), Shop(children_bob_first))
    assert row.label == "failed:stranded"
    assert after.calls == []
    assert "child('bob')" in (row.error or "")


async def other_external_id(s: Shop) -> str:
    run = await s.child.options(external_id="order-2").start("ann")
    await sleep("1h")
    return str(await run.result())


async def first_external_id(s: Shop) -> str:
    run = await s.child.options(external_id="order-1").start("ann")
    await sleep("1h")
    return str(await run.result())


async def test_a_child_with_another_external_id_strands_the_run(database_url: str) -> None:
    row, _ = await deploy(database_url, Shop(first_external_id), Shop(other_external_id))
    assert row.label == "failed:stranded"


async def swallows(s: Shop) -> str:
    try:
        await s.pay("bob")
    except Exception:
        return str(await s.pay("carl"))
    return "nothing"


async def test_code_that_swallows_the_error_does_not_get_around_it(database_url: str) -> None:
    row, after = await deploy(database_url, Shop(ann_first), Shop(swallows))
    assert row.label == "failed:stranded"
    assert after.calls == []


async def same_by_name(s: Shop) -> dict[str, str]:
    found = {"ann": await s.pay(who="ann")}
    await sleep("1h")
    return found | {"bob": await s.pay("bob")}


async def test_an_argument_by_name_equals_the_same_by_position(database_url: str) -> None:
    row, after = await deploy(database_url, Shop(ann_first), Shop(same_by_name))
    assert row.label == "completed"
    assert after.calls == ["bob"]


async def test_a_step_that_opted_out_is_known_by_name_and_order_only(database_url: str) -> None:
    row, after = await deploy(database_url, Shop(ann_first), Shop(bob_first, check_arguments=False))
    assert row.label == "completed"
    assert after.calls == ["ann"]


async def test_a_step_recorded_without_a_digest_replays_as_before(database_url: str) -> None:
    row, after = await deploy(database_url, Shop(ann_first, check_arguments=False), Shop(bob_first))
    assert row.label == "completed"
    assert after.calls == ["ann"]


class Connection:
    """Something no JSON can hold; another one at every replay."""


async def with_connection(s: Shop) -> str:
    found = str(await s.pay("ann", note=[Connection(), {(1, 2): 3}]))
    await sleep("1h")
    return found


async def test_arguments_that_cannot_be_encoded_count_by_their_type(database_url: str) -> None:
    row, _ = await deploy(database_url, Shop(with_connection), Shop(with_connection))
    assert row.label == "completed"


async def test_another_type_of_what_cannot_be_encoded_strands_the_run(database_url: str) -> None:
    async def alone(s: Shop) -> str:
        found = str(await s.pay("ann", note=Connection()))
        await sleep("1h")
        return found

    async def other(s: Shop) -> str:
        found = str(await s.pay("ann", note=asyncio.Event()))
        await sleep("1h")
        return found

    row, _ = await deploy(database_url, Shop(alone), Shop(other))
    assert row.label == "failed:stranded"


async def waits_for_number(s: Shop) -> Any:
    found = await wait_for("answer", type=int)
    await sleep("1h")
    return found


async def waits_for_text(s: Shop) -> Any:
    found = await wait_for("answer", type=str | int)
    await sleep("1h")
    return found


async def test_a_wait_for_another_type_strands_the_run(database_url: str) -> None:
    before, after = Shop(waits_for_number), Shop(waits_for_text)
    async with virtual(before.app, url=database_url) as world:
        run = await before.app.start("flow")
        await run.signal("answer", 7)
        await world.settle()
        later = world.clock.now() + 7_200_000_000
    async with virtual(after.app, url=database_url, start=later) as world:
        await world.drain()
        assert await after.app.runs.handle(run.id).status() == "failed:stranded"


async def test_a_failed_step_that_waits_for_its_retry_keeps_its_arguments(
    database_url: str,
) -> None:
    def version(who: str) -> tuple[Rota, list[str]]:
        app = Rota()
        calls: list[str] = []

        @app.step(retries=3)
        async def pay(who: str) -> str:
            calls.append(who)
            raise ConnectionError("down")

        @app.workflow(name="flow")
        async def flow() -> None:
            await pay(who)

        return app, calls

    old, _ = version("ann")
    async with virtual(old, url=database_url) as world:
        run = await old.start("flow")
        await world.settle()
        later = world.clock.now() + 7_200_000_000
    changed, calls = version("bob")
    async with virtual(changed, url=database_url, start=later) as world:
        await world.drain()
        assert (await changed.runs.chain(run.id))[-1].label == "failed:stranded"
        assert calls == []


async def test_a_fork_keeps_the_digests(database_url: str) -> None:
    shop = Shop(ann_first)
    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start("flow")
        await world.drain()
        fork = await shop.app.runs.fork(run.id, from_step="pay#1")
        await world.drain()
        assert await result(fork) == await result(run)
        one = await step_named(shop.app, run, "pay#0")
        assert one.digest == (await step_named(shop.app, fork, "pay#0")).digest is not None


def test_the_digest_does_not_depend_on_the_order_of_sets_and_keys() -> None:
    one = digest_of(("a",), ({"x": {"p", "q", "r"}, "y": 1},), {})
    assert one == digest_of(("a",), (), {"a": {"y": 1, "x": {"r", "q", "p"}}})
    assert one != digest_of(("a",), ({"x": {"p", "q"}, "y": 1},), {})


@pytest.mark.parametrize(
    "value",
    [
        2**80,
        "\ud800",
        {(1, 2): 3},
        {1, "a"},
        float("nan"),
        b"\xff",
        len,
        ValueError("x"),
        Path("a/b"),
        [[...]],
        "x" * 10**6,
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_value_has_a_digest(value: Any) -> None:
    assert digest_of(("a",), (value,), {}) == digest_of(("a",), (value,), {})
    assert -(2**63) <= digest_of(("a",), (value,), {}) < 2**63


# -- keys and names ------------------------------------------------------------------------------


async def test_a_key_used_twice_in_a_row_is_an_error(database_url: str) -> None:
    async def twice(s: Shop) -> list[str]:
        return [await s.pay.keyed("k")("ann"), await s.pay.keyed("k")("bob")]

    shop = Shop(twice)
    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start("flow")
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "key 'k' twice" in (await trouble(run))["message"]
        assert shop.calls == ["ann"]


async def test_a_key_used_twice_in_gather_is_an_error_before_anything_runs(
    database_url: str,
) -> None:
    async def twice(s: Shop) -> list[str]:
        return await gather(*[s.pay.keyed("k")(who) for who in ("ann", "bob")])

    shop = Shop(twice)
    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start("flow")
        await world.drain()
        assert await run.status() == "failed:logic"
        assert shop.calls == []
        assert await keys(shop.app, run) == []


async def test_children_have_keys_too(database_url: str) -> None:
    async def forwards(s: Shop) -> list[str]:
        found = await gather(*[s.child.keyed(who)(who) for who in ("ann", "bob")])
        await sleep("1h")
        return found

    async def backwards(s: Shop) -> list[str]:
        found = await gather(*[s.child.keyed(who)(who) for who in ("bob", "ann")])
        await sleep("1h")
        return found

    row, after = await deploy(database_url, Shop(forwards), Shop(backwards))
    assert row.label == "completed"
    assert row.output == '["paid bob","paid ann"]'
    assert after.calls == []


async def test_a_child_key_used_twice_is_an_error(database_url: str) -> None:
    async def twice(s: Shop) -> list[str]:
        return await gather(*[s.child.keyed("k")(who) for who in ("ann", "bob")])

    shop = Shop(twice)
    async with virtual(shop.app, url=database_url) as world:
        run = await shop.app.start("flow")
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "key 'k' twice" in (await trouble(run))["message"]


def test_two_steps_with_one_name_are_refused() -> None:
    app = Rota()

    @app.step
    async def send() -> None: ...

    with pytest.raises(UsageError, match="step send is registered twice"):

        @app.step(name="send")
        async def other() -> None: ...


async def test_the_advice_for_a_stranded_run_is_to_restore_patch_or_fork(
    database_url: str,
) -> None:
    row, after = await deploy(database_url, Shop(ann_first), Shop(bob_first))
    async with virtual(after.app, url=database_url, start=row.created_at + 9_000_000_000):
        steps = await after.app.runs.steps(row.id)
        advice = [
            next_step(row, steps, after.app.clock.now()),
            str(await why(after.app, row.id)),
            Stranded("x").advice,
        ]
    for text in advice:
        assert all(word in text for word in ("estore the code", "rota.patched", "rota run fork"))
