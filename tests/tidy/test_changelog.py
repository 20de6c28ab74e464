"""The changelog: releases, newest first, sections by kind, one line an entry."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.tidy.tree import ROOT

SECTIONS = {"To migrate", "Renamed", "Added", "Changed", "Fixed"}
RELEASE = re.compile(r"## (?:Unreleased|(\d+)\.(\d+)\.(\d+) \(\d{4}-\d\d-\d\d\))$")


def _complaints(text: str) -> Iterator[str]:
    found = [line for line in text.splitlines() if line.startswith("## ")]
    matches = [RELEASE.match(line) for line in found]
    yield from (
        f"{line!r}: write `## 1.2.3 (2026-01-31)` or `## Unreleased`"
        for line, match in zip(found, matches, strict=True)
        if match is None
    )
    numbers = [
        tuple(int(part) for part in match.groups())
        for match in matches
        if match is not None and match.group(1)
    ]
    if numbers != sorted(numbers, reverse=True) or "## Unreleased" in found[1:]:
        yield "the newest release is first"
    for line in text.splitlines():
        if line.startswith("### ") and line[4:] not in SECTIONS:
            yield f"{line!r}: a section is one of {', '.join(sorted(SECTIONS))}"
        if line.startswith("  ") and line.strip():
            yield f"{line[:60]!r}: an entry is one line"


def test_the_changelog_is_in_order() -> None:
    assert not list(_complaints((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "text",
    [
        "## 0.1.0 (2026-01-01)\n\n## 0.2.0 (2026-02-01)\n",
        "## 0.1.0 (2026-01-01)\n\n## Unreleased\n",
        "## Next\n",
        "## Unreleased\n\n### News\n\n- An entry.\n",
        "## Unreleased\n\n- An entry\n  of two lines.\n",
    ],
)
def test_disorder_is_found(text: str) -> None:
    assert list(_complaints(text))
