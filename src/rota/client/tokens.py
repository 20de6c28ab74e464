"""Tokens and sessions: who may use the surfaces, as what."""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from rota.client.caller import refuse_in_workflow
from rota.client.connection import ClientPart
from rota.core.access.model import (
    LOGIN_LINK_US,
    SESSION_IDLE_US,
    SESSION_US,
    USE_NOTED_US,
    ApiToken,
    Role,
    Session,
)
from rota.core.access.secret import digest, token_parts, token_text
from rota.core.runs.names import checked_name
from rota.core.suggest import suggestion
from rota.core.time.instants import Duration, after, micros, shown
from rota.errors import BadInput, BadToken, StoreReadOnly, UnknownToken
from rota.store.access import sessions, tokens
from rota.store.access.sessions import LoginLink


class NewToken(NamedTuple):
    """A token that was just made. Its text is shown once: only a digest is stored."""

    token: ApiToken
    text: str


class NewSession(NamedTuple):
    """A session that was just opened. Its secret belongs into a cookie and nowhere else."""

    session: Session
    secret: str


class Tokens(ClientPart):
    """The API tokens of a namespace."""

    async def create(
        self, name: str, *, role: str = Role.READ, expires_in: Duration | None = None
    ) -> NewToken:
        """Create a token.

        Args:
            name: A name for people.
            role: read, operate or admin.
            expires_in: Its lifetime; without one it has no end.

        Returns:
            The token and its secret, which is shown once.
        """
        refuse_in_workflow("tokens.create")
        checked_name(name, "token name")
        now = self._now()
        made = ApiToken(
            secrets.token_hex(6), self._namespace, name, checked_role(role), now,
            _end(now, expires_in), None, None,
        )  # fmt: skip
        secret = secrets.token_urlsafe(32)
        if not await self._database.write(tokens.put, token=made, digest=digest(secret)):
            raise BadInput(
                f"there is a token {name!r} already",
                hint="Choose another name, or revoke that token first.",
            )
        return NewToken(made, token_text(made.id, secret))

    async def list(self) -> Sequence[ApiToken]:
        """All tokens, oldest first."""
        return await self._database.read(tokens.listing, namespace=self._namespace)

    async def revoke(self, name: str) -> ApiToken:
        """End a token, and every session that began with it.

        Args:
            name: Its name or id.

        Returns:
            The token.

        Raises:
            UnknownToken: There is no such token.
        """
        refuse_in_workflow("tokens.revoke")
        checked_name(name, "token name")
        found = await self._database.write(
            tokens.revoke, namespace=self._namespace, name=name, now=self._now()
        )
        if found is None:
            names = [one.name for one in await self.list() if one.revoked_at is None]
            raise UnknownToken(
                f"there is no valid token {name!r}",
                hint=suggestion(name, names, "List tokens with `rota token list`."),
            )
        return found

    async def authenticate(self, text: str) -> ApiToken:
        """Find the token of a secret.

        Args:
            text: The secret.

        Returns:
            The token.

        Raises:
            BadToken: It is unknown, revoked or expired.
        """
        parts = token_parts(text)
        if parts is None:
            raise BadToken("the text is not a token", hint="A token is rota_ID_SECRET.")
        now = self._now()
        found = await self._database.read(tokens.find, namespace=self._namespace, token_id=parts.id)
        known = found.digest if found else digest("")
        if not hmac.compare_digest(known, digest(parts.secret)) or found is None:
            raise BadToken("the token is not known")
        token = found.token
        problem = token.problem(now)
        if problem is not None:
            raise BadToken(f"the token {token.name} {problem}")
        if token.last_used_at is None or token.last_used_at < now - USE_NOTED_US:
            with contextlib.suppress(StoreReadOnly):  # a token also works on a replica
                await self._database.write(
                    tokens.note_use, token_id=token.id, now=now, before=now - USE_NOTED_US
                )
        return token


class Sessions(ClientPart):
    """Logins of browsers, by a token or by a link that works once."""

    async def open(self, text: str) -> NewSession:
        """Log in with a token. The session ends with the token.

        Args:
            text: The secret of a token.

        Returns:
            The session and its secret.

        Raises:
            BadToken: The token is unknown, revoked or expired.
        """
        token = await self._client.tokens.authenticate(text)
        return await self._open(token.id, token.name, token.role, token.expires_at)

    async def link(self, name: str = "login link", *, role: str = Role.ADMIN) -> str:
        """The secret of a link that logs a browser in once, within a minute.

        Args:
            name: A name for the audit.
            role: read, operate or admin.
        """
        checked_name(name, "name")
        secret = secrets.token_urlsafe(32)
        made = LoginLink(name, checked_role(role), self._now() + LOGIN_LINK_US)
        await self._database.write(
            sessions.put_link, made, namespace=self._namespace, digest=digest(secret)
        )
        return secret

    async def redeem(self, secret: str) -> NewSession:
        """Log in with the secret of a link.

        Args:
            secret: The secret.

        Returns:
            The session and its secret.

        Raises:
            BadToken: The link was used or is too old.
        """
        found = await self._database.write(
            sessions.take_link, namespace=self._namespace, digest=digest(secret)
        )
        if found is None or found.expires_at <= self._now():
            raise BadToken(
                "the login link was used already, or is older than a minute",
                hint="Ask for a new one with `rota open`.",
            )
        return await self._open(None, found.name, found.role, None)

    async def _open(
        self, token_id: str | None, name: str, role: str, token_ends_at: int | None
    ) -> NewSession:
        now = self._now()
        ends_at = min(now + SESSION_US, token_ends_at or now + SESSION_US)
        opened = Session(self._namespace, token_id, name, role, now, now, ends_at)
        secret = secrets.token_urlsafe(32)
        await self._database.write(sessions.put, opened, digest=digest(secret))
        return NewSession(opened, secret)

    async def get(self, secret: str) -> Session:
        """Find the session of a cookie.

        Args:
            secret: The value of the cookie.

        Returns:
            The session.

        Raises:
            BadToken: It ended, was idle for 12 hours, or lost its token.
        """
        now = self._now()
        key = digest(secret)
        found = await self._database.read(
            sessions.find, namespace=self._namespace, digest=key, now=now,
            idle_since=now - SESSION_IDLE_US,
        )  # fmt: skip
        if found is None:
            raise BadToken("the session has ended", hint="Log in again.")
        if found.seen_at < now - USE_NOTED_US:
            with contextlib.suppress(StoreReadOnly):
                await self._database.write(
                    sessions.touch, digest=key, now=now, before=now - USE_NOTED_US
                )
        return found

    async def close(self, secret: str) -> None:
        """Log out. A session that has ended already is not an error.

        Args:
            secret: The value of the cookie.
        """
        await self._database.write(
            sessions.delete, namespace=self._namespace, digest=digest(secret)
        )


def checked_role(role: str) -> Role:
    """A role by its name, or BadInput."""
    if not isinstance(role, str) or role not in set(Role):
        raise BadInput(f"role={shown(role)} is not a role", hint=f"Give {', '.join(Role)}.")
    return Role(role)


def _end(now: int, expires_in: Duration | None) -> int | None:
    if expires_in is None:
        return None
    if micros(expires_in) <= 0:
        raise BadInput(
            f"expires_in={shown(expires_in)} is not in the future",
            hint='Give a time such as "90d".',
        )
    return after(now, micros(expires_in))
