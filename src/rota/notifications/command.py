"""Commands of a schedule block: a line for the shell, in the pipeline's folder, within its time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rota.errors import BadInput, Transient
from rota.net.subprocesses import (
    ExitStatus,
    ProgramKilled,
    ProgramNotStarted,
    environment,
    run_to_end,
)

BYTES_MAX = 64 * 1024
COMMAND_S = 60.0


async def run(
    command_line: str,
    folder: Path,
    *,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    pass_env: Collection[str] = (),
) -> ExitStatus:
    """Run a line of shell and return how it ended; Transient when it could not, or not in time.

    When its time is over it is killed, with all it has started. Its environment is small, plus
    `env` and the variables that `pass_env` names.
    """
    try:
        known = environment(pass_env, env or {})
    except BadInput as error:  # the machine lacks it, which an operator can change
        raise Transient(error.message) from None
    try:
        return await run_to_end(
            ["/bin/sh", "-c", command_line], name=f"`{command_line}`", env=known, cwd=folder,
            stdin=stdin.encode(), timeout_s=COMMAND_S, bytes_max=BYTES_MAX,
        )  # fmt: skip
    except (ProgramNotStarted, ProgramKilled) as error:
        raise Transient(str(error)) from error
