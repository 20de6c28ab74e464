"""Chunks of an item list as steps store them: JSON, or compressed JSON in a text. Pure."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import msgspec

from rota.core.runs.model import StoredStep

KIND = "items"


def packed(items: Sequence[msgspec.Raw]) -> str:
    """The items of a chunk, compressed: an input is stored for each run, however often it comes."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(items), 1)).decode()


def unpacked(output: str | None) -> str:
    """The JSON of a chunk in either form."""
    text = output or "[]"
    if not text.startswith('"'):
        return text
    return zlib.decompress(base64.b64decode(msgspec.json.decode(text, type=str))).decode()


def readable(step: StoredStep) -> StoredStep:
    """A step as surfaces show it: they hide secret fields, which a compressed text has none of."""
    if step.kind != KIND:
        return step
    return msgspec.structs.replace(step, output=unpacked(step.output))
