"""A child process that runs a small pipeline, fixes it and runs what failed again.

`python -m tests.crash.kit.pipeline_life --database URL --effects FILE [--kill-at N]`: every
question leaves one line in the effects file, so that what was asked can be held against what is
remembered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from pathlib import Path

from rota import Rota
from rota.ai.base import Request
from rota.ai.offline import Offline
from rota.errors import Rejected, WrongState
from rota.pipelines.outcome import PipelineResult
from tests.crash.kit.worker import QUICK
from tests.crash.kit.workflow_life import arm
from tests.kit import PATIENCE_S, Effects
from tests.pipelines.kit import write

TEXT = """
name: Story
input: {items: [{w: a}, {w: b}, {w: c}, {w: d}]}
filter: {type: ai, ai: {prompt: "Keep {{w}}?", parallel: 1}}
map: {prompt: "Say {{w}}", parallel: 1}
reduce: {type: ai, prompt: "Join {{COUNT}} {{RESULTS}}"}
"""
GRAPH = """
name: Graph
nodes:
  a: {kind: load, source: {type: inline, items: [{w: a}, {w: b}, {w: c}]}}
  say: {kind: map, from: a, prompt: "Say {{w}}", parallel: 1}
  keep: {kind: filter, from: say, rule: {type: ai, prompt: "Keep {{w}}?", parallel: 1}}
  join: {kind: reduce, from: keep, type: ai, prompt: "Join {{COUNT}}"}
"""
# d is not kept, and c is refused once, so there are two reduces.
QUESTIONS = [
    *(f"Keep {letter}?" for letter in "abcd"),
    *(f"Say {letter}" for letter in "abc"),
    'Join 3 ["Say a","Say b"]',
    'Join 3 ["Say a","Say b","Say c"]',
]
GRAPH_QUESTIONS = [
    *(f"Keep {letter}?" for letter in "abc"),
    *(f"Say {letter}" for letter in "abc"),
    "Join 3",
]


def answering(effects: Effects) -> Offline:
    """Says the question back, after it has noted it."""

    def answer(request: Request) -> str:
        label = request.prompt.splitlines()[0]
        first = effects.count(label) == 0
        effects.add(label)
        if label.startswith("Keep"):
            return "no" if "d" in label else "yes"
        if label == "Say c" and first:
            raise Rejected("not at the first time")
        return label

    return Offline(replies=answer)


async def live(url: str, effects: Effects, folder: Path, text: str) -> PipelineResult:
    """Run it to its end (again, for all we know), then what failed."""
    app = Rota(url, migrate=True, **QUICK)
    app.pipelines.use(answering(effects))
    async with app:
        ref = await app.pipelines.start(write(folder, text), external_id="one")
        result: PipelineResult = await ref.result(timeout=PATIENCE_S)
        if result.outcome == "partial":
            with contextlib.suppress(WrongState):  # it was on its way already
                await app.pipelines.retry(ref.id)
            result = await _next(app, ref.id)
        return result


async def _next(app: Rota, root_id: str) -> PipelineResult:
    """The result of the attempt after a partial one."""
    while True:
        ended = await app.runs.wait(root_id, timeout=PATIENCE_S)
        if (ended.status, ended.reason) == ("completed", None):
            return await app.pipelines.result(root_id)


def main() -> None:
    """The child process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True)
    parser.add_argument("--effects", required=True)
    parser.add_argument("--kill-at", type=int, default=0)
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args()
    if options.kill_at:
        arm(options.kill_at)
    effects = Effects(options.effects)
    folder = Path(options.effects).parent / "story"
    text, questions = (GRAPH, GRAPH_QUESTIONS) if options.graph else (TEXT, QUESTIONS)
    result = asyncio.run(live(options.database, effects, folder, text))
    assert result.outcome == "completed", result
    assert result.output == questions[-1], result
    # The first question about c is refused, and so not charged for.
    charged = len(effects.read()) - 1
    assert result.calls - result.unanswered_calls <= charged <= result.calls, (charged, result)


if __name__ == "__main__":
    main()
