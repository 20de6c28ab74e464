"""What Rota promises to its users: the exported names, the errors and the settings."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from dataclasses import is_dataclass

import msgspec
import pytest

import rota
from rota import errors
from rota.settings import Settings
from tests.tidy.tree import ROOT

EXPORTS_MAX = 34
SETTINGS_PAGE = ROOT / "docs" / "reference" / "settings.md"

ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    # Control flow derives from BaseException alone: nobody is meant to see it.
    if issubclass(kind, Exception) and kind.__module__ == errors.__name__
]


def test_the_package_exports_what_it_says() -> None:
    tree = ast.parse((ROOT / "src" / "rota" / "__init__.py").read_text(encoding="utf-8"))
    bound = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    public = {name for name in bound if not name.startswith("_")}
    said = set(rota.__all__)
    assert len(said) == len(rota.__all__), "a name is listed twice"
    assert public <= said, f"imported but not in __all__: {sorted(public - said)}"
    # The rest may be loaded on first use; it must be there when asked for.
    missing = [name for name in rota.__all__ if not hasattr(rota, name)]
    assert not missing, f"in __all__ but not there: {missing}"


def test_the_package_exports_few_names() -> None:
    assert 0 < len(rota.__all__) <= EXPORTS_MAX


def test_every_exported_name_has_a_docstring() -> None:
    bare = [name for name in rota.__all__ if not _documented(name, getattr(rota, name))]
    assert not bare, f"no docstring: {bare}"


def test_every_error_has_a_code_of_its_own() -> None:
    inherited = [kind.__name__ for kind in ERRORS if "code" not in vars(kind)]
    assert not inherited, f"no code of their own: {inherited}"
    twice = [code for code, count in Counter(e.code for e in _rota_errors()).items() if count > 1]
    assert not twice, f"codes used twice: {twice}"


def test_every_error_has_a_hint() -> None:
    assert [kind.__name__ for kind in _rota_errors() if not kind.hint.strip()] == []


def test_every_error_is_a_rota_error() -> None:
    assert _rota_errors() == ERRORS, "users catch RotaError and expect to catch them all"


def test_every_setting_has_a_line_of_help() -> None:
    fields = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    bare = [name for name, field in fields.items() if not field.get("description", "").strip()]
    assert fields
    assert not bare, f"no description: {bare}"


@pytest.mark.skipif(not SETTINGS_PAGE.parent.exists(), reason="the reference is not written yet")
def test_every_setting_is_in_the_reference() -> None:
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    absent = [name for name in Settings.__struct_fields__ if f"`{name}`" not in page]
    assert not absent, f"not in {SETTINGS_PAGE.name}: {absent}"


def _rota_errors() -> list[type[errors.RotaError]]:
    return [kind for kind in ERRORS if issubclass(kind, errors.RotaError)]


def _documented(name: str, thing: object) -> bool:
    doc = thing.__doc__ or ""
    # A dataclass without one is given its signature, which tells a reader nothing.
    return bool(doc.strip()) and not (is_dataclass(thing) and doc.startswith(f"{name}("))
