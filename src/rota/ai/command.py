"""A program as a model: the prompt goes in, the answer comes out. Any agent with a command line."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from rota.ai.base import BOUND_TOKENS, Reply, Request, passing
from rota.ai.base_invoker import Priced, check, counts
from rota.ai.prices import Prices
from rota.errors import BadSetting, NeedsLogin, NeedsPermission, Rejected, RotaError, UsageError
from rota.net.subprocesses import (
    PASSED_ON,
    SHOWN_CHARS_MAX,
    ExitStatus,
    ProgramKilled,
    ProgramNotStarted,
    checked_argv,
    checked_exits,
    run_to_end,
)

BYTES_MAX = 16 * 1024 * 1024
# Folders in which agents keep their settings and logins.
HOMES = ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
# The meanings that an exit code may have; by default as in sysexits.h, and all others refuse.
MEANINGS = ("ok", "transient", "rejected", "login", "permission")
EXITS = {0: "ok", 69: "transient", 75: "transient", 77: "permission"}


class CommandInvoker(Priced):
    """Runs `argv`, never through a shell, with the prompt on its standard input.

    `{model}`, `{system}` and `{max_tokens}` in an argument are replaced by those of the question.
    Without `{system}`, the system text goes before the prompt. `exits` says what exit codes mean,
    as in `exits={2: "login"}`. With `output="json"` the answer is an object with `result`, and
    perhaps `usage` and `total_cost_usd`. When its time is over, the program is killed with all it
    has started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        name: str = "command",
        *,
        exits: Mapping[int, str] | None = None,
        pass_env: Collection[str] = (),
        cwd: str | None = None,
        output: Literal["text", "json"] = "text",
        bytes_max: int = BYTES_MAX,
        prices: Prices | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(name, prices)
        self._argv = checked_argv(argv, name, example='["claude", "-p"]', error=BadSetting)
        meant = {**EXITS, **(exits or {})}
        self._exits = checked_exits(meant, name, meanings=MEANINGS, error=BadSetting)
        self._needed = tuple(pass_env)
        self._cwd, self._output, self._bytes_max, self._env = cwd, output, bytes_max, env

    async def ask(self, request: Request) -> Reply:
        """Run it once; see `rota.ai.base` for what may be raised."""
        check(request, model=any("{model}" in arg for arg in self._argv))
        if request.headers or request.body:
            raise UsageError(
                f"{self.name} is a program: it takes no headers and no body fields",
                hint="Remove `headers` and `body`, or ask a provider over HTTP.",
            )
        ended = await self._run(request)
        meaning = self._exits.get(ended.code, "rejected")
        if ended.code < 0 or meaning != "ok":
            raise self._failed(meaning, ended)
        if self._output == "json":
            return self._read(request, ended.out)
        return self.reply(request, ended.out.removesuffix("\n"), model=request.model or self.name)

    def answer_tokens_max(self, request: Request) -> int | None:
        """A program can keep a bound only if an argument passes it."""
        return request.max_tokens if any("{max_tokens}" in arg for arg in self._argv) else None

    def _failed(self, meaning: str, ended: ExitStatus) -> RotaError:
        message = ended.end_text(self._argv[0])
        if ended.code < 0 or meaning == "transient":
            return passing(message, sent=True)
        if meaning == "login":
            return NeedsLogin(message, service=self._argv[0], account=None)
        if meaning == "permission":
            return NeedsPermission(message, service=self._argv[0], account=None)
        return Rejected(message, exit=ended.code, reason=None, sent=True)

    def _read(self, request: Request, out: str) -> Reply:
        try:
            value: Any = msgspec.json.decode(out)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise passing(f"{self._argv[0]} wrote no JSON: {error}", sent=True) from error
        text = value.get("result") if isinstance(value, dict) else None
        if not isinstance(text, str):
            raise Rejected(f'{self._argv[0]} wrote JSON without a text in "result"', sent=True)
        if value.get("is_error"):
            raise Rejected(f"{self._argv[0]} failed: {text[:SHOWN_CHARS_MAX]}", sent=True)
        used = counts(value.get("usage"), "input_tokens", "output_tokens")
        reply = self.reply(request, text, model=request.model or self.name, used=used)
        cost = value.get("total_cost_usd")
        if isinstance(cost, int | float) and not isinstance(cost, bool) and cost >= 0:
            return msgspec.structs.replace(reply, cost_usd=float(cost), is_cost_stated=True)
        return reply

    async def _run(self, request: Request) -> ExitStatus:
        argv, stdin = self._filled(request)
        passed = {name: self._env[name] for name in (*PASSED_ON, *HOMES) if name in self._env}
        try:
            ended = await run_to_end(
                argv, name=self._argv[0], env=passed | self._keys(), cwd=request.cwd or self._cwd,
                stdin=stdin, timeout_s=request.timeout_s, bytes_max=self._bytes_max,
                stops_when_full=True,
            )  # fmt: skip
        except ProgramNotStarted as error:
            if isinstance(error.__cause__, ValueError):
                raise Rejected(f"{argv[0]} cannot be given this: {error.__cause__}") from error
            raise passing(str(error)) from error
        except ProgramKilled as error:
            if error.is_full:
                raise Rejected(str(error), sent=True) from error
            raise passing(str(error), sent=True) from error
        return ended._replace(out=self._hidden(ended.out), err=self._hidden(ended.err))

    def _filled(self, request: Request) -> tuple[list[str], bytes]:
        system = request.system or ""
        has_place = any("{system}" in arg for arg in self._argv)
        bound = request.max_tokens or BOUND_TOKENS
        words = {"{model}": request.model, "{system}": system, "{max_tokens}": str(bound)}
        argv = [_put(arg, words) for arg in self._argv]
        text = request.prompt if has_place or not system else f"{system}\n\n{request.prompt}"
        return argv, text.encode(errors="replace")

    def _keys(self) -> dict[str, str]:
        missing = [name for name in self._needed if not self._env.get(name)]
        if missing:
            raise NeedsLogin(
                f"{self.name} needs {', '.join(missing)}, which is not set",
                hint=f"Set {', '.join(missing)} in the environment of the worker, then try again.",
                service=self.name,
                account=None,
            )
        return {name: self._env[name] for name in self._needed}

    def _hidden(self, text: str) -> str:
        for name in self._needed:
            value = self._env.get(name, "")
            if len(value) >= 8:
                text = text.replace(value, f"<{name}>")
        return text


def _put(arg: str, words: Mapping[str, str]) -> str:
    """An argument with its placeholders replaced, in one pass: those within a value stay."""
    for word in words:
        arg = arg.replace(word, f"\0{word}\0")
    return "".join(words.get(piece, piece) for piece in arg.split("\0"))
