"""Schedules: many due at once, few due of many stored, start-up beside many, and lateness.

In the second and third, "raw" is Rota itself with few or no schedules stored; for the loop by hand
it is that loop with few. Everything is repeated inside the one round, both sides interleaved. An
error costs its own line, not the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import UTC, datetime

import msgspec

from bench.children import until
from bench.measure import Sample, Sizes, Target, percentile
from bench.ours import SLOTS, make_app
from bench.places import Place
from bench.schedules import (
    DAY,
    SECOND,
    Fleet,
    Limit,
    copy_models,
    hand,
    limit,
    load,
    second_before,
    settled,
)
from rota import Rota, this_run
from rota.core.schedules.intent import Intent
from rota.core.time.occurrences import next_after

DUE = 1_000
LATE_S = 60  # Due a minute ago: nothing of what is loaded comes due a second time meanwhile.
ROUNDS = {"together": 3, "few": 7, "start": 7}
HEAD_S = 3
GROWTH_MAX = 1.5  # with many stored, times with few


class Schedules:
    """Occurrences fired per second, and what stored schedules cost."""

    name = "schedules"
    about = "schedules due in one second, few due of many stored, start-up, lateness"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Each database by itself."""
        samples: list[Sample] = []
        for place in places:
            for line in (
                _together(place, sizes.due),
                _many_stored(place, sizes.stored),
                _lateness(place, sizes.late_s, spread=False),
                _lateness(place, sizes.late_s, spread=True),
            ):
                await _collect(line, samples)
        return samples


async def _collect(line: AsyncIterator[Sample], samples: list[Sample]) -> None:
    try:
        async for sample in line:
            samples.append(sample)
    except Exception:
        traceback.print_exc()
        print("the schedules continue without the rest of this line", file=sys.stderr, flush=True)


async def _took(work: Awaitable[int]) -> tuple[float, int]:
    began = time.perf_counter()
    count = await work
    return time.perf_counter() - began, count


@contextlib.asynccontextmanager
async def _loaded(place: Place, fleet: Fleet) -> AsyncIterator[str]:
    url = place.url()
    await load(url, fleet)
    try:
        yield url
    finally:
        await place.drop(url)


# -- all due at once -------------------------------------------------------------------------


async def _together(place: Place, count: int) -> AsyncIterator[Sample]:
    for _ in range(ROUNDS["together"]):
        fleet = Fleet(count, second_before(datetime.now(UTC), LATE_S))
        raw_s = await _fire_raw(place, fleet)
        async with _loaded(place, fleet) as url:
            ours_s = await _fire(url, count)
            await _check(url, fleet)
        yield Sample(
            f"{count:,} due in one second", place.name, "fired/s", count / ours_s, count / raw_s,
            Target(">=", 0.25),
        )  # fmt: skip


async def _fire_raw(place: Place, fleet: Fleet) -> float:
    url = place.url()
    side = limit(url)
    await side.load(fleet)
    took_s, fired = await _took(side.fire(fleet.due_at))
    assert fired == fleet.size, f"the limit fired {fired} of {fleet.size}"
    await side.close()
    await place.drop(url)
    return took_s


async def _fire(url: str, count: int) -> float:
    """One scheduler of Rota, as a process that has just woken up for them."""
    app = make_app(url)[0]
    async with app.connected():
        took_s, fired = await _took(app._make_runtime().scheduler.tick())
    assert fired == count, f"{fired} of {count} were fired"
    return took_s


async def _check(url: str, fleet: Fleet) -> None:
    """Each occurrence has its run, and each schedule is at the next time of its own timing."""
    mine = await hand(url)
    [counted] = await mine.rows(
        "select count(*), count(distinct schedule_id), min(due_at), max(due_at) from runs"
        " where kind = 'workflow' and status = 'pending'"
    )
    assert tuple(counted) == (fleet.size, fleet.size, fleet.due_at, fleet.due_at), counted
    moved = await mine.rows(
        "select spec, due_at from runs where kind = 'schedule' and status = 'scheduled'"
    )
    await mine.close()
    assert len(moved) == fleet.size, f"{len(moved)} schedules are left"
    read = msgspec.json.Decoder(Intent)
    for spec, due_at in moved:
        assert due_at == next_after(read.decode(spec).spec, fleet.due_at), spec


# -- few due, many stored --------------------------------------------------------------------


