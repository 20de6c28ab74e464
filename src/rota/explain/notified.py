"""Which notification informed people of a run that waits for one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.core.time.instants import iso
from rota.schedules.preview import wall

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.core.runs.model import Run


class Notified(NamedTuple):
    """The end of a clause, and what it rests on; both empty if no rule wanted to know."""

    clause: str
    facts: dict[str, Any]


async def notified(client: Client, run: Run, zone: str) -> Notified:
    """The newest notification about what the run waits for."""
    found = await client.notifications.latest(run)
    if found is None:
        return Notified("", {})
    one = found.notification
    facts = {"kind": one.kind, "at": iso(one.at), "rules": found.rules}
    return Notified(
        f"; notification {one.kind} of {wall(one.at, zone)} {found.receivers}",
        {"notification": facts},
    )
