"""The example of pipelines really works, offline, by the commands of its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tidy.tree import ROOT

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "tickets-to-report"
MADE = shutil.ignore_patterns(".rota.db*", ".results", ".schedule-state.json", "*.lock")
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy, without what earlier runs left in it."""
    shutil.copytree(EXAMPLE, tmp_path / "example", ignore=MADE)
    return tmp_path / "example"


def rota(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in that folder."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ROTA_")}
    done = subprocess.run(
        [sys.executable, "-m", "rota", *words], cwd=folder, env=environ, text=True,
        capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done


def document(folder: Path, *words: str) -> Any:
    """The same with --json."""
    return json.loads(rota(folder, *words, "--json").stdout)


def test_both_are_good_and_scheduled(folder: Path) -> None:
    found = document(folder, "pipeline", "validate", "--strict")
    assert [(each["pipeline"], each["problems"]) for each in found] == [
        ("triage", []), ("weekly", []),
    ]  # fmt: skip
    listed = document(folder, "pipeline", "list")
    assert listed[1]["schedule"] == "at 16:00, on Friday (Europe/Berlin)"


def test_open_tickets_become_a_table(folder: Path) -> None:
    shown = document(folder, "pipeline", "run", "triage")
    assert (shown["outcome"], shown["total"], shown["filtered"]) == ("completed", 10, 3)
    rows = shown["output"].splitlines()
    assert len(rows) == 2 + 7
    assert rows[2].startswith("| T-1001 | payment |")
    assert shown["cost_usd"] == 0.0


def test_the_graph_ends_in_one_report(folder: Path) -> None:
    shown = document(folder, "pipeline", "run", "weekly")
    assert shown["outcome"] == "completed"
    assert shown["calls"] == 9
    assert shown["output"]


def test_the_commands_of_the_page_work(folder: Path) -> None:
    [block] = _BLOCK.findall((EXAMPLE / "README.md").read_text())
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    for line in lines:
        words = re.findall(r'[^\s"]*"[^"]*"|\S+', line.partition(">")[0])
        if words[0] == "rota":
            rota(folder, *(word.replace('"', "") for word in words[1:]))
    assert (folder / "triage.md").read_text().count("\n") == 2 + 2  # one of the three is closed
