"""ARCHITECTURE.md names files and functions that exist; so do the decisions and CONTRIBUTING.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.kit import PACKAGE, ROW, files_of
from tests.tidy.tree import ROOT

# A path in backticks: a folder, a Python file or an SQL file of the package.
PATH = re.compile(
    r"`(?:src/rota/)?((?:core|store|engine|client|explain|schedules|notifications|workflows"
    r"|automations|pipelines|tools|ai|net|cli)/[\w/*.]*)`"
)
PAGES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/decisions/*.md")),
]


def walks() -> list[tuple[str, str]]:
    """Every row of a walk: file and function."""
    return ROW.findall((ROOT / "ARCHITECTURE.md").read_text())


def functions(path: Path) -> set[str]:
    """Functions of a module, and methods as `Class.method`."""
    body = ast.parse(path.read_text()).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name for node in body if isinstance(node, kinds)}
    for cls in (node for node in body if isinstance(node, ast.ClassDef)):
        found |= {f"{cls.name}.{node.name}" for node in cls.body if isinstance(node, kinds)}
    return found


def missing_path(path: str, package: Path = PACKAGE) -> bool:
    """Whether a documented path names nothing; `*` represents any part of a name."""
    pattern = path.rstrip("/").replace("**/", "")
    return not any(package.glob(pattern)) and not any(package.glob(f"{pattern}.py"))


def test_the_walks_are_found() -> None:
    assert len(walks()) >= 40


@pytest.mark.parametrize(("walk", "most"), [("one run", 14), ("one pipeline run", 16)])
def test_a_walk_passes_few_files(walk: str, most: int) -> None:
    files = files_of((ROOT / "ARCHITECTURE.md").read_text(), walk)
    assert 8 <= len(files) <= most, sorted(files)


def test_a_longer_walk_is_found_out() -> None:
    rows = "".join(f"| `core/m{n}.py` | `f` | x |\n" for n in range(15))
    text = f"## Walk: one run\n\n| file |\n|---|---|---|\n{rows}\n| `core/other.py` | `f` | x |\n"
    assert len(files_of(text, "one run")) == 15


@pytest.mark.parametrize(("file", "function"), walks())
def test_a_step_of_a_walk_exists(file: str, function: str) -> None:
    assert (PACKAGE / file).is_file(), f"there is no {file}"
    assert function in functions(PACKAGE / file), f"{file} has no {function}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_in_the_docs_exist(page: Path) -> None:
    gone = [path for path in PATH.findall(page.read_text()) if missing_path(path)]
    assert not gone, f"{page.name} names what is not there: {gone}"


def test_a_path_that_is_gone_is_found_out() -> None:
    assert missing_path("store/logroom.py")
    assert missing_path("core/planner")
    assert not missing_path("store/sql/**/*.sql")
    assert not missing_path("core/runs/")
    assert not missing_path("core/automations/phases")
