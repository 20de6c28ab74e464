"""Text with placeholders, written so that a template keeps it."""

from __future__ import annotations

from rota.core.pipelines.templates import _PLACEHOLDER


def escaped(text: str) -> str:
    """Text that a template renders to exactly this text."""
    return _PLACEHOLDER.sub(
        lambda found: "\\" * (2 * len(found.group(1)) + 1) + found.group(0)[len(found.group(1)) :],
        text,
    )
