"""Only the server of forks imports it: otherwise every life would load these itself, at a cost many
times that of living.
"""

from __future__ import annotations

from importlib import import_module

from rota.net import http

for name in (
    "anyio._backends._asyncio",
    "httpcore2",
    "rota.store.backend.postgres",
    "rota.store.backend.sqlite",
    "rota.tools.sql_postgres",
    "rota.tools.sql_sqlite",
    "rota.pipelines.run.runner",
    "tests.crash.kit.automation_life",
    "tests.crash.kit.budget_life",
    "tests.crash.kit.pipeline_life",
    "tests.crash.kit.workflow_life",
    "tests.crash.kit.command_life",
    "tests.tools.kit.child",
):
    import_module(name)
http._trust()  # reads the certificates of the machine
