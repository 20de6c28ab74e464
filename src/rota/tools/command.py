"""Commands as tools: an argument list, never a shell; its end decides what is known."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core import typed
from rota.errors import (
    BadInput,
    NeedsLogin,
    NeedsPermission,
    NotSent,
    OutcomeUnknown,
    Rejected,
    RotaError,
    UsageError,
)
from rota.tools.base import Applied, Call, NotApplied, Safety, Tool, Unknown, Verdict, read_params
from rota.tools.secret import Text, hide, reveal_all

BYTES_MAX = 1024 * 1024
SHOWN_CHARS_MAX = 500
DRAIN_S = 1.0
SETTLE_S = 10.0
KEY_VARIABLE = "ROTA_KEY"
# What any command needs; everything else, secrets above all, is passed on only by name.
PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT")
# What an exit code may be said to mean.
MEANINGS = ("applied", "rejected", "not_sent", "unknown", "login", "permission")


class Params(msgspec.Struct, forbid_unknown_fields=True):
    """What one call of a Command takes."""

    args: list[str] = []
    stdin: str | None = None


class Ended(NamedTuple):
    """How a command ended; a negative code is the signal that killed it."""

    code: int
    stdout: str
    stderr: str


class Command(Tool):
    """Runs a program. The key of the effect is in its environment, as ROTA_KEY.

    An exit of 0 means that the effect happened. Any other leaves the outcome of a write unknown,
    unless `exits` says what it means, as in `exits={2: "rejected", 75: "not_sent"}`. With
    `lookup`, another argument list, it is reconcilable: 0 is yes, 1 is no, anything else unknown.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str = "command",
        safety: Safety | str | None = None,
        lookup: Sequence[str] | None = None,
        exits: Mapping[int, str] | None = None,
        env: Mapping[str, Text] | None = None,
        pass_env: Collection[str] = (),
        cwd: str | os.PathLike[str] | None = None,
        settle_s: float = SETTLE_S,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.name = name
        self.safety = _safety(safety, lookup)
        self.settle_s = settle_s if lookup else 0.0  # it outlives a worker that is killed
        self._argv = _checked(argv, name)
        self._lookup = _checked(lookup, name) if lookup else None
        self._exits = {0: "applied", **(exits or {})}
        strange = set(self._exits.values()) - set(MEANINGS)
        if strange:
            raise UsageError(
                f"{name}: an exit cannot mean {', '.join(sorted(strange))}",
                hint=f"It may mean: {', '.join(MEANINGS)}.",
            )
        self._env = dict(env or {})
        self._passed = (*PASSED_ON, *pass_env)
        self._cwd = cwd
        self._bytes_max = bytes_max
        self._reader = typed.Reader(Params)

    def read(self, params: dict[str, Any]) -> Params:
        """The parameters, typed and checked."""
        values: Params = read_params(self._reader, params, tool=self.name)
        if any("\0" in arg for arg in values.args):
            raise BadInput(f"parameters of {self.name}: an argument holds a zero byte")
        return values

    async def perform(self, params: Params, call: Call) -> Any:
        """Run it, and let its exit code decide."""
        ended = await self._run(self._argv, params, call)
        meaning = self._exits.get(ended.code, "unknown")
        if meaning != "applied":
            raise self._meaning(meaning, ended)
        return {"exit": ended.code, "stdout": ended.stdout}

    async def look_up(self, params: Params, call: Call) -> Verdict:
        """Run the other command, with the same arguments."""
        if self._lookup is None:
            return await super().look_up(params, call)
        ended = await self._run(self._lookup, params, call)
        if ended.code == 0:
            return Applied({"exit": 0, "stdout": ended.stdout})
        said = f"{self._lookup[0]} ended with {ended.code}{_told(ended)}"
        return NotApplied(said) if ended.code == 1 else Unknown(said)

    def _meaning(self, meaning: str, ended: Ended) -> RotaError:
        how = f"signal {-ended.code}" if ended.code < 0 else f"exit {ended.code}"
        said = f"{self._argv[0]} ended with {how}{_told(ended)}"
        if meaning == "not_sent":
            return NotSent(said)
        if meaning == "login":
            return NeedsLogin(said, service=self._argv[0], account=None)
        if meaning == "permission":
            return NeedsPermission(said, service=self._argv[0], account=None)
        if meaning == "rejected" or self.safety is Safety.READ:
            return Rejected(said, exit=ended.code)
        return OutcomeUnknown(said, tool=self.name, exit=ended.code)

    async def _run(self, argv: list[str], params: Params, call: Call) -> Ended:
        env = {name: os.environ[name] for name in self._passed if name in os.environ}
        env |= reveal_all(self._env) | {KEY_VARIABLE: call.key}
        out, err = await _Ear.open(self._bytes_max), await _Ear.open(self._bytes_max)
        try:
            child = await self._started([*argv, *params.args], env, out, err)
            code = await self._ended(child, params, call)
            # A grandchild may hold the output open; that is not awaited for long.
            await asyncio.wait({out.ended, err.ended}, timeout=DRAIN_S)
        finally:
            out.close()
            err.close()
        secrets = self._env.values()
        return Ended(code, hide(out.text(), secrets), hide(err.text(), secrets))

    async def _ended(self, child: asyncio.subprocess.Process, params: Params, call: Call) -> int:
        try:
            async with asyncio.timeout(call.timeout_s):
                await _feed(child, (params.stdin or "").encode())
                return await child.wait()
        except TimeoutError as error:
            said = f"{self._argv[0]} did not end within {call.timeout_s:g} s and was killed"
            if self.safety is Safety.READ:
                raise NotSent(said) from error
            raise OutcomeUnknown(said, tool=self.name) from error
        finally:
            if child.returncode is None:
                await _kill(child)

    async def _started(
        self, argv: list[str], env: dict[str, str], out: _Ear, err: _Ear
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=out.mouth,
                stderr=err.mouth,
                env=env,
                cwd=self._cwd,
                start_new_session=True,  # a group of its own, to be killed as a whole
            )
        except PermissionError as error:
            raise NeedsPermission(
                f"{argv[0]} may not be run: {error}", service=argv[0], account=None
            ) from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Rejected(
                f"{error.filename or argv[0]} is not there",
                hint="Install it, or give its whole path.",
            ) from error
        except (OSError, ValueError) as error:
            raise NotSent(f"{argv[0]} could not be started: {error}") from error
        finally:
            out.hand_over()
            err.hand_over()


