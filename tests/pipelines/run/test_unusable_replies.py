"""Replies that are not answers: cut off, empty, refused. The items fail, with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.errors import RunFailed
from tests.ai.kit.model_server import Asked, Model, Say, bound_of, long_answer
from tests.pipelines.kit.live_app import World, ai_settings, prompt_of, world

WORDS = """
name: Words
settings: {maxTokens: 100, retry: {maxRetries: 2, retryDelayMs: 1}}
input: {items: [{w: a}, {w: b}, {w: c}]}
map: {prompt: "Say {{w}}", parallel: 1}
reduce: {type: json}
"""


def agrees(it: World, calls: int) -> bool:
    """Whether the model charged for so many calls."""
    return it.model.usage.calls == calls


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_a_reply_that_was_cut_off_is_a_failed_item(
    database_url: str, tmp_path: Path, kind: str
) -> None:
    def answer(asked: Asked) -> Say:
        return long_answer(asked, 10_000 if "Say b" in prompt_of(asked) else 5)

    async with world(database_url, tmp_path, Model(answer=answer)) as it:
        if kind == "anthropic":
            it.app.pipelines.use(ai_settings(it.model.url, kind=kind, base_url=it.model.url))
        result = await it.run(WORDS)
        assert (result.outcome, result.processed, result.failed) == ("partial", 2, 1)
        assert result.failed_by == {"TruncatedReply": 1}
        assert "was cut off after 400 tokens" in result.errors[0].message
        # Each try of the long one had twice the room of the one before.
        bounds = [bound_of(each) for each in it.model.asked if "Say b" in prompt_of(each)]
        assert bounds == [100, 200, 400]
        assert (result.calls, result.tokens_in, result.tokens_out) == it.model.usage
        [item] = [each async for each in it.app.pipelines.items((await it.app.runs.list())[0].id)][
            1:2
        ]
        assert (item.status, item.error_type) == ("failed", "TruncatedReply")


async def test_a_reply_that_was_cut_off_is_whole_with_more_tokens(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 150))
    async with world(database_url, tmp_path, model) as it:
        result = await it.run(WORDS)
        assert (result.outcome, result.calls) == ("completed", 6)
        assert (result.calls, result.tokens_in, result.tokens_out) == it.model.usage


async def test_the_token_bound_does_not_grow_where_the_policy_says_so(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 150))
    async with world(database_url, tmp_path, model) as it:
        text = WORDS.replace("maxRetries: 2", "maxRetries: 2, maxTokensFactor: 1")
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="all 3 items failed"):
            await ref.result(timeout=60)
        assert agrees(it, 3)


async def test_a_models_own_limit_is_not_asked_to_grow(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(Say(finish="length"))) as it:
        result = await it.run(WORDS.replace("maxTokens: 100, ", ""))
        assert (result.outcome, result.failed_by) == ("partial", {"TruncatedReply": 1})
        assert agrees(it, 3)


async def test_a_budget_that_leaves_no_more_tokens_fails_the_item_only(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 150 if "b" in prompt_of(asked) else 5))
    async with world(database_url, tmp_path, model) as it:
        # One call may take 169 tokens; one of twice the room would take 269.
        text = WORDS.replace("maxTokens: 100,", "maxTokens: 100, budget: {maxTokens: 320},")
        result = await it.run(text)
        assert (result.outcome, result.failed_by) == ("partial", {"TruncatedReply": 1})
        assert result.tokens <= 320


async def test_an_empty_reply_is_asked_for_again_and_then_fails(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(Say(text=" \n"), Say(text=""))) as it:
        result = await it.run(WORDS)
        assert (result.outcome, result.calls) == ("completed", 5)
    nothing = Model(answer=lambda asked: Say(text="" if "Say b" in prompt_of(asked) else "x"))
    async with world(database_url, tmp_path, nothing) as it:
        result = await it.run(WORDS)
        assert (result.outcome, result.failed_by) == ("partial", {"EmptyReply": 1})
        assert agrees(it, 5)


WORDS_OF_UNFINISHED = [
    ("openai", "tool_calls", "UnfinishedReply", 1),
    ("openai", "quantum_flux", "UnfinishedReply", 1),
    ("openai", "error", "UnfinishedReply", 3),
    ("openai", "abort", "UnfinishedReply", 3),
    ("openai", "insufficient_system_resource", "UnfinishedReply", 3),
    ("openai", "RECITATION", "FilteredReply", 1),
    ("openai", "model_length", "TruncatedReply", 3),
    ("anthropic", "pause_turn", "UnfinishedReply", 3),
    ("anthropic", "tool_use", "UnfinishedReply", 1),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("kind", "finish", "error", "tries"), WORDS_OF_UNFINISHED)
async def test_a_reply_is_an_answer_only_with_a_finish_word_for_it(
    database_url: str,
    tmp_path: Path,
    kind: str,
    finish: str,
    error: str,
    tries: int,
    *,
    stream: bool,
) -> None:
    model = Model(answer=lambda asked: Say(finish=finish if "Say b" in prompt_of(asked) else ""))
    async with world(database_url, tmp_path, model) as it:
        base_url = f"{it.model.url}/v1" if kind == "openai" else it.model.url
        it.app.pipelines.use(ai_settings(it.model.url, kind=kind, base_url=base_url, stream=stream))
        result = await it.run(WORDS)
        assert (result.outcome, result.failed_by) == ("partial", {error: 1})
        assert finish in result.errors[0].message or error == "TruncatedReply"
        assert agrees(it, 2 + tries)
        assert (result.calls, result.tokens_in, result.tokens_out) == it.model.usage


async def test_a_provider_may_have_a_finish_word_of_its_own(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(answer=lambda asked: Say(finish="done"))) as it:
        it.app.pipelines.use(ai_settings(it.model.url, finish_words={"done": "stop"}))
        result = await it.run(WORDS)
        assert (result.outcome, result.calls) == ("completed", 3)


async def test_an_interrupted_reply_is_asked_for_again(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(Say(finish="abort"))) as it:
        result = await it.run(WORDS)
        assert (result.outcome, result.calls) == ("completed", 4)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("kind", "finish"), [("openai", "content_filter"), ("anthropic", "refusal")]
)
async def test_a_refused_answer_is_a_failed_item_and_paid(
    database_url: str, tmp_path: Path, kind: str, finish: str, *, stream: bool
) -> None:
    model = Model(Say(finish=finish, tokens_out=31))
    async with world(database_url, tmp_path, model) as it:
        base_url = f"{it.model.url}/v1" if kind == "openai" else it.model.url
        settings = ai_settings(it.model.url, kind=kind, base_url=base_url, stream=stream)
        it.app.pipelines.use(settings)
        result = await it.run(WORDS)
        assert (result.outcome, result.failed_by) == ("partial", {"FilteredReply": 1})
        assert (result.calls, result.tokens_in, result.tokens_out) == it.model.usage
        assert result.unanswered_calls == 0


async def test_a_batch_whose_reply_was_cut_off_is_split(database_url: str, tmp_path: Path) -> None:
    text = """
name: Batch
settings: {maxTokens: 100, retry: {maxRetries: 0}}
input: {items: [{w: a}, {w: b}, {w: c}, {w: d}]}
map: {prompt: "Say {{ITEMS}}", batchSize: 4, output: [said]}
reduce: {type: json}
"""

    def answer(asked: Asked) -> Say:
        count = prompt_of(asked).count('"w"')
        if count > 2:
            return Say(text="[", finish="length")
        return Say(text="[" + ", ".join(['{"said": "x"}'] * count) + "]")

    async with world(database_url, tmp_path, Model(answer=answer)) as it:
        result = await it.run(text)
        assert (result.outcome, result.processed, result.calls) == ("completed", 4, 3)


async def test_a_reduce_that_was_cut_off_fails_the_run(database_url: str, tmp_path: Path) -> None:
    text = WORDS.replace("reduce: {type: json}", 'reduce: {type: ai, prompt: "Join {{RESULTS}}"}')

    def answer(asked: Asked) -> Say:
        return Say(finish="length" if prompt_of(asked).startswith("Join") else "stop")

    async with world(database_url, tmp_path, Model(answer=answer)) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="was cut off"):
            await ref.result(timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert result.calls == it.model.usage.calls == 6
