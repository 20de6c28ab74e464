"""The walks of ARCHITECTURE.md."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT

PACKAGE = ROOT / "src/rota"
ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)


def files_of(text: str, walk: str) -> set[str]:
    """The files of the first table of a walk."""
    section = text.split(f"## Walk: {walk}\n", 1)[1]
    table = section[section.index("|---|---|---|") :].split("\n\n", 1)[0]
    return {file for file, _ in ROW.findall(table)}
