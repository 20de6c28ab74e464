"""Subprocesses: each is in a group of its own, and is killed with all it has started.

A caller may be cancelled at any moment, even while its program starts. Then nothing is left: no
program, no child of it, no file descriptor. The callers interpret the exit code.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from rota.errors import BadInput, NeedsPermission, Rejected, UsageError

SHOWN_CHARS_MAX = 500
DRAIN_S = 1.0
# The variables that any program needs; everything else, secrets above all, is passed on only by
# name.
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT")
Child: TypeAlias = asyncio.subprocess.Process
PassEnv: TypeAlias = Annotated[
    list[Annotated[str, msgspec.Meta(min_length=1)]],
    msgspec.Meta(description="Names of environment variables of Rota to pass to the command."),
]


def checked_argv(
    argv: Sequence[str], name: str, *, example: str, error: type[UsageError] = UsageError
) -> list[str]:
    """The argument list of a program; anything that the system could not execute is refused."""
    fits = not isinstance(argv, str) and argv and all(isinstance(arg, str) for arg in argv)
    if not fits or has_nul(argv):
        raise error(
            f"{name}: {argv!r} is not a list of arguments",
            hint=f'Write texts without NUL bytes: {example}; for a shell: ["sh", "-c", "..."].',
        )
    return list(argv)


def checked_exits(
    exits: Mapping[int, str], name: str, *, meanings: Sequence[str],
    error: type[UsageError] = UsageError,
) -> Mapping[int, str]:  # fmt: skip
    """The meanings of exit codes. An unknown meaning is an error."""
    strange = sorted(set(exits.values()) - set(meanings))
    if strange:
        raise error(
            f"{name}: an exit cannot mean {', '.join(strange)}",
            hint=f"It may mean: {', '.join(meanings)}.",
        )
    return exits


def has_nul(args: Iterable[str]) -> bool:
    """Whether an argument holds a NUL byte, which ends an argument for the system."""
    return any("\0" in arg for arg in args)


def environment(pass_env: Iterable[str], extra: Mapping[str, str]) -> dict[str, str]:
    """The small environment of a program: what any needs, the variables named, and `extra`."""
    absent = [name for name in pass_env if name not in os.environ]
    if absent:
        raise BadInput(
            f"the environment has no {', '.join(absent)}, which a command needs",
            hint=f"Set it where Rota runs: export {absent[0]}=…; or do not pass it on.",
        )
    names = (*PASSED_ON, *pass_env)
    return {name: os.environ[name] for name in names if name in os.environ} | dict(extra)


class ExitStatus(NamedTuple):
    """How a program ended; a negative code is the signal that killed it."""

    code: int
    out: str
    err: str

    def end_text(self, name: str) -> str:
        """Its end in words, with the last of what it said."""
        how = f"signal {-self.code}" if self.code < 0 else f"exit {self.code}"
        output = (self.err or self.out).strip()[-SHOWN_CHARS_MAX:]
        return f"{name} ended with {how}" + (f": {output}" if output else "")


class OutputPipe:
    """Reads one output of a child and keeps the first part of it; a context manager.

    A pipe of our own: with asyncio's, `wait` returns after all that inherited the pipe have ended.
    Nothing here awaits, so that no cancellation can leave half of it open.
    """

    def __init__(self, bytes_max: int) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read_output)
        self.ended = asyncio.Event()
        self.full = asyncio.Event()  # there was more than is kept
        self._handed_over = False
        self._bytes_max = bytes_max
        self._kept = bytearray()

    def __enter__(self) -> OutputPipe:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close_write_end()
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)

    def close_write_end(self) -> None:
        """The child has its own copy of the write end now."""
        if not self._handed_over:
            self._handed_over = True
            os.close(self.write_end)

    def text(self) -> str:
        """The output that was kept."""
        return bytes(self._kept).decode(errors="replace")

    def _read_output(self) -> None:
        try:
            chunk = os.read(self._read_end, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self._loop.remove_reader(self._read_end)
            self.ended.set()
        if len(self._kept) + len(chunk) > self._bytes_max:
            self.full.set()
        self._kept += chunk[: self._bytes_max - len(self._kept)]


class ProgramNotStarted(Exception):
    """A program did not start; the cause is an OSError or a ValueError."""


class ProgramKilled(Exception):
    """A program was killed: its time was over or, if `is_full`, its output was too long."""

    def __init__(self, message: str, *, is_full: bool) -> None:
        super().__init__(message)
        self.is_full = is_full


async def run_to_end(
    argv: Sequence[str],
    *,
    name: str,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
    stdin: bytes,
    timeout_s: float,
    bytes_max: int,
    stops_when_full: bool = False,
) -> ExitStatus:
    """Run a program and return how it ended; ProgramNotStarted or ProgramKilled otherwise.

    The first `bytes_max` of each output are kept. With `stops_when_full` a longer standard output
    kills the program. `name` is for messages.
    """
    with OutputPipe(bytes_max) as out, OutputPipe(bytes_max) as err:
        try:
            child = await start(argv, out, err, env=env, cwd=cwd)
        except (OSError, ValueError) as error:
            raise ProgramNotStarted(f"{name} could not be started: {error}") from error
        work = asyncio.ensure_future(write_stdin(child, stdin))
        full = asyncio.ensure_future(out.full.wait())
        ends = {work, full} if stops_when_full else {work}
        try:
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if stops_when_full and out.full.is_set():
                raise ProgramKilled(f"{name} wrote more than {bytes_max} bytes", is_full=True)
            if not work.done():
                message = f"{name} did not end within {timeout_s:g} s and was killed"
                raise ProgramKilled(message, is_full=False)
            code = work.result()
        finally:
            full.cancel()
            await kill(child)
            work.cancel()
            await asyncio.gather(work, full, return_exceptions=True)
        await read_outputs(out, err)
        return ExitStatus(code, out.text(), err.text())


async def start(
    argv: Sequence[str],
    out: OutputPipe,
    err: OutputPipe,
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str] | None,
) -> Child:
    """The running program. Other failures to start it are an OSError or a ValueError."""
    try:
        return await spawn(
            asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=out.write_end,
                stderr=err.write_end,
                env=env,
                cwd=cwd,
                start_new_session=True,  # a group of its own, to be killed as a whole
            )
        )
    except PermissionError as error:
        message = f"{argv[0]} may not be run: {error}"
        raise NeedsPermission(message, service=argv[0], account=None) from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Rejected(
            f"{error.filename or argv[0]} was not found",
            hint="Install it, or give its whole path.",
        ) from error
    finally:
        out.close_write_end()
        err.close_write_end()


async def spawn(starting: Coroutine[Any, Any, Child]) -> Child:
    """The child, which must have a group of its own. A caller that is cancelled leaves none behind.

    asyncio would kill only the child itself, which may already have children.
    """
    task = asyncio.ensure_future(starting)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.add_done_callback(_unwanted)  # also if we do not wait for it to the end
        await asyncio.wait({task})
        with contextlib.suppress(Exception):
            await kill(task.result())
        raise
    return task.result()


async def write_stdin(child: Child, stdin: bytes) -> int:
    """Its exit code, after it was given its input."""
    assert child.stdin is not None
    with contextlib.suppress(ConnectionError):  # it need not read to the end
        child.stdin.write(stdin)
        await child.stdin.drain()
    child.stdin.close()
    return await child.wait()


async def read_outputs(*pipes: OutputPipe) -> None:
    """Wait for the end of the output; not for long, since a grandchild may keep a pipe open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            for pipe in pipes:
                await pipe.ended.wait()


async def kill(child: Child) -> None:
    """Kill the child and all it started, and wait until it is gone.

    Children of a program that has ended by itself were meant to stay.
    """
    _kill_group(child)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), DRAIN_S)


def _unwanted(task: asyncio.Task[Child]) -> None:
    if not task.cancelled() and task.exception() is None:
        _kill_group(task.result())


def _kill_group(child: Child) -> None:
    if child.stdin is not None and not child.stdin.transport.is_closing():
        child.stdin.transport.abort()
    if child.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
