"""A person at a prompt: a small project, the commands, and a worker that does what was started."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from rota import project
from rota.app import Rota
from rota.cli.main import cli
from tests.kit import pause, until

JOBS = """
import asyncio, time
from rota import NeedsLogin, Rota, Transient, sleep, wait_for

app = Rota("sqlite:///from_code.db", heartbeat_s=0.5)

@app.step
async def one(n: int) -> int:
    return n + 1

@app.step
async def breaks(n: int) -> int:
    raise ValueError(f"cannot do {n}")

@app.workflow
async def add(n: int, text: str = "", key: str = "") -> dict:
    return {"sum": await one(n), "text": text, "key": key}

@app.workflow
async def fails(n: int) -> int:
    return await breaks(await one(n))

@app.workflow
async def login() -> None:
    raise NeedsLogin("the token has expired")

@app.workflow
async def answer() -> str:
    return await wait_for("reply", type=str)

@app.workflow
async def naps(long: str = "1h") -> str:
    await sleep(long)
    return "rested"

@app.workflow
async def parent(n: int) -> dict:
    return await add(n)

@app.step
async def works(seconds: float) -> None:
    await asyncio.sleep(seconds)

@app.workflow
async def long(seconds: float = 60) -> None:
    await works(seconds)

@app.workflow
def stuck(seconds: float = 60) -> None:
    time.sleep(seconds)
"""

ENDED = {"completed", "failed", "cancelled", "crashed"}


class Shell:
    """Runs `rota` commands in a folder with a project on one database."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        (folder / "jobs.py").write_text(JOBS)
        (folder / "rota.toml").write_text(
            f'[project]\napp = "jobs:app"\ndatabase = "{url}"\n[settings]\nheartbeat_s = 0.5\n'
        )

    def run(self, *words: str, code: int = 0, **more: Any) -> Result:
        """A command that is expected to end with `code`."""
        result = CliRunner().invoke(cli, words, **more)
        said = f"exit {result.exit_code}\n{result.stdout}\n{result.stderr}"
        assert result.exit_code == code, said
        assert "Traceback" not in result.stderr, said
        return result

    def json(self, *words: str, **more: Any) -> Any:
        """The answer of a command with --json."""
        return json.loads(self.run(*words, "--json", **more).stdout)

    def error(self, *words: str, code: int, **more: Any) -> str:
        """The message of a command that fails, on stderr only: a sentence and a hint."""
        result = self.run(*words, code=code, **more)
        assert result.stdout == ""
        lines = result.stderr.splitlines()
        assert any(line.startswith("Error: ") for line in lines[:-1])
        assert lines[-1].startswith("Hint: ")
        return result.stderr

    def start(self, *words: str) -> str:
        """Start a run; returns its id."""
        return str(self.json("run", "start", *words)["id"])

    def app(self) -> Rota:
        """The project's app, as the daemon would have it."""
        found = project.find(None, self.folder)
        assert found is not None
        return project.configure(project.load(found), found, project.given({}))

    def work(self) -> None:
        """Execute the started runs, until none is left that could continue by itself."""

        async def rested(app: Rota) -> bool:
            counts = await app.runs.counts()
            return not {"pending", "running"} & counts.keys()

        async def life() -> None:
            app = self.app()
            async with app:
                await until(lambda: rested(app))

        asyncio.run(life())


class Daemon:
    """A real `rota up` in a process of its own."""

    def __init__(self, folder: Path, *words: str, **environ: str) -> None:
        self._log = folder / "daemon.log"
        self._from = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as out:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "rota", "up", *words], cwd=folder, stderr=out,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=os.environ | environ,
            )  # fmt: skip
        self.pid = self._popen.pid

    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text()[self._from :]

    def receives(self, text: str, timeout_s: float = 60) -> str:
        """Wait until the log holds `text`; returns the log."""
        deadline = time.monotonic() + timeout_s
        while text not in self.said():
            assert time.monotonic() < deadline, f"never said {text!r}:\n{self.said()}"
            assert self._popen.poll() is None or text in self.said(), f"ended:\n{self.said()}"
            pause(0.02)
        return self.said()

    def send(self, number: int) -> None:
        """Send a signal."""
        self._popen.send_signal(number)

    def wait(self, timeout_s: float = 60) -> int:
        """Its exit code."""
        return self._popen.wait(timeout_s)

    def end(self) -> None:
        """Kill it, if it still runs."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
