"""PostgreSQL's errors as Rota's: what failed, why, and what to do about it."""

from __future__ import annotations

import socket

import asyncpg

from rota import errors

# The driver or the server raises them for a value that the column cannot hold.
UNSTORABLE = (asyncpg.DataError, asyncpg.ProgramLimitExceededError, OverflowError, ValueError)

_ERRORS: tuple[tuple[type[BaseException], type[errors.StoreError]], ...] = (
    (asyncpg.DiskFullError, errors.StoreFull),
    (asyncpg.ReadOnlySQLTransactionError, errors.StoreReadOnly),
    (asyncpg.InsufficientPrivilegeError, errors.StoreReadOnly),
    (asyncpg.TooManyConnectionsError, errors.StoreBusy),
    (asyncpg.LockNotAvailableError, errors.StoreBusy),
    (asyncpg.QueryCanceledError, errors.StoreBusy),
    (asyncpg.DeadlockDetectedError, errors.StoreBusy),
    (asyncpg.SerializationError, errors.StoreBusy),
    (asyncpg.InvalidCatalogNameError, errors.StoreUnreachable),
    (asyncpg.InvalidAuthorizationSpecificationError, errors.StoreUnreachable),
    (asyncpg.UndefinedTableError, errors.SchemaMissing),
    (asyncpg.DependentObjectsStillExistError, errors.StoreError),
    (asyncpg.IdleInTransactionSessionTimeoutError, errors.StoreUnreachable),
    (asyncpg.PostgresConnectionError, errors.StoreUnreachable),
    (asyncpg.OperatorInterventionError, errors.StoreUnreachable),
    (asyncpg.InterfaceError, errors.StoreUnreachable),
    (asyncpg.InternalClientError, errors.StoreUnreachable),
    (OSError, errors.StoreUnreachable),
    (TimeoutError, errors.StoreUnreachable),
)

_READ_ONLY = (
    "The server is a standby, or was set to read-only. Workers continue when it accepts writes."
    " With several hosts, add target_session_attrs=read-write to the URL."
)

# The advice, by the error of the server or the system.
_HINTS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (asyncpg.ReadOnlySQLTransactionError, _READ_ONLY),
    (
        asyncpg.InsufficientPrivilegeError,
        "Grant what docs/guides/operations.md names under Roles and grants, as the schema's owner.",
    ),
    (
        asyncpg.TooManyConnectionsError,
        "Lower `connections` of the workers, raise max_connections of the server, or use a pooler.",
    ),
    (
        asyncpg.LockNotAvailableError,
        "Find who holds a lock on a table of Rota: pg_locks, pg_stat_activity. Then repeat it.",
    ),
    (
        asyncpg.QueryCanceledError,
        "If the URL or a pooler's role has a statement_timeout, raise it to 30s; repeat it.",
    ),
    (
        asyncpg.IdleInTransactionSessionTimeoutError,
        "Behind a pooler, raise idle_in_transaction_session_timeout of the role to 1min.",
    ),
    ((asyncpg.DeadlockDetectedError, asyncpg.SerializationError), "Repeat the call."),
    (
        asyncpg.DependentObjectsStillExistError,
        "Drop what the message names, run the command again, and create it again.",
    ),
    (asyncpg.InvalidCatalogNameError, "Correct the database name in the URL, or create it."),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "Correct user and password in the URL: the server runs and refuses them.",
    ),
    (
        ConnectionRefusedError,
        "Start the server, or correct host and port in the URL: nothing listens there.",
    ),
    (socket.gaierror, "Correct the host name in the URL: no machine has it."),
)


def translate(error: BaseException, place: str) -> BaseException:
    """A driver error as one of ours; constraint errors and bugs stay what they are."""
    for cls, ours in _ERRORS:
        if isinstance(error, cls):
            hint = next((hint for kind, hint in _HINTS if isinstance(error, kind)), None)
            return ours(f"{place}: {_said(error)}", hint=hint)
    return error


def ends_connection(error: BaseException, ours: BaseException) -> bool:
    """Whether another connection may fare better: this one broke, or leads to a server that
    accepts no writes, while the next one may lead to the primary."""
    return isinstance(ours, errors.StoreUnreachable) or isinstance(
        error, asyncpg.ReadOnlySQLTransactionError
    )


def _said(error: BaseException) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return f"the host is unknown ({error.strerror})"
    if isinstance(error, asyncpg.DependentObjectsStillExistError):
        return f"{error.args[0]} ({error.detail})"
    return str(error) or type(error).__name__
