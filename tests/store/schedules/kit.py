"""A transaction that is watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rota.store.backend.database import Row, Tx
from rota.store.backend.dialect import Dialect


class Watched:
    """A transaction that counts its statements, and stops at one of them until the test lets it
    continue.
    """

    def __init__(
        self, tx: Tx, seen: list[str], before: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._tx = tx
        self._seen = seen
        self._before = before
        self.dialect: Dialect = tx.dialect
        self.schema = tx.schema

    async def _note(self, query: str) -> None:
        self._seen.append(query)
        if self._before is not None:
            await self._before(query)

    async def rows(self, query: str, *, alone: bool = False, **parameters: Any) -> list[Row]:
        await self._note(query)
        return await self._tx.rows(query, **parameters)

    async def many(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> list[Row]:
        await self._note(query)
        return await self._tx.many(query, items, **parameters)

    async def change(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> int:
        await self._note(query)
        return await self._tx.change(query, items, **parameters)

    async def script(self, text: str, *, alone: bool = False) -> None:
        await self._tx.script(text, alone=alone)
