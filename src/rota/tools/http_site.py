"""The site that an HTTP tool calls: its base, headers and query, and the secrets in them. It also
says what the answers of the site mean.

Secrets belong to the tool, which the developer writes; parameters of a call may come from outside
and are stored. A secret needs a base: without one it would go to any site that a call names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from rota.core import typed
from rota.core.runs.retry import retry_after_s
from rota.errors import (
    BadInput,
    NeedsLogin,
    NeedsPermission,
    NotSent,
    OutcomeUnknown,
    Rejected,
    UsageError,
)
from rota.net import http
from rota.net.secret import Secret, Text, mapped, reveal_all, secrets_in
from rota.tools.base import PARAMS_BYTES_MAX


class HttpSite:
    """The address of a tool's calls, and what goes along with each of them."""

    def __init__(
        self,
        tool: str,
        *,
        base: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        query: Mapping[str, Text] | None = None,
        private: bool | None = None,
        service: str | None = None,
        account: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Check the site; `fields` are those that the tool adds to each body."""
        self.tool, self.service, self.account = tool, service, account
        if base is not None and not isinstance(base, Secret):
            base = http.checked_url(base, base=None, tool=tool)
        self.base, self.query = base, dict(query or {})
        self.headers = checked_own_headers(headers, base, tool=tool)
        inside = {"query": self.query, "body": dict(fields or {})}
        for where, given in inside.items():
            if base is None and (secret := next(secrets_in(given), None)):
                raise UsageError(
                    f"{tool}: the {where} holds {secret}, which would go to any site",
                    hint='Say which site it is for: base="https://api.example.com".',
                )
        # Private addresses are refused unless they are allowed, or the developer named the site.
        self._public_only = base is None if private is None else not private
        # In addresses and bodies; those of headers are the headers'.
        self.secrets = tuple(secrets_in([base, inside]))

    def whole(self, url: str) -> str:
        """The address of a call, checked, with the value of a secret base."""
        if not isinstance(self.base, Secret):
            if not url:
                raise BadInput(f"parameters of {self.tool}: a url is missing")
            return http.checked_url(url, base=self.base, tool=self.tool)
        base = self._revealed(self.base)
        try:
            return http.checked_url(url, base=base, tool=self.tool)
        except BadInput:  # its words would show the base
            raise BadInput(
                f"{self.tool}: {url!r} is not a page below <{self.base.secret}>",
                hint="Give a path of that site, or no url for the address itself.",
            ) from None

    def asked(self, url: str, *, is_write: bool = False) -> str:
        """The address that a call asks for. A path that servers would read as another one is
        refused: an id that is empty or `..` would make the call about something else."""
        if _is_unclear(url, is_write=is_write):
            raise BadInput(
                f"parameters of {self.tool}: the path of {url!r} means another path",
                hint="Give the path itself; nothing was called. Look for an empty id, or for dots.",
            )
        self.refuse_own_query(url)
        return self.whole(url)

    def refuse_own_query(self, url: str) -> None:
        """The fields of the tool's query are not for a call: a site may take either of two."""
        query = url.partition("#")[0].partition("?")[2].replace(";", "&")
        given = {name for name, _ in parse_qsl(query, keep_blank_values=True)}
        if twice := sorted(given & self.query.keys()):
            raise BadInput(
                f"parameters of {self.tool}: the query field {twice[0]} is the tool's own"
            )

    def refuse_own_headers(self, headers: Mapping[str, str], *more: str | None) -> None:
        """The same for the headers of the tool."""
        own = {name.lower() for name in (*self.headers, *filter(None, more))}
        if twice := sorted(own & {name.lower() for name in headers}):
            raise BadInput(f"parameters of {self.tool}: the header {twice[0]} is the tool's own")

    def _revealed(self, base: Secret) -> str:
        try:
            return http.checked_url(base.reveal(), base=None, tool=self.tool)
        except BadInput:
            raise NeedsLogin(
                f"{self.tool}: {base.secret} does not hold an http or https address",
                hint=f"Set {base.secret} to the whole address, then try again.",
                service=base.secret,
                account=None,
            ) from None

    def request(
        self, method: str, url: str, headers: http.Headers, content: bytes | None, asked: str
    ) -> http.HttpRequest:
        """A request; `asked` is the URL as the call gave it, which holds no secret."""
        shown = f"<{self.base.secret}>{asked}" if isinstance(self.base, Secret) else ""
        return http.HttpRequest(
            method, self._with_query(url), headers, content, public_only=self._public_only,
            secrets=self.secrets, shown=shown,
        )  # fmt: skip

    def _with_query(self, url: str) -> str:
        if not self.query:
            return url
        before, mark, fragment = url.partition("#")
        joint = "&" if "?" in before else "?"
        return f"{before}{joint}{urlencode(reveal_all(self.query))}{mark}{fragment}"

    @property
    def shown(self) -> str | None:
        """Whom it asks, for people; a secret base is shown by its name."""
        if self.service or self.base is None:
            return self.service or None
        return self.base.secret if isinstance(self.base, Secret) else urlsplit(self.base).hostname

    def judge_write(self, answer: http.HttpResponse) -> None:
        """Return if the status says that the effect happened, otherwise raise what it says."""
        status = answer.status
        if status // 100 == 2 or status == 303:  # "see other" answers a form that was taken
            return
        if status // 100 == 4 or status in (307, 308):
            raise self._refusal(answer)
        # 301 and 302 too: some servers send them instead of the effect, some after it.
        raise OutcomeUnknown(
            answer.status_text,
            tool=self.tool,
            status=status,
            retry_after_s=retry_after_s(answer.headers),
        )

    def judge_read(self, answer: http.HttpResponse) -> None:
        """Return if there is something to read, otherwise raise what the status says."""
        if answer.status // 100 == 2 or answer.status == 304:
            return
        if answer.status // 100 == 5:
            raise NotSent(answer.status_text, retry_after_s=retry_after_s(answer.headers))
        raise self._refusal(answer)

    def _refusal(self, answer: http.HttpResponse) -> Exception:
        """The meaning of an unsuccessful status below 500: nothing happened."""
        status, message = answer.status, answer.status_text
        service = self.shown or urlsplit(answer.request.url).hostname
        if status in (401, 407):
            return NeedsLogin(message, status=status, service=service, account=self.account)
        if status == 403:
            return NeedsPermission(message, status=status, service=service, account=self.account)
        if status in (408, 425, 429):
            return NotSent(message, retry_after_s=retry_after_s(answer.headers))
        if status in (307, 308):
            message = f"{message} (moved to {answer.headers.get('location', 'an unnamed place')})"
        return Rejected(message, status=status, tool=self.tool)


def _is_unclear(url: str, *, is_write: bool) -> bool:
    """Whether a server may read the path of an address as another one."""
    if any(ord(char) < 32 or ord(char) == 127 for char in url):
        return True  # the parser would drop some of them
    try:
        parts = [unquote(part) for part in urlsplit(url).path.split("/")]
    except ValueError:
        return False  # not a URL: the next check says so
    is_other = any(part in (".", "..") or "\\" in part for part in parts)
    return is_other or (is_write and "" in parts[1:-1])


def checked_own_headers(
    headers: Mapping[str, Text] | None, base: Text | None, *, tool: str
) -> http.Headers:
    """The headers of a tool. Secrets need a base: without one they would go to any site."""
    checked = http.checked_headers(headers or {}, tool=tool)
    secret = next((name for name, value in checked.items() if isinstance(value, Secret)), None)
    if secret and base is None:
        raise UsageError(
            f"{tool}: the header {secret} is a secret, and would go to any site",
            hint='Say which site it is for: base="https://api.example.com".',
        )
    return checked


def refuse_secrets(params: dict[str, Any], *, tool: str) -> None:
    """Parameters of a call are stored and may come from outside: they name no secret."""
    headers = params.get("headers")
    values = headers.items() if isinstance(headers, dict) else ()
    for name, value in values:
        if not isinstance(value, str):
            raise BadInput(
                f"parameters of {tool}: the header {name!r} of a call is text, not "
                f"{type(value).__name__}",
                hint="Give a secret to the tool itself: headers= and base=.",
            )
    if secret := next(secrets_in(params), None):
        raise BadInput(
            f"parameters of {tool} hold {secret}; they are stored, and cannot hold a secret",
            hint="Give it to the tool itself: base=, headers=, query=, json= or form=.",
        )


class BodyFields(NamedTuple):
    """The fields that a tool adds to the JSON or the form of each call."""

    json: Mapping[str, Any]
    form: Mapping[str, Text]

    def json_of(self, given: Any, *, tool: str) -> Any:
        """The JSON of a call with the fields of the tool; its secrets are still names."""
        if not self.json:
            return given
        if not isinstance(given, dict):
            raise BadInput(f"parameters of {tool}: json is an object; the tool adds fields to it")
        return _joined(self.json, given, tool=tool)

    def form_of(self, given: Mapping[str, str], *, tool: str) -> dict[str, Text]:
        """The same for a form."""
        return _joined(self.form, given, tool=tool)


def body_fields(
    json: Mapping[str, Any] | None, form: Mapping[str, Text] | None, *, tool: str
) -> BodyFields:
    """The fields of a tool, checked: values of a form are text, those of JSON are JSON."""
    if json and form:
        raise UsageError(f"{tool}: a body is JSON or a form; give json= or form=, not both")
    for name, value in (form or {}).items():
        if not isinstance(value, str | Secret):
            raise UsageError(f"{tool}: the field {name} of a form is text, not {value!r}")
    named = mapped(json or {}, lambda item: repr(item) if isinstance(item, Secret) else item)
    typed.encode(named, what=f"json= of {tool}", bytes_max=PARAMS_BYTES_MAX)
    return BodyFields(dict(json or {}), dict(form or {}))


def _joined(own: Mapping[str, Any], given: Mapping[str, Any], *, tool: str) -> dict[str, Any]:
    twice = sorted(own.keys() & given.keys())
    if twice:
        raise BadInput(f"parameters of {tool}: the field {twice[0]} is the tool's own")
    return {**own, **given}
