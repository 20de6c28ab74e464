"""The news of a feed, as one file a day.

    feed  →  poll (every 15 min)  →  topic articles  →  digest (at 7:00)  →  digests/DAY.md

`python digest.py` runs two days of virtual time; `rota up` runs in real time.
"""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rota import Rota
from rota.automations import Change, Context, MutationResult, Prepared
from rota.testing import virtual
from rota.tools import FeedRead, FileWrite

HERE = Path(__file__).resolve().parent
PORT = int(os.environ.get("PORT", "8765"))
FEED = os.environ.get("FEED", f"http://127.0.0.1:{PORT}/feed.xml")
HOUR = 7  # in UTC: when the digest is written

app = Rota(f"sqlite:///{HERE}/digest.db")
news = app.automation("news", timezone="UTC")
articles = news.topic("articles", dict[str, Any])

read_feed = FeedRead("read_feed", private=True)  # the feed of this example is on this machine
write_digest = FileWrite(HERE / "digests", name="write_digest")


@news.producer(every="15m", publishes=[articles])
async def poll(ctx: Context, state: dict[str, str] | None) -> dict[str, Any]:
    """Publish the articles of the feed; one that was published before does not become a second
    event."""
    asked = {"last_modified": state["last_modified"]} if state else {}
    feed = await ctx.call(read_feed, url=FEED, **asked)
    for entry in feed["entries"]:
        came_in = ctx.input("feed", "article", entry["id"], entry["title"])
        wanted = {name: entry[name] for name in ("title", "link", "summary")}
        ctx.publish(articles, entry["id"], wanted, input=came_in)
    return {"last_modified": feed["last_modified"]}


@news.consumer("digest", subscribes=[articles])
class Digest:
    """Waits until the morning, then writes all articles since the last one."""

    async def prepare(self, ctx: Context, state: dict[str, str] | None) -> Prepared:
        """Take nothing until the next morning, even if new articles wake this consumer."""
        day = (ctx.now - timedelta(hours=HOUR)).date().isoformat()
        wake_at = next_morning(ctx.now)
        if state is None or state["day"] == day:
            return Prepared(data={"day": day}, wake_at=wake_at)
        events = await ctx.peek(articles, 1000)
        text = written(day, [event.payload for event in events])
        title = f"Digest of {day}: {len(events)} articles"
        return Prepared(events, {"day": day, "text": text}, title, wake_at)

    async def mutate(self, ctx: Context, prepared: Prepared) -> Change:
        """Write the file. Writing it twice has the same result, so the tool is idempotent."""
        path = f"{prepared.data['day']}.md"
        return write_digest.change(path=path, text=prepared.data["text"])

    async def next(self, ctx: Context, prepared: Prepared, mutation: MutationResult) -> Any:
        """Remember the day, even when there was no news."""
        return {"day": prepared.data["day"]}


def next_morning(now: datetime) -> datetime:
    """When the next digest is due."""
    morning = now.replace(hour=HOUR, minute=0, second=0, microsecond=0)
    return morning if now < morning else morning + timedelta(days=1)


def written(day: str, entries: list[dict[str, Any]]) -> str:
    """The digest as Markdown."""
    lines = [f"# The morning of {day}", ""]
    for entry in entries:
        lines += [f"## [{entry['title']}]({entry['link']})", "", entry["summary"] or "", ""]
    return "\n".join(lines)


def serve(port: int) -> ThreadingHTTPServer:
    """Serve the folder `site/` on this machine, so that the example works offline."""
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = ThreadingHTTPServer(("127.0.0.1", port), partial(quiet, directory=str(HERE / "site")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


async def two_days() -> None:
    """Two days from midnight: the first morning has news, the second has none."""
    async with virtual(app) as world:
        await world.advance("48h")
        view = await app.automations.show("news")
        print(f"{world.clock.moment():%Y-%m-%d %H:%M}  {view.status}: {view.sentence}")
    for path in sorted((HERE / "digests").glob("*.md")):
        print(f"\n--- digests/{path.name}\n{path.read_text()}")


if __name__ == "__main__":
    server = serve(PORT)
    asyncio.run(two_days())
    server.shutdown()
    server.server_close()
