"""The nearest known name to one that somebody misspelt. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def _plain(name: str) -> str:
    """promptFile, prompt_file and Prompt-File are one name to a person."""
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()
