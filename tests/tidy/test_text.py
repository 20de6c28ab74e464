"""What no tracked file may hold: paths of one machine, and the words of a tracker."""

from __future__ import annotations

import re

import pytest

from tests.tidy.tree import ROOT, tracked

BANNED = {
    "a path of one machine": re.compile(r"(?<![\w.~-])/(?:root|home|work|Users)/"),
    "a tracker's number": re.compile(
        r"\b(?:issue|ticket|milestone|epic|sprint)s?\s*(?:#|no\.?)?\s*\d+\b"
        r"|\b(?:closes|fixes|resolves|refs)\s+#\d+",
        re.IGNORECASE,
    ),
    "a note of work left": re.compile(r"\b(?:[T]ODO|[F]IXME)\b"),
}
# Written so that this file does not hold them itself.
PLANTED = {
    "a path of one machine": "open('{}home/ann/rota.db')".format("/"),
    "a tracker's number": "see issue {}".format("#12"),
    "a note of work left": "# {}: later".format("todo".upper()),
}


@pytest.mark.parametrize("what", BANNED)
def test_no_tracked_file_holds(what: str) -> None:
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in tracked()
        for number, line in enumerate(_lines(path), start=1)
        if BANNED[what].search(line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize("what", BANNED)
def test_a_planted_line_is_found(what: str) -> None:
    assert BANNED[what].search(PLANTED[what])
    assert not BANNED[what].search("GET /api/work/3 fixes the issue; todo lists are fine")


def _lines(path: str) -> list[str]:
    try:
        return (ROOT / path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:  # An image has no words.
        return []
