"""Answers of people to automations that wait for one: who answers, and one answer for many."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import AsyncIterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

import msgspec

from rota.core.automations.model import NewAnswer, Resolution
from rota.core.automations.text import WAITS
from rota.core.runs.lifecycle import Status
from rota.core.suggest import suggestion
from rota.errors import BadInput, WrongState

if TYPE_CHECKING:
    from rota.client.automation_views import AutomationView
    from rota.client.automations import Automations

Answer = Literal["approve", "reject", Resolution]
TEXT_CHARS_MAX = 2000
PAGE_SIZE = 1000  # automations that one query returns


class PersonOptions(TypedDict, total=False):
    """Who answers, and why."""

    by: str | None
    note: str | None


class BulkOptions(PersonOptions, total=False):
    """Which automations are answered: their name (a pattern), why they wait, and the tool."""

    name: str
    reason: str | None
    tool: str | None


class BulkAnswer(msgspec.Struct, frozen=True):
    """The automations that were answered, or would be; and why others were not, by name."""

    names: list[str]
    refused: dict[str, str]

    @property
    def count(self) -> int:
        """How many."""
        return len(self.names)


def new_answer(new_id: str, person: PersonOptions) -> NewAnswer:
    """An answer of this person; without a name, of the user of this process."""
    by, note = person.get("by"), person.get("note")
    for what, text in (("by", by), ("note", note)):
        if text is not None and not (isinstance(text, str) and 0 < len(text) <= TEXT_CHARS_MAX):
            raise BadInput(
                f"{what}={text!r:.80} is not text of 1 to {TEXT_CHARS_MAX} characters",
                hint="Give a text of that length, or omit it; nothing was answered.",
            )
    return NewAnswer(new_id, by or user_name(), note)


def user_name() -> str:
    """The user of this process; a container may have no name for it."""
    with contextlib.suppress(OSError, KeyError, ImportError):
        return getpass.getuser()
    return "unknown"


async def answer_all(
    automations: Automations, how: Answer, *, dry_run: bool, result: Any, options: BulkOptions
) -> BulkAnswer:
    """See `Automations.answer_all`. Each automation is answered in a transaction of its own, and
    only if it still waits for what was counted."""
    if how not in get_args(Answer):
        raise BadInput(f"{how!r} is not an answer", hint=f"Use: {', '.join(get_args(Answer))}.")
    reason = options.get("reason")
    if reason is not None and reason not in WAITS:
        raise BadInput(
            f"{reason!r} is not a reason to wait",
            hint=suggestion(reason, WAITS, f"Use: {', '.join(WAITS)}."),
        )
    found = [view async for view in every_automation(automations) if _fits(view, how, options)]
    answered = BulkAnswer([], {})
    for view in found:
        name = view.automation.name
        try:
            if not dry_run:
                await _answer(automations, view, how, result, options)
        except WrongState as error:  # the automation continued in the meantime
            answered.refused[name] = error.message
        else:
            answered.names.append(name)
    return answered


async def every_automation(automations: Automations) -> AsyncIterator[AutomationView]:
    """Every automation that is not archived, page by page."""
    after, more = "", True
    while more:
        page = await automations.list(after=after, limit=PAGE_SIZE)
        for view in page:
            after = view.automation.name
            yield view
        more = len(page) == PAGE_SIZE


def _fits(view: AutomationView, how: str, options: BulkOptions) -> bool:
    open_run, reason, tool = view.open_run, options.get("reason"), options.get("tool")
    if open_run is None or open_run.status not in (Status.WAITING, Status.SLEEPING):
        return False
    return (
        how in view.said.actions
        and fnmatchcase(view.automation.name, options.get("name", "*"))
        and reason in (None, open_run.reason)
        and (tool is None or (view.mutation is not None and view.mutation.tool == tool))
    )


async def _answer(
    automations: Automations, view: AutomationView, how: Answer, result: Any, options: BulkOptions
) -> None:
    assert view.open_run is not None
    name, expected = view.automation.name, (view.blocking_change or view.open_run).id
    person: PersonOptions = {"by": options.get("by"), "note": options.get("note")}
    if how == "approve":
        await automations.approve(name, expected=expected, **person)
    elif how == "reject":
        await automations.reject(name, expected=expected, **person)
    else:
        given = result if how == "happened" else None
        await automations.resolve(name, how, expected=expected, result=given, **person)
