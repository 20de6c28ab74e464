"""Collects the problems of one file, with their positions."""

from __future__ import annotations

from rota.pipelines.definition.problems import FilePosition, Level, Path, Problem
from rota.pipelines.definition.yaml_tree import Document


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

    def at_text(self, path: Path, text: str, message: str, level: Level = Level.ERROR) -> None:
        """Note a problem of a text within a value, such as a placeholder of a prompt."""
        place = self._find(text, self.document.place(path))
        self.problems.append(Problem(self.file, place, message, level))

    def _say(self, path: Path, message: str, at_key: bool, level: Level) -> None:
        place = self.document.key_place(path) if at_key else self.document.place(path)
        self.problems.append(Problem(self.file, place, message, level))

    def _find(self, text: str, place: FilePosition) -> FilePosition:
        for number in range(place.line - 1, len(self._lines)):
            begin = place.column - 1 if number == place.line - 1 else 0
            found = self._lines[number].find(text, begin)
            if found >= 0:
                return FilePosition(number + 1, found + 1)
        return place
