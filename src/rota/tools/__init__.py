"""Tools: how automations touch the outside world. `@tool` makes one of a function.

The shipped ones load on first use, so that an extra is needed only by their users.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.net.secret import Secret, secret
from rota.tools.base import Applied, Call, Change, NotApplied, Safety, Tool, Unknown, Verdict
from rota.tools.decorator import tool

if TYPE_CHECKING:
    from rota.tools.append_file import FileAppend
    from rota.tools.command import Command
    from rota.tools.feed import FeedRead
    from rota.tools.files import FileList, FileRead, FileWrite
    from rota.tools.http import HttpRead, HttpWrite
    from rota.tools.http_lookup import Lookup
    from rota.tools.mail import SendMail
    from rota.tools.sql import SqlRead, SqlWrite

_MODULES = {
    "Command": "command",
    "FeedRead": "feed",
    "FileAppend": "append_file",
    "FileList": "files",
    "FileRead": "files",
    "FileWrite": "files",
    "HttpRead": "http",
    "HttpWrite": "http",
    "Lookup": "http_lookup",
    "SendMail": "mail",
    "SqlRead": "sql",
    "SqlWrite": "sql",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Applied",
    "Call",
    "Change",
    "Command",
    "FeedRead",
    "FileAppend",
    "FileList",
    "FileRead",
    "FileWrite",
    "HttpRead",
    "HttpWrite",
    "Lookup",
    "NotApplied",
    "Safety",
    "Secret",
    "SendMail",
    "SqlRead",
    "SqlWrite",
    "Tool",
    "Unknown",
    "Verdict",
    "secret",
    "tool",
]
