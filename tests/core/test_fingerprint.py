"""The fingerprint of code: the same in every process, and another for other code."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from rota.core.fingerprint import Scope, fingerprint
from tests.kit.tables import for_each

CODE = """
from rota import Rota

app = Rota()
WORDS = {"alpha", "beta", "gamma", "delta"}


@app.workflow
async def flow(word: str) -> bool:
    def inner(other: str) -> bool:
        return other in {"one", "two", "three", "four", "five"}

    return word in {"alpha", "beta", "gamma", "delta"} or inner(word)


mail = app.automation("mail")
topic = mail.topic("letters")


class Chosen:
    words = {"alpha", "beta", "gamma", "delta"}

    def has(self, word) -> bool:
        return word in self.words and self.size > 3

    def grow(self) -> None:
        self.size = self.length = self.width = self.depth = 1


def helper(word, known=frozenset({"alpha", "beta", "gamma"}), chosen=Chosen()) -> bool:
    return word in known or word in WORDS or chosen.has(word)


@mail.producer(publishes=[topic], every="1h")
async def read(ctx, state) -> None:
    assert helper(state)


print(flow.version, app.automations.declared["mail"].digest())
"""


def printed(seed: int) -> str:
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_versions_of_workflows_and_automations_are_the_same_under_every_hash_seed() -> None:
    assert len({printed(seed) for seed in range(1, 6)}) == 1


BASE = """
import functools
import json
import socket
import helpers
from helpers import LIMIT as MOST, strip
from rota.tools import HttpWrite, tool

HOST = socket.gethostname()
SEEN = []
KEY = str.title
FACTOR = 2
SIZE = FACTOR * 10
send = HttpWrite("send", base="https://example.org/a")


@tool(safety="idempotent")
async def store(text: str) -> str:
    return text


def twice(function):
    @functools.wraps(function)
    def called(*args):
        return function(*args) * FACTOR

    return called


@twice
def count(text, most=3):
    return len(text) + most + SIZE


class Rules:
    limit = 5

    def fits(self, text):
        return len(text) < self.limit


class Strict(Rules):
    def accepts(self, text):
        return self.fits(text) and text != HOST


def never_called():
    return 1


def make(places):
    def handler(text):
        SEEN.append(text)
        json.dumps(text)
        KEY(text)
        accepted = Strict().accepts(strip(text))
        return accepted, helpers.clean(text), count(text), places, MOST, send, store

    return handler


handler = make(("here", "there"))
"""
HELPERS = """
LIMIT = 7


def strip(text):
    return inner(text)


def inner(text):
    return text.strip()


def clean(text):
    return text.lower()


def unused(text):
    return text
"""


def fingerprints(folder: Path, old: str = "", new: str = "", name: str = "mybiz") -> list[str]:
    """The fingerprints (own code, reachable code) of a project in which one text is another."""
    folder.mkdir(parents=True)
    assert not old or (old in BASE) != (old in HELPERS), "the text is in one of the two files"
    (folder / f"{name}.py").write_text(BASE.replace(old, new) if old else BASE)
    (folder / "helpers.py").write_text(HELPERS.replace(old, new) if old else HELPERS)
    with imported(folder, name) as module:
        found = [fingerprint([module.handler], Scope.OWN), reachable(module.handler)]
        module.SEEN.append("grows while it runs")
        assert reachable(module.handler) == found[1]
    return found


@contextmanager
def imported(folder: Path, name: str) -> Iterator[ModuleType]:
    """A module of the folder, which is forgotten afterwards with everything it has imported."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for new in set(sys.modules) - before:
            if str(folder) in str(getattr(sys.modules[new], "__file__", "")):
                del sys.modules[new]


def reachable(function: object) -> str:
    return fingerprint([function], Scope.REACHABLE, module_text=source_of)


