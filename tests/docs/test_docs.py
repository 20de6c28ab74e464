"""Every Python block of the docs runs; every link leads somewhere."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rota import Rota
from rota.core.workflows.replay_check import check_source
from rota.testing import World, virtual
from tests.tidy.tree import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
_ANCHOR = re.compile(r"\]\((?!https?:)([^)#]*\.md)?#([^)]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _named(pages: list[Path]) -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def _namespace(page: Path) -> dict[str, Any]:
    blocks = _BLOCK.findall(page.read_text())
    module = ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for block in blocks:
        exec(compile(block, str(page), "exec"), module.__dict__)
    return module.__dict__


@pytest.mark.parametrize("page", _named(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target} is not there"


def _anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(text))
    return {each.replace(" ", "-") for each in found}


@pytest.mark.parametrize("page", _named(PAGES))
def test_links_lead_to_headings(page: Path) -> None:
    for target, anchor in _ANCHOR.findall(page.read_text()):
        known = _anchors((page.parent / target).resolve() if target else page)
        assert anchor in known, f"{page.name}: {target}#{anchor} is not a heading"


@pytest.mark.parametrize("page", _named([p for p in PAGES if _BLOCK.search(p.read_text())]))
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = _namespace(page)
    for name, value in names.items():
        if name.startswith("test_"):
            asyncio.run(value())


@pytest.mark.parametrize("page", _named([p for p in PAGES if _BLOCK.search(p.read_text())]))
def test_the_check_finds_nothing_in_the_workflows_of_a_page(page: Path) -> None:
    text = "\n".join(_BLOCK.findall(page.read_text()))
    assert [finding.text for finding in check_source(text, page.name).findings] == []


async def _result(page: str, name: str, *args: Any) -> Any:
    names = _namespace(ROOT / page)
    app: Rota = names["app"]
    async with virtual(app) as world:
        return await _drained(world, app, names[name], args)


async def _drained(world: World, app: Rota, workflow: Any, args: Any) -> Any:
    run = await app.start(workflow, *args)
    await world.drain()
    return await run.result(timeout="5s")


async def test_the_readme_example_does_what_it_says() -> None:
    assert await _result("README.md", "fulfil", "order-7") == "receipt for order-7"


@pytest.mark.parametrize(
    ("page", "name", "args", "result"),
    [
        ("docs/start.md", "order", [[{"item": "tea", "count": 2}]], "2 x tea"),
        ("docs/start.md", "deliver", ["7"], "not shipped: ConnectionError"),
        ("docs/guides/workflows.md", "crawl", [["a", "bb"]], [1, 2]),
        ("docs/guides/workflows.md", "publish", ["news"], "news: no answer"),
        ("docs/guides/workflows.md", "all_squares", [[1, 2, 3]], 14),
    ],
)
async def test_the_guides_examples_do_what_they_say(
    page: str, name: str, args: list[Any], result: Any
) -> None:
    assert await _result(page, name, *args) == result
