"""The program in the guide about pipelines from Python runs as written there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.tidy.tree import ROOT

GUIDE = ROOT / "docs" / "guides" / "pipelines-python.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_program_of_the_guide_works(tmp_path: Path) -> None:
    [program] = _BLOCK.findall(GUIDE.read_text())
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "2 of 2, 0 failed" in done.stdout
    assert "completed 2 2 0.0" in done.stdout
    assert "0 completed {'subject'" in done.stdout
