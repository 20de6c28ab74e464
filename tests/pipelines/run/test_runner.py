"""Pipelines from end to end: the input, the questions and the output."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from rota import Rota
from rota.core.time.instants import SECOND
from rota.errors import BadInput, RunCancelled, RunFailed
from rota.pipelines.definition.loader import read_pipeline
from rota.pipelines.outcome import ItemOutcome
from rota.testing import virtual
from tests.ai.kit.model_server import Model, Say
from tests.engine.kit import ghost_claim
from tests.kit import until
from tests.pipelines.kit import write
from tests.pipelines.kit.live_app import ai_settings, says, waits_for_person, world

BUGS = """
name: Bugs
input:
  from: {type: csv, path: bugs.csv}
filter:
  type: rule
  rule: {rules: [{field: state, operator: equals, value: open}]}
map:
  prompt: "Categorize: {{title}}"
  output: [severity, {name: points, type: integer}]
  retry: {maxRetries: 1, retryDelayMs: 1}
reduce:
  type: json
"""

WORDS = """
name: Words
input: {items: [{w: a}, {w: b}, {w: c}]}
map: {prompt: "Say {{w}}", retry: {maxRetries: 1, retryDelayMs: 1}}
reduce: {type: %s}
"""


def put_bugs(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "id,title,state\n007,Crash at start,open\n008,Typo,closed\n009,Slow list,open\n"
    (folder / "bugs.csv").write_text("\ufeff" + rows)


def graded(prompt: str) -> Any:
    return {"severity": "high" if "Crash" in prompt else "low", "points": "3"}


async def test_a_csv_is_filtered_mapped_and_reduced(database_url: str, tmp_path: Path) -> None:
    put_bugs(tmp_path / "work")
    async with world(database_url, tmp_path, Model(answer=says(graded))) as it:
        result = await it.run(BUGS)
        assert result.outcome == "completed"
        assert result.success
        assert (result.total, result.processed, result.filtered) == (3, 2, 1)
        rows = json.loads(result.output or "")
        assert [row["input"]["id"] for row in rows] == ["007", "009"]
        assert [row["output"] for row in rows] == [
            {"severity": "high", "points": 3}, {"severity": "low", "points": 3},
        ]  # fmt: skip
        assert (result.calls, result.tokens_in, result.tokens_out) == (2, 22, 14)
        assert result.cost_usd == pytest.approx((22 * 1.0 + 14 * 2.0) / 1e6)
        assert it.prompts[0].startswith("Categorize: ")
        assert all(asked.body["model"] == "tiny" for asked in it.model.asked)


async def test_the_results_file_holds_every_item_that_the_filter_kept(
    database_url: str, tmp_path: Path
) -> None:
    put_bugs(tmp_path / "work")
    async with world(database_url, tmp_path, Model(answer=says(graded))) as it:
        result = await it.run(BUGS)
        assert result.result_file is not None
        stored = json.loads((tmp_path / "work" / result.result_file).read_text())
        assert stored["outcome"] == "completed"
        assert stored["output"] == result.output
        statuses = [each["status"] for each in stored["items"]]
        assert statuses == ["completed", "completed"]
        assert stored["filtered"] == 1


async def test_a_failed_item_makes_a_partial_result(database_url: str, tmp_path: Path) -> None:
    def refuse_b(prompt: str) -> Any:
        return Say(status=400, raw=b'{"error": {"message": "no"}}') if "b" in prompt else "fine"

    async with world(database_url, tmp_path, Model(answer=says(refuse_b))) as it:
        ref = await it.app.pipelines.start(it.pipeline(WORDS % "csv"))
        result = await ref.result(timeout=60)
        assert (result.outcome, result.processed, result.failed) == ("partial", 2, 1)
        assert result.exit_code == 7
        assert [(each.position, each.type) for each in result.errors] == [(1, "Rejected")]
        assert await ref.status() == "completed:partial"
        rows = list(csv.DictReader(io.StringIO(result.output)))
        assert [row["out_success"] for row in rows] == ["true", "false", "true"]
        # A rejected question is never asked again.
        assert len(it.prompts) == 3


async def test_what_may_pass_is_tried_again(database_url: str, tmp_path: Path) -> None:
    broken = Say(status=500, raw=b"{}")
    async with world(database_url, tmp_path, Model(broken)) as it:
        result = await it.run(WORDS % "list")
        assert result.outcome == "completed"
        assert len(it.prompts) == 4
        assert result.calls == it.model.usage.calls == 3  # a call that was refused costs nothing


async def test_a_throttled_call_waits_and_costs_no_attempt(
    database_url: str, tmp_path: Path
) -> None:
    slow = [Say(status=429, raw=b"{}", headers={"retry-after": "0.01"}) for _ in range(5)]
    async with world(database_url, tmp_path, Model(*slow)) as it:
        text = (WORDS % "list").replace("maxRetries: 1", "maxRetries: 0")
        result = await it.run(text)
        assert result.outcome == "completed"
        assert len(it.prompts) == 8


async def test_a_run_all_of_whose_items_fail_has_failed(database_url: str, tmp_path: Path) -> None:
    no = Model(answer=lambda asked: Say(status=400, raw=b'{"error": {"message": "never"}}'))
    async with world(database_url, tmp_path, no) as it:
        ref = await it.app.pipelines.start(it.pipeline(WORDS % "list"))
        with pytest.raises(RunFailed, match="all 3 items failed"):
            await ref.result(timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert (result.outcome, result.failed, result.exit_code) == ("failed", 3, 1)


async def test_a_reply_that_cannot_be_read_is_asked_for_once_more(
    database_url: str, tmp_path: Path
) -> None:
    put_bugs(tmp_path / "work")
    seen: list[str] = []

    def answer(prompt: str) -> Any:
        seen.append(prompt)
        if "Crash" not in prompt:
            return {"severity": "low", "points": "many"}
        wrong = "[What was wrong with it]" not in prompt
        return "no idea" if wrong else {"severity": "high", "points": 1}

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(BUGS)
        assert (result.processed, result.failed) == (1, 1)
        assert result.errors[0].type == "BadReply"
        assert '"points" must be a whole number' in result.errors[0].message
        assert len(seen) == 4
        kept = [each async for each in it.app.pipelines.items((await it.app.runs.list())[0].id)]
        assert '"many"' in (kept[1].raw or "")
        await assert_pages(it.app, kept)


async def assert_pages(app: Rota, whole: list[ItemOutcome]) -> None:
    """Pages of items are the items, by status too."""
    run_id = (await app.runs.list())[0].id
    first = await app.pipelines.items_page(run_id, limit=1)
    assert first.next == 1
    rest = await app.pipelines.items_page(run_id, after=first.next)
    assert ([*first.items, *rest.items], rest.next) == (whole, None)
    failed = await app.pipelines.items_page(run_id, status="failed")
    assert failed.items == [each for each in whole if each.status == "failed"]
    with pytest.raises(BadInput, match="there is no status 'bad'"):
        await app.pipelines.items_page(run_id, status="bad")


@pytest.mark.wall_clock("the other calls must be answered in a tenth of a second")
async def test_a_call_that_takes_too_long_is_cancelled(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(Say(way="hang"))) as it:
        text = (WORDS % "list").replace("map: {", "map: {timeoutMs: 100, ")
        result = await it.run(text)
        assert result.outcome == "completed"
        await asyncio.wait_for(it.model.hung_up.wait(), 60)
        assert len(it.prompts) == 4


@pytest.mark.parametrize("kind", ["list", "table", "json", "csv", "text"])
async def test_every_form_of_reduce_keeps_all_of_a_long_reply(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    long = "x" * 30_000
    async with world(database_url, tmp_path, Model(answer=says(lambda prompt: long))) as it:
        result = await it.run(WORDS % kind)
        assert (result.output or "").count(long) == 3
        assert result.output_chars == len(result.output or "")
        stored = (await it.app.runs.list())[0]
        assert len(stored.output or "") < 2000


async def test_an_ai_reduces_what_does_not_fit_in_parts(database_url: str, tmp_path: Path) -> None:
    text = """
