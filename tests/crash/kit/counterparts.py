"""Real counterparts of automations: a web site, a mail server, files, a table, a command.

They live in the process of the test, survive every kill, count their effects, and can do the
killing themselves: when they were asked, when the effect is there, when they have answered.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session

from tests.crash.kit.automation_life import BESIDE_SQLITE3, EFFECT
from tests.kit import select, split_schema
from tests.tools.kit.mail_server import Postbox
from tests.tools.kit.web_site import Asked, Site

# By kind, the moments at which the counterpart itself can kill the worker.
MOMENTS: dict[str, tuple[str, ...]] = {
    "http with a key": ("received", "applied", "answered"),
    "http with a lookup": ("received", "applied", "answered"),
    "http": ("received", "applied", "answered"),
    "mail": ("greeted", "received", "applied", "answered"),
    "mail with a lookup": ("greeted", "received", "applied", "answered"),
    "append": (),
    "file": (),
    "sql": (),
    BESIDE_SQLITE3: (),
    "command": ("received", "applied"),
    "command with a lookup": ("received", "applied"),
    "a slow counterpart": (),
    "a slow counterpart with a lost answer": (),
}
USER_FILE = """
pragma journal_mode = wal;
create table sent (place text, id text);
create table beside (id integer primary key);
"""
UNKNOWABLE = frozenset({"http", "mail", "command"})
Count = Callable[[], Awaitable[int]]


class Assassin:
    """Kills one process, once, when the moment comes."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self.pid: int | None = None

    def holds(self, moment: str) -> None:
        """Let the process stop until the moment comes: otherwise it might be done by then."""
        if moment == self.moment and self.pid is not None:
            os.kill(self.pid, signal.SIGSTOP)

    def comes(self, moment: str) -> bool:
        """The moment is here; True if it was the one. A dead process reads no answer any more."""
        if moment != self.moment or self.pid is None:
            return False
        self.moment = ""
        os.kill(self.pid, signal.SIGKILL)
        return True


class WatchedSite(Site):
    """A site that lets the assassin know."""

    def __init__(self, assassin: Assassin, *, honours_key: bool) -> None:
        super().__init__(honours_key=honours_key)
        self.assassin = assassin

    async def _answer(self, asked: Asked) -> bytes | None:
        if asked.method == "GET":
            return await super()._answer(asked)
        if self.assassin.comes("received"):
            return None
        answer = await super()._answer(asked)
        self.assassin.comes("applied")
        self.assassin.holds("answered")
        return answer

    async def _visit(self, *streams: Any) -> None:
        await super()._visit(*streams)
        self.assassin.comes("answered")


class WatchedPostbox(Postbox):
    """A mail server that lets the assassin know, and files the ids of what it took."""

    def __init__(self, assassin: Assassin, filed: Path) -> None:
        super().__init__()
        self.assassin = assassin
        self.filed = filed
        filed.touch()

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.assassin.comes("greeted")
        return await super().handle_MAIL(server, session, envelope, address, options)

    async def handle_DATA(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        if self.assassin.comes("received"):
            return "451 nobody is there"
        answer = await super().handle_DATA(server, session, envelope)
        with self.filed.open("a") as file:
            file.writelines(f"{mail['Message-ID']}\n" for mail in self.mails[-1:])
        self.assassin.comes("applied")
        return answer

    async def handle_QUIT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope
    ) -> str:
        self.assassin.comes("answered")  # a client that says goodbye has read the answer
        return "221 Bye"


@contextlib.asynccontextmanager
async def counterpart(
    kind: str, assassin: Assassin, folder: Path, url: str, namespace: str
) -> AsyncIterator[tuple[dict[str, str], Count]]:
    """Its address, and a function that counts its effects."""
    if kind.startswith("http"):
        site = WatchedSite(assassin, honours_key=kind == "http with a key")
        async with site.up():
            yield {"site": site.url}, lambda: _now(site.effects.total())
    elif kind.startswith("mail"):
        filed = folder / "filed"
        box = WatchedPostbox(assassin, filed)
        async with box.up():
            yield {"port": str(box.port), "filed": str(filed)}, lambda: _now(len(box.mails))
    elif kind == "sql":
        query = f"select id from sent where place = '{namespace}'"
        yield {"sql": _plain(url)}, lambda: _rows(url, query)
    elif kind == BESIDE_SQLITE3:
        file = folder / "user.db"
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.executescript(USER_FILE)
        yield {"sql": f"sqlite:///{file}"}, lambda: _now(_whole(file, folder / "noted"))
    else:
        book = folder / "book"
        yield {"folder": str(folder), "book": str(book)}, lambda: _now(_lines(book))


async def _now(count: int) -> int:
    return count


def _lines(book: Path) -> int:
    """How often it was written, by someone who wrote nothing else."""
    lines = book.read_text().splitlines() if book.exists() else []
    assert all(line.split()[0] == EFFECT for line in lines), lines
    return len(lines)


def _whole(file: Path, noted: Path) -> int:
    """How often the tool wrote; the file is sound, and no row of its user is lost."""
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)], file
        kept = {row[0] for row in connection.execute("select id from beside")}
        sent = connection.execute("select count(*) from sent").fetchone()[0]
    acknowledged = set(map(int, noted.read_text().split()))
    assert acknowledged <= kept, acknowledged - kept
    return int(sent)


async def _rows(url: str, query: str) -> int:
    return len(await select(url, query))


def _plain(url: str) -> str:
    """The same database, as others write it."""
    if url.startswith("sqlite"):
        return url
    dsn, schema = split_schema(url)
    return f"{dsn}{'&' if '?' in dsn else '?'}search_path={schema}"
