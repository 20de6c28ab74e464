"""Pipelines run for real in a test: an app, a folder, and a model on loopback that answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from rota import Rota
from rota.pipelines.outcome import PipelineResult, Progress
from tests.ai.kit.model_server import Asked, Model, Say
from tests.kit import until
from tests.pipelines.kit import write


def prompt_of(asked: Asked) -> str:
    """The questions."""
    text = asked.body["messages"][-1]["content"]
    assert isinstance(text, str)
    return text


def echoes(asked: Asked) -> Say:
    """Says the first line of the prompt back."""
    return Say(text="re: " + prompt_of(asked).splitlines()[0])


def says(answer: Callable[[str], Any]) -> Callable[[Asked], Say]:
    """Answers by a function of the prompt; values other than text are shown as JSON."""

    def say(asked: Asked) -> Say:
        found = answer(prompt_of(asked))
        if isinstance(found, Say):
            return found
        return Say(text=found if isinstance(found, str) else json.dumps(found))

    return say


async def waits_for_person(app: Rota, run_id: str, reason: str) -> bool:
    """Whether a run waits for a person, for this reason."""
    return await app.runs.handle(run_id).status() == f"waiting:{reason}"


class World:
    """An app with pipelines that ask a model on loopback."""

    def __init__(self, app: Rota, model: Model, folder: Path) -> None:
        self.app, self.model, self.folder = app, model, folder
        self.reported: list[Progress] = []

    def pipeline(self, text: str, name: str = "work") -> Path:
        """A pipeline of this text in a folder of its own."""
        return write(self.folder / name, text)

    async def run(self, text: str, name: str = "work", **options: Any) -> PipelineResult:
        """Run it to its end, however it ends."""
        ref = await self.app.pipelines.start(self.pipeline(text, name), **options)
        return await self.stopped(ref.id)

    async def stopped(self, run_id: str) -> PipelineResult:
        """The result of a run that has ended or waits for a person."""

        async def over() -> bool:
            run = await self.app.runs.handle(run_id).run()
            return run.is_final or run.status == "waiting"

        await until(over)
        return await self.app.pipelines.result(run_id)

    def stream(self, on: bool) -> None:
        """Whether answers come as streams."""
        self.app.pipelines.use(ai_settings(self.model.url, stream=on))

    @property
    def prompts(self) -> list[str]:
        """Everything the model was asked."""
        return [prompt_of(asked) for asked in self.model.asked]


def ai_settings(url: str, **provider: Any) -> dict[str, Any]:
    """AI settings for the model at an address, with a price of one and two dollars a million."""
    local = {
        "kind": "openai", "base_url": f"{url}/v1", "key_env": "ROTA_TEST_KEY", "stream": False,
        **provider,
    }  # fmt: skip
    return {
        "model": "local:tiny", "providers": {"local": local}, "prices": {"local:*": [1.0, 2.0]},
    }  # fmt: skip


@contextlib.asynccontextmanager
async def world(
    url: str, folder: Path, model: Model | None = None, **settings: Any
) -> AsyncIterator[World]:
    """The world of one test."""
    import os

    os.environ.setdefault("ROTA_TEST_KEY", "secret")
    async with (model or Model(answer=echoes)).up() as answering:
        app = Rota(url, migrate=True, **settings)
        app.pipelines.use(ai_settings(answering.url))
        made = World(app, answering, folder)
        app.pipelines.listen(made.reported.append)
        async with app:
            yield made


async def assert_every_page(app: Rota, run_id: str, size: int = 2) -> None:
    """Pages of the items that begin anywhere are a part of the whole list."""
    whole = [each async for each in app.pipelines.items(run_id)]
    assert whole
    for after in range(len(whole) + 2):
        found = await app.pipelines.items_page(run_id, after=after, limit=size)
        assert found.items == whole[after : after + size], after
