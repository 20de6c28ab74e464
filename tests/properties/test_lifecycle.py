"""May a run ever leave the table? Workers, reapers and people act at random; the store must agree
with the model after every act, and no invariant may break."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rota.core.runs.lifecycle import FINAL, SETTLING, Status
from rota.core.runs.model import Claim, NewRun, Outcome, Started
from rota.core.time.instants import SECOND
from rota.errors import LeaseLost
from rota.settings import Settings
from rota.store import invariants
from rota.store.backend import migrate
from rota.store.backend.database import Database, Tx, open_url
from rota.store.runs import claim as claiming
from rota.store.runs import signals, steps
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.manual_retry import resolve_run
from rota.store.runs.recover import reap_runs, renew_leases, return_strays
from rota.store.runs.settle import settle_runs
from rota.store.runs.start import start_runs, successor
from rota.store.runs.wake import poke, wake_due
from tests.kit.builders import (
    LEASE,
    NOW,
    SPACE,
    fresh_id,
    new_run,
    raw,
    record_child,
    request,
    step_of,
)
from tests.kit.sampling import examples
from tests.properties.kit import Life, Model

NAMES = ("work", "rest")
WORKERS = ("w1", "w2", "w3")
RECOVERIES_MAX = 1
TABLES = ("signals", "payloads", "steps", "runs")
ROWS = (
    "select id, status, claim_count, lease_owner, lease_until, available_at, attempt, recoveries,"
    " retry_of from runs order by id"
)

# Making a failure small replays thousands of acts, longer than a test may take: only on request,
# as `ROTA_SHRINK=1 pytest --timeout 0 tests/properties`.
PHASES = [Phase.generate, *([Phase.shrink] if os.environ.get("ROTA_SHRINK") else [])]

workers = st.sampled_from(WORKERS)
pauses = st.sampled_from([0, 1, SECOND, LEASE, LEASE + 1])
picks = st.integers(0, 10_000)

FreshRun = tuple[str, int, int, str | None, str | None]
fresh_runs: st.SearchStrategy[FreshRun] = st.tuples(
    st.sampled_from(NAMES), st.sampled_from([0, 0, 0, SECOND]), st.integers(-1, 1),
    st.sampled_from([None, None, "a"]), st.sampled_from([None, None, None, "s"]),
)  # fmt: skip


class Store(RuleBasedStateMachine):
    """The store beside its model, on one clock."""

    def __init__(self, run: Callable[..., Any], db: Database) -> None:
        super().__init__()
        self._run, self._db = run, db
        self.now = NOW
        self.model = Model()
        self.started: list[NewRun] = []
        self.claims: list[Claim] = []
        self.steps: dict[tuple[str, str], str] = {}
        run(self._empty())

    async def _empty(self) -> None:
        async def empty(tx: Tx) -> None:
            for table in TABLES:
                await raw(tx, f"delete from {table}")

        await self._db.write(empty)

    def write(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._db.write(function, *args, **kwargs))

    def read(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._db.read(function, *args, **kwargs))

    def life(self, pick: int) -> Life:
        return list(self.model.runs.values())[pick % len(self.model.runs)]

    def live(self) -> list[Claim]:
        return [c for c in self.claims if self.model.runs[c.id].is_held_by(c)]

    def held(self, pick: int) -> Claim:
        """Any claim there ever was; mostly one that still holds, or acts would come to nothing.

        Among the others, the best are those with a run that another worker holds now.
        """
        live = self.live()
        holders = {claim.id: claim for claim in live}
        fenced = [c for c in self.claims if c.id in holders and c is not holders[c.id]]
        among = (self.claims, fenced, live, live)[pick % 4] or live or self.claims
        return among[pick // 4 % len(among)]

    # -- creation -----------------------------------------------------------------------------

    @initialize(fresh=st.lists(fresh_runs, min_size=1, max_size=4))
    def begin(self, fresh: list[FreshRun]) -> None:
        self.start(fresh)

    @rule(fresh=st.lists(fresh_runs, min_size=1, max_size=3))
    def start(self, fresh: list[FreshRun]) -> None:
        for name, delay, priority, external, serial in fresh:
            self.created(
                new_run(
                    name, id=fresh_id(self.now), available_at=self.now + delay, priority=priority,
                    external_id=external, serial_key=serial,
                )
            )  # fmt: skip

    def created(self, fresh: NewRun) -> None:
        holder = next(
            (
                life.id
                for life in self.model.runs.values()
                if fresh.external_id
                and (life.name, life.external) == (fresh.name, fresh.external_id)
            ),
            None,
        )
        [answer] = self.write(start_runs, [fresh], now=self.now)
        if self.model.start(fresh, self.now):
            assert answer == Started(fresh.id, existed=False)
            self.started.append(fresh)
        elif holder:
            assert answer == Started(holder, existed=True)

    @precondition(lambda self: self.started)
    @rule(pick=picks)
    def start_again(self, pick: int) -> None:
        """The same start once more, as after a broken connection."""
        fresh = self.started[pick % len(self.started)]
        assert self.write(start_runs, [fresh], now=self.now) == [Started(fresh.id, existed=False)]

    @precondition(lambda self: self.claims)
    @rule(pick=picks, waits=st.booleans())
    def start_child(self, pick: int, waits: bool) -> None:
        """A held run gives creation; often it then waits for the child."""
        claim = self.held(pick)
        child = new_run(
            "work", id=fresh_id(self.now), available_at=self.now, parent_id=claim.root_id
        )
        record = step_of(claim, f"child {child.id}", started_at=self.now)
        if not self.model.runs[claim.id].is_held_by(claim):
            with pytest.raises(LeaseLost):
                self.write(record_child, record, child, now=self.now)
            return
        assert self.model.start(child, self.now)
        answer = self.write(record_child, record, child, now=self.now)
        assert answer == Started(child.id, existed=False)
        if waits:
            self.end(claim, "suspend", again=False, delay=None)

    # -- work ------------------------------------------------------------------------------

    @rule(worker=workers)
    def claim_all(self, worker: str) -> None:
        self.claim(worker, 9, NAMES)

    @rule(worker=workers, slots=st.integers(1, 3), names=st.sampled_from([NAMES, ("work",)]))
    def claim(self, worker: str, slots: int, names: tuple[str, ...]) -> None:
        asked = request(worker, slots=slots, names=names, now=self.now)
        got = self.write(claiming.claim, asked).claims
        expected = self.model.claim(worker, names, slots, self.now + LEASE)
        assert [claim.id for claim in got] == expected
        assert [claim.claim_count for claim in got] == [self.model.runs[i].claims for i in expected]
        self.claims += got

    @precondition(lambda self: self.live())
    @rule(pick=picks, worker=workers)
    def hand_over(self, pick: int, worker: str) -> None:
        """One worker gives a run back, another takes it: the first claim is stale from now on."""
        self.end(self.live()[pick % len(self.live())], "release", again=False, delay=None)
        self.claim(worker, 9, NAMES)

    @precondition(lambda self: self.claims)
    @rule(
        verb=st.sampled_from([*sorted(SETTLING), "fail"]), pick=picks, again=st.booleans(),
        delay=st.sampled_from([None, 1, SECOND]),
        waits_for=st.sampled_from(["sleep", "signal", "child", "several"]),
    )  # fmt: skip
    def settle(self, verb: str, pick: int, again: bool, delay: int | None, waits_for: str) -> None:
        self.end(self.held(pick), verb, again=again, delay=delay, waits_for=waits_for)

    def end(
        self, claim: Claim, verb: str, *, again: bool, delay: int | None, waits_for: str = "sleep"
    ) -> None:
        wake_at = None if delay is None else self.now + delay
        retry, reason = None, None
        if verb == "fail" and again:
            retry = successor(
                claim, fresh_id(self.now), trigger="retry", attempt=claim.attempt + 1,
                available_at=wake_at or self.now,
            )  # fmt: skip
        if verb == "suspend":
            reason = waits_for if wake_at else "signal"
            if wake_at is None and self.model.has_open_child(claim.root_id):
                reason = "child"
        outcome = Outcome(claim, verb, reason=reason, wake_at=wake_at, retry=retry)
        repeats = verb == "complete" and self.model.runs[claim.id].was_completed_by(claim)
        done = self.write(settle_runs, [outcome], now=self.now)
        legal = self.model.settle(
            claim, verb, reason=reason, wake_at=wake_at, retry=retry, now=self.now
        )
        assert done.ids == ({claim.id} if legal or repeats else frozenset())

    @precondition(lambda self: self.claims)
    @rule(pick=picks, key=st.just("a"), status=st.sampled_from(["completed", "failed"]))
    def record_step(self, pick: int, key: str, status: str) -> None:
        claim = self.held(pick)
        output = f'"{len(self.steps)}"'
        self.now += 1  # a step that began at another instant is another execution
        record = step_of(claim, key, output=output, status=status, started_at=self.now)
        written = self.write(steps.record, [record])
        place = (claim.root_id, key)
        if self.model.runs[claim.id].is_held_by(claim) and place not in self.steps:
            assert written == [True]
            if status == "completed":
                self.steps[place] = output
        else:
            assert written == [False]

    @precondition(lambda self: self.claims)
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        claim = self.held(pick)
        ours = frozenset(self.write(renew_leases, [claim], lease_until=self.now + LEASE))
        life = self.model.runs[claim.id]
        assert ours == ({claim.id} if life.is_held_by(claim) else frozenset())
        if ours:
            life.until = self.now + LEASE

    @rule(worker=workers, pick=picks)
    def return_strays(self, worker: str, pick: int) -> None:
        held = [
            c for n, c in enumerate(self.claims)
            if self.model.runs[c.id].is_held_by(c) and pick >> (n % 13) & 1
        ]  # fmt: skip
        count = self.write(return_strays, namespace=SPACE, worker_id=worker, held=held)
        assert count == self.model.strays(worker, [claim.id for claim in held])

    # -- time ------------------------------------------------------------------------------

    @rule(pause=pauses)
    def time_passes(self, pause: int) -> None:
        self.now += pause

    @rule()
    def wake(self) -> None:
        woken = self.write(wake_due, namespace=SPACE, now=self.now)
        assert woken.total == self.model.wake_due(self.now)

    @rule(gone=st.sampled_from([(), *((worker,) for worker in WORKERS), WORKERS]))
    def reap(self, gone: tuple[str, ...]) -> None:
        lapsed = self.model.lapsed(self.now, gone)
        new_ids = [fresh_id(self.now) for _ in range(len(lapsed) + 1)]
        reaped = self.write(
            reap_runs, namespace=SPACE, now=self.now, gone=list(gone),
            recoveries_max=RECOVERIES_MAX, new_ids=new_ids,
        )  # fmt: skip
        assert {run.id for run, _ in reaped} == {life.id for life in lapsed}
        next_runs = {row[8]: row for row in self.read(raw, ROWS) if row[0] in new_ids}
        for life in lapsed:
            life.move("reap")
            if life.recoveries < RECOVERIES_MAX:
                self.inherit(life, next_runs[life.id])
        over = [life for life in lapsed if life.recoveries >= RECOVERIES_MAX]
        for life in over:
            if life.parent:
                self.model.poke(life.parent, self.now)
        self.model.cancel_below([life.root for life in over], self.now)

    def inherit(self, life: Life, row: Any) -> None:
        """The store chose the id of the successor; all else was not."""
        available_at = min(life.available_at or self.now, self.now)
        next_run = new_run(
            life.name, id=row[0], root_id=life.root, retry_of=life.id, parent_id=life.parent,
            attempt=life.attempt, recoveries=life.recoveries + 1, priority=life.priority,
            serial_key=life.serial, available_at=available_at,
        )  # fmt: skip
        assert self.model.start(next_run, self.now)

    # -- people ----------------------------------------------------------------------------

    @precondition(lambda self: self.model.runs)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        root = self.life(pick).root
        ids = self.write(cancel_chains, [root], reason="by request", now=self.now)
        assert set(ids) == self.model.cancel([root], self.now)

    @precondition(lambda self: self.model.runs)
    @rule(pick=picks)
    def retry(self, pick: int) -> None:
        """A person tries a chain again; one with a cancelled parent stays off."""
        last = self.model.last_of(self.life(pick).root)
        orphan = last.parent and self.model.last_of(last.parent).status is Status.CANCELLED
        if last.status not in FINAL - {Status.COMPLETED, Status.SKIPPED} or orphan:
            return
        next_run = new_run(
            last.name, id=fresh_id(self.now), root_id=last.root, retry_of=last.id,
            parent_id=last.parent, attempt=last.attempt + 1, priority=last.priority,
            serial_key=last.serial, available_at=self.now, trigger="retry",
        )  # fmt: skip
        self.created(next_run)

    @precondition(lambda self: self.model.runs)
    @rule(pick=picks)
    def signal(self, pick: int) -> None:
        live = self.live()
        root = live[pick // 4 % len(live)].root_id if live and pick % 4 else self.life(pick).root
        self.write(
            signals.send_signal, signal_id=fresh_id(self.now), root_id=root, name="go", body="1",
            now=self.now,
        )  # fmt: skip
        self.model.poke(root, self.now)

    @precondition(lambda self: self.live())
    @rule(pick=picks)
    def signal_a_run_that_suspends(self, pick: int) -> None:
        """The wake-up that comes before the suspension must not be lost."""
        claim = self.live()[pick % len(self.live())]
        self.model.poke(claim.root_id, self.now)
        self.write(poke, [claim.root_id], now=self.now)
        self.end(claim, "suspend", again=False, delay=None)

    @precondition(lambda self: self.model.runs)
    @rule(pick=picks)
    def resolve(self, pick: int) -> None:
        waiting = [x for x in self.model.runs.values() if x.status is Status.WAITING]
        life = waiting[pick % len(waiting)] if waiting and pick % 4 else self.life(pick)
        done = self.write(resolve_run, life.id, now=self.now)
        assert done == self.model.resolve(life, self.now)

    # -- what must always hold -------------------------------------------------------------

    @invariant()
    def the_store_agrees_with_the_model_and_no_invariant_is_broken(self) -> None:
        async def look(tx: Tx) -> tuple[list[Any], list[invariants.BrokenInvariant]]:
            return await raw(tx, ROWS), await invariants.broken(tx)

        stored, broken = self.read(look)
        expected = [self.model.runs[run_id].row() for run_id in sorted(self.model.runs)]
        assert [tuple(row) for row in stored] == expected
        assert broken == []

    def teardown(self) -> None:
        """A finished step never changed."""
        found = self.read(steps.load, sorted(self.model.runs))
        outputs = {
            (step.root_id, step.key): step.output
            for listed in found.values()
            for step in listed
            if step.status == "completed" and step.kind == "step"
            and not step.key.startswith("child")
        }  # fmt: skip
        assert outputs == self.steps


def _play(url: str, *, examples: int, acts: int) -> None:
    with asyncio.Runner() as runner:
        run = runner.get_loop().run_until_complete
        database = open_url(url, Settings())
        run(database.open())
        try:
            run(migrate.prepare(database, migrate=True, now=NOW))
            run_state_machine_as_test(
                lambda: Store(run, database),  # type: ignore[arg-type]
                settings=settings(
                    max_examples=examples, stateful_step_count=acts, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck), print_blob=True,
                    phases=PHASES,
                ),
            )  # fmt: skip
        finally:
            run(database.close())


def test_no_run_ever_leaves_the_table_on_sqlite() -> None:
    _play("sqlite:///:memory:", examples=examples(200), acts=40)


@pytest.fixture
def schema_url(postgres_url: str) -> Iterator[str]:
    schema = f"t_{secrets.token_hex(6)}"
    yield f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema={schema}"
    asyncio.run(_drop(postgres_url, schema))


async def _drop(url: str, schema: str) -> None:
    database = open_url(url, Settings())
    await database.open()
    await database.write(raw, f"drop schema if exists {schema} cascade")
    await database.close()


@pytest.mark.pg
def test_no_run_ever_leaves_the_table_on_postgres(schema_url: str) -> None:
    _play(schema_url, examples=examples(60), acts=30)
