"""Retry or cancel all runs that filters select: count them first, then confirm the count."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from rota.client.bulk import BulkVerb
from rota.errors import BadInput, RotaError
from rota.http.pages.runs import Chip, RunSearch, active_chips, filters_of
from rota.http.pages.text import counted, sentence
from rota.http.pages.view import clock_of, form_target, page
from rota.http.request import Answer, Fields, WebRequest

VERBS: tuple[BulkVerb, ...] = ("retry", "cancel")


@dataclass(frozen=True)
class BulkChoice:
    """A verb, and what it would be applied to."""

    verb: str
    label: str
    text: str
    count: int


async def show(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The verbs for the runs that the filters select, each with its count."""
    query = _query(request)
    choices = [await _choice(request, verb, query) for verb in VERBS]
    chips = active_chips(query)
    if query.status:
        chips.insert(0, Chip(query.status, query.href(status=""), is_on=True))
    return page(
        request, "bulk.html", title="Retry or cancel", place="runs", problem=problem,
        problem_status=HTTPStatus.CONFLICT, filters=query, active=chips, choices=choices,
        back=query.href(),
    )  # fmt: skip


def _query(request: WebRequest) -> RunSearch:
    fields: Fields = request.form() if request.method == "POST" else request.query
    return RunSearch.of(fields)


async def _choice(request: WebRequest, verb: BulkVerb, query: RunSearch) -> BulkChoice:
    name = verb.capitalize()
    try:
        filters = filters_of(query, clock_of(request).now)
        planned = await request.client.runs.apply(verb, dry_run=True, **filters)
    except RotaError as error:
        return BulkChoice(verb, name, sentence(error.message), 0)
    if not planned.matched:
        done = "retried" if verb == "retry" else "cancelled"
        return BulkChoice(verb, name, f"None of these runs can be {done}.", 0)
    more = "; more runs fit, so repeat it for those" if planned.has_more else ""
    what = "start again after their last finished step" if verb == "retry" else "end now"
    text = f"{counted(planned.matched, 'run')} {what}{more}."
    return BulkChoice(verb, f"{name} {counted(planned.matched, 'run')}", text, planned.matched)


@form_target(show)
async def act_on(request: WebRequest) -> str:
    """Apply the verb, if as many runs fit as were counted."""
    form = request.form()
    expected, query = form.get("expected"), _query(request)
    verb = next((known for known in VERBS if known == form.get("verb")), None)
    if verb is None or not expected.isdigit():
        raise BadInput("the form does not say what to do", hint="Load the page again.")
    filters: dict[str, Any] = filters_of(query, clock_of(request).now)
    await request.client.runs.apply(
        verb, expected_count=int(expected), reason=f"by {request.identity.name}", **filters
    )
    return query.href(done="applied")
