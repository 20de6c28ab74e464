"""Inbound webhooks: an address at which another system starts a run or publishes an event.

The secret is read from the environment when a delivery comes, so neither the database nor a log has
it. A delivery that is repeated is one event: its id is the message id, or the run's external id.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import TypedDict, Unpack

import msgspec

from rota.core.runs.names import checked_name
from rota.core.suggest import check_options
from rota.errors import BadSetting

ID_CHARS_MAX = 200


class WebhookOptions(TypedDict, total=False):
    """The options of `app.webhook`, and the keys of `[webhooks.NAME]`.

    `topic` is `automation.topic`; `workflow` is a name, and `argument` the one of its arguments
    that gets the whole body. `secret_env` names the variable that holds the secret. With
    `signature_header` it is the key of an HMAC-SHA256 of the body; without, the sender sends it as
    `Authorization: Bearer`. `id_header` has the id of a delivery; without, the body is the id.
    """

    topic: str | None
    workflow: str | None
    argument: str | None
    secret_env: str
    signature_header: str | None
    id_header: str | None


class WebhookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[webhooks.NAME]`: see `WebhookOptions`."""

    secret_env: str
    topic: str | None = None
    workflow: str | None = None
    argument: str | None = None
    signature_header: str | None = None
    id_header: str | None = None

    @property
    def target(self) -> tuple[str, str]:
        """The automation and its topic."""
        automation, _, topic = (self.topic or "").rpartition(".")
        return automation, topic

    def check(self, name: str) -> None:
        """Refuse a webhook that could not deliver anything."""
        checked_name(name, "webhook name")
        if (self.topic is None) == (self.workflow is None):
            raise BadSetting(
                f"webhook {name} needs a topic or a workflow, and not both",
                hint='Write topic = "automation.topic" or workflow = "name".',
            )
        if self.topic is not None and not all(self.target):
            raise BadSetting(
                f"webhook {name}: {self.topic!r} is not a topic", hint="Write automation.topic."
            )
        if not self.secret_env:
            raise BadSetting(
                f"webhook {name} has no secret", hint="Name a variable with secret_env."
            )

    def is_genuine(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether the sender knows the secret; never without a secret in the environment."""
        secret = os.environ.get(self.secret_env, "").encode()
        if not secret:
            return False
        if self.signature_header is None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), secret)
        given = headers.get(self.signature_header.lower(), "").removeprefix("sha256=")
        made = hmac.new(secret, body, hashlib.sha256).digest()
        forms = (made.hex(), base64.b64encode(made).decode())
        return any(hmac.compare_digest(given.encode(), form.encode()) for form in forms)

    def delivery_id(self, headers: Mapping[str, str], body: bytes) -> str:
        """The key that makes a repeated delivery the same one."""
        given = headers.get(self.id_header.lower(), "") if self.id_header else ""
        if given and len(given) <= ID_CHARS_MAX and given.isprintable():
            return given
        return hashlib.sha256(given.encode() or body).hexdigest()


class DeclaresWebhooks:
    """The part of an app that declares inbound webhooks."""

    webhooks: dict[str, WebhookTable]

    def webhook(self, name: str, **options: Unpack[WebhookOptions]) -> None:
        """Give a topic or a workflow an address, `POST /hooks/NAME`.

        Args:
            name: The last part of the address.
            options: See `WebhookOptions`.

        Raises:
            BadSetting: An option is missing or wrong.

        Example:
            app.webhook("shop", topic="inbox.letters", secret_env="SHOP_SECRET")
        """
        check_options(options, WebhookOptions, self.webhook)
        if "secret_env" not in options:
            raise BadSetting(f"webhook {name} has no secret", hint="Name a variable: secret_env=…")
        self.add_webhook(name, WebhookTable(**options))

    def add_webhook(self, name: str, table: WebhookTable) -> None:
        """Declare a webhook by its table.

        Args:
            name: The last part of the address.
            table: The keys of `[webhooks.NAME]`.
        """
        table.check(name)
        if name in self.webhooks:
            raise BadSetting(f"webhook {name} is declared twice", hint="Keep one of the two.")
        self.webhooks[name] = table
