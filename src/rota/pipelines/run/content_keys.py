"""Content keys: the same item, prompt and model is the same step, in every run and at any time."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

VERSION = 1  # raise it when what is hashed changes: old results are then not found again


def canonical(value: Any) -> str:
    """A value as JSON with sorted keys, so that equal values are equal texts."""
    return json.dumps(
        value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )


def content_key(kind: str, *parts: Any) -> str:
    """A short key of what goes into a call; order of keys in mappings does not matter."""
    text = canonical([VERSION, kind, *parts])
    return f"{kind}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def schedule_id(pipeline_id: str, folder: Path) -> str:
    """`daily-report-a1b2c3`: two checkouts of one pipeline are two schedules."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]
    return f"{pipeline_id}-{digest}"
