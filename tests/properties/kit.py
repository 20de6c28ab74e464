"""A model of the store, in plain Python: every change of status goes through the table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rota.core.runs.lifecycle import FINAL, OPEN, RULES, Status
from rota.core.runs.model import Claim, NewRun

# Sleeps that a signal or the end of a child may cut short; a delay or a back-off runs its time.
POKED = frozenset(["signal", "child", "several"])


@dataclass
class Life:
    """One run as the model sees it."""

    id: str
    root: str
    name: str
    status: Status
    available_at: int | None
    priority: int
    attempt: int
    recoveries: int
    retry_of: str | None
    parent: str | None
    serial: str | None
    external: str | None
    claims: int = 0
    owner: str | None = None
    until: int | None = None
    wake: bool = False
    waits_for: str | None = None

    def move(self, verb: str) -> None:
        """Follow one row of the table; the model itself may not leave it."""
        rule = RULES[verb]
        assert self.status in rule.sources, f"{verb} does not leave {self.status}"
        self.status = rule.target
        self.owner = self.until = None

    def is_held_by(self, claim: Claim) -> bool:
        """Whether the fence lets this claim through."""
        return self.status is Status.RUNNING and self.claims == claim.claim_count

    def was_completed_by(self, claim: Claim) -> bool:
        """Whether a completion sent again would only get the answer that it has happened.

        The end of a child has consequences, so there a second one is refused.
        """
        done = self.status is Status.COMPLETED and self.claims == claim.claim_count
        return done and self.parent is None

    def row(self) -> tuple[object, ...]:
        """The expected rows of the database, in the order of the test's own query."""
        return (
            self.id, self.status.value, self.claims, self.owner, self.until, self.available_at,
            self.attempt, self.recoveries, self.retry_of,
        )  # fmt: skip


class Model:
    """All runs, and the verbs that change them."""

    def __init__(self) -> None:
        self.runs: dict[str, Life] = {}

    def chain(self, root: str) -> list[Life]:
        """Every run of a chain."""
        return [life for life in self.runs.values() if life.root == root]

    def open_of(self, root: str) -> Life | None:
        """The open run of a chain; the table and the guards allow one at most."""
        found = [life for life in self.chain(root) if life.status in OPEN]
        assert len(found) <= 1
        return found[0] if found else None

    def last_of(self, root: str) -> Life:
        """The last run of a chain."""
        followed = {life.retry_of for life in self.runs.values()}
        [last] = [life for life in self.chain(root) if life.id not in followed]
        return last

    def has_open_child(self, root: str) -> bool:
        """Whether a chain still waits for another."""
        return any(life.parent == root and life.status in OPEN for life in self.runs.values())

    def start(self, run: NewRun, now: int) -> bool:
        """Creation, unless a unique key is in the way."""
        taken = any(
            life.id == run.id
            or (run.external_id and (life.name, life.external) == (run.name, run.external_id))
            or (run.retry_of and life.retry_of == run.retry_of)
            or (run.serial_key and life.serial == run.serial_key and life.status in OPEN)
            for life in self.runs.values()
        )
        if not taken:
            status = Status.SLEEPING if run.available_at > now else Status.PENDING
            self.runs[run.id] = Life(
                run.id, run.root_id or run.id, run.name, status, run.available_at, run.priority,
                run.attempt, run.recoveries, run.retry_of, run.parent_id, run.serial_key,
                run.external_id,
            )  # fmt: skip
        return not taken

    def claim(self, worker: str, names: Collection[str], slots: int, until: int) -> list[str]:
        """The front of the line."""
        line = [life for life in self.runs.values() if life.status is Status.PENDING]
        line = [life for life in line if life.name in names]
        line.sort(key=lambda life: (-life.priority, life.available_at or 0, life.id))
        for life in line[:slots]:
            life.move("claim")
            life.claims += 1
            life.owner, life.until, life.wake = worker, until, False
        return [life.id for life in line[:slots]]

    def settle(
        self, claim: Claim, verb: str, *, reason: str | None, wake_at: int | None,
        retry: NewRun | None, now: int,
    ) -> bool:  # fmt: skip
        """One verb under its claim, and what follows from it."""
        life = self.runs[claim.id]
        if not life.is_held_by(claim):
            return False
        life.move(verb)
        if verb == "suspend":
            if life.wake:
                life.move("wake")
            else:
                life.available_at, life.waits_for = wake_at, reason
        if retry is not None:
            assert self.start(retry, now)
        elif life.status in FINAL:
            if life.parent:
                self.poke(life.parent, now)
            if verb == "fail":
                self.cancel_below([life.root], now)
        return True

    def poke(self, root: str, now: int) -> None:
        """Wake the open run of a chain, at the latest when it suspends."""
        life = self.open_of(root) if root in self.runs else None
        if life is None:
            return
        if life.status is Status.RUNNING:
            life.wake = True
        elif life.status is Status.SLEEPING and life.waits_for in POKED:
            life.move("wake")
            life.available_at = now

    def wake_due(self, now: int) -> int:
        """Sleepers that are due."""
        due = [
            life
            for life in self.runs.values()
            if life.status is Status.SLEEPING
            and life.available_at is not None
            and life.available_at <= now
        ]
        for life in due:
            life.move("wake")
        return len(due)

    def lapsed(self, now: int, gone: Collection[str]) -> list[Life]:
        """Runs that a reaper would take."""
        return [
            life
            for life in self.runs.values()
            if life.status is Status.RUNNING
            and ((life.until or 0) < now or (life.owner or "") in gone)
        ]

    def cancel(self, roots: Sequence[str], now: int) -> set[str]:
        """Chains and all chains below them; then the runs that waited for them."""
        family = set(roots)
        while more := {
            life.root for life in self.runs.values() if life.parent in family
        } - family:  # fmt: skip
            family |= more
        called_off = [
            life for life in self.runs.values() if life.root in family and life.status in OPEN
        ]
        for life in called_off:
            life.move("cancel")
        for life in called_off:
            if life.parent:
                self.poke(life.parent, now)
        return {life.id for life in called_off}

    def cancel_below(self, roots: Collection[str], now: int) -> None:
        """The children of chains that ended without a result."""
        children = {life.root for life in self.runs.values() if life.parent in roots}
        self.cancel(sorted(children), now)

    def resolve(self, life: Life, now: int) -> bool:
        """A person answered."""
        if life.status is not Status.WAITING:
            return False
        life.move("resolve")
        life.attempt += 1
        life.available_at = now
        return True

    def strays(self, worker: str, held: Collection[str]) -> int:
        """Runs that a worker holds without knowing it are handed back."""
        found = [
            life
            for life in self.runs.values()
            if life.status is Status.RUNNING and life.owner == worker and life.id not in held
        ]
        for life in found:
            life.move("release")
        return len(found)
