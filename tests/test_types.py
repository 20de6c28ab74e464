"""The public API under `mypy --strict`: right uses have their types, each wrong one its error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "tests" / "kit" / "types"
EXPECTED = re.compile(r"  # type: ignore\[([\w-]+)\]$")
FOUND = re.compile(r"^(\S+?):(\d+): error: .*\[([\w-]+)\]$")


def stripped(source: Path, target: Path) -> set[tuple[str, int, str]]:
    """Copy a file without its ignore comments; returns the errors they expect."""
    expected = set()
    lines = source.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        found = EXPECTED.search(line)
        if found is not None:
            expected.add((target.name, number, found.group(1)))
            lines[number - 1] = line[: found.start()]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_right_uses_have_their_types_and_each_wrong_one_its_error(tmp_path: Path) -> None:
    names = ("accepted.py", "refused.py")
    expected = set().union(*(stripped(SOURCES / name, tmp_path / name) for name in names))
    assert len(expected) > 30
    # The repository's own configuration and cache, so that the package is not checked again.
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context",
            "--cache-dir", ".mypy_cache", *(str(tmp_path / name) for name in names)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in answer.stdout.splitlines() if " note: " not in line]
    found = set()
    for line in lines:
        error = FOUND.match(line)
        assert error is not None, answer.stdout + answer.stderr
        found.add((Path(error.group(1)).name, int(error.group(2)), error.group(3)))
    assert found == expected, answer.stdout
    assert answer.returncode == 1
