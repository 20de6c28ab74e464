"""Logs of `rota up` and `rota scheduler`: HTTP libraries do not write addresses with their keys."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import logging, sys
from rota.cli.base import CommonOptions
from rota.cli.ops.up import write_logs

call = CommonOptions()
call.debug = sys.argv[1] == "debug"
write_logs(call)
logging.getLogger("httpx2").info("HTTP Request: GET https://host/x?api_key=SECRET")
logging.getLogger("httpcore2.connection").debug("connect host SECRET")
logging.getLogger("rota.worker").info("a run began")
"""


@pytest.mark.parametrize("level", ["info", "debug"])
def test_requests_are_not_logged_with_their_addresses(level: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, level], capture_output=True, text=True, check=True
    )
    assert "a run began" in done.stderr
    assert "SECRET" not in done.stderr
