"""A process that runs a pipeline to its end, or until it is killed.

python -m tests.pipelines.kit.child DATABASE_URL PIPELINE_FOLDER AI_URL [serve]
"""

from __future__ import annotations

import asyncio
import sys

from rota import Rota
from tests.pipelines.kit.live_app import ai_settings


async def main(url: str, folder: str, ai_url: str, *words: str) -> None:
    app = Rota(url, migrate=True, lease_s=20, heartbeat_s=0.2)
    app.pipelines.use(ai_settings(ai_url))
    if "serve" in words:
        app.pipelines.serve()
        await app.run_forever(asyncio.Event())
    async with app:
        ref = await app.pipelines.start(folder, external_id="one")
        result = await ref.result()
        counted = f"{result.processed} {result.calls} {result.unanswered_calls}"
        sys.stdout.write(f"{result.outcome} {counted}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
