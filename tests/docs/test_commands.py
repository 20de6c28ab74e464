"""Commands, options and methods that the documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import rota
from tests.tidy.tree import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/guides/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
CLI = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
APP = rota.Rota("sqlite://:memory:")
SECTIONS = {
    match[1]: match[2]
    for match in re.finditer(r"^## `(rota [^`]+)`\n(.*?)(?=^## |\Z)", CLI, re.DOTALL | re.MULTILINE)
}
GROUPS = {"rota", *(name.rsplit(" ", 1)[0] for name in SECTIONS)}
COMMON = CLI.split("## Options of every command")[1].split("\n## ")[0]
_COMMAND = re.compile(r"`(rota [^`]*)`|^(?:    |\$ )?(rota [a-z].*)$", re.MULTILINE)
_METHOD = re.compile(r"`[^`\n]*?\bapp\.(\w+)\.(\w+)\(?")


def unknown_commands(text: str) -> list[str]:
    """The commands of a text that do not exist, or have an option that does not exist."""
    found = (one or other for one, other in _COMMAND.findall(text))
    return [command for command in found if not _exists(" ".join(command.split()))]


def _exists(command: str) -> bool:
    typed = command.partition("#")[0].replace("rota scheduler", "rota pipeline schedule").strip()
    fitting = [name for name in SECTIONS if f"{typed} ".startswith(f"{name} ")]
    if not fitting:
        return typed.removesuffix(" …") in GROUPS
    help_text = SECTIONS[max(fitting, key=len)] + COMMON
    return all(option in help_text for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", typed))


def unknown_methods(text: str) -> list[str]:
    """Methods of the parts of an app, such as `app.runs`, that do not exist."""
    named = sorted(set(_METHOD.findall(text)))
    return [f"app.{part}.{name}" for part, name in named if not hasattr(getattr(APP, part), name)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert unknown_commands(text) == []
    assert unknown_methods(text) == []


def test_what_does_not_exist_is_found_out() -> None:
    assert unknown_commands("`rota run lst`, `rota run list --colour`, `rota run list --json`") == [
        "rota run lst", "rota run list --colour",
    ]  # fmt: skip
    assert unknown_methods("`await app.runs.lst()`, `app.runs.list()`") == ["app.runs.lst"]
