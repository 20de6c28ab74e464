"""Zone names: the nearest to what was written, and what the host says of itself."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest

from rota.core.time.zones import host_zone, nearest_zones, place_named, zone_named
from rota.errors import UnknownZone


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("america/new york", "America/New_York"),
        ("PST", "America/Los_Angeles"),
        ("CEST", "Europe/Berlin"),
        ("UTC+2", "UTC"),
        ("Asia/Calcuta", "Asia/Calcutta"),
        ("posix/Europe/Berlin", "Europe/Berlin"),
        ("right/Europe/Berlin", "Europe/Berlin"),
    ],
)
def test_an_unknown_zone_comes_with_the_nearest_names(name: str, near: str) -> None:
    with pytest.raises(UnknownZone) as caught:
        zone_named(name)
    assert near in caught.value.advice
    assert name in str(caught.value)
    assert nearest_zones(name)[0] == near


@pytest.mark.parametrize(
    "name",
    ["", " ", "Mars/Base", "Europe", "/etc/passwd", "../zoneinfo/UTC", "localtime", "Factory",
     "a\0b", "x" * 5_000, "Europe/Berlin/", "ü"],
    ids=repr,
)  # fmt: skip
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(UnknownZone):
        zone_named(name)


@pytest.mark.parametrize(
    ("name", "place", "same"),
    [("EST", "America/New_York", "America/Panama"), ("MST", "America/Denver", "America/Phoenix")],
)
def test_a_zone_without_the_summer_time_that_people_expect_is_refused_with_the_places(
    name: str, place: str, same: str
) -> None:
    with pytest.raises(UnknownZone, match="it has no daylight saving time") as caught:
        place_named(name)
    assert caught.value.advice == f"Use {place}, or {same} if no daylight saving time is meant."
    # A row that has it is still read, and a host that is set to it has a place.
    summer = datetime(2027, 7, 1, tzinfo=UTC)
    assert (
        summer.astimezone(zone_named(name)).utcoffset()
        == summer.astimezone(zone_named(same)).utcoffset()
    )
    assert host_zone({"TZ": name}, lambda _: None) == same


def test_zones_that_mean_what_people_expect_are_taken() -> None:
    for name in ("HST", "CET", "UTC", "America/New_York"):
        assert place_named(name).key == name


def test_every_zone_of_the_database_is_known() -> None:
    for name in sorted(available_timezones() - {"localtime", "Factory"}):
        assert zone_named(name).key == name


@pytest.mark.parametrize(
    ("environ", "files", "zone"),
    [
        ({"TZ": "Asia/Tokyo"}, {"/etc/timezone": "Europe/Berlin"}, "Asia/Tokyo"),
        ({"TZ": ":Asia/Tokyo"}, {}, "Asia/Tokyo"),
        ({"TZ": ":/usr/share/zoneinfo/Asia/Tokyo"}, {}, "Asia/Tokyo"),
        ({"TZ": "CET-1CEST"}, {"/etc/timezone": "Europe/Berlin"}, "UTC"),
        ({"TZ": ""}, {"/etc/timezone": "Europe/Berlin"}, "UTC"),
        ({}, {"/etc/localtime": "/usr/share/zoneinfo/Europe/Berlin"}, "Europe/Berlin"),
        ({}, {"/etc/localtime": "../usr/share/zoneinfo/posix/Europe/Berlin"}, "Europe/Berlin"),
        ({}, {"/etc/localtime": "/var/db/timezone/zoneinfo/America/New_York"}, "America/New_York"),
        ({}, {"/etc/localtime": "TZif2\0\0binary", "/etc/timezone": "Asia/Tokyo\n"}, "Asia/Tokyo"),
        ({}, {"/etc/localtime": "/usr/share/zoneinfo/Nowhere", "/etc/timezone": "x"}, "UTC"),
        ({}, {"/etc/timezone": "\n"}, "UTC"),
        ({}, {}, "UTC"),
    ],
)  # fmt: skip
def test_the_host_says_its_zone_or_it_is_utc(
    environ: dict[str, str], files: dict[str, str], zone: str
) -> None:
    assert host_zone(environ, files.get) == zone
