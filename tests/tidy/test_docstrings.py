"""Docstrings of the documented API: every argument is named, and so is what comes back."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from scripts.python_reference import CLASSES, FUNCTIONS, members

# A summary that begins so says what comes back.
SAYS_RESULT = re.compile(
    r"Return|List|Find|Read|Count|Preview|The |One |All |Whether |A |Attempts |Workers |Queues "
)
SECTION = re.compile(r"^(Args|Returns|Raises|Example):\n", re.MULTILINE)


def _documented() -> Iterator[tuple[str, Callable[..., Any]]]:
    for _, owner, kind in CLASSES:
        for name, member in members(kind):
            if not isinstance(member, property):
                yield f"{owner}.{name}", inspect.unwrap(member)
    for _, owner, functions in FUNCTIONS:
        yield from ((f"{owner}.{function.__name__}", function) for function in functions)


def _complaints(function: Callable[..., Any]) -> Iterator[str]:
    """Parameters without a line in Args, and a result that no text names."""
    signature = inspect.signature(function)
    parameters = [name for name in signature.parameters if name != "self"]
    summary, *parts = SECTION.split(inspect.getdoc(function) or "")
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    listed = re.findall(r"^ {4}([\w, ]+): ", sections.get("Args", ""), re.MULTILINE)
    named = {name for line in listed for name in line.split(", ")}
    yield from (f"no line for {name}" for name in parameters if name not in named)
    yield from (f"a line for {name}, which it does not take" for name in named - set(parameters))
    returns = str(signature.return_annotation)
    says_result = "Returns" in sections or SAYS_RESULT.match(summary)
    if parameters and returns not in {"None", "'None'"} and not says_result:
        yield f"no Returns, and the summary does not name it: {summary[:60]!r}"


API = dict(_documented())


@pytest.mark.parametrize("name", API)
def test_a_documented_call_names_its_arguments_and_its_result(name: str) -> None:
    assert not list(_complaints(API[name]))


def test_gaps_are_found() -> None:
    def bare(limit: int) -> int:
        """Do it."""
        return limit

    def stale(limit: int) -> None:
        """Do it.

        Args:
            most: At most so many.
        """
        del limit

    assert len(list(_complaints(bare))) == 2
    assert len(list(_complaints(stale))) == 2


def test_a_complete_docstring_is_left_alone() -> None:
    def full(start: int, end: int) -> int:
        """Measure it.

        Args:
            start, end: The range.

        Returns:
            Its length.
        """
        return end - start

    assert not list(_complaints(full))
