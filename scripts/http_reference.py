"""The reference page of the API, made from the table of routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from rota.http.route import Route

HEAD = """# HTTP API

`make docs` makes this page from the routes in `src/rota/http/routes`. The server gives the same as
an OpenAPI 3.1 document at `/api/v1/openapi.json`. The [guide](../guides/http.md) says how to start
it, who may use it and how keys, cursors and ETags work.

Times are RFC 3339 in UTC, durations are written `90s`, `5m` or `1d`. Unknown fields of a body or a
query are refused with 422. Every problem is `application/problem+json`: `type`, `title`, `status`,
`code`, `detail`, `hint`, `facts` and `request_id`. [Errors](errors.md) has the status of each code.
"""


def page(routes: Sequence[Route]) -> str:
    """`docs/reference/http.md`."""
    return "\n".join([HEAD, *_table(routes), "", *_details(routes)]) + "\n"


def _table(routes: Sequence[Route]) -> Iterator[str]:
    yield "## Routes\n"
    yield "| route | role | answer | does |\n|---|---|---|---|"
    for entry in routes:
        statuses = ", ".join(str(int(status)) for status in (entry.status, *entry.also))
        address = f"`{entry.method} {entry.prefix}{entry.path}`"
        yield f"| {address} | {entry.role} | {statuses} | {entry.summary} |"


def _details(routes: Sequence[Route]) -> Iterator[str]:
    yield "## Fields\n"
    yield "Fields that must be given are bold. `Idempotency-Key` and `If-Match` are headers.\n"
    yield "| route | query | body | headers |\n|---|---|---|---|"
    for entry in routes:
        query, body, headers = _fields(entry.query), _fields(entry.body), _headers(entry)
        if query or body or headers:
            yield f"| `{entry.method} {entry.prefix}{entry.path}` | {query} | {body} | {headers} |"


def _fields(kind: type[msgspec.Struct] | None) -> str:
    if kind is None:
        return ""
    names = []
    for field in msgspec.structs.fields(kind):
        name = f"`{field.encode_name}`"
        names.append(f"**{name}**" if field.required else name)
    return ", ".join(names)


def _headers(entry: Route) -> str:
    names = ["`Idempotency-Key`"] if entry.takes_key else []
    if entry.etag and entry.method in ("PUT", "PATCH", "DELETE"):
        names.append("`If-Match`")
    return ", ".join(names)