class _Ear:
    """Listens to one stream of a child and keeps the first part of it.

    A pipe of our own: asyncio's would keep `wait` waiting until all who inherited it have ended.
    """

    def __init__(self, mouth: int, bytes_max: int) -> None:
        self.mouth = mouth
        self.ended: asyncio.Task[None]
        self._transport: asyncio.ReadTransport
        self._handed_over = False
        self._bytes_max = bytes_max
        self._kept = bytearray()

    @classmethod
    async def open(cls, bytes_max: int) -> _Ear:
        """A pipe whose far end, the mouth, is for the child."""
        near, far = os.pipe()
        ear = cls(far, bytes_max)
        reader = asyncio.StreamReader()
        ear._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(near, "rb", buffering=0)
        )
        ear.ended = asyncio.create_task(ear._listen(reader))
        return ear

    def hand_over(self) -> None:
        """The child has its own copy of the mouth now."""
        if not self._handed_over:
            self._handed_over = True
            os.close(self.mouth)

    def close(self) -> None:
        """Stop listening."""
        self.hand_over()
        self.ended.cancel()
        self._transport.close()

    def text(self) -> str:
        """What was kept."""
        return bytes(self._kept).decode(errors="replace")

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(65536):
            self._kept += chunk[: self._bytes_max - len(self._kept)]


async def _feed(child: asyncio.subprocess.Process, stdin: bytes) -> None:
    assert child.stdin is not None
    with contextlib.suppress(ConnectionError):  # it need not read to the end
        child.stdin.write(stdin)
        await child.stdin.drain()
    child.stdin.close()


async def _kill(child: asyncio.subprocess.Process) -> None:
    """Kill the child and all it started, and wait until it is gone."""
    assert child.stdin is not None
    if not child.stdin.transport.is_closing():
        child.stdin.transport.abort()
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(child.wait(), DRAIN_S)


def _told(ended: Ended) -> str:
    said = (ended.stderr or ended.stdout).strip()
    return f": {said[-SHOWN_CHARS_MAX:]}" if said else ""


def _safety(safety: Safety | str | None, lookup: Sequence[str] | None) -> Safety:
    if safety is None:
        return Safety.RECONCILABLE if lookup else Safety.UNKNOWABLE
    if safety == Safety.RECONCILABLE and not lookup:
        raise UsageError("a reconcilable command needs lookup=, a command that looks")
    try:
        return Safety(safety)
    except ValueError:
        raise UsageError(f"{safety!r} is not a kind of replay safety") from None


def _checked(argv: Sequence[str], name: str) -> list[str]:
    if isinstance(argv, str) or not argv or not all(isinstance(arg, str) for arg in argv):
        raise UsageError(
            f"{name}: {argv!r} is not a list of arguments",
            hint='Write ["git", "push"]; for a shell, say so: ["sh", "-c", "..."].',
        )
    return list(argv)
