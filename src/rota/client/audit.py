"""The audit: who did what through a surface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.client.connection import ClientPart
from rota.core.access.model import AuditEntry
from rota.core.runs.names import checked_key, checked_limit
from rota.store.access import audit

TEXT_CHARS_MAX = 1_000
DETAIL_CHARS_MAX = 8_192
_LAST = "~"  # above every id


class Audit(ClientPart):
    """The audit entries of a namespace. They are pruned with runs, after `keep_days`."""

    async def record(
        self,
        who: str,
        verb: str,
        target: str,
        *,
        request_id: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> AuditEntry:
        """Record an action.

        Texts that are too long are cut, so that a hostile request is on record too.

        Args:
            who: The token or user.
            verb: The action.
            target: The thing that it changed.
            request_id: The id of the request.
            detail: More facts.

        Returns:
            The entry.
        """
        now = self._now()
        body = None
        if detail is not None:
            body = msgspec.json.encode(detail, enc_hook=str).decode()
            if len(body) > DETAIL_CHARS_MAX:
                body = msgspec.json.encode({"cut": body[:DETAIL_CHARS_MAX]}).decode()
        entry = AuditEntry(
            self._client.ids.make(now), self._namespace, now, _kept(who),
            _kept(verb), _kept(target), _kept(request_id), body,
        )  # fmt: skip
        await self._database.write(audit.put, entry)
        return entry

    async def list(self, *, before: str | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """List entries, newest first.

        Args:
            before: The last id of the page before.
            limit: At most so many.
        """
        return await self._database.read(
            audit.listing, namespace=self._namespace, limit=checked_limit(limit),
            before=_LAST if before is None else checked_key(before, "before"),
        )  # fmt: skip


def _kept(text: str) -> str:
    """Text that both databases hold, cut."""
    whole = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return whole.encode("utf-8", "replace").decode()[:TEXT_CHARS_MAX]
