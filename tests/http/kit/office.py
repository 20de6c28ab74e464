"""An office with one of everything: what every route of the API can be tried on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rota import Rota, wait_for
from rota.ai import Offline
from rota.automations import Change, Prepared
from rota.core.automations.text import Word
from rota.tools import Call, Safety, Tool, Unknown, Verdict
from tests.kit import until

PIPELINE = """
name: triage
input: {items: [{title: Invoice}, {title: Printer}]}
map:
  prompt: "Which area has {{title}}?"
  output:
    - {name: area, type: string}
settings: {retry: {maxRetries: 0}}
reduce: {type: table}
"""


class Bank(Tool):
    """A counterpart that may not answer."""

    name = "bank.transfer"
    safety = Safety.UNKNOWABLE

    def __init__(self) -> None:
        self.is_down = False

    def read(self, params: dict[str, Any]) -> Any:
        return params

    async def perform(self, params: Any, call: Call) -> Any:
        if self.is_down:
            raise TimeoutError("no answer")
        return {"reference": 7}

    async def look_up(self, params: Any, call: Call) -> Verdict:
        return Unknown("it does not say")


class Office(Rota):
    """The app."""

    def __init__(self, url: str, folder: Path, **settings: Any) -> None:
        super().__init__(url, **settings)
        self.folder = folder / "triage"
        self.bank = Bank()
        self.run_ids: dict[str, str] = {}
        self.row_ids: dict[str, str] = {}  # of an input and a change, by the name in a path
        self.pipelines.use(Offline(replies=self._reply))
        self._workflows()
        self._automation("approved", approval=True)
        self._automation("direct", approval=False)
        reader = self.automation("reader")
        reader.producer(publishes=[reader.topic("news")], every="1h", name="look")(_look)
        reader.consumer("use", subscribes=["news"], prepare=_nothing)

    def _reply(self, request: Any) -> str:
        return '{"area": "billing"}' if "Invoice" in request.prompt else "no idea"

    def _workflows(self) -> None:
        @self.step
        async def double(number: int) -> int:
            return 2 * number

        @self.workflow
        async def add(a: int, b: int = 1) -> int:
            return await double(a) + b

        self.schedule("every 1h", name="hourly", input={"a": 1})(add)

        @self.workflow
        async def fails() -> None:
            raise ValueError("it does not work")

        @self.workflow
        async def waits() -> str:
            return await wait_for("reply", type=str)

        @self.workflow
        async def parent() -> int:
            return await add(1)

    def _automation(self, name: str, *, approval: bool) -> None:
        declared = self.automation(name, approval=approval)
        topic = declared.topic("letters", external=True)
        bank = self.bank

        @declared.consumer("pay", subscribes=[topic])
        class Pay:
            async def prepare(self, ctx: Any, state: Any) -> Prepared:
                events = await ctx.peek(topic, limit=1)
                return Prepared(events, events[0].payload if events else None, "Pay")

            async def mutate(self, ctx: Any, prepared: Any) -> Change:
                return bank.change(**prepared.data)

    async def fill(self) -> None:
        """Deploy, work, and wait until there is something of everything."""
        self.folder.mkdir(parents=True)
        (self.folder / "pipeline.yaml").write_text(PIPELINE)
        await self.automations.deploy_all()
        await self.schedules.create("daily", "add", "daily at 9:00", timezone="UTC", input={"a": 1})
        await self.start_worker()
        for name in ("add", "fails", "waits", "parent"):
            run = await self.start(name, **({"a": 1} if name == "add" else {}))
            self.run_ids[name] = run.id
        triage = await self.pipelines.start(self.folder)
        self.run_ids["triage"] = triage.id
        for name in ("add", "fails", "parent", "triage"):
            await self.runs.wait(self.run_ids[name], timeout="60s")
        await self.tokens.create("reader")
        await self.publish("direct", "m-1")
        await self.acted("direct")
        self.row_ids = {
            "input_id": (await self.automations.inputs("direct"))[0].input.id,
            "change_id": (await self.automations.outputs("direct"))[0].id,
        }

    async def publish(self, name: str, message_id: str) -> None:
        """An event that leads to a side effect."""
        await self.automations.publish(name, "letters", message_id, {"sum": 1}, title=message_id)

    async def acted(self, name: str) -> None:
        """Wait until an event has led to a side effect."""

        async def done() -> bool:
            return any(row.status == "applied" for row in await self.automations.outputs(name))

        await until(done)

    async def waiting(self, name: str) -> str:
        """The id of the side effect that waits for a person, once one does."""

        async def asks() -> bool:
            view = await self.automations.show(name)
            return view.mutation is not None and view.said.word is Word.ATTENTION

        await until(asks)
        found = (await self.automations.show(name)).mutation
        assert found is not None
        return found.id


async def _nothing(ctx: Any, state: Any) -> Prepared:
    return Prepared()


async def _look(ctx: Any, state: Any) -> None:
    return None
