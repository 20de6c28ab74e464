"""Bad days: broken providers, unknown prices, stops in the middle, runs that take too long."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.ai.base import Estimate, Reply, Request
from rota.errors import BadInput, RunFailed, StoreUnreachable, WrongState
from rota.pipelines.outcome import Progress
from rota.pipelines.run.reduce import results_file
from rota.store.runs import history
from tests.ai.kit.model_server import Model, Say
from tests.kit import until
from tests.pipelines.kit import write
from tests.pipelines.kit.live_app import ai_settings, world

WORDS = """
name: Words
settings: {retry: {maxRetries: 3, retryDelayMs: 1}}
input: {items: [{w: a}, {w: b}, {w: c}]}
map: {prompt: "Say {{w}}", parallel: 1}
reduce: {type: json}
"""


async def test_an_open_breaker_is_waited_for_and_costs_no_attempt(
    database_url: str, tmp_path: Path
) -> None:
    broken = [Say(status=500, raw=b"{}") for _ in range(2)]
    async with world(database_url, tmp_path, Model(*broken)) as it:
        limits = {"failures_max": 1, "open_s": 0.05}
        it.app.pipelines.use(ai_settings(it.model.url, limits=limits))
        # Two failures are all that is allowed; while the breaker is open nothing fails.
        result = await it.run(WORDS.replace("maxRetries: 3", "maxRetries: 2"))
        assert result.outcome == "completed"
        assert len(it.prompts) == 5


async def test_a_budget_in_money_needs_a_price(database_url: str, tmp_path: Path) -> None:
    text = WORDS.replace("settings: {", "settings: {budget: {maxCost: 1.0}, ")
    async with world(database_url, tmp_path) as it:
        unpriced = {**ai_settings(it.model.url), "prices": {}}
        it.app.pipelines.use(unpriced)
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="no price is known"):
            await ref.result(timeout=60)
        assert it.prompts == []


async def test_money_is_counted_and_never_overspent(database_url: str, tmp_path: Path) -> None:
    # One call is 11 tokens in and 7 out: 25 millionths of a dollar; 2069 are held before it.
    limited = "settings: {maxTokens: 1000, budget: {maxCost: 0.002100}, "
    text = WORDS.replace("settings: {", limited)
    async with world(database_url, tmp_path) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        await it.app.runs.wait(ref.id, timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert result.outcome == "failed"
        assert result.cost_usd <= 0.002100
        assert result.processed == len(it.prompts) == 2


@pytest.mark.wall_clock("the first call must be answered within the second that the run has")
async def test_a_run_as_a_whole_may_take_so_long(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(Say(), Say(way="hang"))) as it:
        ref = await it.app.pipelines.start(it.pipeline(WORDS), timeout=1.0)
        with pytest.raises(RunFailed, match="took longer than 1 s"):
            await ref.result(timeout=60)
        await asyncio.wait_for(it.model.hung_up.wait(), 60)
        result = await it.app.pipelines.result(ref.id)
        assert (result.processed, result.skipped) == (1, 2)


async def test_a_stopping_worker_hands_the_run_over(database_url: str, tmp_path: Path) -> None:
    model = Model(Say(), Say(way="hang"))
    async with world(database_url, tmp_path, model, stop_s=0.1) as it:
        folder = it.pipeline(WORDS)
        ref = await it.app.pipelines.start(folder)
        while len(it.prompts) < 2:
            model.reached.clear()
            await asyncio.wait_for(model.reached.wait(), 60)
        await it.app.stop_worker()
        assert await ref.status() == "pending"
        other = Rota(database_url, migrate=True)
        other.pipelines.use(ai_settings(model.url))
        other.pipelines.know("work", folder)
        async with other:
            result = await other.pipelines.result(
                (await other.runs.wait(ref.id, timeout=60)).root_id
            )
        assert (result.outcome, result.processed) == ("completed", 3)
        assert len(it.prompts) == 4


async def test_a_broken_listener_disturbs_nobody(database_url: str, tmp_path: Path) -> None:
    def broken(progress: Progress) -> None:
        raise RuntimeError("no")

    async with world(database_url, tmp_path) as it:
        stop = it.app.pipelines.listen(broken)
        assert (await it.run(WORDS)).outcome == "completed"
        stop()
        stop()


class Odd:
    """An invoker of a user that raises an unexpected exception."""

    name = "odd"

    async def ask(self, request: Request) -> Reply:
        if "b" in request.prompt.split():
            raise ZeroDivisionError("oops")
        return Reply("fine", "odd", 1, 1, None)

    def estimate(self, request: Request) -> Estimate:
        return Estimate("odd", 1, 1, None)


async def test_an_invoker_of_ones_own_may_raise_anything(database_url: str, tmp_path: Path) -> None:
    app = Rota(database_url, migrate=True)
    app.pipelines.use(Odd())
    async with app:
        ref = await app.pipelines.start(write(tmp_path / "odd", WORDS))
        result = await ref.result(timeout=60)
        assert (result.outcome, result.failed) == ("partial", 1)
        assert (result.errors[0].type, result.errors[0].message) == ("ZeroDivisionError", "oops")
        assert (result.unpriced_calls, result.cost_usd) == (2, 0.0)


async def test_text_in_items_comes_out_as_it_went_in(database_url: str, tmp_path: Path) -> None:
    odd = ["{{w}}", "$1 \\1 %s", 'a "quote", b', "é\u2028🙂", "x" * 70_000, "line\nline"]
    text = """
