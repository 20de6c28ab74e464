"""`rota migrate` and `rota migrate --plan`."""

from __future__ import annotations

import asyncio

from tests.cli.kit import Shell
from tests.kit import select


def test_a_plan_says_what_a_migration_would_do_and_lock_and_does_nothing(either: Shell) -> None:
    either.run("migrate")
    assert either.run("migrate", "--plan").stdout.endswith(": up to date\n")
    text = "delete from migrations where name = 'alone' returning 1"
    assert asyncio.run(select(either.url, text)) == [(1,)]
    said = either.run("migrate", "--plan").stdout
    assert ": 1 migration to apply\n" in said
    if either.url.startswith("sqlite"):
        assert "build the index runs_alone on runs\n    locks runs until it is done\n" in said
    else:
        built = "build the index runs_alone on runs, while work continues\n"
        assert f"{built}    locks runs for a moment\n" in said
    assert said.endswith("\nNothing was changed.\n")
    [planned] = either.json("migrate", "--plan")["plan"]
    assert planned["migration"] == "0011_alone"
    assert "runs_alone" in planned["statements"][0]["does"]
    assert asyncio.run(select(either.url, "select 1 from migrations where name = 'alone'")) == []
