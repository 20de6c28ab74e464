"""`POST /hooks/{name}`: deliveries of other systems."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

from rota.client.inbound_webhook import WebhookTable
from rota.client.start import RunOptions
from rota.core.time.instants import SECOND
from rota.core.webhook_signatures import SignatureVerdict
from rota.errors import BadInput
from rota.http.login import Logins
from rota.http.problems import RequestRefused
from rota.http.request import Answer, Json, WebRequest, media_type
from rota.http.router import Page


class Delivered(msgspec.Struct, frozen=True):
    """The id of the delivery, and the event or run that it repeats."""

    id: str
    existed: bool
    duplicate_of: str | None = None


async def deliver(request: WebRequest) -> Answer:
    """Take one delivery: 202 for a new one, 200 for one that was delivered before or that only asks
    whether the address is right."""
    name = request.parameters["name"]
    logins: Logins = request.site.logins
    known: dict[str, WebhookTable] = getattr(request.client, "webhooks", {})
    table = known.get(name)
    verdict = SignatureVerdict.WRONG
    if table is not None:
        now_s = request.client.clock.now() / SECOND
        verdict = table.verify(request.headers, request.body, now_s=now_s)
    if table is None or verdict is SignatureVerdict.WRONG:
        logins.failed(request.peer)
        # An unknown name answers like a wrong secret: names are not to be found out.
        raise RequestRefused(
            HTTPStatus.UNAUTHORIZED, "bad_signature", "the secret or signature is wrong",
            hint="Compare the secret of the sender with the variable of secret_env.",
        )  # fmt: skip
    if verdict is SignatureVerdict.STALE:
        raise RequestRefused(
            HTTPStatus.UNAUTHORIZED, "stale_delivery",
            f"the delivery was signed more than {table.tolerance_s} s ago, or in the future",
            hint="Compare the clocks of sender and receiver; a sender signs each try again.",
        )  # fmt: skip
    payload = read_payload(request)
    if (asked := table.challenge(request.headers, payload)) is not None:
        return Json(asked)
    delivery_id = f"{name}:{table.delivery_id(request.headers, request.body, payload)}"
    if table.topic is not None:
        automation, topic = table.target
        changed = await request.client.automations.publish(automation, topic, delivery_id, payload)
        first = None if changed else delivery_id
    else:
        first = await _start(request, name, table, delivery_id, payload)
    status = HTTPStatus.ACCEPTED if first is None else HTTPStatus.OK
    return Json(Delivered(delivery_id, first is not None, first), status=status)


async def _start(
    request: WebRequest, name: str, table: WebhookTable, delivery_id: str, payload: Any
) -> str | None:
    """Start a run; the id of the run that an earlier delivery started, if there is one."""
    if table.argument is not None:
        payload = {table.argument: payload}
    if not isinstance(payload, dict):
        raise BadInput(
            "the body is not an object of arguments",
            hint=f"Set `argument` in [webhooks.{name}]: one argument then gets the whole body.",
        )
    options = RunOptions(external_id=f"hook:{delivery_id}")
    handle = await request.client.starter.start(str(table.workflow), (), payload, options)
    return handle.id if handle.existed else None


def read_payload(request: WebRequest) -> Any:
    """The body: JSON, a form, or text."""
    media = media_type(request.headers)
    if media == "application/x-www-form-urlencoded":
        form = request.form()
        return {name: form.get(name) for name in form.names()}
    if media == "application/json" or media.endswith("+json"):
        return request.json()
    try:
        return request.body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput("the body is not UTF-8", hint="Send JSON or text.") from error


# The signature is the proof of identity: there is no cookie that a page could misuse.
HOOK = Page("POST", "/hooks/{name}", "open", deliver, "webhook", is_signed=True)
