"""Variants of a program: code with the same durable calls, and code with others.

The programs here are without races, so that what they call does not depend on time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.simulation.kit.operations import Op

STEPS = ("step", "flaky", "closing")
Change = Callable[[Op, random.Random], Op]


class BaseMaker:
    """Steps and groups of steps, one after the other, and a long sleep in the middle."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made = 0

    def program(self) -> Op:
        """The program; the first half of it is recorded when it sleeps."""
        before = [self._new("step"), *self._some(), self._new("step")]
        after = [self._new("step"), *self._some()]
        return self._new("sequence", *before, replace(self._new("sleep"), us=10**9), *after)

    def _some(self) -> list[Op]:
        return [self._block() for _ in range(self._random.randint(1, 3))]

    def _block(self) -> Op:
        if self._random.random() < 0.4:
            return self._new(self._random.choice(STEPS))
        kind = self._random.choice(("gather", "asyncio_gather", "task_group", "exit_stack"))
        return self._new(kind, self._new("sequence", self._leaf(), self._leaf()), self._leaf())

    def _leaf(self) -> Op:
        return self._new(self._random.choice(STEPS))

    def _new(self, kind: str, *parts: Op) -> Op:
        self._made += 1
        return Op(kind, self._made, self._random.randint(1, 3_000_000), 0, parts)


# -- the same durable calls --------------------------------------------------------------------


def around(kind: str) -> Change:
    """Something around each operation of the first level that makes no durable call."""

    def change(program: Op, chance: random.Random) -> Op:
        parts = [
            Op(kind, 900 + n, 10**9, chance.randint(0, 3), (part,))
            for n, part in enumerate(program.parts)
        ]
        return replace(program, parts=tuple(parts))

    return change


def between(kind: str) -> Change:
    """Something between the operations of the first level that makes no durable call."""

    def change(program: Op, chance: random.Random) -> Op:
        parts: list[Op] = []
        for n, part in enumerate(program.parts):
            parts += [Op(kind, 900 + n, 0, chance.randint(0, 3)), part]
        return replace(program, parts=tuple(parts))

    return change


EQUAL: dict[str, Change] = {
    "catch around": around("catch"),
    "eager tasks": around("eager"),
    "gather around": around("asyncio_gather"),
    "task groups around": around("task_group"),
    "anyio groups around": around("anyio_group_alone"),
    "shared contexts": around("shared_context"),
    "cancel scopes around": around("cancel_scope"),
    "yields between": between("yields"),
    "plain tasks between": between("plain_tasks"),
    "random numbers between": between("random"),
}


# -- other durable calls -----------------------------------------------------------------------


def _at(program: Op, index: int, *ops: Op) -> Op:
    parts = (*program.parts[:index], *ops, *program.parts[index + 1 :])
    return replace(program, parts=parts)


def rename(program: Op, _: random.Random) -> Op:
    """A step gets another name."""
    return _at(program, 0, replace(program.parts[0], kind="late"))


def other_arguments(program: Op, chance: random.Random) -> Op:
    """A recorded step gets another argument."""
    index = chance.choice([0, _middle(program) - 1])
    part = program.parts[index]
    return _at(program, index, replace(part, us=part.us + 1))


def insert(program: Op, chance: random.Random) -> Op:
    """A call before one that is recorded."""
    index = chance.randint(0, _middle(program) - 1)
    new = Op(chance.choice(STEPS), 999, 1)
    return _at(program, index, new, program.parts[index])


def insert_other(program: Op, chance: random.Random) -> Op:
    """A call of a name that is not recorded."""
    index = chance.randint(0, _middle(program) - 1)
    kind = chance.choice(("late", "signal", "sync", "asyncio_sleep"))
    return _at(program, index, Op(kind, 999, 1), program.parts[index])


def delete(program: Op, chance: random.Random) -> Op:
    """A recorded call less."""
    return _at(program, chance.randint(0, _middle(program) - 1))


def swap(program: Op, _: random.Random) -> Op:
    """Two recorded calls of one step in the other order. (Calls of two steps, one after the other,
    have the same keys and results in any order: the run continues.)"""
    first, last = program.parts[0], program.parts[_middle(program) - 1]
    return _at(_at(program, 0, last), _middle(program) - 1, first)


def other_kind(program: Op, chance: random.Random) -> Op:
    """Another primitive in the place of a step."""
    index = chance.choice([0, _middle(program) - 1])
    kind = chance.choice(("sleep", "signal", "asyncio_sleep", "sync"))
    return _at(program, index, replace(program.parts[index], kind=kind))


def move_into_branch(program: Op, _: random.Random) -> Op:
    """The last recorded step runs beside what was before it."""
    index = _middle(program) - 1
    before, last = program.parts[index - 1 : index + 1]
    both = Op("asyncio_gather", 998, 1, 0, (last, before))
    parts = (*program.parts[: index - 1], both, *program.parts[index + 1 :])
    return replace(program, parts=parts)


def _middle(program: Op) -> int:
    return next(n for n, part in enumerate(program.parts) if part.kind == "sleep")


CHANGED: dict[str, Change] = {
    one.__name__: one
    for one in (
        rename, other_arguments, insert, insert_other, delete, swap, other_kind, move_into_branch,
    )
}  # fmt: skip
