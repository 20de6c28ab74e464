"""What the rules look at: the files of this repository, read and parsed once."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MADE_BY_TOOLS = {".git", ".venv", "__pycache__", "build", "dist", "node_modules"}


@dataclass(frozen=True)
class Module:
    """One Python file; `path` is relative to the root of the repository."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def at(self, node: ast.AST, complaint: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {complaint}"


@cache
def modules() -> tuple[Module, ...]:
    """Every Python file under src and tests."""
    files = sorted(p for p in tracked() if p.startswith(("src/", "tests/")) and p.endswith(".py"))
    return tuple(Module(path, (ROOT / path).read_text(encoding="utf-8")) for path in files)


@cache
def tracked() -> tuple[str, ...]:
    """Files that are, or are about to be, in git; without git, all that no tool made."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):  # No git here, or not our checkout.
        return tuple(_walk(ROOT))
    return tuple(name for name in listed.split("\0") if name and (ROOT / name).is_file())


def _walk(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.name in MADE_BY_TOOLS or path.name.endswith(("_cache", ".egg-info")):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path.relative_to(ROOT).as_posix()
