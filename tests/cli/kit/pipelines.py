"""Pipeline commands in the current folder, and what their runs did."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from rota.cli.main import cli
from tests.kit import pause
from tests.pipelines.kit import write

KINDS = ("custom", "data", "models", "generated")


def rota(*words: str, code: int = 0, **more: Any) -> Result:
    """A command that is expected to end with `code`."""
    result = CliRunner().invoke(cli, ["pipeline", *words], **more)
    said = f"exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
    assert result.exit_code == code, said
    assert "Traceback" not in result.stderr, said
    return result


def document(*words: str, code: int = 0, **more: Any) -> Any:
    """The answer of a command with --json."""
    return json.loads(rota(*words, "--json", code=code, **more).stdout)


# Answers, and writes down every question. Refuses bad words until the test has fixed it. A question
# that has to wait does so until it is released.
SAY = """
read -r line
echo "$line" >> calls.log
case "$line" in
  *bad*) [ -e fixed ] || { echo "no bad words" >&2; exit 1; } ;;
  *wait*) while [ ! -e go ]; do sleep 0.02; done ;;
esac
echo "said $line"
"""


def made(folder: Path, words: list[str], **more: Any) -> Path:
    """A pipeline that asks a program about each word."""
    (folder / "say.sh").write_text(SAY)
    settings = {"providers": {"say": {"kind": "command", "argv": ["sh", str(folder / "say.sh")]}}}
    (folder / "ai.yaml").write_text(json.dumps(settings))
    text = {
        "name": "Words",
        "settings": {"model": "say:it", "retry": {"maxRetries": 0}, **more.pop("settings", {})},
        "workingDirectory": str(folder),
        "input": {"items": [{"word": word} for word in words]},
        "map": {"prompt": "{{word}}\n", "parallel": 1, **more.pop("map", {})},
        "reduce": {"type": "csv"},
    } | more
    return write(folder / "words", json.dumps(text))


def calls(folder: Path) -> list[str]:
    """The questions to the program, in order."""
    log = folder / "calls.log"
    return log.read_text().split() if log.exists() else []


def wait_for(condition: Callable[[], bool]) -> None:
    """Until something is so."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        pause(0.02)
