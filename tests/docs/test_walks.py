"""The walks of ARCHITECTURE.md are those of real runs: the files that a run enters are in the table
or in the list of those that are used on the way."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

import rota
from rota.ai.offline import Offline
from tests.docs.kit import PACKAGE, files_of
from tests.tidy.tree import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCE = f"{PACKAGE}/"
# The loops of a worker also turn by themselves; the shortest of several runs has none of that.
RUNS = 6
PIPELINE = """
name: Words
input:
  items: [{word: tea}, {word: milk}]
map:
  prompt: "Say {{word}}"
reduce:
  type: json
"""


def used_in(walk: str) -> list[str]:
    """The files and folders that a walk uses on the way."""
    section = PAGE.split(f"## Walk: {walk}\n", 1)[1].split("\n## ", 1)[0]
    listed = section.split("Used on the way:", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"`([\w/.]+)`", listed)


def unexplained(entered: set[str], walk: str) -> list[str]:
    """The files that a run entered and that its walk does not name."""
    known = (*files_of(PAGE, walk), *used_in(walk))
    return sorted(file for file in entered if not file.startswith(known))


@contextlib.contextmanager
def traced() -> Iterator[Callable[[], set[str]]]:
    """A function that answers with the files of Rota that were entered since the last question, in
    this thread and in those that begin here."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE):
            entered.add(file.removeprefix(SOURCE))

    def take() -> set[str]:
        found = set(entered)
        entered.clear()
        return found

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield take
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def shortest(app: rota.Rota, once: Callable[[], Awaitable[object]]) -> set[str]:
    """The files that one of several runs enters, the one that enters the fewest."""
    with traced() as take:
        async with app:
            found = []
            for _ in range(RUNS):
                take()
                await once()
                found.append(take())
    return min(found, key=len)


async def one_run(tmp_path: Path) -> set[str]:
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")

    @app.step
    async def double(number: int) -> int:
        return 2 * number

    @app.workflow
    async def flow(number: int) -> int:
        return await double(number)

    async def once() -> None:
        assert await (await flow.start(3)).result() == 6

    return await shortest(app, once)


async def test_a_run_enters_the_files_of_its_walk(tmp_path: Path) -> None:
    entered = await one_run(tmp_path)
    assert unexplained(entered, "one run") == []
    assert files_of(PAGE, "one run") <= entered


async def test_a_file_that_no_walk_names_is_found_out() -> None:
    assert unexplained({"client/batch.py", "core/typed.py"}, "one run") == ["client/batch.py"]


@pytest.mark.wall_clock("a worker looks for the run by itself")
async def test_a_pipeline_run_enters_the_files_of_its_walk(tmp_path: Path) -> None:
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(PIPELINE)
    app = rota.Rota(f"sqlite:///{tmp_path}/rota.db")
    app.pipelines.use(Offline())

    async def once() -> None:
        started = await app.pipelines.start(folder, model="offline:x")
        assert (await started.result()).success

    entered = {file for file in await shortest(app, once) if file.startswith("pipelines/")}
    assert unexplained(entered, "one pipeline run") == []
    assert files_of(PAGE, "one pipeline run") <= entered
