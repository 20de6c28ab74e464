"""The stored options of a run: the one owner of the JSON in `runs.options`. Pure."""

from __future__ import annotations

import msgspec

from rota.core.runs.retry import RetryPolicy


class StoredRunOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of a run beside its columns. Each attempt of a chain inherits them."""

    retry: RetryPolicy | None = None  # of the start, instead of the workflow's
    timeout_us: int | None = None  # likewise
    seed: str | None = None  # of a fork: it draws the random values that its origin drew
    began_at: int | None = None  # of a retry or recovery: when the first attempt began
    previous_due_at: int | None = None  # of a scheduled run: the occurrence fired before it
    recovers: int = 0  # of a retry: its chain has failed with a notification
    traceparent: str | None = None  # the span of the start
    detached: int = 0  # of a later run of a chain: its first one was started detached

    @classmethod
    def read(cls, text: str | None) -> StoredRunOptions:
        """The options as they are stored."""
        return _READER.decode(text) if text else _NONE

    def text(self) -> str | None:
        """As they are stored: None when nothing is set."""
        return None if self == _NONE else msgspec.json.encode(self).decode()

    def begun(self, at: int) -> StoredRunOptions:
        """For a further attempt: the timeout of the chain counts from its first one."""
        return self if self.began_at is not None else msgspec.structs.replace(self, began_at=at)

    def continued(self) -> StoredRunOptions:
        """For the next segment of a chain: its timeout begins again, and it draws its own random
        values."""
        return msgspec.structs.replace(self, began_at=None, seed=None)

    def begins_at(self, started_at: int) -> int:
        """When the chain began: the timeout of a run counts from here. `started_at` is the first
        claim of this attempt."""
        return self.began_at or started_at

    def fired_after(self, previous_at: int | None) -> StoredRunOptions:
        """For a fired run. The instant stays, whatever becomes of the row of that occurrence."""
        if previous_at is None:
            return self
        return msgspec.structs.replace(self, previous_due_at=previous_at)


def recovers(text: str | None) -> bool:
    """Whether the completion of a run with these stored options may be a recovery, as its chain had
    failed before."""
    return StoredRunOptions.read(text).recovers == 1


_NONE = StoredRunOptions()
_READER = msgspec.json.Decoder(StoredRunOptions)
