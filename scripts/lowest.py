"""`python -m scripts.lowest`: constraints with the lowest versions that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_BOUND = re.compile(r"^([\w.-]+)(?:\[[^\]]*\])?>=([\d.]+)")


def lowest() -> list[str]:
    """`name==version` for each dependency with a bound; tools for development are left alone."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = project["dependencies"] + [
        each for name, group in extras.items() if name != "dev" for each in group
    ]
    found = {m.group(1): m.group(2) for each in needed if (m := _BOUND.match(each))}
    return [f"{name}=={version}.*" for name, version in sorted(found.items())]


if __name__ == "__main__":
    print("\n".join(lowest()))
