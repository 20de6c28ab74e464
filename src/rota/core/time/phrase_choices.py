"""Why a phrase is refused, and the choices that a phrase leaves open. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

# The classes of refusals, for programs and tests.
KINDS = (
    "ambiguous",  # more than one reading
    "unknown",  # a word without a meaning
    "incomplete",  # a day or a time is missing
    "conflict",  # parts that contradict each other
    "inexpressible",  # clear, but neither cron nor an interval can say it
    "invalid",  # 25:00, the 32nd
    "once",  # one time, which needs a date
    "zone",  # the zone of a schedule is an option of its own
)


class PhraseRefusal(Exception):
    """A phrase is refused: the class, the reason, and phrases to write instead."""

    def __init__(self, kind: str, reason: str, instead: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.instead = tuple(instead)


def refuse(kind: str, reason: str, *instead: str) -> NoReturn:
    """Refuse the phrase."""
    raise PhraseRefusal(kind, reason, instead)


class Choices:
    """Which option to follow where a phrase leaves several open. One object for each reading."""

    def __init__(self, taken: Sequence[int] = ()) -> None:
        self._taken = tuple(taken)
        self.made: list[tuple[str, int]] = []  # the reason, and the number of options

    def choose(self, reason: str, options: int) -> int:
        """The option to follow: the first one until a later reading asks for another."""
        index = len(self.made)
        self.made.append((reason, options))
        return self._taken[index] if index < len(self._taken) else 0

    @property
    def taken(self) -> list[int]:
        """The options that were followed, with the first one for each choice not asked for."""
        return [*self._taken, *[0] * len(self.made)][: len(self.made)]
