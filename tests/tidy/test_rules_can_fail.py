"""Every rule finds what is planted for it, and leaves its innocent neighbour alone."""

from __future__ import annotations

import pytest

from tests.tidy.rules import RULES
from tests.tidy.tree import Module

SRC = "src/rota/engine/x.py"
CORE = "src/rota/core/x.py"
LONG = "def f():\n" + "    pass\n" * 70
ELIFS = "def f():\n    if a:\n        pass\n" + "    elif b:\n        pass\n" * 6


def nested(depth: int) -> str:
    ifs = (" " * level + "if a:\n" for level in range(1, depth + 1))
    return "def f():\n" + "".join(ifs) + " " * (depth + 1) + "pass"


BAD = [
    ("small_files", SRC, "\n" * 501),
    ("small_files", "tests/x.py", "\n" * 601),
    ("small_functions", SRC, LONG),
    ("small_functions", SRC, "class A:\n    async " + LONG.replace("\n", "\n    ")),
    ("shallow_nesting", SRC, nested(5)),
    ("module_docstrings", SRC, "import re"),
    ("plain_names", SRC, "class RunManager: ..."),
    ("plain_names", SRC, "def run_helper(): ..."),
    ("plain_names", SRC, "class A:\n    async def util(self): ..."),
    ("plain_names", SRC, "class HTTPService: ..."),
    ("plain_names", "src/rota/utils.py", ""),
    ("plain_names", "src/rota/helpers/x.py", ""),
    ("few_protocols", SRC, "class Startable(Protocol): ..."),
    ("few_protocols", SRC, "class Startable(Protocol[T]): ..."),
    ("no_retired_names", SRC, "def f(room): ..."),
    ("no_retired_names", SRC, "def f(*, told): ..."),
    ("no_retired_names", SRC, "class X:\n    open_turn: int"),
    ("no_retired_names", SRC, "def f(self):\n    self._notebook = 1"),
    ("no_retired_names", SRC, "class RunStory: ..."),
    ("no_retired_names", "tests/x.py", "def test_a_failure_is_told(): ..."),
    ("no_retired_names", SRC, "class QueueSeats: ..."),
    ("no_retired_names", SRC, "def _vacate(): ..."),
    ("no_retired_names", SRC, "def queue(*, seats=1): ..."),
    ("no_retired_names", SRC, "class QueueOptions:\n    seats: int"),
    ("sql_in_store_only", SRC, "q = 'select id from runs'"),
    ("sql_in_store_only", SRC, "q = '''\n  INSERT INTO runs values (1)'''"),
    ("sql_in_store_only", SRC, "q = 'insert or ignore into runs'"),
    ("sql_in_store_only", SRC, "q = f'update {table} set a = 1'"),
    ("sql_in_store_only", SRC, "run('delete from runs')"),
    ("injected_clock", SRC, "import time\ntime.sleep(1)"),
    ("injected_clock", SRC, "from time import time as t\nt()"),
    ("injected_clock", SRC, "import datetime\ndatetime.datetime.now()"),
    ("injected_clock", SRC, "from datetime import datetime as dt\nf(dt.now)"),
    ("injected_clock", SRC, "from datetime import UTC, date\ndate.today()"),
    ("injected_clock", "tests/x.py", "from time import sleep\nsleep(1)"),
    ("pure_core", CORE, "import os.path"),
    ("pure_core", CORE, "from logging import getLogger"),
    ("pure_core", CORE, "def f():\n    import apsw"),
    ("pure_core", CORE, "from rota.store import runs"),
    ("pure_core", CORE, "from rota import settings"),
    ("print_in_cli_only", SRC, "def f():\n    print(1)"),
]

GOOD = [
    ("small_files", SRC, "\n" * 500),
    ("small_functions", SRC, LONG.replace("    pass\n", "", 1)),
    ("shallow_nesting", SRC, ELIFS),
    ("shallow_nesting", SRC, nested(4)),
    ("module_docstrings", SRC, '"""Owns x."""'),
    ("plain_names", SRC, "class Handler: ...\nclass Metadata: ...\ndef processed(): ..."),
    ("no_retired_names", SRC, "class QueueSlots: ...\ndef researcher(early): ..."),
    ("few_protocols", SRC, "class Clock(Protocol): ...\nclass Startable(Base): ..."),
    ("no_retired_names", SRC, "def f(returned, saturn):\n    told = 1"),
    ("sql_in_store_only", "src/rota/store/runs/settle.py", "q = 'select id from runs'"),
    (
        "sql_in_store_only",
        SRC,
        '"""\nselect one from many\n"""\nx = "Please select one from these."',
    ),
    ("injected_clock", "src/rota/engine/clock.py", "import time\ntime.time()"),
    ("injected_clock", SRC, "import time\ntime.monotonic()\nclock.now()\nself.time.time()"),
    ("injected_clock", "tests/x.py", "from datetime import datetime\ndatetime.now()"),
    ("pure_core", CORE, "from rota.core.runs.model import Run\nfrom rota import errors\nimport re"),
    ("pure_core", SRC, "import os"),
    ("print_in_cli_only", "src/rota/cli/x.py", "print(1)"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_a_planted_violation_is_found(rule: str, path: str, text: str) -> None:
    assert list(RULES[rule](Module(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_an_innocent_neighbour_is_left_alone(rule: str, path: str, text: str) -> None:
    assert not list(RULES[rule](Module(path, text)))


def test_every_rule_is_proven() -> None:
    assert {rule for rule, _, _ in BAD} == set(RULES)
