"""A request that a run ends gracefully: its code is cancelled, and has some time to clean up.

It is a record of the chain. It waits until the code gets it; then it has a place in the order of
results. So a replay gives it to the code at the same place. Pure.
"""

from __future__ import annotations

import msgspec

from rota.core.time.instants import after

KIND = "end"
# Keys of calls have a `#` or a `:`, so these belong to no call.
CANCEL_KEY, TIMEOUT_KEY = "cancel", "timeout"


class EndRequest(msgspec.Struct, frozen=True):
    """Why a run has to end, and the time that its code has from the moment when it gets the end."""

    reason: str
    grace_us: int

    @classmethod
    def read(cls, text: str | None) -> EndRequest:
        """A request as it is stored."""
        return _READER.decode(text or "{}")

    def text(self) -> str:
        """The request as it is stored."""
        return msgspec.json.encode(self).decode()

    def until(self, at: int) -> int:
        """When the time to clean up is over, if the code has got the end at this instant."""
        return after(at, self.grace_us)


_READER = msgspec.json.Decoder(EndRequest)
