"""Imported by the server of forks alone: what every life would else load for itself, at a cost
many times that of living."""

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
    "tests.crash.automation_life",
    "tests.crash.pipeline_story",
    "tests.crash.story",
    "tests.crash.verbs",
    "tests.tools.child",
):
    import_module(name)
http._trust()  # reads the certificates of the machine
