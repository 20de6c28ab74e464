"""Children that live through a story and are killed on the way."""

from __future__ import annotations

from collections.abc import Callable

from tests.kit import select


async def has_tables(url: str) -> bool:
    """Whether it lived to commit the migration."""
    if url.startswith("sqlite"):
        query = "select count(*) from sqlite_master where name = 'steps'"
    else:
        query = "select count(to_regclass('steps'))"
    return await select(url, query) == [(1,)]


MakeDatabase = Callable[[], str]
