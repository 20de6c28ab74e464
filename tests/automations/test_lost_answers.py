"""A checkpoint that was written, with an answer that was lost on the way: it is written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota.errors import StoreUnreachable
from tests.automations.kit import Line, begun, event_statuses, last, sound


def losing(write: Callable[..., Any], name: str, lost: list[str]) -> Callable[..., Any]:
    """The same, but the first answer to a function of that name never comes."""

    async def write_and_lose(function: Any, *args: Any, **words: Any) -> Any:
        answer = await write(function, *args, **words)
        if function.__name__ == name and not lost:
            lost.append(name)
            raise StoreUnreachable("the line broke after the commit")
        return answer

    return write_and_lose


CHECKPOINTS = ["begin_all", "prepared", "call_begins", "call_ended", "commit_all"]


@pytest.mark.parametrize("name", CHECKPOINTS)
async def test_a_checkpoint_whose_answer_was_lost_is_no_failure(
    database_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Line()
    lost: list[str] = []
    async with begun(app, database_url) as world:
        monkeypatch.setattr(
            app.connection.database,
            "write_brief",
            losing(app.connection.database.write_brief, name, lost),
        )
        await app.feed("e1")
        await world.advance("1s")
        assert lost == [name]
        assert len(app.outside.effects) == 1
        assert await event_statuses(app) == {"e1": "consumed"}
        assert await last(app, 1) == ["committed committed"]
        await sound(app)
