"""Fields of replies: the model's instructions, how its reply is read, and the text after a wrong
reply.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota.errors import BadReply
from rota.pipelines.definition.fields import (
    BatchMismatch,
    fields_of,
    instruction,
    re_ask,
    read_batch,
    read_decision,
    read_reply,
    schema_of,
)
from rota.pipelines.definition.sections import OutputField

NAMES = fields_of(["severity", "ticket_id"])
TYPED = fields_of([
    OutputField(name="score", type="integer", description="0 to 10"),
    OutputField(name="level", enum=["low", "high"]),
    OutputField(name="tags", type="list", required=False),
])  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "fields"),
    [
        ('{"severity": "high", "ticket_id": "007"}', {"severity": "high", "ticket_id": "007"}),
        ('{"severity": "no", "ticket_id": "1.10"}', {"severity": "no", "ticket_id": "1.10"}),
        ('{"Severity": 3, "ticketId": 5}', {"severity": 3, "ticket_id": 5}),
        ('[{"severity": 3, "extra": 1}]', {"severity": 3, "ticket_id": None}),
        ('{"result": {"severity": 3}}', {"severity": 3, "ticket_id": None}),
        (
            '[{"field": "severity", "value": "x"}, {"field": "ticket_id", "value": 2}]',
            {"severity": "x", "ticket_id": 2},
        ),
        ("severity: high\n**ticket_id**: 007", {"severity": "high", "ticket_id": "007"}),
        ('As in [1]:\n{"severity": "x"}\nsee [2]', {"severity": "x", "ticket_id": None}),
    ],
)
def test_plain_names_take_what_comes_and_change_nothing(reply: str, fields: dict[str, Any]) -> None:
    assert read_reply(reply, NAMES) == fields


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("I cannot help.", "The reply cannot be read: it holds no JSON."),
        ("severity: high", "The reply cannot be read: it holds no JSON."),
        ("[1, 2]", "The reply cannot be read: its JSON is not what was asked for."),
        ('{"other": 1}', "The reply cannot be read: its JSON is not what was asked for."),
        ('{"severity": "x"', "The reply cannot be read: it holds no JSON."),
    ],
)
def test_a_reply_without_the_fields_is_bad(reply: str, problem: str) -> None:
    with pytest.raises(BadReply) as caught:
        read_reply(reply, NAMES)
    assert str(caught.value) == problem


def test_typed_fields_are_converted_only_as_they_ask() -> None:
    assert read_reply('{"score": "7", "level": "HIGH"}', TYPED) == {
        "score": 7, "level": "high", "tags": None,
    }  # fmt: skip
    text = fields_of(
        [OutputField(name="id", type="string"), OutputField(name="ok", type="boolean")]
    )
    assert read_reply('{"id": 7, "ok": "yes"}', text) == {"id": "7", "ok": True}
    number = fields_of([OutputField(name="n", type="number")])
    assert read_reply('{"n": "2.50"}', number) == {"n": 2.5}
    assert read_reply('{"n": 3}', number) == {"n": 3}


def test_everything_wrong_with_a_reply_is_reported_at_once() -> None:
    with pytest.raises(BadReply) as caught:
        read_reply('{"score": "seven", "level": "middle", "tags": "a"}', TYPED)
    assert str(caught.value) == (
        '"score" must be a whole number; it is "seven". '
        '"level" must be one of "low", "high"; it is "middle". '
        '"tags" must be a list; it is "a".'
    )
    with pytest.raises(BadReply, match=r'"score" is missing\. "level" is missing\.'):
        read_reply('{"tags": []}', TYPED)
    with pytest.raises(BadReply, match=r"must be true or false; it is \{\}"):
        read_reply('{"ok": {}}', fields_of([OutputField(name="ok", type="boolean")]))


def test_the_model_is_instructed_what_to_reply() -> None:
    assert instruction([]) == ""
    assert instruction(NAMES) == (
        '\n\nReply with one JSON object {"severity": …, "ticket_id": …}. No other text.'
    )
    assert instruction(TYPED, batch=3) == (
        '\n\nReply with a JSON array of exactly 3 elements, one object {"score": …, "level": …, '
        '"tags": …} for each item, in the order of ITEMS. No other text.\n'
        "- score: integer; 0 to 10\n"
        '- level: one of "low", "high"\n'
        "- tags: list; may be null"
    )


def test_the_model_is_asked_again_with_what_was_wrong() -> None:
    asked = re_ask("Rate it.", "dunno", '"score" is missing.')
    assert asked == (
        "Rate it.\n\n[Your last reply]\ndunno\n\n[What was wrong with it]\n"
        '"score" is missing.\n\nReply again, completely, and correct this.'
    )


def test_a_batch_has_one_result_for_each_item() -> None:
    reply = 'Here:\n```json\n[{"severity": 1}, {"nonsense": 2}]\n```'
    first, second = read_batch(reply, NAMES, 2)
    assert first == {"severity": 1, "ticket_id": None}
    assert isinstance(second, BadReply)
    assert read_batch('{"results": [{"severity": 1}]}', NAMES, 1) == [first]
    assert read_batch('["a", "b"]', [], 2) == ["a", "b"]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('[{"severity": 1}]', "The reply holds 1 results for 2 items."),
        ('{"severity": 1}', "The reply cannot be read: its JSON is not what was asked for."),
        ("sorry", "The reply cannot be read: it holds no JSON."),
    ],
)
def test_a_batch_of_another_length_is_to_be_split(reply: str, said: str) -> None:
    with pytest.raises(BatchMismatch) as caught:
        read_batch(reply, NAMES, 2)
    assert str(caught.value) == said


INCLUDE = fields_of(["include", "reason"])


@pytest.mark.parametrize(
    ("reply", "fields", "kept"),
    [
        ("Yes, because it is.", [], True), ("no", [], False), ("**PASS**", [], True),
        ("Exclude it", [], False), ('{"include": true}', [], True),
        ('{"include": false}', [], False), ('```json\n{"include": false}\n```', [], False),
        ('include: {"include": false}', [], False), ("n", [], False), ("Y.", [], True),
        ('{"include": false, "reason": "old"}', INCLUDE, False),
    ],
)  # fmt: skip
def test_a_decision_is_read(reply: str, fields: list[OutputField], kept: bool) -> None:
    assert read_decision(reply, fields)[0] is kept


@pytest.mark.parametrize(
    "reply",
    [
        "Perhaps",
        "",
        "It is not clear, yes and no",
        "N/A",
        "y'all",
        "yes/no",
        "Yes or no?",
        "No. Yes!",
    ],
)
def test_a_decision_that_is_none_is_bad(reply: str) -> None:
    with pytest.raises(BadReply, match="neither yes nor no"):
        read_decision(reply, [])


def test_a_decision_in_json_must_be_true_or_false() -> None:
    with pytest.raises(BadReply, match='"include" must be true or false; it is "yes"'):
        read_decision('{"include": "yes"}', INCLUDE)
    with pytest.raises(BadReply, match='"include" must be true or false; it is "no"'):
        read_decision('{"include": "no"}', [])


@pytest.mark.parametrize("number", ["1e400", "-1e400", "[1, 1e400]"])
def test_a_number_that_is_too_large_for_json_is_not_null(number: str) -> None:
    with pytest.raises(BadReply, match="cannot be read"):
        read_reply(f'{{"severity": {number}}}', NAMES)


def test_fields_with_types_are_a_schema_that_all_vendors_take() -> None:
    made = [
        OutputField(name="label", type="string", enum=["a", "b"]),
        OutputField(name="score", type="integer", required=False, description="0 to 9"),
    ]
    assert schema_of(made) == {
        "type": "object",
        "properties": {
            "label": {"type": "string", "enum": ["a", "b"]},
            "score": {"type": ["integer", "null"], "description": "0 to 9"},
        },
        "required": ["label", "score"],
        "additionalProperties": False,
    }
    assert schema_of([*made, OutputField(name="more")]) is None
    assert schema_of([]) is None
