"""`make up` and `make down`, on a copy of the example."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """The parts of the repository that `make up` needs; its daemon is stopped afterwards."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "up.py", tmp_path / "scripts")
    kept = shutil.ignore_patterns("*.db*", "__pycache__")
    shutil.copytree(ROOT / "examples" / "hello", tmp_path / "examples" / "hello", ignore=kept)
    yield tmp_path
    script(tmp_path, "--stop")


def script(tree: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the script; a daemon that kept our pipes open would make this time out."""
    return subprocess.run(
        [sys.executable, "scripts/up.py", *words],
        cwd=tree, capture_output=True, text=True, timeout=90,
    )  # fmt: skip


def test_up_starts_a_daemon_and_shows_a_run_then_finds_it_up(tree: Path) -> None:
    first = script(tree)
    assert first.returncode == 0, first.stderr
    assert "The example's worker is up (pid " in first.stdout
    assert '{"reserved": ["tea for order 7", "jam for order 7"]' in first.stdout
    assert "sleep#0" in first.stdout
    assert "`make down`" in first.stdout
    second = script(tree)
    assert second.returncode == 0, second.stderr
    assert "The example's worker was up already" in second.stdout
    down = script(tree, "--stop")
    assert down.stdout.startswith("The worker has stopped")
    assert "stopped gracefully" in (tree / ".rota" / "up.log").read_text()
    assert script(tree, "--stop").stdout == "No worker of `make up` is running.\n"


def test_a_daemon_that_dies_at_once_shows_the_end_of_its_log(tree: Path) -> None:
    (tree / "examples" / "hello" / "hello.py").write_text("1 / 0\n")
    child = script(tree)
    assert child.returncode == 1
    assert "The worker ended at once, with exit code 2. The end of .rota/up.log:" in child.stderr
    assert "ZeroDivisionError: division by zero" in child.stderr
