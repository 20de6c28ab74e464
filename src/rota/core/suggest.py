"""The nearest known name to one that a caller misspelt. Pure."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rota.errors import UnknownOption

_NEAR, _NEARLY = 0.6, 0.15
_PART_MIN = 3  # Fewer letters are in too many names.


def similar(name: str, known: Iterable[str], count: int = 3, cutoff: float = _NEAR) -> list[str]:
    """The known names most like a name; only one, if it differs in case and separators alone."""
    by_case = {_plain(each): each for each in known}
    if _plain(name) in by_case:
        return [by_case[_plain(name)]]
    return [by_case[one] for one in difflib.get_close_matches(_plain(name), by_case, count, cutoff)]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None when none is near."""
    return next(iter(similar(name, known, 1)), None)


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three known names that may have been meant: the nearest, and those nearly as near.

    A name that holds what was written, or the other way round, is near at any length."""
    asked = _plain(name)
    near = {each: _nearness(asked, _plain(each)) for each in known}
    best = max(near.values(), default=0.0)
    close = [each for each, value in near.items() if value >= max(_NEAR, best - _NEARLY)]
    return sorted(close, key=lambda each: (-near[each], each))[:3]


def suggestion(name: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """The hint for an unknown name: `Did you mean a, b?`, or `otherwise`."""
    return hint_of(close_names(name, known), otherwise)


def hint_of(near: Iterable[str], otherwise: str | None = None) -> str | None:
    """The same when the names are known that may have been meant."""
    listed = ", ".join(near)
    return f"Did you mean {listed}?" if listed else otherwise


def _nearness(asked: str, known: str) -> float:
    ratio = difflib.SequenceMatcher(None, known, asked).ratio()
    holds = min(len(asked), len(known)) >= _PART_MIN and (asked in known or known in asked)
    return max(ratio, _NEAR + _NEARLY) if holds else ratio


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean "prompt"?`, or nothing."""
    meant = nearest(name, known)
    return f'; did you mean "{meant}"?' if meant else ""


def check_options(given: Mapping[str, object], kind: type, call: Callable[..., Any]) -> None:
    """Raise for an option that the TypedDict `kind` does not name. `call` is the public call."""
    if given.keys() <= kind.__annotations__.keys():
        return
    unknown = next(name for name in given if name not in kind.__annotations__)
    named = inspect.signature(call).parameters.values()
    known = {each.name for each in named if each.kind is each.KEYWORD_ONLY}
    known.update(kind.__annotations__)
    raise UnknownOption(
        f"{call.__name__}() has no option {unknown!r}",
        hint=hint_of(similar(unknown, known, 1), f"Its options: {', '.join(sorted(known))}."),
        option=unknown,
    )


def _plain(name: str) -> str:
    """promptFile, prompt_file and Prompt-File are one name to a person."""
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()
