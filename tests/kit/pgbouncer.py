"""A real pgbouncer in front of a PostgreSQL server, gone at the end of the block."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

START_S_MAX = 20.0
CONFIG = """[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
{more}
"""


def find() -> str:
    """The path of pgbouncer; without one the test is skipped, and says so."""
    found = shutil.which(
        "pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    )
    if found is None:
        pytest.skip("there is no pgbouncer: install the Debian package (.ci/run does as root)")
    return found


@contextlib.contextmanager
def pgbouncer(url: str, mode: str, more: str = "") -> Iterator[str]:
    """The URL of the same database through a pgbouncer in that mode."""
    program, parts = find(), urlsplit(url)
    listen = _free_port()
    with tempfile.TemporaryDirectory(prefix="rota-pgbouncer-") as name:
        home = Path(name)
        home.chmod(0o755)
        config = home / "pgbouncer.ini"
        config.write_text(
            CONFIG.format(
                host=parts.hostname,
                port=parts.port or 5432,
                user=parts.username,
                listen=listen,
                mode=mode,
                size=3 if mode == "transaction" else 40,
                more=more,
            )
        )
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                **_dropped(),
            )  # fmt: skip
        try:
            _wait(process, listen, home / "log")
            netloc = f"{parts.username}@127.0.0.1:{listen}"
            yield urlunsplit(parts._replace(netloc=netloc))
        finally:
            process.kill()
            process.wait()


def _dropped() -> dict[str, Any]:
    """It refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    raise AssertionError(f"pgbouncer did not start:\n{log.read_text(errors='replace')}")