name: Big
input: {items: [{w: a}, {w: b}, {w: c}, {w: d}]}
map: {prompt: "Say {{w}}"}
reduce: {type: ai, maxChars: 1000, prompt: "Join {{COUNT}} of {{RESULTS}}", output: [all]}
"""

    def answer(prompt: str) -> Any:
        if prompt.startswith("Say"):
            return prompt[4] * 450
        reported = prompt.split("of ", 1)[1].split("\n", maxsplit=1)[0]
        letters = "".join(sorted({letter for text in json.loads(reported) for letter in text}))
        return {"all": letters} if "JSON object" in prompt else letters

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(text)
        assert result.outcome == "completed"
        assert result.output_fields == {"all": "abcd"}
        parts = [prompt for prompt in it.prompts if "[Part " in prompt]
        assert len(parts) == 2
        assert result.calls == 4 + 2 + 1


async def test_a_job_is_one_call_with_parameters(database_url: str, tmp_path: Path) -> None:
    text = """
name: Job
parameters: {topic: cats, tone: dry}
job: {prompt: "Write about {{topic}}, {{tone}}", output: [title]}
"""
    title = Model(answer=says(lambda prompt: {"title": "On " + prompt.split()[2]}))
    async with world(database_url, tmp_path, title) as it:
        result = await it.run(text, parameters={"topic": "dogs"})
        assert result.output_fields == {"title": "On dogs,"}
        assert (result.total, result.processed, result.calls) == (1, 1, 1)
        assert it.prompts[0].startswith("Write about dogs, dry")


async def test_a_budget_stops_the_run_before_it_is_passed(
    database_url: str, tmp_path: Path
) -> None:
    items = ", ".join(f"{{w: {n}}}" for n in range(20))
    text = f"""
