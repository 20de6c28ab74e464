"""An invoker without a model, for demonstrations, tests and dry runs: same in, same out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from rota.ai import tokens
from rota.ai.base import Reply, Request, estimated_tokens
from rota.ai.base_invoker import Priced, check
from rota.ai.finish import Finish
from rota.ai.model_data import TokenUsage
from rota.ai.prices import Prices

ECHO_CHARS_MAX = 200
KEPT_MAX = 1000
LIST_LENGTH = 3  # for a list without a given length

# How a prompt asks for JSON: a shape with its keys, perhaps a length, perhaps a line per field.
_SHAPE = re.compile(r'\{\s*"(?:[^"\\\n]|\\.)+"\s*:[^{}]*\}')
_NAME = re.compile(r'"((?:[^"\\\n]|\\.)+)"\s*:')
_ARRAY = re.compile(r"\bJSON (?:array|list)\b", re.IGNORECASE)
_LENGTH = re.compile(r"\bexactly (\d{1,4}) (?:elements|items|objects)\b", re.IGNORECASE)
_ENUM = re.compile(
    r"\bone of ((?:\"(?:[^\"\\]|\\.)*\"|[\w.-]+)(?:, (?:\"(?:[^\"\\]|\\.)*\"|[\w.-]+))*)"
)
_YES_NO = re.compile(r"\byes\b.{1,20}\bno\b", re.IGNORECASE | re.DOTALL)

Script = Iterable[str | Exception] | Callable[[Request], str]


class Offline(Priced):
    """Answers by `replies`: texts and errors, used up one by one, or a function of the question.

    Without them, or when they are used up, it makes its answer up from the question: the fields
    that are asked for as JSON, "yes" where yes or no is asked, otherwise an echo. The last
    questions are kept in `asked`.
    """

    def __init__(
        self,
        name: str = "offline",
        *,
        replies: Script | None = None,
        delay_s: float = 0.0,
        prices: Prices | None = None,
    ) -> None:
        super().__init__(name, prices)
        self.calls = 0
        self.asked: deque[Request] = deque(maxlen=KEPT_MAX)
        self._function = replies if callable(replies) else None
        self._replies = iter(()) if replies is None or callable(replies) else iter(replies)
        self._delay_s = delay_s

    def prompt_tokens_max(self, request: Request) -> int:
        """Its count is the estimate."""
        return estimated_tokens(request)[0]

    async def ask(self, request: Request) -> Reply:
        """Answer; raises only what a script says."""
        check(request, model=False)
        self.calls += 1
        self.asked.append(request)
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        text = self._function(request) if self._function else next(self._replies, None)
        if isinstance(text, Exception):
            raise text
        text = made_up(request) if text is None else text
        text, finish = _cut(text, request.max_tokens)
        used = TokenUsage(estimated_tokens(request)[0], tokens.estimate(text))
        return self.reply(request, text, model=request.model or self.name, used=used, finish=finish)


def _cut(text: str, tokens_max: int | None) -> tuple[str, Finish]:
    """An answer that is longer than the question allows is cut, as models do."""
    if tokens_max is None or tokens.estimate(text) <= tokens_max:
        return text, Finish.WHOLE
    while tokens.estimate(text) > tokens_max:
        text = text[: len(text) * tokens_max // tokens.estimate(text)]
    return text, Finish.LENGTH


def made_up(request: Request) -> str:
    """An answer that fits what the question asks for."""
    prompt = request.prompt
    shapes = list(_SHAPE.finditer(prompt))
    if shapes:
        shape = shapes[-1]
        names = [json.loads(f'"{name}"') for name in _NAME.findall(shape.group())]
        sentence = prompt[max(0, prompt.rfind("\n", 0, shape.start())) : shape.start()]
        rules = _rules(prompt[shape.end() :])
        if not _ARRAY.search(sentence):
            return _written(_object(names, rules, prompt))
        length = _length(sentence)
        return _written([_object(names, rules, f"{prompt}#{n}") for n in range(length)])
    if _ARRAY.search(prompt):
        return _written([f"made up {_roll(f'{prompt}#{n}')}" for n in range(_length(prompt))])
    if request.wants_json:
        return _written({"answer": _echo(prompt)})
    return "yes" if _YES_NO.search(prompt) else _echo(prompt)


def _length(text: str) -> int:
    length = _LENGTH.search(text)
    return int(length.group(1)) if length else LIST_LENGTH


def _rules(text: str) -> dict[str, str]:
    """The lines that follow a shape, such as `- score: number; one of 1, 2`."""
    lines = (line[2:].partition(": ") for line in text.splitlines() if line.startswith("- "))
    return {name: rule for name, _, rule in lines}


def _object(names: list[str], rules: dict[str, str], seed: str) -> dict[str, Any]:
    return {name: _value(name, rules.get(name, ""), f"{seed}/{name}") for name in names}


def _value(name: str, rule: str, seed: str) -> Any:
    chosen = _roll(seed)
    enum = _ENUM.search(rule)
    if enum:
        options: list[Any] = json.loads(f"[{enum.group(1)}]")
        return options[chosen % len(options)]
    first = rule.partition(";")[0].strip()
    made: dict[str, Any] = {
        "number": chosen % 100 / 10,
        "integer": chosen % 100,
        "boolean": chosen % 2 == 0,
        "list": [f"{name} {chosen % 100}"],
        "array": [f"{name} {chosen % 100}"],
        "object": {name: chosen % 100},
    }
    if name == "include" and not first:
        return made["boolean"]
    return made.get(first, f"{name} {chosen % 100}")


def _roll(seed: str) -> int:
    """A number that depends on the text alone, on every machine."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4])


def _echo(prompt: str) -> str:
    text = " ".join(prompt.split())
    text = text if len(text) <= ECHO_CHARS_MAX else text[:ECHO_CHARS_MAX] + "…"
    return f"(offline) {text}"


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
