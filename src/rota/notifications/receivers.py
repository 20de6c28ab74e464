"""Receivers of messages about the executions of a schedule, as a schedule stores them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

import msgspec

from rota.net.subprocesses import PassEnv

Meta = msgspec.Meta
Event: TypeAlias = Literal["success", "failure", "recovery", "missed"]


class _Block(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A part of the block `notify`. Keys it does not know are refused."""


class Notice(_Block, frozen=True, kw_only=True):
    """A receiver: a webhook or a command."""

    webhook: Annotated[str | None, Meta(description="A URL that receives a POST, or env:NAME.")] = (
        None
    )
    command: Annotated[
        str | None, Meta(description="A command; it reads the message from standard input.")
    ] = None
    secret_env: Annotated[
        str | None, Meta(description="The environment variable with the key of the signature.")
    ] = None
    pass_env: PassEnv = msgspec.field(default_factory=list)


Notices: TypeAlias = str | Notice | list[str | Notice] | None


class Notify(_Block, frozen=True, kw_only=True, rename=None):
    """The receivers of executions. A text is a URL, or env: and the variable that holds it."""

    on_failure: Annotated[Notices, Meta(description="It failed, and no retry is left.")] = None
    on_success: Annotated[Notices, Meta(description="It succeeded.")] = None
    on_recovery: Annotated[Notices, Meta(description="It succeeded after it had failed.")] = None
    on_missed: Annotated[Notices, Meta(description="It was skipped or missed.")] = None
    ping: Annotated[
        str | None,
        Meta(description="A dead-man's switch: Rota calls this URL at start, success and fail."),
    ] = None


class Recipients(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The receivers of one schedule, as they are stored beside it."""

    pipeline_id: str
    name: str
    folder: str
    notify: Notify


def receivers(notify: Notify, event: Event) -> Iterator[Notice]:
    """The receivers of an event; one that has a webhook and a command is two."""
    given: Notices = getattr(notify, f"on_{event}")
    listed = given if isinstance(given, list) else [given]
    for receiver in listed:
        if isinstance(receiver, str):
            yield Notice(webhook=receiver)
        elif receiver is not None:
            if receiver.webhook is not None:
                yield Notice(webhook=receiver.webhook, secret_env=receiver.secret_env)
            if receiver.command is not None:
                yield Notice(command=receiver.command, pass_env=receiver.pass_env)
