"""The first page of docs/start.md runs as written: a result, a `kill -9` and a resume."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

PAGE = (ROOT / "docs" / "start.md").read_text(encoding="utf-8")
# A busy machine may need longer than the page says: wait until the first step is recorded.
UNTIL_IT_SLEEPS = "until rota run show ann | grep -q sleeping; do sleep 0.2; done"


@pytest.mark.slow
@pytest.mark.wall_clock("the page sleeps for real seconds")
def test_a_killed_worker_loses_nothing(tmp_path: Path) -> None:
    [code, *_] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    [_, script, *_] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert "sleep 3;" in script
    (tmp_path / "hello.py").write_text(code)
    script = "trap 'kill $! 2>/dev/null' EXIT\n" + script.replace("sleep 3;", f"{UNTIL_IT_SLEEPS};")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=100,
    )  # fmt: skip
    assert "hello Ann, bye Ann" in done.stdout
    assert (tmp_path / "notes.txt").read_text() == "hello Ann\nbye Ann\n"
