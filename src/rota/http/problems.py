"""Errors as problem documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import msgspec

from rota.errors import RotaError, StoreError
from rota.http.request import Answer

MEDIA = "application/problem+json"
RETRY_S = 2  # after which a busy or unreachable store may be asked again


class RequestRefused(Exception):
    """A request that HTTP itself refuses: no such path, no token, too big, another origin."""

    def __init__(
        self, status: int, code: str, detail: str, *, hint: str = "",
        headers: Mapping[str, str] | None = None, facts: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint
        self.headers = headers or {}
        self.facts = facts or {}


def precondition_required(name: str) -> RequestRefused:
    """The refusal of an edit that does not say which definition its page showed."""
    return RequestRefused(
        HTTPStatus.PRECONDITION_REQUIRED, "precondition_required",
        f"the edit does not say which definition of {name} it changes",
        hint="Read the schedule, and send its ETag as If-Match.",
    )  # fmt: skip


class ProblemDocument(msgspec.Struct, frozen=True):
    """A problem document (RFC 9457), with Rota's code, hint, facts and the id of the request."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str
    request_id: str
    facts: dict[str, Any] = {}


@dataclass(frozen=True)
class ProblemAnswer(Answer):
    """A problem document."""

    document: ProblemDocument = field(kw_only=True)


def problem_of(error: Exception, request_id: str) -> ProblemAnswer:
    """The answer to an error. An unexpected one shows nothing of the exception."""
    refused = _refused(error, request_id)
    document = ProblemDocument(
        f"/problems/{refused.code}", HTTPStatus(refused.status).phrase, int(refused.status),
        refused.code, refused.detail, refused.hint, request_id, refused.facts,
    )  # fmt: skip
    return ProblemAnswer(status=document.status, headers=refused.headers, document=document)


def _refused(error: Exception, request_id: str) -> RequestRefused:
    later = {"retry-after": str(RETRY_S)}
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, RotaError) and error.http_status < HTTPStatus.INTERNAL_SERVER_ERROR:
        facts = msgspec.to_builtins(error.facts, enc_hook=str)
        return RequestRefused(
            error.http_status, error.code, error.message, hint=error.advice, facts=facts
        )
    if isinstance(error, StoreError):
        # The message may hold the address of the database; the code and the hint do not.
        detail = "the database cannot answer now"
        return RequestRefused(error.http_status, error.code, detail, hint=error.hint, headers=later)
    if isinstance(error, TimeoutError):
        return RequestRefused(
            HTTPStatus.SERVICE_UNAVAILABLE, "timeout", "the request took too long",
            hint="Ask for less, or try again later.", headers=later,
        )  # fmt: skip
    return RequestRefused(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "error",
        "an unexpected error",
        hint=f"Look for the request id {request_id} in the log of the server.",
    )
