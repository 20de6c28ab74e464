"""A child process that runs a pipeline into its budget.

`python -m tests.crash.kit.budget_life --database URL --effects FILE [--kill-at N]`: every call that
the provider charges for leaves one line in the effects file, before it is answered: its tokens, the
slot of the ledger that it was sent from, and whether an answer follows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import zlib
from pathlib import Path
from typing import Any, cast

from rota import Rota
from rota.ai.base import Reply, Request, announced, estimated_tokens, passing
from rota.ai.model_data import TokenUsage
from rota.ai.offline import Offline
from rota.pipelines.outcome import PipelineResult
from rota.pipelines.run.call_ledger import Slot
from tests.crash.kit.worker import QUICK
from tests.crash.kit.workflow_life import arm
from tests.kit import PATIENCE_S, Effects
from tests.pipelines.kit import write

CALLS_MAX, TOKENS_MAX, ANSWER_MAX = 8, 900, 100
TEXT = f"""
name: Budget
settings:
  maxTokens: {ANSWER_MAX}
  retry: {{maxRetries: 1, retryDelayMs: 0, maxTokensFactor: 1}}
  budget: {{maxCalls: {CALLS_MAX}, maxTokens: {TOKENS_MAX}}}
input: {{items: [{", ".join(f"{{w: {number}}}" for number in range(14))}]}}
map: {{prompt: "Say {{{{w}}}}", parallel: 3}}
reduce: {{type: json}}
"""


class Charging(Offline):
    """Charges for answers of different lengths; it refuses some, and hangs up on others."""

    announces = True

    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self._effects = effects

    async def ask(self, request: Request) -> Reply:
        slot: Slot = cast("Any", request.begin).__self__
        request = await announced(request)
        number = zlib.crc32(request.prompt.encode())
        if number % 7 == 0 and not self._effects.count(f"refused {request.prompt}"):
            self._effects.add(f"refused {request.prompt}")
            raise passing("busy")
        asked = estimated_tokens(request)[0]
        said = min(20 + number % 120, request.max_tokens or 0)
        answers = number % 5 != 0
        self._effects.add(f"{asked + said} {slot.key} {'answers' if answers else 'hangs-up'}")
        if not answers:
            raise passing("hung up", sent=True)
        return self.reply(request, "said", used=TokenUsage(asked, said))


async def live(url: str, effects: Effects, folder: Path) -> PipelineResult:
    """Run until the budget is spent (again, for all we know)."""
    app = Rota(url, migrate=True, **QUICK)
    app.pipelines.use(Charging(effects))
    async with app:
        ref = await app.pipelines.start(write(folder, TEXT), external_id="one")
        await app.runs.wait(ref.id, timeout=PATIENCE_S)
        return await app.pipelines.result(ref.id)


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    options = parser.parse_args()
    if options.kill_at:
        arm(options.kill_at)
    folder = Path(options.effects).parent
    result = asyncio.run(live(options.database, Effects(options.effects), folder / "budget"))
    reported = {
        "outcome": result.outcome, "calls": result.calls, "tokens": result.tokens,
        "unanswered": result.unanswered_calls, "error": result.error,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(reported))


if __name__ == "__main__":
    main()
