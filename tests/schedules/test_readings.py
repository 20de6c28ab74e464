"""How a declared schedule was understood is logged when it is new or has changed."""

from __future__ import annotations

import logging

import pytest

from rota import Rota
from rota.testing import virtual
from tests.schedules.kit import at


def program(when: str) -> Rota:
    app = Rota(keep_days=0)

    async def report() -> None:
        return None

    app.schedule(when, name="s", timezone="UTC")(app.workflow(report))
    return app


async def deployed(url: str, when: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about readings that one deploy logs."""
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="rota.app"):
        async with virtual(program(when), url=url, start=at("01 00:00")):
            pass
    return [record.getMessage() for record in caplog.records if " means: " in record.getMessage()]


async def test_the_reading_of_a_phrase_in_code_is_logged_once(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    phrase = "monday at 9am and friday at 5pm"
    [line] = await deployed(database_url, phrase, caplog)
    assert line.startswith(
        'schedule s: "monday at 9am and friday at 5pm" means: at 09:00, on Monday; and at 17:00, '
        "on Friday (UTC) [0 9 * * MON; 0 17 * * FRI]; next "
    )
    assert await deployed(database_url, phrase, caplog) == []


async def test_a_changed_reading_is_logged_again(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(await deployed(database_url, "every day at 9", caplog)) == 1
    [line] = await deployed(database_url, "every day at 10", caplog)
    assert "at 10:00, every day (UTC) [0 10 * * *]; next" in line
