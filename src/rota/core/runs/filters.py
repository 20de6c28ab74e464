"""The filters of a list of runs, and the cursors of its pages. Pure."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable
from datetime import datetime
from string import hexdigits
from typing import TypedDict, Unpack

import msgspec

from rota.core.runs.ids import SHORT, first_id
from rota.core.runs.lifecycle import Status
from rota.core.runs.names import checked_key, checked_name, folded
from rota.core.suggest import suggestion
from rota.core.time.instants import bounded, instant, shown
from rota.core.typed import json_text
from rota.errors import BadInput, StaleCursor

KINDS = ("workflow", "automation", "pipeline")
# Lists never show templates: those are schedules.
STATUSES = tuple(one for one in Status if one not in (Status.SCHEDULED, Status.PAUSED))
_CURSOR = re.compile(r"([0-9a-z]{1,40})\.([0-9a-f]{12})")
_FIRST_ID, _LAST_ID = "", "~"  # below and above every id


class RunSelection(TypedDict, total=False):
    """The filters of runs. `tag` is `key` or `key=value`, `error` the class of an exception.
    `search` is a part of a name, the beginning of an external id, or the beginning or end of an id
    (8 characters or more). `since` and `until` bound when a run was created. An empty text selects
    everything."""

    name: str
    status: str
    queue: str
    kind: str
    tag: str
    schedule: str
    external_id: str
    error: str
    root_id: str
    search: str
    since: datetime | None
    until: datetime | None


class RunFilter(msgspec.Struct, frozen=True):
    """Checked filters; an empty text selects everything. `schedule_id` comes from a name."""

    name: str = ""
    status: str = ""
    queue: str = ""
    kind: str = ""
    tag: str = ""
    schedule: str = ""
    external_id: str = ""
    error: str = ""
    root_id: str = ""
    search: str = ""
    since_at: int | None = None
    until_at: int | None = None

    @property
    def id_part(self) -> str:
        """The searched text as the beginning or the end of an id, if it can be one."""
        text = self.search.lower()
        return text if len(text) >= SHORT and set(text) <= set(hexdigits) else ""

    @property
    def name_like(self) -> str:
        """The pattern of names that hold the searched text; `!` takes a sign as it is."""
        return f"%{re.sub('[!%_]', lambda sign: f'!{sign[0]}', folded(self.search))}%"

    @property
    def first_id(self) -> str:
        """The lowest id that may be selected."""
        return _FIRST_ID if self.since_at is None else first_id(self.since_at)

    @property
    def beyond_id(self) -> str:
        """Above the highest id that may be selected."""
        return _LAST_ID if self.until_at is None else first_id(self.until_at)

    @property
    def tag_text(self) -> str:
        """The text that the stored tags of a run hold, if they have the tag."""
        key, equals, value = self.tag.partition("=")
        if not self.tag:
            return ""
        return f"{json_text(key)}:{json_text(value)}" if equals else f"{json_text(key)}:"

    @property
    def error_text(self) -> str:
        """How a stored error of the class begins."""
        return f'{{"type": {json.dumps(self.error, ensure_ascii=False)},' if self.error else ""

    def cursor(self, last_id: str) -> str:
        """The cursor of the page after an id."""
        return f"{last_id}.{digest_of(self)}"

    def id_after(self, cursor: str | None) -> str:
        """The id before which a page begins, from the cursor of the page before."""
        if cursor is None:
            return self.beyond_id
        found = read_cursor(_CURSOR, cursor)
        if found[2] != digest_of(self):
            raise StaleCursor("the cursor belongs to a list with other filters")
        return min(found[1], self.beyond_id)


def digest_of(filters: object) -> str:
    """The digest that binds a cursor to filters."""
    return hashlib.sha256(msgspec.json.encode(filters)).hexdigest()[:12]


def read_cursor(form: re.Pattern[str], cursor: str) -> re.Match[str]:
    """The parts of a cursor."""
    found = form.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise BadInput(
            f"{shown(cursor)} is not a cursor", hint="Pass `next` of the page before as it is."
        )
    return found


def beyond(prefix: str) -> str:
    """Above every text that begins with the prefix."""
    return f"{prefix}{chr(sys.maxunicode)}"


def checked_status(value: object, what: str) -> str:
    """The status of a run by its name, or BadInput; "" when none is given."""
    return "" if value is None or value == "" else _one_of(value, what, STATUSES)


_CHECKS: dict[str, Callable[[object, str], str]] = {
    **dict.fromkeys(("name", "queue", "schedule", "error"), checked_name),
    **dict.fromkeys(("tag", "external_id", "root_id", "search"), checked_key),
    "status": checked_status,
    "kind": lambda value, what: _one_of(value, what, KINDS),
}


def checked_filter(**given: Unpack[RunSelection]) -> RunFilter:
    """The filters that a caller gave, or BadInput."""
    texts = {
        name: check(value, name)
        for name, check in _CHECKS.items()
        if (value := given.get(name)) is not None and value != ""
    }
    since, until = given.get("since"), given.get("until")
    return RunFilter(**texts, since_at=_at(since, "since"), until_at=_at(until, "until"))


def _one_of(value: object, what: str, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        near = suggestion(value, known) if isinstance(value, str) else None
        raise BadInput(
            f"there is no {what} {shown(value)}", hint=near or f"There are: {', '.join(known)}."
        )
    return str(value)


def _at(moment: datetime | None, what: str) -> int | None:
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise BadInput(f"{what}={shown(moment)} is not a datetime")
    return bounded(instant(moment), f"{what}={moment}")
