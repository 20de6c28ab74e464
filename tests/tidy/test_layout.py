"""The tree: a layer and a noun for every module, one name for every class, tests that mirror it."""

from __future__ import annotations

import pytest

from tests.tidy.layout import LAYOUT_RULES
from tests.tidy.tree import Module, modules

APP = ("src/rota/app.py", "class Rota: ...")
RUNS = ("src/rota/core/runs/model.py", "class Run: ...")

# Each case: the rule, and files of which the last breaks it.
BAD = [
    ("few_root_modules", [APP, ("src/rota/dashboard.py", "")]),
    ("unique_class_names", [RUNS, ("src/rota/client/model.py", "class Run: ...")]),
    ("plain_module_names", [("src/rota/store/notebook.py", "")]),
    ("plain_module_names", [("src/rota/store/run_shelf.py", "")]),
    ("plain_module_names", [("src/rota/pipelines/room/model.py", "")]),
    ("plain_module_names", [("src/rota/engine/performing.py", "")]),
    ("plain_module_names", [("tests/engine/desk.py", "")]),
    ("mirrored_tests", [RUNS, ("tests/core/jobs/test_model.py", "")]),
    ("mirrored_tests", [RUNS, ("tests/core/runs/builders.py", "")]),
    ("no_test_imports_a_test", [("tests/core/test_a.py", "from tests.core.test_b import X")]),
    ("no_test_imports_a_test", [("tests/core/test_a.py", "import tests.core.test_b")]),
    ("no_test_imports_a_test", [("tests/core/test_a.py", "from tests.core import test_b")]),
    ("no_test_imports_a_test", [("tests/core/test_a.py", "from tests.conftest import X")]),
]
GOOD = [
    ("few_root_modules", [APP, ("src/rota/core/runs/dashboard.py", "")]),
    ("unique_class_names", [RUNS, ("tests/kit/model.py", "class Run: ...")]),
    ("plain_module_names", [("src/rota/core/runs/retry.py", ""), ("src/rota/testing.py", "")]),
    ("plain_module_names", [("src/rota/cli/pipeline/outline.py", "")]),
    ("mirrored_tests", [RUNS, ("tests/core/runs/test_x.py", ""), ("tests/crash/kit/a.py", "")]),
    ("no_test_imports_a_test", [("tests/core/test_a.py", "from tests.core.kit import X")]),
]


def complaints(rule: str, files: list[tuple[str, str]]) -> list[str]:
    return list(LAYOUT_RULES[rule]([Module(path, text) for path, text in files]))


@pytest.mark.parametrize("rule", LAYOUT_RULES)
def test_the_tree_keeps(rule: str) -> None:
    found = list(LAYOUT_RULES[rule](modules()))
    assert not found, f"{LAYOUT_RULES[rule].__doc__}\n" + "\n".join(found)


@pytest.mark.parametrize(("rule", "files"), BAD)
def test_a_planted_violation_is_found(rule: str, files: list[tuple[str, str]]) -> None:
    assert len(complaints(rule, files)) == 1


@pytest.mark.parametrize(("rule", "files"), GOOD)
def test_an_innocent_neighbour_is_left_alone(rule: str, files: list[tuple[str, str]]) -> None:
    assert complaints(rule, files) == []


def test_every_layout_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _ in BAD} == set(LAYOUT_RULES)
