"""One content key: the same call is made once, and a call with another content is another call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.errors import WrongState
from rota.pipelines.definition.sections import OutputField
from rota.pipelines.run.content_keys import CallContent, call_key, unasked_key
from tests.ai.kit.model_server import Asked, Model, Say
from tests.pipelines.kit.live_app import World, ai_settings, prompt_of, world

WORDS = """
name: Words
settings: {retry: {maxRetries: 0, retryDelayMs: 1}}
input: {items: [{w: a}, {w: b}]}
map: {prompt: "Say {{w}}"}
reduce: {type: json}
"""
BATCHED = WORDS.replace('"Say {{w}}"', '"Say {{ITEMS}}", batchSize: 2, output: [n]')
FILTERED = WORDS.replace("map:", 'filter: {type: ai, ai: {prompt: "Keep {{w}}?"}}\nmap:')
REDUCED = WORDS.replace("reduce: {type: json}", 'reduce: {type: ai, prompt: "Join {{RESULTS}}"}')
GRAPH = """
name: Graph
nodes:
  rows: {kind: load, source: {type: inline, items: [{w: a}, {w: b}]}}
  said: {kind: map, from: rows, prompt: "Say {{w}}"}
  all: {kind: ai, from: said, prompt: "Join {{ITEMS}}"}
