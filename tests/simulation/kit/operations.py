"""Random workflow programs, as data: a tree of operations that a seed repeats.

A program can always end: a branch that waits has another one that releases it, even if that one
fails.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

SIGNALS = ("go", "stop")
# A durable call each.
CALLS = ("step", "sync", "flaky", "failing", "closing", "late")
WAITS = ("sleep", "asyncio_sleep", "anyio_sleep", "signal", "signal_or_timeout")
FACTS = ("now", "random", "uuid", "patched", "loop_time")
PLAIN = ("yields", "plain_tasks", "context", "raising")
# One part each, then two, then two or three.
SINGLE = (
    "catch", "timeout", "wait_for", "shield", "move_on", "fail_after", "shielded_scope", "child",
    "started_child", "eager",
)  # fmt: skip
PAIRS = (
    "finally_", "handler", "cancelled_task", "event", "choice", "handed_over", "exit_stack",
)  # fmt: skip
GROUPS = (
    "sequence", "gather", "asyncio_gather", "gathered_errors", "race", "first_ended",
    "wait_with_timeout", "as_completed", "task_group", "anyio_group", "lock", "semaphore", "queue",
    "stream", "condition", "barrier", "generator", "children",
)  # fmt: skip
# Two runs of a program with one of these see different things. (Executions of one run do not.)
INEXACT = frozenset(("sync", "choice", *SIGNALS, "signal", "signal_or_timeout"))
# Another run beside: the program leaves its slot meanwhile.
CHILDREN = frozenset(("child", "started_child", "children"))


@dataclass(frozen=True)
class Op:
    """One operation of a program."""

    kind: str
    n: int  # its number in the program
    us: int = 0  # how long it takes
    arg: int = 0  # its kind says what for
    parts: tuple[Op, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines(0))

    def _lines(self, depth: int) -> Iterator[str]:
        yield f"{'  ' * depth}{self.n} {self.kind} {self.us / 1e6:g}s arg={self.arg}"
        for part in self.parts:
            yield from part._lines(depth + 1)

    def all(self) -> Iterator[Op]:
        """This operation and all below it."""
        yield self
        for part in self.parts:
            yield from part.all()


class ProgramMaker:
    """Makes the program of a seed."""

    def __init__(self, seed: int, *, most: int = 24) -> None:
        self._random = random.Random(seed)
        self._left = most
        self._made = 0

    def program(self) -> Op:
        """Some operations, one after the other, each in a net that catches its errors or not."""
        count = self._random.randint(2, 5)
        parts = [self._op(depth=0) for _ in range(count)]
        # So that all before it is replayed at least once.
        parts += [self._new("sleep"), self._new("step")]
        return self._new("sequence", *parts)

    def _op(self, depth: int) -> Op:
        self._left -= 1
        chance = self._random.random()
        if self._left <= 0 or depth >= 4 or chance < 0.1 * depth:
            return self._leaf()
        kinds = GROUPS if chance < 0.6 else SINGLE if chance < 0.8 else PAIRS
        kind = self._random.choice(kinds)
        count = {SINGLE: 1, PAIRS: 2}.get(kinds) or self._random.randint(2, 3)
        op = self._new(kind, *(self._op(depth + 1) for _ in range(count)))
        return self._new("catch", op) if self._random.random() < 0.4 else op

    def _leaf(self) -> Op:
        kinds = self._random.choices((CALLS, WAITS, FACTS, PLAIN), (8, 5, 2, 2))[0]
        op = self._new(self._random.choice(kinds))
        is_caught = kinds in (CALLS, WAITS, PLAIN) and self._random.random() < 0.5
        return self._new("catch", op) if is_caught else op

    def _new(self, kind: str, *parts: Op) -> Op:
        self._made += 1
        # Two instants are never the same by accident.
        us = self._random.randint(1, self._random.choice((300_000, 3_000_000, 9_000_000)))
        return Op(kind, self._made, us, self._random.randint(0, 3), parts)


def make(seed: int) -> Op:
    """The program of a seed."""
    return ProgramMaker(seed).program()


def smaller(program: Op) -> Iterator[Op]:
    """The same program with one subtree less, or one replaced by a part of itself."""
    for n, part in enumerate(program.parts):
        if len(program.parts) > 1 and program.kind in GROUPS:
            yield replace(program, parts=program.parts[:n] + program.parts[n + 1 :])
        for other in (*part.parts, *smaller(part)):
            yield replace(program, parts=(*program.parts[:n], other, *program.parts[n + 1 :]))
