"""Whether another process of this machine lives."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rota.engine.process_identity import is_alive


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells")
def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is not reaped
    assert not is_alive(child.pid)
    child.wait()


def test_the_real_process_is_alive_and_a_gone_one_is_not() -> None:
    assert is_alive(os.getpid())
    assert not is_alive(0)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert not is_alive(child)