"""
JOB = 'name: Job\njob: {prompt: "Hello"}\n'


def answers(asked: Asked) -> Say:
    """Say which model answered, in every form that the pipelines here need."""
    model, prompt = asked.body["model"], prompt_of(asked)
    if "Keep" in prompt:
        return Say(text="yes")
    if "JSON array" in prompt:
        return Say(text=f'[{{"n": "{model}"}}, {{"n": "{model}"}}]')
    return Say(text=model)


async def use(it: World, model: str) -> None:
    """The default model of the process."""
    await it.app.pipelines.close()
    it.app.pipelines.use({**ai_settings(it.model.url), "model": f"local:{model}"})


def models(it: World) -> list[str]:
    """The models that were asked since the last call."""
    found = [str(asked.body["model"]) for asked in it.model.asked]
    it.model.asked.clear()
    return found


@pytest.mark.parametrize(
    ("text", "calls"),
    [(WORDS, 2), (BATCHED, 1), (FILTERED, 4), (REDUCED, 3), (GRAPH, 3), (JOB, 1)],
    ids=["items", "batches", "filter", "reduce", "graph", "job"],
)
async def test_another_default_model_is_asked_again_and_the_same_one_is_not(
    database_url: str, tmp_path: Path, text: str, calls: int
) -> None:
    async with world(database_url, tmp_path, Model(answer=answers)) as it:
        await use(it, "A")
        first = await it.app.pipelines.start(it.pipeline(text))
        await it.stopped(first.id)
        assert models(it) == ["A"] * calls
        await use(it, "B")
        result = await it.run(text, cache_from=first.id)
        assert (models(it), result.calls) == (["B"] * calls, calls)
        assert "A" not in (result.output or "")
        await use(it, "A")
        result = await it.run(text, cache_from=first.id)
        assert (models(it), result.calls, result.outcome) == ([], 0, "completed")


async def test_a_batch_of_a_model_that_is_named_is_asked_again_with_another(tmp_path: Path) -> None:
    async with world(f"sqlite:///{tmp_path}/r.db", tmp_path, Model(answer=answers)) as it:
        first = await it.app.pipelines.start(it.pipeline(BATCHED), model="local:A")
        await it.stopped(first.id)
        for changed, start in (
            (BATCHED, {"model": "local:B"}),
            (BATCHED.replace("settings: {", "settings: {model: local:B, "), {}),
        ):
            models(it)
            result = await it.run(changed, cache_from=first.id, **start)
            assert models(it) == ["B"]
            assert "A" not in (result.output or "")


async def test_a_header_that_may_change_the_answer_is_part_of_the_key(tmp_path: Path) -> None:
    async with world(f"sqlite:///{tmp_path}/r.db", tmp_path, Model(answer=answers)) as it:
        first = await it.app.pipelines.start(it.pipeline(WORDS))
        await it.stopped(first.id)
        for name, calls in (("anthropic-beta", 2), ("OpenAI-Project", 0)):
            models(it)
            changed = WORDS.replace("settings: {", f"settings: {{headers: {{{name}: x}}, ")
            await it.run(changed, cache_from=first.id)
            assert len(models(it)) == calls, name


async def failed_half(it: World, text: str = WORDS) -> str:
    """A run of model A of which the second item has failed."""
    await use(it, "A")
    it.model.said = [Say(text="A"), Say(status=400, raw=b"{}")]
    ref = await it.app.pipelines.start(it.pipeline(text), parallel=1)
    assert (await it.stopped(ref.id)).outcome == "partial"
    models(it)
    return str(ref.id)


async def test_a_retry_under_another_default_model_is_refused_until_one_is_chosen(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(answer=answers)) as it:
        run_id = await failed_half(it)
        await use(it, "B")
        with pytest.raises(
            WrongState, match="began with the model local:A; here it would be local:B"
        ) as caught:
            await it.app.pipelines.retry(run_id)
        assert "--model local:A or --model local:B" in caught.value.advice
        assert models(it) == []
        await it.app.pipelines.retry(run_id, model="local:A")
        assert (await it.stopped(run_id)).outcome == "completed"
        assert models(it) == ["A"]


async def test_a_model_that_is_chosen_answers_what_is_left(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(answer=answers)) as it:
        run_id = await failed_half(it)
        await use(it, "B")
        await it.app.pipelines.retry(run_id, model="local:B")
        assert (await it.stopped(run_id)).outcome == "completed"
        assert models(it) == ["B"]
        found = [each.text async for each in it.app.pipelines.items(run_id)]
        assert found == ["A", "B"]


async def test_a_run_that_another_process_continues_keeps_its_model(
    database_url: str, tmp_path: Path
) -> None:
    """A login that is missing hands the run over; the next process has another default model."""
    async with world(database_url, tmp_path, Model(answer=answers)) as it:
        await use(it, "A")
        it.model.said = [Say(text="A"), Say(status=401, raw=b"{}")]
        ref = await it.app.pipelines.start(it.pipeline(WORDS), parallel=1)
        await it.stopped(ref.id)
        models(it)
        await use(it, "B")
        await it.app.runs.retry(ref.id)
        assert (await it.stopped(ref.id)).outcome == "completed"
        assert models(it) == ["A"]


CONTENT = CallContent(provider="p", model="m", prompt="x")
CHANGES: dict[str, Any] = {
    "provider": "q", "model": "n", "prompt": "y", "system": "s", "temperature": 0.0,
    "body": {"top_p": 1}, "headers": {"anthropic-beta": "b"}, "fields": [OutputField(name="f")],
    "batch": 1,
}  # fmt: skip


def test_every_field_of_a_call_is_part_of_its_key() -> None:
    assert set(CHANGES) == set(CallContent.__struct_fields__)
    keys = {call_key(msgspec.structs.replace(CONTENT, **{n: v})) for n, v in CHANGES.items()}
    assert len(keys | {call_key(CONTENT)}) == len(CHANGES) + 1


@settings(deadline=None)
@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_the_order_of_keys_in_a_mapping_does_not_matter(body: dict[str, Any]) -> None:
    turned = dict(reversed(list(body.items())))
    one = CallContent(provider="p", model="m", prompt="x", body=body)
    assert call_key(one) == call_key(msgspec.structs.replace(one, body=turned))
    assert unasked_key(body) == unasked_key(turned)


@given(st.text(), st.text(), st.text(), st.text())
def test_text_does_not_move_between_fields(a: str, b: str, c: str, d: str) -> None:
    one = CallContent(provider=a, model=b, prompt="")
    other = CallContent(provider=c, model=d, prompt="")
    assert (call_key(one) == call_key(other)) == ((a, b) == (c, d))
