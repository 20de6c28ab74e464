"""Every command of the guide about pipelines runs as written there, one after the other."""

from __future__ import annotations

import os
import re
import shlex
import signal
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


def start_and_stop(command: str, project: Path, environ: dict[str, str]) -> None:
    """A scheduler lives until it is stopped: wait for its first words, then press Ctrl-C."""
    child = subprocess.Popen(
        shlex.split(command), cwd=project, env=environ, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    try:
        said = ""
        while "Press Ctrl-C to stop" not in said:
            line = child.stderr.readline()
            assert line, said
            said += line
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0, said
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
@pytest.mark.timeout(300)  # some thirty programs, one after the other
def test_every_command_of_the_guide_works(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "rota").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rota "$@"\n')
    (tools / "rota").chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    environ = {key: value for key, value in os.environ.items() if not key.startswith("ROTA_")}
    environ["PATH"] = f"{tools}{os.pathsep}{environ['PATH']}"
    assert len(commands()) > 15
    for command in commands():
        if command.startswith("rota scheduler start"):
            start_and_stop(command, project, environ)
            continue
        done = subprocess.run(
            command, shell=True, cwd=project, env=environ, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        said = f"{command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        assert "Traceback" not in done.stderr, said
    assert (project / "table.md").read_text().startswith("| id |")
    assert (project / "small.md").is_file()
