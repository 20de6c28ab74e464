"""Load every CSV file of `inbox/` into a SQLite table, once.

    inbox/*.csv  →  watch (every 10 s)  →  topic files  →  load  →  stock.db

Start it with `rota up` in this folder; see README.md.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

from rota import Rota
from rota.automations import Change, Context, MutationResult, Prepared
from rota.tools import FileList, FileRead, SqlWrite

HERE = Path(__file__).resolve().parent
STOCK = HERE / "stock.db"

app = Rota(f"sqlite:///{HERE}/watcher.db")
stock = app.automation("stock")
files = stock.topic("files", dict[str, str])

list_files = FileList(HERE / "inbox")
read_file = FileRead(HERE / "inbox")
# One transaction: it replaces the rows of the file and stores Rota's key.
load_rows = SqlWrite(
    f"sqlite:///{STOCK}",
    [
        "delete from stock where file = :file",
        """insert into stock (file, item, count)
           select :file, value ->> 'item', value ->> 'count' from json_each(:rows)""",
    ],
    name="load_rows",
)


def make_table() -> None:
    """The table belongs to us, not to Rota."""
    with sqlite3.connect(STOCK) as db:
        db.execute("create table if not exists stock (file text, item text, count integer)")
    db.close()


make_table()


@stock.producer(every="10s", publishes=[files])
async def watch(ctx: Context, state: dict[str, dict[str, str]] | None) -> dict[str, Any]:
    """Publish a file when two checks in a row find the same size and time."""
    before = state or {"seen": {}, "published": {}}
    found = await ctx.call(list_files, glob="*.csv")
    seen = {one["path"]: f"{one['modified_at']} {one['bytes']} bytes" for one in found}
    published = {path: mark for path, mark in before["published"].items() if path in seen}
    for path, mark in seen.items():
        if before["seen"].get(path) == mark and published.get(path) != mark:
            came_in = ctx.input("inbox", "file", f"{path} {mark}", path)
            # The same file again is the same event: it is never loaded twice.
            ctx.publish(files, f"{path} {mark}", {"path": path}, input=came_in)
            published[path] = mark
    return {"seen": seen, "published": published}


@stock.consumer("load", subscribes=[files])
class Load:
    """One file at a time: read it, then change the table."""

    async def prepare(self, ctx: Context, state: Any) -> Prepared | None:
        """Choose the oldest file and read it. This may run any number of times."""
        events = (await ctx.peek(files))[:1]
        if not events:
            return None
        path = events[0].payload["path"]
        if not await ctx.call(list_files, glob=path):
            ctx.log(path, "is gone; nothing to load")
            return Prepared(events, None)
        text = (await ctx.call(read_file, path=path))["text"]
        rows = list(csv.DictReader(io.StringIO(text)))
        return Prepared(events, {"file": path, "rows": rows}, f"Load {len(rows)} rows of {path}")

    async def mutate(self, ctx: Context, prepared: Prepared) -> Change | None:
        """The one change of this run; its transaction shows after a crash if it happened."""
        if prepared.data is None:
            return None
        rows = json.dumps(prepared.data["rows"])
        return load_rows.change(file=prepared.data["file"], rows=rows)

    async def next(self, ctx: Context, prepared: Prepared, mutation: MutationResult) -> Any:
        """Rota calls this after every outcome; this consumer keeps no state."""
        ctx.log("the change was", mutation.status)
