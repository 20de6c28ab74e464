"""One entry for each mistake: code that makes it, and the words that the user sees.

A case is a function that makes the mistake. It returns what was printed, or lets the error out.
Its golden text is the section of its name in `errors.txt`. `ROTA_TEST_GOLDEN=1` writes that file;
do it in one process, without `-n`.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from rota.cli.main import cli
from rota.errors import RotaError

GOLDEN = Path(__file__).parent / "errors.txt"
HEAD = "=== "


class Place:
    """The objects that a case may use: an empty folder to be in, and a database."""

    def __init__(self, folder: Path, postgres_url: Callable[[], str]) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'rota.db'}"
        self.postgres_url = postgres_url

    def write(self, name: str, text: str) -> Path:
        """A file of the project."""
        path = self.folder / name
        path.write_text(inspect.cleandoc(text) + "\n")
        return path

    def rota(self, *words: str, **environ: str) -> str:
        """The output of a command that fails, and its exit code."""
        result = CliRunner().invoke(cli, words, env=environ)
        assert result.exit_code != 0, result.output
        assert result.stdout == "", result.stdout
        return f"$ rota {' '.join(words)}\n{result.stderr}exit code {result.exit_code}\n"


class Case(NamedTuple):
    """One mistake."""

    name: str
    make: Callable[[Place], Any]
    needs_postgres: bool


CASES: list[Case] = []


def case(name: str, *, needs_postgres: bool = False) -> Callable[[Callable[[Place], Any]], Any]:
    """Register a function that makes a mistake, under the words people would call it by."""

    def register(make: Callable[[Place], Any]) -> Any:
        CASES.append(Case(name, make, needs_postgres))
        return make

    return register


def seen_by_user(one: Case, place: Place) -> str:
    """The text for the user: printed text, or the end of the traceback."""
    try:
        made = one.make(place)
        printed = asyncio.run(made) if inspect.iscoroutine(made) else made
    except RotaError as error:
        printed = "".join(traceback.format_exception_only(error))
    return plain(str(printed), place)


def plain(text: str, place: Place) -> str:
    """`text` without what differs from run to run."""
    text = text.replace(str(place.folder), "FOLDER")
    text = re.sub(r"/\S*/src/rota/", "ROTA/", text)
    text = re.sub(r"[0-9a-f]{32}", "ID", text)
    text = re.sub(r"127\.0\.0\.1:\d+|(?<=port )\d+", "HOST", text)
    text = re.sub(r"0x[0-9a-f]+", "0xADDRESS", text)
    text = re.sub(r"schema=\w+", "schema=OWN", text)
    return text.strip() + "\n"


def golden() -> dict[str, str]:
    """The golden texts by name."""
    if not GOLDEN.exists():
        return {}
    parts = GOLDEN.read_text(encoding="utf-8").split(HEAD)[1:]
    return {name: text.strip() + "\n" for name, _, text in (part.partition("\n") for part in parts)}


def write(texts: dict[str, str]) -> None:
    """Keep these as the golden ones; all others stay."""
    every = golden() | texts
    known = {one.name for one in CASES}
    body = "\n".join(
        f"{HEAD}{name}\n{text}" for name, text in sorted(every.items()) if name in known
    )
    GOLDEN.write_text(body, encoding="utf-8")
