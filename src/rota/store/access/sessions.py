"""Rows of browser sessions and login links."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import asdict

from rota.core.access.model import Session
from rota.store.backend.database import Tx


async def put(tx: Tx, session: Session, *, digest: str) -> None:
    """Store a new session under the digest of its secret."""
    await tx.rows("put_session", digest=digest, **asdict(session))


async def find(tx: Tx, *, namespace: str, digest: str, now: int, idle_since: int) -> Session | None:
    """A session that is still valid, as is its token."""
    rows = await tx.rows(
        "get_session", namespace=namespace, digest=digest, now=now, idle_since=idle_since,
        alone=True,
    )  # fmt: skip
    return Session(*rows[0]) if rows else None


async def touch(tx: Tx, *, digest: str, now: int, before: int) -> None:
    """Write down when a session was seen, unless that was done after `before`."""
    await tx.rows("touch_session", digest=digest, now=now, before=before, alone=True)


async def delete(tx: Tx, *, namespace: str, digest: str) -> bool:
    """Log a browser out."""
    return bool(await tx.rows("delete_session", namespace=namespace, digest=digest))


class LoginLink(NamedTuple):
    """Whom a link logs in, as what, until when it can be used."""

    name: str
    role: str
    expires_at: int


async def put_link(tx: Tx, link: LoginLink, *, namespace: str, digest: str) -> None:
    """Store a link under the digest of its secret."""
    await tx.rows("put_login_link", digest=digest, namespace=namespace, **link._asdict())


async def take_link(tx: Tx, *, namespace: str, digest: str) -> LoginLink | None:
    """Use a login link; None if it does not exist or was used before."""
    rows = await tx.rows("take_login_link", namespace=namespace, digest=digest)
    return LoginLink(*rows[0]) if rows else None