name: Odd
input: {items: []}
map: {prompt: "{{w}}"}
reduce: {type: json}
"""
    async with world(database_url, tmp_path, Model(answer=lambda asked: Say(text="ok"))) as it:
        result = await it.run(text, items=[{"w": each} for each in odd])
        assert sorted(it.prompts) == sorted(odd)
        assert [row["input"]["w"] for row in json.loads(result.output or "")] == odd


@pytest.mark.parametrize(
    "source",
    ["{items: [{w: a}, {w: b}]}", "{from: [{w: a}]}", "{from: {type: csv, path: gone.csv}}",
     "{from: {type: stdin}}", '{generate: {prompt: "Words", schema: [w]}}'],
)  # fmt: skip
async def test_items_of_the_start_take_the_place_of_those_of_the_file(
    database_url: str, tmp_path: Path, source: str
) -> None:
    text = WORDS.replace("{items: [{w: a}, {w: b}, {w: c}]}", source)
    async with world(database_url, tmp_path) as it:
        result = await it.run(text, items=[{"w": "x"}, {"w": "y"}])
        assert result.outcome == "completed"
        assert sorted(it.prompts) == ["Say x", "Say y"]


async def test_no_items_of_the_start_are_no_items(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path) as it:
        result = await it.run(WORDS, items=[])
        assert (result.outcome, result.total, it.prompts) == ("completed", 0, [])


async def test_a_limit_of_the_start_overrides_that_of_the_file(
    database_url: str, tmp_path: Path
) -> None:
    linear = WORDS.replace("{w: c}]}", "{w: c}], limit: 1}")
    graph = """
name: G
nodes:
  load: {kind: load, limit: 1, source: {type: inline, items: [{w: a}, {w: b}, {w: c}]}}
  say: {kind: map, from: load, prompt: "Say {{w}}"}
"""
    async with world(database_url, tmp_path) as it:
        for name, text in (("linear", linear), ("graph", graph)):
            result = await it.run(text, name=name, limit=2)
            assert (name, result.processed) == (name, 2)
        job = it.pipeline('name: J\njob: {prompt: "Hi"}\n', "job")
        with pytest.raises(BadInput, match="no items to limit"):
            await it.app.pipelines.start(job, limit=2)


async def test_items_are_refused_where_they_make_no_sense(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        job = it.pipeline('name: J\njob: {prompt: "Hi"}\n', "job")
        with pytest.raises(BadInput, match="takes no items"):
            await it.app.pipelines.start(job, items=[{"a": 1}])
        with pytest.raises(BadInput, match="filled in by the runner"):
            await it.app.pipelines.start(job, parameters={"ITEMS": "x"})
        big: list[dict[str, Any]] = [{"w": "x" * 3_000_000}]
        words = it.pipeline(WORDS.replace("[{w: a}, {w: b}, {w: c}]", "[]"))
        with pytest.raises(Exception, match="bytes"):
            await it.app.pipelines.start(words, items=big)
        assert await it.app.runs.list() == []


async def test_no_items_is_no_failure(database_url: str, tmp_path: Path) -> None:
    text = """
