"""Three workflows that show what Rota does: steps, retries, a durable sleep, a child, a signal.

Start the worker with `rota up` in this folder, then for example:

    rota run start order number=7 'items=["tea", "jam"]' --wait
    rota run start approval what="a new kettle"
    rota run list
    rota why morning-letter        # a schedule, declared in rota.toml
    rota automation publish guestbook visits v-1 '{"name": "Ann"}'   # then approve the entry
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rota import RetryPolicy, Rota, Transient, gather, sleep, wait_for
from rota.automations import Change, Context, Prepared
from rota.tools import FileAppend

app = Rota("sqlite:///hello.db")

_tried: set[tuple[int, str]] = set()


@app.step(retries=RetryPolicy(attempts=5, delay_s=0.2))
async def reserve(number: int, item: str) -> str:
    """A step: Rota records its result and never executes it again.

    This one fails at its first try, to show a retry.
    """
    if (number, item) not in _tried:
        _tried.add((number, item))
        raise Transient(f"the stock of {item} does not answer")
    return f"{item} for order {number}"


@app.step
async def post(text: str) -> int:
    """Represents a mail server."""
    return len(text)


@app.workflow(queue="mail")
async def letter(to: str, text: str) -> str:
    """A child workflow; its queue has limits, see rota.toml."""
    length = await post(text)
    return f"{length} characters to {to}"


@app.workflow
async def order(number: int, items: list[str]) -> dict[str, object]:
    """Parallel steps, a sleep that survives a restart, then a child run."""
    reserved = await gather(*(reserve(number, item) for item in items), limit=2)
    await sleep("1s")  # holds no worker; the run also continues after a restart
    sent = await letter("Ann", f"Order {number} is on its way.")
    return {"reserved": reserved, "letter": sent}


@app.workflow
async def approval(what: str) -> str:
    """Waits for a person: `rota run signal ID answer true`."""
    granted = await wait_for("answer", timeout="7d", type=bool)
    return f"{what}: {'granted' if granted else 'refused'}"


guestbook = app.automation("guestbook")
visits = guestbook.topic("visits", dict[str, str], external=True)
write_entry = FileAppend(Path(__file__).resolve().parent, name="write_entry")


@guestbook.consumer("sign", subscribes=[visits], approval=True)
class Sign:
    """Writes one line per visit to guestbook.txt, after a person has approved it."""

    async def prepare(self, ctx: Context, state: Any) -> Prepared | None:
        """Take the oldest visit."""
        events = (await ctx.peek(visits))[:1]
        if not events:
            return None
        return Prepared(events, events[0].payload, f"Sign for {events[0].payload['name']}")

    async def mutate(self, ctx: Context, prepared: Prepared) -> Change:
        """Return the one side effect; Rota makes it, and records it before and after."""
        return write_entry.change(path="guestbook.txt", text=f"{prepared.data['name']} was here")
