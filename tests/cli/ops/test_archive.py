"""`rota archive …`, and `rota run show` of what was archived."""

from __future__ import annotations

import asyncio

from tests.cli.kit import Shell
from tests.kit import select

OLD = "00e40000000070000000000000000001"  # ids begin with their time: this one is of 2001


def test_archived_runs_are_shown_listed_and_dropped(either: Shell) -> None:
    either.start("add", "n=1")
    either.work()
    asyncio.run(select(either.url, f"update steps set root_id = '{OLD}'"))
    change = f"update runs set id = '{OLD}', root_id = '{OLD}', finished_at = 980000000000000"
    asyncio.run(select(either.url, change))
    assert (
        "moved 1 run that ended before 2002-01"
        in either.run("archive", "move", "--before", "2002-01").stdout
    )
    assert either.json("run", "list") == []
    shown = either.json("run", "show", OLD)
    assert (shown["run"]["status"], shown["archived"]) == ("completed", "2001-01")
    assert [one["key"] for one in shown["steps"]] == ["one#0"]
    assert "it is in the archive of 2001-01" in either.run("run", "show", OLD[:20]).stdout
    assert either.json("archive", "list") == [{"month": "2001-01", "runs": 1}]
    assert either.run("archive", "drop", "2001-01").stdout == "deleted 2001-01 from the archive\n"
    assert either.run("archive", "list").stdout == "the archive is empty\n"
    either.error("run", "show", OLD, code=4)
    assert "is not a month" in either.error("archive", "move", "--before", "May", code=2)
