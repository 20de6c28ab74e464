"""Bodies of runs: short ones are in the row, larger ones in `payloads`."""

from __future__ import annotations

from collections.abc import Iterable

from rota.store.backend.database import Row

# Larger bodies live in `payloads`: a claim or a settlement rewrites the row, not the body.
INLINE_BYTES_MAX = 4096


def big_bodies(parts: Iterable[tuple[str, str, str | None]]) -> list[Row]:
    return [
        (run_id, part, body)
        for run_id, part, body in parts
        if body is not None and len(body) > INLINE_BYTES_MAX
    ]


def inline_body(body: str | None) -> str | None:
    return body if body is None or len(body) <= INLINE_BYTES_MAX else None
