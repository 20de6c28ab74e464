"""Names of time zones: looking one up, and guessing the host's. Pure but for the zone files.

The zone files are read by the standard library alone. The caller passes in the settings of the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from rota.core.suggest import similar
from rota.errors import UnknownZone

# Not places: one differs from host to host, the others count leap seconds or repeat the rest.
_REFUSED = {"localtime": "it means another zone on every host", "Factory": "it means: not set up"}
_REFUSED_FOLDERS = ("posix/", "right/")
_MEANT = {
    **dict.fromkeys(("PST", "PDT", "PT"), "America/Los_Angeles"),
    **dict.fromkeys(("MDT", "MT"), "America/Denver"),
    **dict.fromkeys(("CST", "CDT", "CT"), "America/Chicago"),
    **dict.fromkeys(("EDT", "ET"), "America/New_York"),
    **dict.fromkeys(("AEST", "AEDT"), "Australia/Sydney"),
    "BST": "Europe/London",
    "CEST": "Europe/Berlin",
    "EEST": "Europe/Athens",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "Z": "UTC",
    "LOCAL": "UTC",
}
# Names of the zone database that never change their clocks, and the places people mean by them.
_FIXED = {"EST": "America/New_York", "MST": "America/Denver", "HST": "Pacific/Honolulu"}
# Places that keep the same time all year.
_SAME = {"EST": "America/Panama", "MST": "America/Phoenix", "HST": "Pacific/Honolulu"}
_OTHERS = {"UTC": "UTC", "GMT": "UTC", "CET": "Europe/Berlin", "EET": "Europe/Athens"}


def place_of(abbreviation: str) -> str | None:
    """The zone of a place that people mean by an abbreviation such as EST or CET."""
    name = abbreviation.upper()
    return _MEANT.get(name) or _FIXED.get(name) or _OTHERS.get(name)


def zone_named(name: str) -> ZoneInfo:
    """The zone, or UnknownZone with the nearest names."""
    reason = _REFUSED.get(name)
    if reason is None and not name.startswith(_REFUSED_FOLDERS):
        try:
            return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            reason = "no zone has that name"
    near = nearest_zones(name)
    raise UnknownZone(
        f"unknown time zone {name!r}: {reason or 'use the name without the folder'}",
        hint=f"Did you mean {' or '.join(near)}?" if near else None,
        zone=name,
        nearest=near,
    )


def place_named(name: str) -> ZoneInfo:
    """The zone for a new schedule. EST and MST are refused: as zones they have no summer time."""
    if name in _FIXED and _FIXED[name] != _SAME[name]:
        raise UnknownZone(
            f"time zone {name!r} is {name} all year: it has no daylight saving time",
            hint=f"Use {_FIXED[name]}, or {_SAME[name]} if no daylight saving time is meant.",
            zone=name,
            nearest=[_FIXED[name], _SAME[name]],
        )
    return zone_named(name)


def nearest_zones(name: str) -> list[str]:
    """Up to three zone names that `name` may be a misspelling of."""
    wanted = _without_folder(str(name).strip().replace(" ", "_"))
    if wanted.upper() in _MEANT:
        return [_MEANT[wanted.upper()]]
    names = sorted(n for n in available_timezones() if n not in _REFUSED)
    alike = similar(wanted, names)
    if alike and alike[0].lower() == wanted.lower():
        return alike
    by_city: dict[str, str] = {}
    for each in names:
        by_city.setdefault(each.rpartition("/")[2].lower(), each)
    city = wanted.rpartition("/")[2].lower()
    if wanted[:3].upper() in ("UTC", "GMT") and any(sign in wanted for sign in "+-"):
        return ["UTC", "a place with that offset, such as Europe/Berlin"]
    candidates = [by_city[city]] if city in by_city else []
    candidates += alike + [by_city[close] for close in similar(city, by_city, cutoff=0.75)]
    return list(dict.fromkeys(candidates))[:3]


def host_zone(environ: Mapping[str, str], read: Callable[[str], str | None]) -> str:
    """The host's zone by its IANA name, or "UTC" when the host does not say.

    `read` answers for a path: the target of a link, the text of a file, None otherwise. The order
    is TZ, /etc/localtime, /etc/timezone.
    """
    given = environ.get("TZ")
    if given is not None:
        # An empty TZ, and one that spells out its rules (CET-1CEST), have no name: UTC is honest.
        return _known(_in_zone_folder(given.strip().removeprefix(":"))) or "UTC"
    link = read("/etc/localtime")
    if link is not None and "zoneinfo/" in link and (name := _known(_in_zone_folder(link))):
        return name
    lines = (read("/etc/timezone") or "").split()
    return (_known(lines[0]) if lines else None) or "UTC"


def _in_zone_folder(path: str) -> str:
    """The part of a path below the zone folder; a bare name is left unchanged."""
    return _without_folder(path.rpartition("zoneinfo/")[2])


def _without_folder(name: str) -> str:
    for folder in _REFUSED_FOLDERS:
        name = name.removeprefix(folder)
    return name


def _known(name: str) -> str | None:
    try:
        return zone_named(_SAME.get(name, name)).key
    except UnknownZone:
        return None
