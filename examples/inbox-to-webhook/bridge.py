"""Send every message of an HTTP inbox to a webhook exactly once, although answers get lost.

    GET /inbox  →  poll (every 10 s)  →  topic messages  →  deliver  →  POST /hook

Start `python counterpart.py`, then `rota up`, in this folder; see README.md.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rota import Rota
from rota.automations import Change, Context, MutationResult, Prepared
from rota.tools import HttpRead, HttpWrite, Lookup

HERE = Path(__file__).resolve().parent
SITE = os.environ.get("SITE", "http://127.0.0.1:8766")

app = Rota(f"sqlite:///{HERE}/bridge.db")
# With ASK_FIRST every delivery waits for `rota run approve`.
bridge = app.automation("bridge", approval="ASK_FIRST" in os.environ)
messages = bridge.topic("messages", dict[str, Any])

inbox = HttpRead("inbox", base=SITE)
# The site has no idempotency keys, but a GET shows what it has received: so it is reconcilable.
# Rota calls the lookup one second after a lost answer, so that a slow site has finished.
hook = HttpWrite("hook", base=SITE, lookup=Lookup("/hook/{id}"), settle_s=1)


@bridge.producer(every="10s", publishes=[messages])
async def poll(ctx: Context, state: int | None) -> int:
    """Publish new messages. Rota commits them together with the number of the last one."""
    last = state or 0
    page = await ctx.call(inbox, url=f"/inbox?after={last}")
    for one in page["json"]:
        came_in = ctx.input("shop", "message", one["id"], f"{one['from']}: {one['text']}")
        ctx.publish(messages, one["id"], one, input=came_in)
        last = max(last, one["number"])
    return last


@bridge.consumer("deliver", subscribes=[messages])
class Deliver:
    """One message, one request."""

    async def prepare(self, ctx: Context, state: Any) -> Prepared | None:
        """The oldest message."""
        events = (await ctx.peek(messages))[:1]
        if not events:
            return None
        return Prepared(events, events[0].payload, f"Deliver {events[0].id}")

    async def mutate(self, ctx: Context, prepared: Prepared) -> Change:
        """If the answer is lost, Rota checks /hook/ID before it sends the message again."""
        return hook.change(url="/hook", json=prepared.data)

    async def next(self, ctx: Context, prepared: Prepared, mutation: MutationResult) -> Any:
        """Rota calls this after every outcome. The line is in `rota automation activity --logs`."""
        ctx.log("the delivery was", mutation.status)
