"""The invoker that calls no model, with the prompts that pipelines write."""

from __future__ import annotations

import json

import pytest

from rota.ai import Offline, Request
from rota.errors import Transient
from rota.pipelines.definition.fields import (
    fields_of,
    instruction,
    read_batch,
    read_decision,
    read_reply,
)
from rota.pipelines.definition.sections import OutputField

FIELDS = [
    *fields_of(["plain", "with space"]),
    OutputField(name="label", type="string", enum=["a", "b", "c, d"]),
    OutputField(name="level", type="number", enum=[1, 2.5]),
    OutputField(name="score", type="number", description="From 0 to 10: how good."),
    OutputField(name="many", type="integer", required=False),
    OutputField(name="sure", type="boolean"),
]


async def said(prompt: str, wants_json: bool = False) -> str:
    return (await Offline().ask(Request("m", prompt, wants_json=wants_json))).text


async def test_fields_that_are_asked_for_are_answered_as_they_must_be() -> None:
    for item in ("tea", "coffee", "milk"):
        text = await said(f'Judge {item}, {{"not": "this"}}.' + instruction(FIELDS))
        answer = read_reply(text, FIELDS)
        assert set(answer) == {field.name for field in FIELDS}
        assert answer["label"] in ("a", "b", "c, d")
        assert answer["level"] in (1, 2.5)


async def test_a_batch_is_answered_item_by_item() -> None:
    text = await said('ITEMS: [{"x": 1}, {"x": 2}]' + instruction(FIELDS, batch=2))
    answers = read_batch(text, FIELDS, 2)
    assert all(isinstance(answer, dict) for answer in answers)
    texts = await said("ITEMS: …" + instruction([], batch=4))
    assert len(read_batch(texts, [], 4)) == 4


async def test_filters_get_a_decision() -> None:
    assert read_decision(await said("Keep it? Answer yes or no."), [])[0] is True
    include = fields_of(["include"])
    decided = [read_decision(await said(f"{n}?" + instruction(include)), include)[0]
               for n in range(20)]  # fmt: skip
    assert set(decided) == {True, False}


async def test_the_same_question_has_the_same_answer() -> None:
    prompt = "Judge tea." + instruction(FIELDS)
    assert await said(prompt) == await said(prompt)
    assert await said(prompt) != await said(prompt.replace("tea", "milk"))
    assert await said("Hello\n there") == "(offline) Hello there"
    assert json.loads(await said("Hello", wants_json=True)) == {"answer": "(offline) Hello"}


async def test_a_script_is_followed_and_then_left() -> None:
    ai = Offline(replies=["one", Transient("two"), "three"])
    assert (await ai.ask(Request("m", "x"))).text == "one"
    with pytest.raises(Transient, match="two"):
        await ai.ask(Request("m", "x"))
    assert (await ai.ask(Request("m", "x"))).text == "three"
    assert (await ai.ask(Request("m", "x"))).text == "(offline) x"
    assert (ai.calls, len(ai.asked)) == (4, 4)
    shouting = Offline(replies=lambda request: request.prompt.upper())
    assert (await shouting.ask(Request("m", "x"))).text == "X"


async def test_it_costs_nothing_and_counts_its_tokens() -> None:
    reply = await Offline().ask(Request("m", "x" * 40))
    assert (reply.cost_usd, reply.tokens_in > 10, reply.tokens_out > 5) == (0.0, True, True)
    assert Offline().estimate(Request("m", "x")).cost_usd == 0.0
