"""Workers and queues registered by hand, without a process."""

from __future__ import annotations

import asyncio
import os

import msgspec

from rota.client.client import Client
from rota.core.runs.model import Queue, WorkerRecord
from rota.engine import process_identity
from rota.store.runs import workers
from tests.cli.kit import Shell
from tests.kit.builders import worker_row


def sign_on(shell: Shell, *rows: WorkerRecord, age_us: int = 0) -> None:
    """Write worker rows with a last heartbeat that is that old."""

    async def write() -> None:
        async with Client(shell.url, settings=shell.app().settings) as client:
            at = client.clock.now() - age_us
            for row in rows:
                fresh = msgspec.structs.replace(row, started_at=at, heartbeat_at=at)
                await client.connection.database.write(workers.register, fresh)

    asyncio.run(write())


def declare(shell: Shell, *queues: Queue) -> None:
    """Write queue limits, as a worker does when it signs on."""

    async def write() -> None:
        async with Client(shell.url) as client:
            await client.connection.database.write(workers.put_queues, queues)

    asyncio.run(write())


def mine(worker_id: str) -> WorkerRecord:
    """A worker of this process."""
    pid = os.getpid()
    return worker_row(
        worker_id, host=process_identity.host(), pid=pid, pid_started=process_identity.started(pid)
    )
