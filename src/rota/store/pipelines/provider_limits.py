"""The state of a provider's limits: one row that every worker changes in turn.

`rota.ai` knows the meaning of the text; here it is read, changed and written under a lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rota.store.backend.database import Tx

T = TypeVar("T")


async def remove(tx: Tx, *, namespace: str, name: str) -> None:
    """Delete a row."""
    await tx.rows("drop_ai_limits", namespace=namespace, name=name)


async def change(
    tx: Tx, step: Callable[[str], tuple[str, T]], *, namespace: str, name: str, blank: str
) -> T:
    """Apply `step` to the stored text under its row lock; `blank` is the first text."""
    rows = await tx.rows("lock_ai_limits", namespace=namespace, name=name)
    if not rows:
        await tx.rows("put_ai_limits", namespace=namespace, name=name, state=blank)
        rows = await tx.rows("lock_ai_limits", namespace=namespace, name=name)
    before = str(rows[0][0])
    after, result = step(before)
    if after != before:
        await tx.rows("move_ai_limits", namespace=namespace, name=name, state=after)
    return result
