"""Rows of API tokens."""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import asdict

from rota.core.access.model import ApiToken
from rota.store.backend.database import Tx


class StoredToken(NamedTuple):
    """A token with the digest of its secret."""

    digest: str
    token: ApiToken


async def put(tx: Tx, *, token: ApiToken, digest: str) -> bool:
    """Store a new token; False when another valid one has its name."""
    return bool(await tx.rows("put_token", digest=digest, **asdict(token)))


async def find(tx: Tx, *, namespace: str, token_id: str) -> StoredToken | None:
    """A token by its id."""
    rows = await tx.rows("get_token", namespace=namespace, id=token_id, alone=True)
    return StoredToken(rows[0][0], ApiToken(*rows[0][1:])) if rows else None


async def listing(tx: Tx, *, namespace: str) -> list[ApiToken]:
    """All tokens, oldest first; revoked ones too until they are pruned."""
    return [ApiToken(*row) for row in await tx.rows("list_tokens", namespace=namespace)]


async def note_use(tx: Tx, *, token_id: str, now: int, before: int) -> None:
    """Write down when a token was used, unless that was done after `before`."""
    await tx.rows("note_token_use", id=token_id, now=now, before=before, alone=True)


async def revoke(tx: Tx, *, namespace: str, name: str, now: int) -> ApiToken | None:
    """End a token by its name or id; None when no valid token has it."""
    rows = await tx.rows("revoke_token", namespace=namespace, name=name, now=now)
    return ApiToken(*rows[0]) if rows else None
