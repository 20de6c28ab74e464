"""Commands of a schedule block: a line for the shell, in the pipeline's folder, within its time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

from rota.errors import BadInput, Transient
from rota.net.subprocesses import (
    Child,
    ExitStatus,
    OutputPipe,
    environment,
    kill,
    read_outputs,
    start,
    write_stdin,
)

BYTES_MAX = 64 * 1024


async def run(
    line: str,
    folder: Path,
    *,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    pass_env: Collection[str] = (),
    timeout_s: float,
) -> ExitStatus:
    """Run a line of shell and return how it ended; Transient when it could not, or not in time.

    When its time is over it is killed, with all it has started. Its environment is small, plus
    `env` and the variables that `pass_env` names.
    """
    try:
        known = environment(pass_env, env or {})
    except BadInput as error:  # the machine lacks it, which an operator can change
        raise Transient(error.message) from None
    with OutputPipe(BYTES_MAX) as out, OutputPipe(BYTES_MAX) as err:
        try:
            child = await start(["/bin/sh", "-c", line], out, err, env=known, cwd=folder)
        except (OSError, ValueError) as error:
            raise Transient(f"`{line}` could not be started: {error}") from error
        code = await _ended(child, line, stdin, timeout_s)
        await read_outputs(out, err)
        return ExitStatus(code, out.text(), err.text())


async def _ended(child: Child, line: str, stdin: str, timeout_s: float) -> int:
    try:
        async with asyncio.timeout(timeout_s):
            return await write_stdin(child, stdin.encode())
    except TimeoutError:
        raise Transient(f"`{line}` did not end within {timeout_s:g} s and was killed") from None
    finally:
        await kill(child)
