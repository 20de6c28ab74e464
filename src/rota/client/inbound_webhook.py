"""Inbound webhooks: an address at which another system starts a run or publishes an event.

Secrets are read from the environment when a delivery comes, so neither the database nor a log has
them. The id of a delivery comes from what its signature covers. So a repeated delivery is one
event, and a captured one cannot get another id. A sender without ids is never deduplicated: two
equal deliveries may be two events.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import msgspec

from rota.core import webhook_signatures
from rota.core.runs.names import checked_name
from rota.core.suggest import check_options
from rota.core.webhook_signatures import SCHEMES, Scheme, SignatureVerdict, matches_body, same_text
from rota.errors import BadInput, BadSetting

ID_CHARS_MAX = 200
TOLERANCE_S = 300
TOLERANCE_S_MAX = 86_400
TIMED = ("stripe", "slack", "standard")


class WebhookOptions(TypedDict, total=False):
    """The options of `app.webhook`, and the keys of `[webhooks.NAME]`.

    `topic` is `automation.topic`; `workflow` is a name, and `argument` the one of its arguments
    that gets the whole body. `secret_env` names the variable that holds the secret, or several
    variables, of which any secret fits (to change a secret).

    `scheme` is `github`, `stripe`, `slack` or `standard` (Standard Webhooks): each has its own
    signature and ids. `tolerance_s` is how far a signed time may be from now (300). Without a
    scheme, `signature_header` has the HMAC-SHA256 of the body; without that, the sender sends the
    secret as `Authorization: Bearer`. `id_header` has the id of a delivery; without one, each
    delivery is a new one.
    """

    topic: str | None
    workflow: str | None
    argument: str | None
    secret_env: str | Sequence[str]
    scheme: Scheme | None
    tolerance_s: int
    signature_header: str | None
    id_header: str | None


class WebhookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[webhooks.NAME]`: see `WebhookOptions`."""

    secret_env: str | Sequence[str]
    topic: str | None = None
    workflow: str | None = None
    argument: str | None = None
    scheme: Scheme | None = None
    tolerance_s: int = TOLERANCE_S
    signature_header: str | None = None
    id_header: str | None = None

    @property
    def target(self) -> tuple[str, str]:
        """The automation and its topic."""
        automation, _, topic = (self.topic or "").rpartition(".")
        return automation, topic

    @property
    def _variables(self) -> list[str]:
        names = [self.secret_env] if isinstance(self.secret_env, str) else list(self.secret_env)
        return [name for name in names if name]

    @property
    def _secrets(self) -> list[str]:
        """The secrets that the environment has."""
        return list(filter(None, (os.environ.get(name, "") for name in self._variables)))

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
        if not self._variables:
            raise BadSetting(
                f"webhook {name} has no secret", hint="Name a variable with secret_env."
            )
        self._check_scheme(name)

    def _check_scheme(self, name: str) -> None:
        """A scheme says by itself which headers count."""
        if self.scheme is not None and self.scheme not in SCHEMES:
            raise BadSetting(
                f"webhook {name}: {self.scheme!r} is not a scheme of signatures",
                hint=f"Use one of: {', '.join(SCHEMES)}.",
            )
        if self.scheme is not None and (self.signature_header or self.id_header):
            raise BadSetting(
                f"webhook {name}: scheme {self.scheme} has its own headers",
                hint="Leave out signature_header and id_header, or the scheme.",
            )
        if not 1 <= self.tolerance_s <= TOLERANCE_S_MAX:
            raise BadSetting(
                f"webhook {name}: tolerance_s={self.tolerance_s} is not 1 to {TOLERANCE_S_MAX}"
            )
        if self.tolerance_s != TOLERANCE_S and self.scheme not in TIMED:
            raise BadSetting(
                f"webhook {name}: its deliveries have no signed time, so tolerance_s has no effect",
                hint=f"These schemes have one: {', '.join(TIMED)}.",
            )

    def verify(self, headers: Mapping[str, str], body: bytes, *, now_s: float) -> SignatureVerdict:
        """Whether the sender knows a secret; never without a secret in the environment."""
        if self.scheme is not None:
            return webhook_signatures.check(
                self.scheme, self._secrets, headers, body, now_s=now_s, tolerance_s=self.tolerance_s
            )
        if self.signature_header is not None:
            given = headers.get(self.signature_header.lower(), "")
            fits = [matches_body(secret, given, body) for secret in self._secrets]
        else:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            is_bearer = scheme.lower() == "bearer"
            fits = [is_bearer and same_text(given, secret) for secret in self._secrets]
        return SignatureVerdict.GENUINE if any(fits) else SignatureVerdict.WRONG

    def challenge(self, headers: Mapping[str, str], payload: Any) -> dict[str, Any] | None:
        """The answer to a delivery that only asks whether this address is right."""
        if self.scheme == "slack" and _field(payload, "type") == "url_verification":
            return {"challenge": _field(payload, "challenge")}
        if self.scheme == "github" and headers.get("x-github-event") == "ping":
            return {"pong": True}
        return None

    def delivery_id(self, headers: Mapping[str, str], body: bytes, payload: Any) -> str:
        """The key that makes a repeated delivery the same one, without the name of the webhook."""
        match self.scheme:
            case "github":  # the id in its header is not signed
                return _digest(body)
            case "stripe":
                return _short(_field(payload, "id")) or _digest(body)
            case "slack":
                given = _field(payload, "event_id") or _field(payload, "trigger_id")
                sent_at = headers.get("x-slack-request-timestamp", "").encode()
                return _short(given) or _digest(sent_at + b":" + body)
            case "standard":
                return _short(headers["webhook-id"])
            case _ if self.id_header is None:
                return secrets.token_hex(16)
        given = headers.get(self.id_header.lower(), "")
        if not given:
            raise BadInput(
                f"the header {self.id_header} is missing, which has the id of a delivery",
                hint="Send it, or declare the webhook without id_header.",
            )
        return _short(given)


def _field(payload: Any, name: str) -> str:
    """A text in the body, or an empty one."""
    value = payload.get(name) if isinstance(payload, dict) else None
    return value if isinstance(value, str) else ""


def _short(given: str) -> str:
    """An id as it came, or its digest if it is long or cannot be printed."""
    return given if len(given) <= ID_CHARS_MAX and given.isprintable() else _digest(given.encode())


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


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
