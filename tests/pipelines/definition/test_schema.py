"""The JSON Schema and the reference page follow the definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from rota.errors import BadPipeline
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.yaml_tree import read_yaml
from rota.pipelines.starters import SCHEMA_FILE
from scripts.pipeline_reference import json_schema, reference_page, schema_text
from tests.pipelines.kit import GOOD, load
from tests.pipelines.kit.documents import (
    DAILY,
    FULL,
    LATER,
    QUEUES,
    WEEKLY,
    WHOLE,
)
from tests.pipelines.kit.invalid_documents import (
    CASES,
)

VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def test_the_shipped_schema_is_current() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "run `make docs`"


def test_the_reference_page_names_every_key() -> None:
    page = reference_page()
    for part in json_schema()["$defs"].values():
        for key, value in part.get("properties", {}).items():
            assert f"| `{key}` |" in page
            assert value.get("description") or "enum" in value, key


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("text", [GOOD, WHOLE, DAILY, WEEKLY, QUEUES, FULL, LATER])
def test_editors_accept_what_we_accept(text: str) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(read_yaml(text, "f").value)] == []


@pytest.mark.parametrize("what", CASES)
def test_what_editors_refuse_is_refused_here_too(tmp_path: Path, what: str) -> None:
    text = CASES[what][0]
    if not VALIDATOR.is_valid(read_yaml(text, "f").value):
        with pytest.raises(BadPipeline):
            load(tmp_path / "p", text)


def test_a_definition_survives_its_own_json() -> None:
    value: Any = read_yaml(WHOLE, "f").value
    pipeline = msgspec.convert(value, Pipeline)
    again = msgspec.json.decode(msgspec.json.encode(pipeline), type=Pipeline)
    assert again == pipeline
