"""SQL tools on PostgreSQL: a connection for each call, and an exact account of how far it came."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rota import faults
from rota.errors import MissingExtra, NeedsLogin, NeedsPermission, NotSent, OutcomeUnknown, Rejected
from rota.tools.base import Call
from rota.tools.sql import ReadLimits, Work, too_big
from rota.tools.statements import Statement, bindable, bounded, plain

try:
    import asyncpg
except ImportError as missing:
    raise MissingExtra(
        "SQL tools need the asyncpg package for PostgreSQL", hint="pip install 'rota[postgres]'"
    ) from missing

T = TypeVar("T")
ROWS_AT_ONCE = 50
_QUERIES = ("select", "with", "values", "table")
_TOO_BIG = "rota_row_too_big"

_FORBIDDEN = (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)
_PASSING = (
    *(asyncpg.TooManyConnectionsError, asyncpg.LockNotAvailableError, asyncpg.DiskFullError),
    *(asyncpg.DeadlockDetectedError, asyncpg.SerializationError),
    *(asyncpg.OperatorInterventionError, asyncpg.PostgresConnectionError),
)
# A value that Python does not have, such as the time 24:00.
_UNREADABLE = (ValueError, OverflowError)
_LOST = (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError)


class Postgres:
    """A server, connected to for each call."""

    def __init__(self, url: str, tool: str) -> None:
        parts = urlsplit(url)
        self._url = url
        self._tool = tool
        self._place = f"{parts.hostname or 'socket'}{parts.path}"  # no password in an error
        self._account = parts.username

    async def read(self, work: Work[T], call: Call) -> T:
        """Run `work` in a transaction that cannot write."""
        try:
            async with (
                asyncio.timeout(call.timeout_s),
                self._connected() as connection,
                connection.transaction(readonly=True),
            ):
                return await work(PostgresToolTx(connection))
        except asyncpg.ReadOnlySQLTransactionError as error:
            raise Rejected(f"{self._tool} only reads, and its SQL would write: {error}") from error
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, *_UNREADABLE) as error:
            raise self._meaning(error, is_committing=False) from error

    async def transact(self, work: Work[T], call: Call, *, commit: bool) -> T:
        """Commit what `work` did, or roll it back."""
        is_committing = False
        try:
            async with asyncio.timeout(call.timeout_s), self._connected() as connection:
                transaction = connection.transaction()
                await transaction.start()
                answer = await work(PostgresToolTx(connection))
                if not commit:
                    await transaction.rollback()
                    return answer
                faults.reach("sql-before-commit")
                is_committing = True
                await transaction.commit()
                faults.reach("sql-after-commit")
                return answer
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, *_UNREADABLE) as error:
            raise self._meaning(error, is_committing) from error

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(self._url)
        try:
            yield connection
        finally:
            # Terminated, not closed: the server rolls back an uncommitted transaction, and the
            # caller does not wait for a server that is gone.
            connection.terminate()

    def _meaning(self, error: BaseException, is_committing: bool) -> Exception:
        """A transaction without a sent commit did not happen, whatever went wrong."""
        message = f"{self._place}: {str(error) or type(error).__name__}"
        reported = isinstance(error, asyncpg.PostgresError) and not isinstance(error, _LOST)
        if is_committing and not reported:
            return OutcomeUnknown(f"{message} (while it committed)", tool=self._tool)
        if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
            return NeedsLogin(message, service=self._place, account=self._account)
        if isinstance(error, _FORBIDDEN):
            return NeedsPermission(message, service=self._place, account=self._account)
        if isinstance(error, _PASSING):
            return NotSent(message)
        refused = isinstance(error, (asyncpg.PostgresError, asyncpg.DataError, *_UNREADABLE))
        return Rejected(message) if refused else NotSent(message)


class PostgresToolTx:
    """Statements of one transaction."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def hold(self, key: str) -> None:
        """An advisory lock that ends with the transaction."""
        digest = hashlib.sha256(b"rota tool " + key.encode()).digest()
        number = int.from_bytes(digest[:8], "big", signed=True)
        await self._connection.fetchval("select pg_advisory_xact_lock($1)", number)

    async def make(self, table: str, statement: Statement) -> None:
        """Two calls that create the same table at once would fail, so each takes a lock first."""
        if await self._connection.fetchval("select to_regclass($1)", table) is None:
            await self.hold(f"table {table}")
            await self._connection.execute(statement.sql)

    async def rows(
        self, statement: Statement, values: dict[str, Any], rows_max: int
    ) -> list[dict[str, Any]]:
        """Run to the end, and keep the first rows."""
        bound = bindable({name: values[name] for name in statement.names})
        prepared = await self._connection.prepare(statement.numbered)
        records = await prepared.fetch(*bound.values())
        return [plain(dict(row)) for row in records[:rows_max]]

    async def read(
        self, statement: Statement, values: dict[str, Any], limits: ReadLimits
    ) -> list[dict[str, Any]]:
        """The first rows, a few at a time."""
        bound = bindable({name: values[name] for name in statement.names})
        try:
            prepared = await self._connection.prepare(_bounded(statement, limits.bytes))
            if not prepared.get_attributes():
                await prepared.fetch(*bound.values())  # a write, which the server refuses
                return []
            cursor = await prepared.cursor(*bound.values())
            rows: list[dict[str, Any]] = []
            size, batch = 0, 1
            while len(rows) < limits.rows:
                records = await cursor.fetch(min(batch, limits.rows - len(rows)))
                for record in records:
                    size = limits.add(rows, plain(dict(record)), size)
                if len(records) < batch:
                    break
                batch = ROWS_AT_ONCE
        except asyncpg.InvalidTextRepresentationError as error:
            if _TOO_BIG in str(error):
                raise too_big(limits.bytes) from None
            raise
        return rows


def _bounded(statement: Statement, bytes_max: int) -> str:
    """The query, with an error of the server for a row that is too big to be sent. A row as text
    has up to two characters for a byte."""
    if statement.first_word not in _QUERIES:
        return statement.numbered
    return bounded(statement, 2 * bytes_max + 1024)
