"""A project with two automations with changes that can be made to fail, and a person who looks."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from tests.cli.kit import Shell

# The text of an order decides its outcome: `how` is ok, bad, login or lost.
CODE = """
from pathlib import Path
from rota import NeedsLogin, Rota
from rota.automations import Prepared
from rota.errors import OutcomeUnknown
from rota.tools import tool

app = Rota("sqlite:///from_code.db", heartbeat_s=0.5)

@tool(safety="unknowable")
async def send_mail(to: str, text: str) -> str:
    if "login" in text and not Path("token").exists():
        raise NeedsLogin("the token has expired")
    with open("sent.txt", "a") as out:
        out.write(f"{to}: {text}\\n")
    if "lost" in text:
        raise OutcomeUnknown("the line broke after the body")
    return "queued"

@app.workflow
async def plain() -> int:
    return 1

def declare(name: str, approval: bool) -> None:
    auto = app.automation(name, approval=approval, timezone="UTC")
    orders = auto.topic("orders", dict[str, str], external=True)
    found = auto.topic("found", str)

    @auto.producer(every="1h", publishes=[found])
    async def poll(ctx, state):
        ctx.log("looked", (state or 0) + 1, "times")
        return (state or 0) + 1

    @auto.consumer("mailer", subscribes=[orders, found])
    class Mailer:
        async def prepare(self, ctx, state):
            events = (await ctx.peek(orders))[:1]
            if not events:
                return None
            if events[0].payload["how"] == "early":
                raise ValueError("an order nobody can read")
            return Prepared(events, events[0].payload["how"], f"Mail about {events[0].id}")

        async def mutate(self, ctx, prepared):
            if prepared.data == "bad" and not Path("token").exists():
                raise ValueError("an order without a customer")
            return send_mail.change(to="ann@example.com", text=f"Your tea: {prepared.data}")

declare("asking", True)
declare("mails", False)
"""


class AutomationShell(Shell):
    """The project, deployed, and its worker at rest."""

    def __init__(self, folder: Path, url: str, code: str = CODE) -> None:
        super().__init__(folder, url)
        (folder / "jobs.py").write_text(code)

    def order(self, name: str, number: str, how: str = "ok") -> dict[str, Any]:
        """Publish an order, let the worker work, and look at the automation."""
        self.run("automation", "publish", name, "orders", number, f'{{"how": "{how}"}}')
        self.work()
        return self.shown(name)

    def shown(self, name: str) -> dict[str, Any]:
        """The document about one automation."""
        found: dict[str, Any] = self.json("automation", "show", name)
        return found

    def obey(self, shown: dict[str, Any], action: str) -> dict[str, Any]:
        """Type exactly the command that the page gives for an action, and let the worker work."""
        [command] = [one["command"] for one in shown["actions"] if one["action"] == action]
        assert command.startswith("rota ")
        self.run(*command.split()[1:])
        self.work()
        return self.shown(shown["name"])

    def forget_code(self) -> None:
        """The next command imports the project again, as a process of its own would."""
        sys.modules.pop("jobs", None)
        shutil.rmtree(self.folder / "__pycache__", ignore_errors=True)

    def sent(self) -> list[str]:
        """The calls that the counterpart saw."""
        path = self.folder / "sent.txt"
        return path.read_text().splitlines() if path.exists() else []
