"""The problems of a pipeline: all at once, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from rota.errors import BadPipeline

Path = tuple[str | int, ...]


class FilePosition(NamedTuple):
    """A place in a file; both count from one."""

    line: int
    column: int


class Level(StrEnum):
    """An error stops the pipeline; a warning is only shown."""

    ERROR = "error"
    WARNING = "warning"


class Problem(NamedTuple):
    """One thing that is wrong, in one sentence, at one place."""

    file: str
    place: FilePosition
    message: str
    level: Level = Level.ERROR

    def __str__(self) -> str:
        line, column = self.place
        return f"{self.file}:{line}:{column}: {self.level}: {self.message}"


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, in the order of the file."""
    return sorted(dict.fromkeys(problems), key=lambda each: (each.file, each.place, each.message))


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that stop the pipeline."""
    return [problem for problem in problems if problem.level is Level.ERROR]


def refusal(file: str, problems: Iterable[Problem]) -> BadPipeline:
    """The error that carries them all; warnings come along, after the errors."""
    detail = sorted(ordered(problems), key=lambda each: each.level is Level.WARNING)
    count = len(errors_of(detail))
    head = f"{file}: 1 problem" if count == 1 else f"{file}: {count} problems"
    return BadPipeline("\n".join([head, *(f"  {each}" for each in detail)]), problems=detail)


def path_text(path: Path) -> str:
    """`input.items[2].name`, as people write it."""
    text = ""
    for part in path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "the pipeline"
