"""Finds the pipeline that a text names: a file, its folder, or the name of one nearby.

Also the default database of a folder of pipelines.
"""

from __future__ import annotations

from pathlib import Path

from rota.core.plurals import some
from rota.core.suggest import did_you_mean
from rota.core.time.recurrence import next_after
from rota.engine.clock import SystemClock
from rota.errors import UnknownPipeline
from rota.pipelines.definition.loader import Loaded, holds_pipeline, read_pipeline

NEARBY = ("pipelines", ".vscode/pipelines")  # further folders to search for a name
DATABASE = ".rota.db"
NAMED_MAX = 8


def locate(text: str) -> Path:
    """The pipeline.yaml or folder that is meant; UnknownPipeline with the nearest names."""
    path = Path(text).expanduser()
    if path.is_file() or holds_pipeline(path):
        return path
    if path.is_dir():
        raise UnknownPipeline(f"{text} holds no pipeline.yaml", hint=_inside(path, text))
    beside = {each.name: each for each in _around(path)}
    if path.name in beside and len(Path(text).parts) == 1:
        return beside[path.name]
    raise UnknownPipeline(
        f"there is no pipeline {text}{did_you_mean(path.name, beside)}",
        hint=f"There are: {some(sorted(beside), NAMED_MAX)}." if beside else None,
    )


def open_pipeline(path: Path) -> Loaded:
    """Read and check a pipeline now, or raise BadPipeline with everything that is wrong with it."""
    return read_pipeline(path, now=SystemClock().now())


def pipelines_in(folder: Path) -> list[Path]:
    """The pipelines of a folder by name, or of its usual folders; none if it is one itself."""
    if not folder.is_dir() or holds_pipeline(folder):
        return []
    places = [folder, *(folder / name for name in NEARBY)]
    return next((pipelines for candidate in places if (pipelines := _within(candidate))), [])


def next_of(loaded: Loaded) -> tuple[int | None, int]:
    """When its schedule would fire next, if it has one that is enabled; and the time now."""
    now = SystemClock().now()
    timed = loaded.schedule
    return next_after(timed.intent.spec, now) if timed and timed.enabled else None, now


def root_of(path: Path) -> Path:
    """The folder of pipelines that a pipeline (its file or its folder) is in."""
    folder = path.parent if path.is_file() else path
    return folder.resolve().parent


def database_url(root: Path) -> str:
    """The default database of a folder of pipelines."""
    return f"sqlite:///{root.resolve() / DATABASE}"


def _within(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and holds_pipeline(each))


def _around(path: Path) -> list[Path]:
    """Pipelines that a name may mean: beside it, and in the usual folders of this one."""
    nearby = [each for name in NEARBY for each in _within(Path(name))]
    return [*nearby, *_within(path.parent)]


def _inside(folder: Path, text: str) -> str:
    names = [each.name for each in _within(folder)]
    if not names:
        return f"Make one with `rota pipeline init {text}/NAME`."
    return f"It holds pipelines; name one of them: {some(sorted(names), NAMED_MAX)}."
