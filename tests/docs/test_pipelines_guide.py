"""Every command of the guide about pipelines runs as it stands there, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

GUIDE = ROOT / "docs" / "guides" / "pipelines.md"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The lines of its shell blocks."""
    return [line for block in _BLOCK.findall(GUIDE.read_text()) for line in block.splitlines()]


@pytest.mark.slow
def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "rota").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rota.cli "$@"\n')
    (tools / "rota").chmod(0o755)
    desk = tmp_path / "desk"
    desk.mkdir()
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ROTA_")}
    environ["PATH"] = f"{tools}{os.pathsep}{environ['PATH']}"
    assert len(commands()) > 15
    for command in commands():
        done = subprocess.run(
            command, shell=True, cwd=desk, env=environ, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        said = f"{command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        assert "Traceback" not in done.stderr, said
    assert (desk / "table.md").read_text().startswith("| id |")
    assert (desk / "small.md").is_file()
