"""Input into forms, and the answers of forms."""

from __future__ import annotations

import msgspec
import pytest

from rota.errors import BadInput
from rota.http.pages.forms import example_of, parameters_of, read_input
from rota.http.pages.text import form_text, text_parts


def test_a_large_input_is_whole_in_a_form() -> None:
    value = {"text": "x" * 50_000, "rows": list(range(2_000))}
    stored = msgspec.json.encode(value).decode()
    assert read_input(form_text(stored)) == value


def test_an_empty_input_is_an_empty_field() -> None:
    assert form_text(None) == form_text("{}") == ""
    assert read_input("  ") is None


@pytest.mark.parametrize("text", ["[1]", '"text"', "{"])
def test_what_is_no_input_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        read_input(text)


def test_the_parameters_of_a_workflow_and_an_example() -> None:
    schema = {
        "$ref": "#/$defs/work",
        "$defs": {
            "work": {
                "properties": {
                    "order": {"type": "string"},
                    "size": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "kind": {"enum": ["a", "b"]},
                },
                "required": ["order"],
            }
        },
    }
    names = [(one.name, one.type, one.is_required) for one in parameters_of(schema)]
    assert names == [
        ("order", "text", True),
        ("size", "whole number or null", False),
        ("kind", "one of a, b", False),
    ]
    assert msgspec.json.decode(example_of(schema)) == {"order": ""}
    assert parameters_of(None) == []
    assert example_of(None) == ""


def test_commands_and_ids_are_parts_of_a_sentence() -> None:
    run_id = "01a1e8fbcb39776e97c6a548c35554ac"
    parts = text_parts(f"Run {run_id} waits for worker {run_id}; type `rota up`.")
    assert [(one.kind, one.text) for one in parts] == [
        ("words", "Run "), ("run", run_id), ("words", " waits for worker "), ("worker", run_id),
        ("words", "; type "), ("code", "rota up"), ("words", "."),
    ]  # fmt: skip
    assert text_parts("") == []
