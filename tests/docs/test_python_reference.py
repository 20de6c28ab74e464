"""The Python reference agrees with the code, and names what users need."""

from __future__ import annotations

import inspect

import pytest

import rota
from scripts.python_reference import CLASSES
from scripts.reference import FOLDER

PAGE = (FOLDER / "python.md").read_text(encoding="utf-8")
# Arguments and declarations of an app, and names that other layers of the package use.
ATTRIBUTES = {
    *("url", "settings", "clock", "migrates", "workflows", "webhooks"),
    *("connection", "declared", "ids", "runtime", "starter"),
}


@pytest.mark.parametrize(
    "name", ["app.start", "app.runs.list", "app.schedules.create", "app.pipelines.start",
             "run.result", "rota.sleep", "rota.testing.virtual"],
)  # fmt: skip
def test_the_page_lists(name: str) -> None:
    assert f"### `{name}`\n" in PAGE


def undocumented(kind: type, owner: str, page: str) -> list[str]:
    """Public names of a class that neither the page nor the text of the class explains."""
    text = inspect.getdoc(kind) or ""
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and f"### `{owner}.{name}`\n" not in page
        and f"`{name}`" not in text
    ]


@pytest.mark.parametrize(("owner", "kind"), [(owner, kind) for _, owner, kind in CLASSES])
def test_help_shows_documented_names_only(owner: str, kind: type) -> None:
    assert undocumented(kind, owner, PAGE) == [], "document it, or begin it with an underscore"


def test_a_client_shows_what_an_app_shows() -> None:
    assert undocumented(rota.Client, "app", PAGE) == []


def test_the_attributes_of_an_app_are_documented() -> None:
    shown = {name for name in vars(rota.Rota("sqlite://:memory:")) if not name.startswith("_")}
    assert shown - ATTRIBUTES == {name for name in shown if f"## `app.{name}`\n" in PAGE}


def test_an_internal_name_is_found_out() -> None:
    class Leaky(rota.Rota):
        def make_runtime_again(self) -> None: ...

    assert undocumented(Leaky, "app", PAGE) == ["make_runtime_again"]
