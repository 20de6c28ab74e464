"""The events that user code has seen, in each execution of each run, outside of the database."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple
from zlib import crc32


class Event(NamedTuple):
    """One thing that user code has seen."""

    n: int  # the operation
    what: str
    detail: str = ""  # differs between two runs of one program

    def __str__(self) -> str:
        return f"{self.n} {self.what} {self.detail}".rstrip()


class Execution:
    """One execution of the code of a run."""

    def __init__(self, life: int) -> None:
        self.life = life
        self.events: list[Event] = []
        self.durable = 0  # so many events no later execution may see otherwise
        self._crc = 0

    def add(self, event: Event) -> None:
        """Note an event."""
        self.events.append(event)
        self._crc = crc32(str(event).encode(), self._crc)

    @property
    def digest(self) -> int:
        """A number that depends on all that the code has seen."""
        return self._crc


class Effect(NamedTuple):
    """One execution of a step."""

    root_id: str
    key: str
    args: tuple[Any, ...]
    life: int


class Book:
    """All that was seen and done, over all lives of the processes."""

    def __init__(self) -> None:
        self.executions: defaultdict[str, list[Execution]] = defaultdict(list)
        self.effects: list[Effect] = []
        self.tries: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.raised: dict[str, str] = {}  # the error with which the code of a run ended
        self.problems: list[str] = []

    def begin(self, root_id: str, life: int, *, happens: bool) -> Execution:
        """Another execution of a run. The one before it in this life was suspended, so all that
        its code had seen is durable."""
        if not happens:  # the process is dead already
            return Execution(life)
        listed = self.executions[root_id]
        if listed and listed[-1].life == life:
            listed[-1].durable = len(listed[-1].events)
        listed.append(Execution(life))
        return listed[-1]

    def do(self, effect: Effect, seen: int) -> int:
        """Note an effect; its call was made after `seen` events. Returns the number of its
        executions."""
        self.effects.append(effect)
        self.tries[effect[:2]] += 1
        execution = self.executions[effect.root_id][-1]
        execution.durable = max(execution.durable, seen)
        return self.tries[effect[:2]]

    def check(self) -> None:
        """Compare all executions, and all effects of one key."""
        for root_id, executions in self.executions.items():
            _compare(root_id, executions)
        arguments: dict[tuple[str, str], tuple[Any, ...]] = {}
        for effect in self.effects:
            first = arguments.setdefault(effect[:2], effect.args)
            assert first == effect.args, (
                f"{effect.key} was executed with {first}, then with {effect.args}"
            )
        assert not self.problems, self.problems


def _compare(root_id: str, executions: list[Execution]) -> None:
    known: list[Event] = []
    for number, execution in enumerate(executions):
        seen = execution.events
        for at, (before, now) in enumerate(zip(known, seen, strict=False)):
            assert before == now, (
                f"execution {number} of run {root_id} saw at {at}: {now}; before: {before}\n"
                f"before: {_shown(known)}\nnow:    {_shown(seen)}"
            )
        if execution.durable > len(known):
            known = seen[: execution.durable]


def _shown(events: list[Event]) -> str:
    return " | ".join(map(str, events))
