"""Commands as tools: an argument list, never a shell; its end decides what is known."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

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
from rota.net.secret import Text, hide, reveal_all
from rota.net.subprocesses import (
    PASSED_ON,
    ExitStatus,
    ProgramKilled,
    ProgramNotStarted,
    checked_argv,
    checked_exits,
    has_nul,
    run_to_end,
)
from rota.tools.base import (
    SETTLE_S,
    Applied,
    Call,
    NotApplied,
    Safety,
    Tool,
    Unknown,
    Verdict,
    checked_safety,
    checked_settle_s,
    read_params,
)

BYTES_MAX = 1024 * 1024
KEY_VARIABLE = "ROTA_KEY"
EXAMPLE = '["git", "push"]'
# The meanings that an exit code may have.
MEANINGS = ("applied", "rejected", "not_sent", "unknown", "login", "permission")


class CommandParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of a Command."""

    args: list[str] = []
    stdin: str | None = None


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
        # The command outlives a worker that is killed.
        self.settle_s = checked_settle_s(settle_s, tool=name)
        self._argv = checked_argv(argv, name, example=EXAMPLE)
        self._lookup = checked_argv(lookup, name, example=EXAMPLE) if lookup else None
        meant = {0: "applied", **(exits or {})}
        self._exits = checked_exits(meant, name, meanings=MEANINGS)
        self._env = dict(env or {})
        self._passed = (*PASSED_ON, *pass_env)
        self._cwd = cwd
        self._bytes_max = bytes_max

    def read(self, params: dict[str, Any]) -> CommandParams:
        """The parameters, typed and checked."""
        values = read_params(CommandParams, params, tool=self.name)
        if has_nul(values.args):
            raise BadInput(f"parameters of {self.name}: an argument holds a NUL byte")
        return values

    async def perform(self, params: CommandParams, call: Call) -> Any:
        """Run it, and let its exit code decide."""
        ended = await self._run(self._argv, params, call)
        meaning = self._exits.get(ended.code, "unknown")
        if meaning != "applied":
            raise self._meaning(meaning, ended)
        return {"exit": ended.code, "stdout": ended.out}

    async def look_up(self, params: CommandParams, call: Call) -> Verdict:
        """Run the other command, with the same arguments."""
        if self._lookup is None:
            return await super().look_up(params, call)
        ended = await self._run(self._lookup, params, call)
        if ended.code == 0:
            return Applied({"exit": 0, "stdout": ended.out})
        why = ended.end_text(self._lookup[0])
        return NotApplied(why) if ended.code == 1 else Unknown(why)

    def _meaning(self, meaning: str, ended: ExitStatus) -> RotaError:
        message = ended.end_text(self._argv[0])
        if meaning == "not_sent":
            return NotSent(message)
        if meaning == "login":
            return NeedsLogin(message, service=self._argv[0], account=None)
        if meaning == "permission":
            return NeedsPermission(message, service=self._argv[0], account=None)
        if meaning == "rejected" or self.safety is Safety.READ:
            return Rejected(message, exit=ended.code)
        return OutcomeUnknown(message, tool=self.name, exit=ended.code)

    async def _run(self, argv: list[str], params: CommandParams, call: Call) -> ExitStatus:
        env = {name: os.environ[name] for name in self._passed if name in os.environ}
        env |= reveal_all(self._env) | {KEY_VARIABLE: call.key}
        try:
            ended = await run_to_end(
                [*argv, *params.args], name=argv[0], env=env, cwd=self._cwd,
                stdin=(params.stdin or "").encode(), timeout_s=call.timeout_s,
                bytes_max=self._bytes_max,
            )  # fmt: skip
        except ProgramNotStarted as error:
            raise NotSent(str(error)) from error
        except ProgramKilled as error:
            if self.safety is Safety.READ:
                raise NotSent(str(error)) from error
            raise OutcomeUnknown(str(error), tool=self.name) from error
        secrets = self._env.values()
        return ended._replace(out=hide(ended.out, secrets), err=hide(ended.err, secrets))


def _safety(safety: Safety | str | None, lookup: Sequence[str] | None) -> Safety:
    if safety is None:
        return Safety.RECONCILABLE if lookup else Safety.UNKNOWABLE
    if safety == Safety.RECONCILABLE and not lookup:
        raise UsageError("a reconcilable command needs lookup=, a command that finds its effect")
    return checked_safety(safety)
