"""The problems of a pipeline: all at once, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from rota.core.plurals import counted
from rota.errors import BadPipeline

if TYPE_CHECKING:
    from rota.pipelines.definition.yaml_tree import Document

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
    position: FilePosition
    message: str
    level: Level = Level.ERROR
    placeholder: str | None = None  # the name without a value, if that is the problem

    def __str__(self) -> str:
        line, column = self.position
        return f"{self.file}:{line}:{column}: {self.level}: {self.message}"


def ordered(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, in the order of the file."""
    return sorted(
        dict.fromkeys(problems), key=lambda each: (each.file, each.position, each.message)
    )


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that stop the pipeline."""
    return [problem for problem in problems if problem.level is Level.ERROR]


def refusal(file: str, problems: Iterable[Problem]) -> BadPipeline:
    """The error that carries them all; warnings come along, after the errors."""
    detail = sorted(ordered(problems), key=lambda each: each.level is Level.WARNING)
    head = f"{file}: {counted(len(errors_of(detail)), 'problem')}"
    return BadPipeline("\n".join([head, *(f"  {each}" for each in detail)]), problems=detail)


def path_text(path: Path) -> str:
    """`input.items[2].name`, as people write it."""
    text = ""
    for key in path:
        text += f"[{key + 1}]" if isinstance(key, int) else f".{key}" if text else key
    return text or "the pipeline"


class ProblemReport:
    """The problems of one file, in the order they were found."""

    def __init__(self, document: Document, file: str, text: str) -> None:
        self.problems: list[Problem] = list(document.problems)
        self.document = document
        self.file = file
        self.wrong: set[Path] = set()  # parts of the wrong shape, which are skipped
        self._lines = text.splitlines()

    def error(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note what stops the pipeline, at a value or at its key."""
        self._say(path, message, at_key, Level.ERROR)

    def missing(self, path: Path, message: str) -> None:
        """Note that something is missing, unless something wrong was reported there already."""
        if not any(each[: len(path)] == path for each in self.wrong if len(each) > len(path)):
            self._say(path, message, True, Level.ERROR)

    def warning(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note what a person should know."""
        self._say(path, message, at_key, Level.WARNING)

    def placeholder(self, path: Path, name: str, message: str, level: Level) -> None:
        """Note a name without a value, at its placeholder within the text at a path."""
        shown = f"{{{{{name}}}}}"
        position = self._find(shown, self.document.position(path))
        self.problems.append(Problem(self.file, position, f"{shown} {message}", level, name))

    def _say(self, path: Path, message: str, at_key: bool, level: Level) -> None:
        position = self.document.key_position(path) if at_key else self.document.position(path)
        self.problems.append(Problem(self.file, position, message, level))

    def _find(self, text: str, start: FilePosition) -> FilePosition:
        for number in range(start.line - 1, len(self._lines)):
            begin = start.column - 1 if number == start.line - 1 else 0
            column = self._lines[number].find(text, begin)
            if column >= 0:
                return FilePosition(number + 1, column + 1)
        return start
