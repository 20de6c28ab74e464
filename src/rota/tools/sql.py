"""SQL tools on SQLite and PostgreSQL: an effect and its key commit together, so looking is exact.

The key is held (a lock) from before the effect until its commit. Reconciling waits until a call in
flight is over, and an effect that is not there then will not come.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from rota.errors import BadInput, MissingExtra, PayloadTooBig, Rejected, UsageError
from rota.net.secret import Text, reveal
from rota.tools.base import Applied, Call, NotApplied, Safety, Tool, Verdict, read_params
from rota.tools.statements import Statement, own, statement

ROWS_MAX = 1000
BYTES_MAX = 1024 * 1024
KEY = "key"
T = TypeVar("T")


class ToolTx(Protocol):
    """One transaction on either database."""

    async def hold(self, key: str) -> None:
        """Lock this key until the end of the transaction, after any other holder."""

    async def rows(
        self, statement: Statement, values: dict[str, Any], rows_max: int
    ) -> list[dict[str, Any]]:
        """Run one statement to its end; its first rows, as plain JSON."""

    async def read(
        self, statement: Statement, values: dict[str, Any], limits: ReadLimits
    ) -> list[dict[str, Any]]:
        """Read no more rows and bytes than the limits say; PayloadTooBig for more bytes."""

    async def make(self, table: str, statement: Statement) -> None:
        """Create the table of keys, if it is not there."""


class ReadLimits(NamedTuple):
    """How much a read may return; one row more shows that there are more."""

    rows: int
    bytes: int

    def add(self, kept: list[dict[str, Any]], row: dict[str, Any], size: int) -> int:
        """Keep a row; the size of all rows with it."""
        size += len(msgspec.json.encode(row))
        if size > self.bytes:
            raise too_big(self.bytes)
        kept.append(row)
        return size


def too_big(bytes_max: int) -> PayloadTooBig:
    """The error of a read with too many bytes."""
    return PayloadTooBig(
        f"the rows have more than {bytes_max:,} bytes",
        hint="Raise bytes_max of the tool, or read fewer rows or columns.",
        bytes_max=bytes_max,
    )


# The statements of one transaction; on SQLite it must not await anything else.
Work: TypeAlias = Callable[[ToolTx], Coroutine[Any, Any, T]]


class Backend(Protocol):
    """A database: runs a function in a transaction and says what is known if it fails."""

    async def transact(self, work: Work[T], call: Call, *, commit: bool) -> T:
        """Commit what `work` did, or roll it back."""

    async def read(self, work: Work[T], call: Call) -> T:
        """Run `work` in a transaction that cannot write."""


class SqlWrite(Tool):
    """Runs one or more statements in one transaction, once for each key.

    The key is kept in `key_table`, which is made on first use. With `found`, a query such as
    `select id from tickets where effect = :key`, the user's own row holds it instead: the statement
    has to write `:key` into a column that is unique.
    """

    safety = Safety.IDEMPOTENT

    def __init__(
        self,
        url: Text,
        sql: str | Sequence[str],
        *,
        name: str = "sql_write",
        key_table: str = "rota_effects",
        found: str | None = None,
    ) -> None:
        self.name = name
        self._backend = _lazy_backend(url, name)
        texts = [sql] if isinstance(sql, str) else list(sql)
        self._statements = [statement(text) for text in texts]
        if not self._statements:
            raise UsageError(f"{name} has no statement")
        self._found = statement(found) if found else None
        self._table = key_table
        self._find = self._found or own("find_effect", key_table)
        written = {name for each in self._statements for name in each.names}
        looked_for = self._found.names if self._found else ()
        self._names = frozenset((*written, *looked_for)) - {KEY}
        if self._found and not (KEY in written and KEY in looked_for):
            raise UsageError(
                f"{name}: with found=, the key has to be in the row",
                hint="Write :key into a unique column, and look for it in found=.",
            )

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        """Values by the names in the statements."""
        return _matched(params, self._names, self.name)

    async def perform(self, params: dict[str, Any], call: Call) -> Any:
        """The effect and its key, in one commit."""

        async def work(tx: ToolTx) -> Any:
            done = await self._done(tx, params, call)
            return done if done is not None else await self._do(tx, params, call)

        return await self._backend().transact(work, call, commit=True)

    async def look_up(self, params: dict[str, Any], call: Call) -> Verdict:
        """Exact: waits for a call in flight, then looks for the key."""
        done = await self._backend().transact(
            lambda tx: self._done(tx, params, call), call, commit=False
        )
        return NotApplied("the key is not there") if done is None else Applied(done)

    async def _do(self, tx: ToolTx, params: dict[str, Any], call: Call) -> Any:
        values = {**params, KEY: call.key}
        rows: list[dict[str, Any]] = []
        for each in self._statements:
            rows = await tx.rows(each, values, ROWS_MAX)
        result = {"rows": rows, "already": False}
        if self._found is None:
            text = msgspec.json.encode({**result, "already": True}).decode()
            recorded = {KEY: call.key, "tool": self.name, "result": text}
            await tx.rows(own("record_effect", self._table), recorded, 1)
        return result

    async def _done(self, tx: ToolTx, params: dict[str, Any], call: Call) -> Any:
        """The result of an earlier call, or None. From here on the transaction holds the key."""
        if self._found is None:
            await tx.make(self._table, own("make_table", self._table))
        await tx.hold(call.key)
        rows = await tx.rows(self._find, {**params, KEY: call.key}, ROWS_MAX)
        if not rows:
            return None
        if self._found is not None:
            return {"rows": rows, "already": True}
        return msgspec.json.decode(rows[0]["result"])


class SqlRead(Tool):
    """Runs one query, which cannot write. At most `rows_max` rows come back, and `cut` says if
    there were more; more than `bytes_max` bytes are an error."""

    safety = Safety.READ

    def __init__(
        self, url: Text, sql: str, *, name: str = "sql_read", rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:  # fmt: skip
        self.name = name
        self._backend = _lazy_backend(url, name)
        self._statement = statement(sql)
        if rows_max < 1 or bytes_max < 1:
            raise UsageError(f"{name}: rows_max and bytes_max are at least 1")
        self._rows_max = rows_max
        self._limits = ReadLimits(rows_max + 1, bytes_max)

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        """Values by the names in the query."""
        return _matched(params, frozenset(self._statement.names), self.name)

    async def perform(self, params: dict[str, Any], call: Call) -> Any:
        """The rows."""

        async def work(tx: ToolTx) -> list[dict[str, Any]]:
            return await tx.read(self._statement, params, self._limits)

        rows = await self._backend().read(work, call)
        return {"rows": rows[: self._rows_max], "cut": len(rows) > self._rows_max}


def _lazy_backend(url: Text, tool: str) -> Callable[[], Backend]:
    """The backend of a URL, made for each call: the URL may be a secret, which may change."""
    if isinstance(url, str):
        _backend_class(url, tool)  # a missing extra should show at once

    def make() -> Backend:
        revealed = reveal(url)
        try:
            backend: Backend = _backend_class(revealed, tool)(revealed, tool)
        except (UsageError, MissingExtra) as error:  # of a secret: only seen now
            raise Rejected(error.message, hint=error.advice) from error
        return backend

    return make


def _backend_class(url: str, tool: str) -> Any:
    if url.startswith("sqlite:///"):
        return import_module("rota.tools.sql_sqlite").Sqlite
    if url.startswith(("postgresql://", "postgres://")):
        _check_port(url, tool)
        return import_module("rota.tools.sql_postgres").Postgres
    raise UsageError(
        f"{tool}: the database URL is neither of SQLite nor of PostgreSQL",
        hint="Write sqlite:///path/to/file.db or postgresql://user@host:5432/name.",
    )


def _check_port(url: str, tool: str) -> None:
    """The driver would fail on a wrong port in the midst of a call."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise UsageError(
            f"{tool}: the database URL has no port from 0 to 65535 after its host",
            hint="Write postgresql://user@host:5432/name; quote / and @ in a password.",
        ) from None


def _matched(params: dict[str, Any], names: frozenset[str], tool: str) -> dict[str, Any]:
    """Values by all names of the statements: a value skipped is a mistake, not a NULL."""
    values = read_params(dict[str, Any], params, tool=tool)
    missing, strange = sorted(names - set(values)), sorted(set(values) - names)
    if missing or strange:
        problems = [f"needs {', '.join(missing)}"] if missing else []
        problems += [f"has no parameter {', '.join(strange)}"] if strange else []
        raise BadInput(
            f"parameters of {tool}: its SQL {' and '.join(problems)}",
            hint=f"Its parameters are: {', '.join(sorted(names)) or 'none'}.",
        )
    return values