name: None
input: {items: [{w: 1}], limit: 0}
map: {prompt: "{{w}}"}
reduce: {type: ai, prompt: "Join {{RESULTS}}"}
"""
    async with world(database_url, tmp_path) as it:
        result = await it.run(text)
        assert (result.outcome, result.total, result.calls) == ("completed", 0, 0)
        assert result.warnings == ["there was nothing to reduce"]


async def test_a_failed_reduce_keeps_the_items_and_is_all_that_is_done_again(
    database_url: str, tmp_path: Path
) -> None:
    text = WORDS.replace("reduce: {type: json}", 'reduce: {type: ai, prompt: "Join {{RESULTS}}"}')
    refuse = Say(status=400, raw=b'{"error": "no"}')
    async with world(database_url, tmp_path, Model(Say(), Say(), Say(), refuse)) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="Rejected"):
            await ref.result(timeout=60)
        result = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert result.outcome == "completed"
        assert len(it.prompts) == 5


async def test_the_results_file_of_a_prompt_holds_all_results(
    database_url: str, tmp_path: Path
) -> None:
    text = WORDS.replace(
        "reduce: {type: json}", 'reduce: {type: ai, prompt: "Read {{RESULTS_FILE}}"}'
    )
    seen: list[Any] = []
    modes: list[int] = []

    def answer(asked: Any) -> Say:
        prompt = asked.body["messages"][-1]["content"]
        if prompt.startswith("Read "):
            place = Path(prompt.split()[1])
            seen.append(json.loads(place.read_text()))
            modes.append(place.stat().st_mode & 0o777)
        return Say(text="done")

    async with world(database_url, tmp_path, Model(answer=answer)) as it:
        result = await it.run(text)
        assert seen == [["done"] * 3]
        assert result.output == "done"
        path = Path(it.prompts[-1].split()[1])
        assert not path.exists()
        assert modes == [0o600]


def test_a_link_in_the_place_of_the_results_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "results.json").symlink_to(tmp_path / "precious")
    with results_file(iter(["1", "2"]), tmp_path / "results.json") as name:
        assert Path(name).read_text() == "[1,2]"
    assert (tmp_path / "precious").read_text() == "mine"


async def test_a_schedules_retry_policy_tries_the_run_again(
    database_url: str, tmp_path: Path
) -> None:
    refuse = [Say(status=400, raw=b'{"error": "no"}') for _ in range(3)]
    async with world(database_url, tmp_path, Model(*refuse)) as it:
        fresh = await it.app.pipelines.start(it.pipeline(WORDS), retries=1, retry_delay_s=0.01)
        result = await fresh.result(timeout=60)
        assert (result.outcome, result.processed) == ("completed", 3)
        assert [run.label for run in await it.app.runs.chain(fresh.id)] == [
            "failed:logic",
            "completed",
        ]
        stored = msgspec.json.decode((await it.app.runs.chain(fresh.id))[0].output or "{}")
        assert stored["outcome"] == "failed"


async def test_a_reply_with_half_a_character_harms_nobody(
    database_url: str, tmp_path: Path
) -> None:
    text = WORDS.replace("parallel: 1", "output: [said]")
    half = Say(text='{"said": "a\\ud800b"}')
    async with world(database_url, tmp_path, Model(answer=lambda asked: half)) as it:
        result = await it.run(text)
        assert result.outcome == "completed"
        assert [row["output"]["said"] for row in json.loads(result.output or "")] == ["a?b"] * 3


async def test_a_pipeline_run_is_not_forked(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path) as it:
        ref = await it.app.pipelines.start(it.pipeline(WORDS))
        await ref.result(timeout=60)
        with pytest.raises(WrongState, match="not forked"):
            await it.app.runs.fork(ref.id, from_step="x")


async def test_a_folder_that_moved_is_found_where_it_is_known_to_be(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        await it.app.stop_worker()
        ref = await it.app.pipelines.start(it.pipeline(WORDS))
        (tmp_path / "work").rename(tmp_path / "gone")
        await it.app.start_worker()
        with pytest.raises(RunFailed, match="is not there"):
            await ref.result(timeout=60)
        it.app.pipelines.know("work", tmp_path / "gone")
        result = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert result.processed == 3
        assert (tmp_path / "gone" / (result.result_file or "")).is_file()


async def test_a_reduce_of_equal_content_is_taken_over_too(
    database_url: str, tmp_path: Path
) -> None:
    text = WORDS.replace("reduce: {type: json}", 'reduce: {type: ai, prompt: "Join {{RESULTS}}"}')
    async with world(database_url, tmp_path) as it:
        first = await it.app.pipelines.start(it.pipeline(text))
        await first.result(timeout=60)
        again = await it.app.pipelines.start(it.pipeline(text), cache_from=first.id)
        result = await again.result(timeout=60)
        assert (result.outcome, result.calls, result.cost_usd) == ("completed", 0, 0.0)
        assert result.output == (await it.app.pipelines.result(first.id)).output
        assert len(it.prompts) == 4


async def test_a_database_that_is_away_for_a_while_fails_no_item(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(database_url, tmp_path) as it:
        real = it.app.connection.database.read
        calls = 0

        async def sometimes(function: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls % 3 == 0:
                raise StoreUnreachable("gone for a moment")
            return await real(function, *args, **kwargs)

        ref = await it.app.pipelines.start(it.pipeline(WORDS))
        monkeypatch.setattr(it.app.connection.database, "read", sometimes)
        ended = await until(lambda: _ended(it.app, ref.id, real))
        assert ended == "completed"
        monkeypatch.undo()
        result = await it.app.pipelines.result(ref.id)
        assert (result.outcome, result.processed) == ("completed", 3)
        assert len(it.prompts) == 3


async def _ended(app: Rota, run_id: str, read: Any) -> str | None:
    [*_, last] = await read(history.chain, root_id=run_id)
    return last.label if last.is_final else None