async def _many_stored(place: Place, stored: int) -> AsyncIterator[Sample]:
    due_at = second_before(datetime.now(UTC), LATE_S)
    many, few = Fleet(stored, due_at, stored // DUE), Fleet(DUE, due_at)
    what = f"{DUE:,} due of {stored:,}"
    growth: list[float] = []
    async with _by_hand(place, many) as most, _by_hand(place, few) as least:
        for _ in range(ROUNDS["few"]):
            most_ms = 1000 * await _again_by_hand(most, due_at)
            least_ms = 1000 * await _again_by_hand(least, due_at)
            growth.append(most_ms / least_ms)
            name = f"{what}, the loop by hand; raw: of {DUE:,}"
            yield Sample(name, place.name, "ms", most_ms, least_ms)
    # Schedules with a page each cost the loop by hand as many reads and writes.
    targets = {
        "": Target("<=", max(GROWTH_MAX, statistics.median(growth))),
        ", side by side": Target("<=", GROWTH_MAX),
    }
    async with _loaded(place, many) as large, _loaded(place, few) as small:
        for where, target in targets.items():
            if where:
                await _move_together(large, due_at)
            for _ in range(ROUNDS["few"]):
                yield Sample(
                    f"{what}{where}; raw: of {DUE:,}", place.name, "ms",
                    1000 * await _fire_again(large, due_at),
                    1000 * await _fire_again(small, due_at), target,
                )  # fmt: skip
        async for sample in _start_up(place, large, stored, due_at):
            yield sample


async def _move_together(url: str, due_at: int) -> None:
    """Others are due instead: the first that were stored, which share their pages."""
    mine = await hand(url)
    due = "set due_at = {at}, available_at = {at} where kind = 'schedule' and {which}"
    after = due.format(at=due_at + 30 * DAY, which=f"due_at = {due_at}")
    first = f"id in (select id from runs where kind = 'schedule' order by id limit {DUE})"
    await mine.run(f"update runs {after}")
    await mine.run(f"update runs {due.format(at=due_at, which=first)}")
    await mine.close()
    await settled(url)


@contextlib.asynccontextmanager
async def _by_hand(place: Place, fleet: Fleet) -> AsyncIterator[Limit]:
    url = place.url()
    side = limit(url)
    await side.load(fleet)
    try:
        yield side
    finally:
        await side.close()
        await place.drop(url)


async def _again_by_hand(side: Limit, due_at: int) -> float:
    took_s, fired = await _took(side.fire(due_at))
    assert fired == DUE, f"the limit fired {fired} of {DUE}"
    await side.rewind(due_at)
    return took_s


async def _fire_again(url: str, due_at: int) -> float:
    took_s = await _fire(url, DUE)
    mine = await hand(url)
    await mine.run(
        f"update runs set due_at = {due_at}, available_at = {due_at}"
        " where id in (select schedule_id from runs where schedule_id is not null)"
    )
    await mine.run("delete from runs where schedule_id is not null")
    await mine.close()
    await settled(url)
    return took_s


async def _start_up(place: Place, large: str, stored: int, due_at: int) -> AsyncIterator[Sample]:
    mine = await hand(large)
    month = f"due_at = due_at + {30 * DAY}, available_at = available_at + {30 * DAY}"
    await mine.run(f"update runs set {month} where kind = 'schedule' and due_at < {due_at + DAY}")
    await mine.close()
    empty = place.url()
    await _start(empty)
    for _ in range(ROUNDS["start"]):
        yield Sample(
            f"start-up with {stored:,}; raw: with none", place.name, "ms",
            1000 * await _start(large), 1000 * await _start(empty), Target("<=", GROWTH_MAX),
        )  # fmt: skip
    await place.drop(empty)


async def _start(url: str) -> float:
    """From nothing to the end of a first run, in a process that has imported everything."""
    app, workflows = make_app(url, lambda *_: None)
    began = time.perf_counter()
    async with app:
        run = await app.start(workflows["noop"], 0)
        await run.result()
        return time.perf_counter() - began


# -- lateness --------------------------------------------------------------------------------


async def _lateness(place: Place, seconds: int, *, spread: bool) -> AsyncIterator[Sample]:
    """From the nominal instant to the first line of user code, in one process with a worker."""
    url = place.url()
    app, late = await _every_second(url, spread)
    first = second_before(datetime.now(UTC), -HEAD_S)
    await _aim(url, first, spread)
    begin, end = first + SECOND, first + (seconds + 1) * SECOND  # One second to warm up.

    def measured() -> list[float]:
        return [late_us / 1000 for due_at, late_us in late if begin <= due_at < end]

    async with app:
        await asyncio.sleep(max(0.0, end / SECOND - time.time()))
        await until(lambda: len(measured()) >= DUE * seconds, "every occurrence", every_s=0.1)
    await place.drop(url)
    assert len(measured()) == DUE * seconds, f"{len(measured())} runs in {seconds} s"
    name = f"{DUE:,} a second, {'spread over it' if spread else 'at once'}"
    for percent in (50, 99):
        late_ms = percentile(measured(), percent)
        yield Sample(f"late, {name}, p{percent}", place.name, "ms", late_ms)


async def _every_second(url: str, spread: bool) -> tuple[Rota, list[tuple[int, int]]]:
    app = Rota(url, migrate=True, slots=SLOTS)
    late: list[tuple[int, int]] = []

    @app.workflow
    async def note() -> None:
        due = this_run().due_at
        assert due is not None
        due_at = round(due.timestamp() * SECOND)
        late.append((due_at, time.time_ns() // 1000 - due_at))

    async with app.connected():
        await app.schedules.create(
            "model",
            note,
            "1s" if spread else "* * * * * *",
            timezone="UTC",
            paused=True,
            overlap="allow",
        )
    return app, late


async def _aim(url: str, first: int, spread: bool) -> None:
    """Let them begin at one instant, or a millisecond apart."""
    mine = await hand(url)
    await mine.run("update runs set status = 'scheduled', reason = null, available_at = due_at")
    [(spec,)] = await mine.rows("select spec from runs")
    await mine.close()
    at = f"{first} + n * {SECOND // DUE}" if spread else str(first)
    [timing] = msgspec.json.decode(spec, type=Intent).spec.timings
    fresh = f"replace(spec, '{timing.anchor_at}', cast({at} as varchar))"
    await copy_models(url, DUE, due_at=at, spec=fresh if spread else "spec")
