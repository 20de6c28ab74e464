"""Connections to PostgreSQL, direct or through a pooler, each checked once after it is made.

A pooler such as pgbouncer refuses or drops the settings of a connection. It also gives the
transactions of one connection to several server processes. So statements name their schema, and
behind a pooler none is prepared under a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlunsplit

import asyncpg

from rota import errors
from rota.store.backend.postgres_session import SESSION, TIMEOUTS

CONNECT_TIMEOUT_S = 10.0
APPLICATION = {"application_name": "rota"}
IN_FORCE = """select current_user, current_setting('plan_cache_mode'),
    current_setting('default_transaction_isolation'),
    (select has_schema_privilege(oid, 'usage') from pg_namespace where nspname = $1)"""
_UNSUPPORTED = "unsupported startup parameter"


class Connector:
    """Makes connections to one address. `pooled` is learnt with the first of them."""

    def __init__(
        self, parts: SplitResult, options: Mapping[str, str], schema: str, *, place: str
    ) -> None:
        kept = dict(options)
        cache = kept.pop("statement_cache_size", None)
        if cache is not None and not cache.isdigit():
            raise errors.BadDatabaseUrl(f"statement_cache_size={cache} is not a number")
        # A timeout in the URL is meant for Rota, one of the role is not.
        self._settings = SESSION | {name: ms for name, ms in TIMEOUTS.items() if name not in kept}
        query = "&".join(f"{key}={value}" for key, value in kept.items())
        self._dsn = urlunsplit(parts._replace(scheme="postgresql", query=query))
        self._cache = None if cache is None else int(cache)
        self._schema = schema
        self._place = place
        self.pooled = False

    async def connect(self) -> Any:
        """A connection that is fit for our statements, or an error that says why there is none."""
        if not self.pooled:
            try:
                return await self._checked(APPLICATION | self._settings)
            except asyncpg.ProtocolViolationError as error:
                if _UNSUPPORTED not in str(error):
                    raise
            except _SettingsDropped:
                pass
            self.pooled = True
        return await self._checked(APPLICATION)

    async def _checked(self, settings: dict[str, str]) -> Any:
        connection = await self._connect(settings)
        try:
            # Unnamed: a pooler may have given another client's statement the same name.
            prepared = await connection.prepare(IN_FORCE, name="")
            self._check(settings, *await prepared.fetchrow(self._schema))
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _check(
        self, asked: dict[str, str], user: str, plans: str, isolation: str, may_use: bool | None
    ) -> None:
        if asked.get("plan_cache_mode", plans) != plans:
            raise _SettingsDropped
        wanted = SESSION["default_transaction_isolation"]
        if isolation != wanted:
            raise errors.StoreError(
                f"{self._place}: transactions of role {user} are {isolation}, and a pooler keeps"
                " Rota from changing that",
                hint=f"alter role {user} set default_transaction_isolation = '{wanted}';",
            )
        if may_use is False:
            raise errors.StoreReadOnly(
                f"{self._place}: role {user} may not use the schema {self._schema}",
                hint=f"As its owner: grant usage on schema {self._schema} to {user}; and see"
                " the grants in docs/guides/operations.md.",
            )

    async def _connect(self, settings: dict[str, str]) -> Any:
        cache = 0 if self.pooled and self._cache is None else self._cache
        try:
            return await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT_S,
                server_settings=settings,
                **({} if cache is None else {"statement_cache_size": cache}),
            )
        except (
            ValueError,
            asyncpg.ClientConfigurationError,
            asyncpg.UndefinedObjectError,
            asyncpg.CantChangeRuntimeParamError,
        ) as error:
            raise errors.BadDatabaseUrl(f"{self._place}: {error}") from error


class _SettingsDropped(Exception):
    """A pooler took the settings of a connection and did not apply them."""
