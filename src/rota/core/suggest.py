"""The nearest known name to one that a caller misspelt. Pure."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rota.errors import UnknownOption


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, or None when none is near."""
    names = list(known)
    by_case = {_plain(each): each for each in names}
    if _plain(name) in by_case:
        return by_case[_plain(name)]
    close = difflib.get_close_matches(_plain(name), by_case, 1, 0.6)
    return by_case[close[0]] if close else None


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
    meant = nearest(unknown, known)
    raise UnknownOption(
        f"{call.__name__}() has no option {unknown!r}",
        hint=f"Did you mean {meant}?" if meant else f"Its options: {', '.join(sorted(known))}.",
        option=unknown,
    )


def _plain(name: str) -> str:
    """promptFile, prompt_file and Prompt-File are one name to a person."""
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()