name: Budget
settings: {{budget: {{maxCalls: 7}}}}
input: {{items: [{items}]}}
map: {{prompt: "Say {{{{w}}}}", parallel: 3}}
reduce: {{type: list}}
"""
    async with world(database_url, tmp_path) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="BudgetSpent"):
            await ref.result(timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert (result.outcome, result.processed, result.skipped) == ("failed", 7, 13)
        assert len(it.prompts) == 7


async def test_a_budget_of_tokens_is_kept_too(database_url: str, tmp_path: Path) -> None:
    items = ", ".join(f"{{w: {n}}}" for n in range(20))
    text = f"""
name: Budget
settings: {{maxTokens: 200, budget: {{maxTokens: 500}}}}
input: {{items: [{items}]}}
map: {{prompt: "Say {{{{w}}}}", parallel: 4}}
reduce: {{type: list}}
"""
    async with world(database_url, tmp_path) as it:
        result = await it.run(text)
        assert result.outcome == "failed"
        assert 0 < result.tokens <= 500
        assert result.skipped == 20 - result.processed


async def test_cancelling_ends_the_calls_and_keeps_what_is_done(
    database_url: str, tmp_path: Path
) -> None:
    hang = Say(way="hang")
    model = Model(Say(), Say(), hang)
    async with world(database_url, tmp_path, model) as it:
        text = (WORDS % "json").replace("map: {", "map: {parallel: 1, ")
        ref = await it.app.pipelines.start(it.pipeline(text))
        while len(it.prompts) < 3:
            model.reached.clear()
            await asyncio.wait_for(model.reached.wait(), 60)
        await ref.cancel()
        await asyncio.wait_for(model.hung_up.wait(), 60)
        with pytest.raises(RunCancelled):
            await ref.result(timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert (result.outcome, result.processed, result.skipped) == ("cancelled", 2, 1)
        assert result.exit_code == 130
        name = await it.app.pipelines.write_results(ref.id)
        assert name is not None
        again = await it.app.pipelines.retry(ref.id)
        result = await again.result(timeout=60)
        assert (result.outcome, result.processed) == ("completed", 3)
        assert len(it.prompts) == 4


async def test_a_run_with_a_bad_key_waits_for_a_person_and_keeps_its_items(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(Say(), Say(status=401, raw=b'{"error": {"message": "bad key"}}'))
    async with world(database_url, tmp_path, model) as it:
        text = (WORDS % "json").replace("map: {", "map: {parallel: 1, ")
        ref = await it.app.pipelines.start(it.pipeline(text))
        await until(lambda: waits_for_person(it.app, ref.id, "auth"))
        result = await it.app.pipelines.result(ref.id)
        assert (result.outcome, result.processed) == ("failed", 1)
        assert "bad key" in (result.error or "")
        assert len(it.prompts) == 2
        result = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert result.outcome == "completed"
        assert len(it.prompts) == 4


async def test_the_fields_of_a_retried_reduce_are_those_of_its_last_reply(
    database_url: str, tmp_path: Path
) -> None:
    bad = {"a", "b", "c"}

    def answer(prompt: str) -> Any:
        if prompt.startswith("Count"):
            return {"n": prompt.count("ok")}
        return Say(status=400, raw=b"{}") if prompt[-1] in bad else "ok"

    text = (WORDS % "json").replace("{type: json}", "").replace("{w: c}", "{w: c}, {w: d}")
    text += ' {type: ai, prompt: "Count {{RESULTS}}", output: [n]}'
    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        counts = []
        for name in ("a", "b", "c", None):
            result = await it.stopped(ref.id)
            counts.append((result.output_fields, json.loads(result.output or "")))
            if name is not None:
                bad.remove(name)
                await it.app.pipelines.retry(ref.id)
        assert counts == [({"n": n}, {"n": n}) for n in (1, 2, 3, 4)]


async def test_the_timeout_of_a_run_obeys_virtual_time(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TEST_KEY", "secret")
    text = (WORDS % "json").replace("name: ", "settings: {runTimeoutMs: 3600000}\nname: ", 1)
    async with Model(answer=lambda asked: Say(way="hang")).up() as model:
        app = Rota()
        app.pipelines.use(ai_settings(model.url))
        async with virtual(app, url=database_url) as time:
            ref = await app.pipelines.start(write(tmp_path / "work", text))
            await time.advance("59m")
            assert await ref.status() == "running"
            await time.advance("2m")
            assert await ref.status() == "failed:timeout"


async def test_the_timeout_of_a_run_is_one_deadline_across_recoveries(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_TEST_KEY", "secret")
    text = (WORDS % "json").replace("name: ", "settings: {runTimeoutMs: 180000}\nname: ", 1)
    async with Model(answer=lambda asked: Say(way="hang")).up() as model:
        app = Rota()
        app.pipelines.use(ai_settings(model.url))
        async with virtual(app, url=database_url) as time:
            run = await app.pipelines.start(write(tmp_path / "work", text))
            began = time.clock.now()
            for _ in range(2):  # two workers die, each after a minute
                await ghost_claim(app, "ghost", names=[(await app.runs.get(run.id)).name])
                time.clock.move_to(time.clock.now() + 60 * SECOND)
                await time.beat()
            await time.drain()
            rows = await app.runs.chain(run.id)
            assert [row.status for row in rows] == ["crashed", "crashed", "failed"]
            assert (rows[-1].reason, rows[-1].finished_at) == ("timeout", began + 180 * SECOND)


@pytest.mark.parametrize("option", [{"external_id": "a\0b"}, {"queue": ""}, {"priority": 2**40}])
async def test_bad_options_of_a_start_are_refused(
    database_url: str, tmp_path: Path, option: dict[str, Any]
) -> None:
    async with world(database_url, tmp_path) as it:
        with pytest.raises(BadInput):
            await it.app.pipelines.start(it.pipeline(WORDS % "json"), **option)
        assert await it.app.runs.list() == []


async def test_what_cannot_run_is_refused_before_anything_is_started(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        with pytest.raises(BadInput, match="missing"):
            await it.run(BUGS.replace("bugs.csv", "missing.csv"))
        put_bugs(tmp_path / "other")
        with pytest.raises(BadInput, match="titel"):
            await it.run(BUGS.replace("{{title}}", "{{titel}}"), name="other")
        generated = """
name: G
input: {generate: {prompt: "Make some", schema: [a]}}
map: {prompt: "{{a}}"}
reduce: {type: list}
"""
        with pytest.raises(BadInput, match="reviewed"):
            await it.run(generated, name="g")
        assert await it.app.runs.list() == []


async def test_progress_is_reported_and_counts_only_grow(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path) as it:
        await it.run(WORDS % "list")
        phases = list(dict.fromkeys(each.phase for each in it.reported))
        assert phases == ["begun", "loading", "mapping", "reducing", "ended"]
        mapping = [each for each in it.reported if each.phase == "mapping"]
        assert [each.done for each in mapping] == sorted(each.done for each in mapping)
        assert mapping[-1].done == mapping[-1].total == 3
        assert it.reported[-1].outcome == "completed"


async def test_a_run_goes_on_with_the_definition_it_began_with(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        folder = it.pipeline(WORDS % "text")
        loaded = read_pipeline(folder, now=it.app.clock.now())
        (folder / "pipeline.yaml").write_text("name: broken: [")
        ref = await it.app.pipelines.start(loaded)
        result = await ref.result(timeout=60)
        assert result.processed == 3
