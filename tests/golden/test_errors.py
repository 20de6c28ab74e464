"""Messages for users who make a mistake: a sentence with the value, and what to do about it.

None is raw (a traceback of Rota's own insides, an error of another library), none is silent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.golden.kit import (
    CASES,
    Case,
    Place,
    command_cases,
    golden,
    misuse_cases,
    python_cases,
    seen_by_user,
    write,
)

LOGGED = ("blocking code in the event loop", "start inside a step")  # the line has its advice
MODULES = (command_cases, misuse_cases, python_cases)  # importing one registers its cases


@pytest.fixture
def place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Place]:
    """An empty folder, no settings from outside, and no project left over from another case."""
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        if not name.startswith("ROTA_TEST"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    postgres: Callable[[], str] = lambda: str(request.getfixturevalue("postgres_url"))  # noqa: E731
    yield Place(tmp_path, postgres)
    sys.path[:] = path
    sys.modules.pop("jobs", None)


def marked(one: Case) -> object:
    """A case by its name; those that need a server are skipped without one."""
    return pytest.param(one, id=one.name, marks=[pytest.mark.pg] if one.needs_postgres else [])


@pytest.mark.parametrize("one", [marked(one) for one in CASES])
def test_a_mistake_is_answered_in_these_words(one: Case, place: Place) -> None:
    seen = seen_by_user(one, place)
    if os.environ.get("ROTA_TEST_GOLDEN"):
        write({one.name: seen})
    assert seen == golden().get(one.name), "if the new words are better: ROTA_TEST_GOLDEN=1 pytest"


@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in CASES])
def test_no_golden_text_is_raw(one: Case) -> None:
    text = golden()[one.name]
    assert "Traceback" not in text
    assert "unexpected" not in text
    assert "secret" not in text.partition("\n")[2], "a password"
    if one.name not in LOGGED:
        assert "Hint: " in text


def test_every_golden_text_has_its_case_and_names_are_used_once() -> None:
    names = [one.name for one in CASES]
    assert sorted(golden()) == sorted(set(names)) == sorted(names)
    assert {one.make.__module__ for one in CASES} == {module.__name__ for module in MODULES}
