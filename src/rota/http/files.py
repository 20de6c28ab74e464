"""Static files of the package. The address names the content, so browsers cache them for ever."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from rota.http.request import Answer, Empty, Text, WebRequest

FOLDER = Path(__file__).parent / "static"
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
MEDIA: Mapping[str, str] = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class _Known(NamedTuple):
    path: Path
    content: bytes
    digest: str


@cache
def _known() -> Mapping[str, _Known]:
    """Every static file by name. The package does not change while a process runs."""
    files = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in MEDIA:
            content = path.read_bytes()
            name = path.relative_to(FOLDER).as_posix()
            files[name] = _Known(path, content, hashlib.sha256(content).hexdigest()[:16])
    return files


def static_url(name: str) -> str:
    """The address of a static file; it changes with the content."""
    return f"/static/{name}?v={_known()[name].digest}"


async def static_file(request: WebRequest) -> Answer:
    """Serve one file of the package."""
    file = _known().get(request.parameters["name"])
    if file is None:
        return Empty(status=HTTPStatus.NOT_FOUND)
    etag = f'"{file.digest}"'
    keep = FOR_EVER if request.query.get("v") == file.digest else ASK_AGAIN
    headers = {"etag": etag, "cache-control": keep}
    if request.headers.get("if-none-match") == etag:
        return Empty(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Text(file.content, MEDIA[file.path.suffix], headers=headers)


async def robots(request: WebRequest) -> Answer:
    """Ask search engines to index nothing."""
    return Text("User-agent: *\nDisallow: /\n")
