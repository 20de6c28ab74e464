"""The page of an error: what went wrong, and what to do now."""

from __future__ import annotations

from http import HTTPStatus

from rota.http.pages.text import sentence
from rota.http.pages.view import environment
from rota.http.problems import ProblemDocument
from rota.http.request import NOBODY, Html

HEADINGS = {
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.CONFLICT: "It has changed",
    HTTPStatus.SERVICE_UNAVAILABLE: "The database does not answer",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Not accepted",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests",
}
WHAT_NOW = {HTTPStatus.SERVICE_UNAVAILABLE: "Nothing to do here"}
LISTS = {
    "unknown_run": "runs",
    "unknown_schedule": "schedules",
    "unknown_automation": "automations",
}
NEXT = {
    HTTPStatus.NOT_FOUND: "It may have been removed, or belong to another namespace.",
    HTTPStatus.FORBIDDEN: "Nothing was changed.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Runs continue where their workers reach the database; none is "
    "lost. This page tries again every 2 s.",
}


def problem_page(document: ProblemDocument) -> Html:
    """A page that asks the database nothing."""
    status = HTTPStatus(document.status)
    text = environment().render_template(
        "problem.html", is_fragment=False, title=HEADINGS.get(status, status.phrase), place="",
        live="", namespace="", identity=NOBODY, zone="", notice="", problem=None, attention=0,
        retries=status == HTTPStatus.SERVICE_UNAVAILABLE, message=sentence(document.detail),
        what_now=WHAT_NOW.get(status, "Continue here"),
        list_of=LISTS.get(document.code, ""),
        what_next=NEXT.get(status, "Nothing was changed."), document=document,
    )  # fmt: skip
    return Html(text, status=document.status)
