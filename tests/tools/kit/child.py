"""A child that calls one tool and is killed at a named moment.

Moments: the name of a fault point, `fsync-N` (before the Nth fsync), `torn-N` (after N bytes of the
first write) or `never`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, NoReturn

from rota import faults
from rota.tools import Call, FileAppend, FileWrite, SqlWrite, Tool
from tests.kit.children import forked


def run(spec: dict[str, Any]) -> int:
    """Run the child; returns its exit code, minus nine if it was killed."""
    child = forked(call, spec)
    child.join(60)
    assert child.exitcode is not None
    return child.exitcode


def make(spec: dict[str, Any]) -> Tool:
    """The tool of a spec, the same in parent and child."""
    kinds: dict[str, Any] = {
        "write": FileWrite,
        "append": FileAppend,
        "sql": SqlWrite,
    }
    return kinds[spec["tool"]](*spec.get("args", ()), **spec.get("options", {}))


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _arm(moment: str) -> None:
    kind, _, number = moment.partition("-")
    if kind == "fsync":
        count, real = int(number), os.fsync

        def fsync(file: Any) -> None:
            nonlocal count
            count -= 1
            if count == 0:
                _die()
            real(file)

        vars(os)["fsync"] = fsync
    elif kind == "torn":
        write = os.write

        def torn(file: int, raw: Any) -> NoReturn:
            write(file, raw[: int(number)])
            _die()

        vars(os)["write"] = torn
    else:
        faults.strike = lambda point: _die() if point == moment else None


def call(spec: dict[str, Any]) -> None:
    """The work of the child."""
    tool = make(spec)
    _arm(spec["moment"])
    asyncio.run(tool.call(spec["params"], Call(spec["key"], 20.0)))
