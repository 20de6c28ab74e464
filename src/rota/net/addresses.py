"""Which IP addresses belong to the public internet, and which to a machine or a private network."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

# Addresses of IPv6 that represent one of IPv4 (RFC 6052).
_TRANSLATED = IPv6Network("64:ff9b::/96")
# All public addresses of IPv6 (RFC 4291); others are local, of a translator, or not assigned.
_GLOBAL = IPv6Network("2000::/3")


def is_public(address: str) -> bool:
    """Whether an address is public: not loopback, link-local, private, shared or multicast."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    inner = _inner(parsed) if isinstance(parsed, IPv6Address) else None
    meant = inner or parsed
    if isinstance(meant, IPv6Address) and meant not in _GLOBAL:
        return False
    return meant.is_global and not meant.is_multicast


def is_private_name(host: str) -> bool:
    """Whether a host name represents a private address by itself, without any look-up."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return not is_public(name)


def _inner(address: IPv6Address) -> IPv4Address | None:
    """The address of IPv4 that one of IPv6 leads to."""
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour
