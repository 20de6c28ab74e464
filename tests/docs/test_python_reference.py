"""The Python reference agrees with the code, and names what users need."""

from __future__ import annotations

import pytest

import rota
from scripts.python_reference import python_page
from scripts.reference import FOLDER


def test_the_page_is_current() -> None:
    assert (FOLDER / "python.md").read_text(encoding="utf-8") == python_page(), "run `make docs`"


@pytest.mark.parametrize(
    "name", ["app.start", "app.runs.list", "app.schedules.create", "app.pipelines.start",
             "run.result", "rota.sleep", "rota.testing.virtual"],
)  # fmt: skip
def test_the_page_lists(name: str) -> None:
    assert f"### `{name}`\n" in python_page()


def test_internals_are_not_listed() -> None:
    page = python_page()
    assert hasattr(rota.Rota, "_leave_home"), "if it is gone, name another one here"
    assert "leave_home" not in page
    assert "make_runtime" not in page
