"""Every line and row that automations were planned by has its test, on both databases."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.automations.kit.requirements import REQUIREMENTS
from tests.tidy.tree import ROOT

FOLDER = ROOT / "tests/automations"
ROWS = [
    (f"{part}: {row}", test) for part, rows in REQUIREMENTS.items() for row, test in rows.items()
]


def _missing(test: str, folder: Path = FOLDER) -> str | None:
    """What is wrong with a named test, or None."""
    path, _, name = test.partition("::")
    name, _, case = name.rstrip("]").partition("[")
    tree = ast.parse((folder / path).read_text())
    found = [one for one in tree.body if isinstance(one, ast.AsyncFunctionDef) and one.name == name]
    if not found:
        return f"{path} has no test {name}"
    if "database_url" not in [one.arg for one in found[0].args.args]:
        return f"{name} does not run on both databases"
    marks = (node for mark in found[0].decorator_list for node in ast.walk(mark))
    words = [node.value for node in marks if isinstance(node, ast.Constant)]
    return f"{name} has no case {case!r}" if case and case not in words else None


@pytest.mark.parametrize(("row", "test"), ROWS, ids=[row for row, _ in ROWS])
def test_a_line_of_the_plan_has_its_test(row: str, test: str) -> None:
    assert _missing(test) is None


def test_a_test_that_is_not_there_is_found_out(tmp_path: Path) -> None:
    text = """
@pytest.mark.parametrize("word", ["one"])
async def test_a(database_url, word): ...
async def test_b(): ...
"""
    (tmp_path / "test_x.py").write_text(text)
    assert _missing("test_x.py::test_a[one]", tmp_path) is None
    assert _missing("test_x.py::test_a[two]", tmp_path) == "test_a has no case 'two'"
    assert _missing("test_x.py::test_b", tmp_path) == "test_b does not run on both databases"
    assert _missing("test_x.py::test_c", tmp_path) == "test_x.py has no test test_c"
