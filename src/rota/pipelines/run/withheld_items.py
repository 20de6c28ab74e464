"""Items on the list of a filter that must not continue: failed ones, and those dropped by a retry.

An item about which the model could not be asked has failed. It keeps its position on the list, so
that a retry moves no other item. The retry asks again, and the item continues or is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rota.pipelines.run.run_store import MESSAGE_CHARS_MAX, RunReader, RunStore

SUFFIX = ".withheld"  # the list beside that of the filter


class Withheld(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item; it has an error, or the reason why a retry dropped it."""

    position: int  # on the list of the filter
    source: int  # among the items that came into the filter
    error: str | None = None
    error_type: str | None = None
    reason: str | None = None

    @property
    def is_failed(self) -> bool:
        """Whether it is to be asked about again."""
        return self.error is not None


def failed(position: int, source: int, error: Exception) -> Withheld:
    """An item about which the model could not be asked."""
    message = f"the filter could not ask: {error}"[:MESSAGE_CHARS_MAX]
    return Withheld(position, source, message, type(error).__name__)


async def read(reader: RunReader, item_list: str) -> dict[int, Withheld]:
    """The withheld items of a list, by position."""
    listed = [
        msgspec.convert(placed.item, Withheld) async for placed in reader.items(item_list + SUFFIX)
    ]
    return {each.position: each for each in listed}


async def write(store: RunStore, item_list: str, withheld: Iterable[Withheld]) -> None:
    """Write the items that this attempt withholds, in place of those of earlier attempts."""
    listed = store.fill(item_list + SUFFIX)
    for each in withheld:
        await listed.add(msgspec.to_builtins(each))
    await listed.close(replaces=True)
