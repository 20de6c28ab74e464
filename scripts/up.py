"""`make up` and `make down`: the example's worker as a daemon, and one run through it.

Only starts and stops; everything it shows comes from the `rota` command, as a user would type it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rota.engine import process_identity

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "hello"
PIPELINE = ROOT / "examples" / "tickets-to-report" / "pipelines" / "triage"
STATE = ROOT / ".rota"
LOG = STATE / "up.log"
DAEMON = STATE / "up.json"
ROTA = [sys.executable, "-m", "rota"]

START_S, STOP_S = 30.0, 30.0
TAIL_LINES = 20


def main() -> int:
    """Start and show, or stop."""
    if sys.argv[1:] == ["--stop"]:
        return stop()
    STATE.mkdir(exist_ok=True)
    pid = running()
    if pid is None:
        pid, problem = start()
        if problem:
            tell_failure(problem)
            return 1
        print(f"The example's worker is up (pid {pid}); it logs to {shown(LOG)}.")
    else:
        print(f"The example's worker was up already (pid {pid}); it logs to {shown(LOG)}.")
    return show()


def start() -> tuple[int, str]:
    """Start the daemon and wait until its worker is online; returns its pid and any problem."""
    with LOG.open("wb") as out:
        # Its own session, and no pipe of ours: the caller of `make up` gets the terminal back.
        daemon = subprocess.Popen(
            [*ROTA, "up"], cwd=EXAMPLE, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True, env=environment(),
        )  # fmt: skip
    DAEMON.write_text(
        json.dumps({"pid": daemon.pid, "started": process_identity.started(daemon.pid)})
    )
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if any(worker["pid"] == daemon.pid for worker in workers()):
            return daemon.pid, ""
        if daemon.poll() is not None:
            return daemon.pid, f"The worker ended at once, with exit code {daemon.returncode}"
        time.sleep(0.05)
    daemon.kill()
    return daemon.pid, f"No worker was online within {START_S:.0f} s"


def tell_failure(problem: str) -> None:
    """Say why there is no worker."""
    DAEMON.unlink(missing_ok=True)
    print(f"{problem}. The end of {shown(LOG)}:", file=sys.stderr)
    for line in LOG.read_text(errors="replace").splitlines()[-TAIL_LINES:]:
        print(f"  {line}", file=sys.stderr)


def show() -> int:
    """One run through the worker, as a user would do it."""
    words = ["run", "start", "order", "number=7", 'items=["tea", "jam"]', "--wait"]
    print(f'\n$ rota {" ".join(words[:4])} \'items=["tea", "jam"]\' --wait', flush=True)
    begun = rota(*words, "--timeout", "30s", "--json", capture=True)
    if begun.returncode:
        print(begun.stderr, end="", file=sys.stderr)
        print(f"See {shown(LOG)}; `make down` and `make up` start afresh.", file=sys.stderr)
        return 1
    ended = json.loads(begun.stdout)
    print(json.dumps(ended["output"]))
    print(f"\n$ rota run show {ended['id']}", flush=True)
    rota("run", "show", ended["id"])
    command = f"{shown(Path(sys.executable).with_name('rota'))} --project {shown(EXAMPLE)}"
    print(f"\nLook further, for example:\n  {command} run list\n  {command} doctor")
    fill()
    address = rota("open", "--print", capture=True).stdout.strip()
    print(f"\nThe dashboard: {address or 'not served, install the extra web'}")
    print(f"The code is in {shown(EXAMPLE / 'hello.py')}. Stop the worker with `make down`.")
    return 0


def fill() -> None:
    """Something to look at: an entry that waits for approval, and the run of a pipeline."""
    rota("automation", "publish", "guestbook", "visits", "v-1", '{"name": "Ann"}', capture=True)
    if PIPELINE.exists():
        database = f"sqlite:///{EXAMPLE / 'hello.db'}"
        rota("pipeline", "run", str(PIPELINE), "--database", database, capture=True)


def stop() -> int:
    """Ask the daemon to stop, and insist after a while."""
    pid = running()
    if pid is None:
        print("No worker of `make up` is running.")
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_S
    while running() is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    if running() is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    DAEMON.unlink(missing_ok=True)
    print(f"The worker has stopped (pid {pid}).")
    return 0


def running() -> int | None:
    """The daemon's pid, if that very process still lives: pids are used again."""
    try:
        state = json.loads(DAEMON.read_text())
        pid, started = int(state["pid"]), str(state["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if process_identity.lives(pid, started) else None


def workers() -> list[dict[str, Any]]:
    """The workers that are on."""
    asked = rota("worker", "list", "--json", capture=True)
    return list(json.loads(asked.stdout)) if asked.returncode == 0 else []


def rota(*words: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a `rota` command in the example."""
    return subprocess.run(
        [*ROTA, *words], cwd=EXAMPLE, env=environment(), text=True, check=False,
        stdin=subprocess.DEVNULL, capture_output=capture,
    )  # fmt: skip


def environment() -> dict[str, str]:
    """This environment without what would lead `rota` away from the example."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}


def shown(path: Path) -> str:
    """A path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
