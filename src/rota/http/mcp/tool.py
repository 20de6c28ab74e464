"""One tool: a route of the API with its arguments in one flat object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from rota.core.suggest import did_you_mean
from rota.errors import BadInput
from rota.http.request import Answer, WebRequest
from rota.http.route import Route, RouteReply

ANSWER_BYTES_MAX = 20_000
NO_BODY = "done"
OFFSET = "offset"
OFFSET_SCHEMA = {
    "type": "integer", "minimum": 0,
    "description": "Read on in a long answer: the number that its last line names.",
}  # fmt: skip


@dataclass(frozen=True)
class McpTool:
    """A tool that calls the handler of a route."""

    name: str
    route: Route
    title: str = ""
    destroys: bool = False  # for the assistant's own rules about what to confirm

    @property
    def writes(self) -> bool:
        """Whether it changes anything."""
        return self.route.role != "read"

    @cached_property
    def parts(self) -> dict[str, Any]:
        """The structs of the route that arguments go into."""
        kinds = {"query": self.route.query, "body": self.route.body}
        return {part: kind for part, kind in kinds.items() if kind is not None}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        properties: dict[str, Any] = {
            name: {"type": "string", "minLength": 1} for name in self.route.parameters
        }
        if not self.writes:
            properties[OFFSET] = OFFSET_SCHEMA
        required = list(self.route.parameters)
        named: dict[str, Any] = {}
        for kind in self.parts.values():
            described = msgspec.json.schema(kind)
            named |= described["$defs"]
            own = named.pop(kind.__name__)
            properties |= own["properties"]
            required += own.get("required", ())
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        more = {"required": required, "$defs": named}
        return schema | {key: value for key, value in more.items() if value}

    @property
    def document(self) -> dict[str, Any]:
        """The tool as `tools/list` shows it."""
        hints: dict[str, Any] = {"readOnlyHint": not self.writes, "openWorldHint": False}
        if self.writes:
            hints |= {"destructiveHint": self.destroys}
        return {
            "name": self.name,
            "description": self.title or self.route.summary,
            "inputSchema": self.schema,
            "annotations": hints,
        }

    async def call(self, request: WebRequest, arguments: Mapping[str, Any]) -> str:
        """Call the handler; the answer is JSON text of at most 20 KB.

        A list that is longer is asked for again with half the limit, so that its cursor fits. One
        document that is longer is read on with `offset`."""
        given = dict(arguments)
        offset = 0 if self.writes else _offset(given)
        text = await self._answer(request, given)
        while len(text.encode()) > ANSWER_BYTES_MAX and self._limit(given) > 1:
            given["limit"] = self._limit(given) // 2
            text = await self._answer(request, given)
        return _cut(text, offset)

    def _limit(self, given: Mapping[str, Any]) -> int:
        """The limit of a list; 0 where the tool has none, or changes something."""
        query = None if self.writes else self.parts.get("query")
        default = getattr(query(), "limit", 0) if query is not None else 0
        limit = given.get("limit", default)
        return limit if isinstance(limit, int) else 0

    async def _answer(self, request: WebRequest, arguments: Mapping[str, Any]) -> str:
        bound, given = self._bound(request, arguments)
        returned = await self.route.function(bound, **given)
        if isinstance(returned, Answer):
            raise BadInput(f"{self.name} has no answer for an assistant")
        value = returned.value if isinstance(returned, RouteReply) else returned
        return NO_BODY if value is None else msgspec.json.encode(value, enc_hook=str).decode()

    def _bound(
        self, request: WebRequest, arguments: Mapping[str, Any]
    ) -> tuple[WebRequest, dict[str, Any]]:
        known = self.schema["properties"]
        for name in arguments:
            if name not in known:
                raise BadInput(
                    f"there is no argument {name!r}{did_you_mean(name, tuple(known))}",
                    hint=f"Use: {', '.join(known) or 'none'}.",
                )
        path = {name: self._text(arguments, name) for name in self.route.parameters}
        given: dict[str, Any] = dict(path)
        for part, kind in self.parts.items():
            fields = {
                name: arguments[name] for name in kind.__struct_encode_fields__ if name in arguments
            }
            try:
                given[part] = msgspec.convert(fields, kind)
            except msgspec.ValidationError as error:
                raise BadInput(f"the arguments do not fit: {error}") from error
        return replace(request, parameters=path), given

    @staticmethod
    def _text(arguments: Mapping[str, Any], name: str) -> str:
        value = arguments.get(name)
        if not isinstance(value, str) or not value:
            raise BadInput(f"the argument {name!r} must be a text that is not empty")
        return value


def _offset(given: dict[str, Any]) -> int:
    """The byte at which an answer begins; it is not an argument of the route."""
    offset = given.pop(OFFSET, 0)
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise BadInput(
            "offset must be the number that an answer named", hint="Omit it in the first call."
        )
    return offset


def _cut(text: str, offset: int) -> str:
    """At most 20 KB of a text, with a note where to read on."""
    whole = text.encode()
    if offset == 0 and len(whole) <= ANSWER_BYTES_MAX:
        return text
    kept = whole[offset : offset + ANSWER_BYTES_MAX].decode(errors="ignore")
    end = offset + len(kept.encode())
    if end >= len(whole):
        return kept
    return f"{kept}\n[cut at {end:,} of {len(whole):,} bytes; read on with offset={end}]"