def source_of(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text()


CHANGES = {
    "a helper of the module": ("len(text) < self.limit", "len(text) <= self.limit"),
    "a helper of another module": ("text.lower()", "text.upper()"),
    "a helper of a helper": ("text.strip()", "text.lstrip()"),
    "a helper behind a decorator": ("len(text) + most", "len(text) - most"),
    "the decorator": ("function(*args) * FACTOR", "function(*args) + FACTOR"),
    "a default": ("most=3", "most=4"),
    "a function made in C": ("KEY = str.title", "KEY = str.strip"),
    "a closure": ('"there"', '"elsewhere"'),
    "a class attribute of a base class": ("limit = 5", "limit = 6"),
    "a method": ("text != HOST", "text == HOST"),
    "the base classes": ("class Strict(Rules)", "class Strict(Rules, dict)"),
    "a constant": ("FACTOR = 2", "FACTOR = 3"),
    "how a constant is computed": ("FACTOR * 10", "FACTOR * 11"),
    "a constant of another module": ("LIMIT = 7", "LIMIT = 8"),
    "the arguments of a tool": ("https://example.org/a", "https://example.org/b"),
    "the function of a tool": ("    return text\n\n\ndef twice", "    return 1\n\n\ndef twice"),
    "the safety of a tool": ('safety="idempotent"', 'safety="unknowable"'),
}
NO_CHANGES = {
    "a comment": ("class Rules:", "# Plain rules.\nclass Rules:"),
    "a function that is not used": ("    return 1\n", "    return 2\n"),
    "an unused function of another module": (
        "def unused(text):\n    return text", "def unused(text):\n    return 1",
    ),
}  # fmt: skip


def test_a_change_of_anything_that_a_handler_reaches_changes_its_fingerprint(
    tmp_path: Path,
) -> None:
    [own, base] = fingerprints(tmp_path / "base")

    @for_each(CHANGES)
    def changed(name: str) -> None:
        [own_too, reached] = fingerprints(tmp_path / name, *CHANGES[name])
        assert reached != base
        assert own_too == own, "the own code of the handler is the same"

    changed()


def test_what_a_handler_does_not_reach_leaves_its_fingerprint_as_it_is(tmp_path: Path) -> None:
    base = fingerprints(tmp_path / "base")

    @for_each(NO_CHANGES)
    def same(name: str) -> None:
        assert fingerprints(tmp_path / name, *NO_CHANGES[name]) == base

    same()


def test_the_name_of_the_module_does_not_count(tmp_path: Path) -> None:
    assert fingerprints(tmp_path / "one") == fingerprints(tmp_path / "two", name="other")


def test_a_package_in_site_packages_is_user_code_where_the_handlers_are_in_it(
    tmp_path: Path,
) -> None:
    found = []
    for number, change in enumerate((("", ""), ("len(text) < self", "len(text) <= self"))):
        folder = tmp_path / str(number) / "site-packages"
        found.append(fingerprints(folder, *change)[1])
    assert found[0] != found[1]


def test_recursive_code_and_data_have_a_fingerprint() -> None:
    def even(number: int) -> bool:
        return number == 0 or odd(number - 1)

    def odd(number: int) -> bool:
        return number != 0 and even(number - 1)

    ring: list[object] = []
    ring.append(ring)

    def reads(value: object = ring) -> object:
        return even(3), value

    partial = functools.partial(reads, 1)
    first = fingerprint([reads, partial], Scope.REACHABLE)
    assert first == fingerprint([reads, partial], Scope.REACHABLE)


def test_the_scope_of_a_workflow_is_its_own_code_alone() -> None:
    def one(x: int) -> bool:
        return x in {1, 2}

    def two(x: int) -> bool:
        return x in {1, 3}

    def uses(helper: object) -> object:
        def flow() -> object:
            return helper

        return flow

    assert fingerprint([one], Scope.OWN) != fingerprint([two], Scope.OWN)
    assert fingerprint([uses(one)], Scope.OWN) == fingerprint([uses(two)], Scope.OWN)
    assert fingerprint([uses(one)], Scope.REACHABLE) != fingerprint([uses(two)], Scope.REACHABLE)


def test_the_text_of_a_project_with_relative_imports_is_followed(tmp_path: Path) -> None:
    def digest(limit: int) -> str:
        folder = tmp_path / str(limit) / "shop"
        (folder / "rules").mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "rules" / "__init__.py").write_text("from .values import LIMIT\n")
        (folder / "rules" / "values.py").write_text(f"LIMIT = {limit}\n")
        code = """
        from .rules import LIMIT

        def handler(text):
            return LIMIT
        """
        (folder / "mail.py").write_text(textwrap.dedent(code))
        with imported(folder.parent, "shop.mail") as module:
            return reachable(module.handler)

    assert digest(1) != digest(2)
