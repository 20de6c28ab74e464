"""A request as it comes in, before the gate: nothing of it is trusted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RawRequest:
    """Method, address and headers; the body is read later, up to a limit."""

    method: str
    raw_path: str  # still percent-encoded
    query_string: str
    headers: Mapping[str, str]  # names in lower case
    header_bytes: int
    peer: str  # address of the other end
    read: Callable[[int], Awaitable[bytes]]  # raises RequestRefused beyond that many bytes

    @property
    def media(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()
