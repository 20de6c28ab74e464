"""Warnings of `validate` about models: routes, names and facts, before the first call."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.pipelines.preview.validation import examined
from tests.pipelines.kit import write

PIPELINE = """
name: Words
settings: {MODEL}
input: {items: [{w: a}]}
map: {prompt: "Say {{w}}"}
reduce: {type: json}
"""


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ("model: opnai:gpt-5", "'opnai' is not a provider; did you mean"),
        ("model: gpt-5", "does not name its provider"),
        ("model: openai:gpt-5-mni", "has no 'gpt-5-mni' of openai; did you mean"),
        ("model: openai:gpt-5-mini, temperature: 0", "gpt-5-mini refuses a temperature"),
        ("model: openai:gpt-5-codex", "write responses:gpt-5-codex"),
        ("model: openai:gpt-5-mini", None),
        ("model: responses:gpt-5-codex", None),
        ("model: openai:gpt-4o, temperature: 0", None),
        ("model: offline:anything, temperature: 0", None),
        ("", None),
    ],
)
def test_a_model_that_cannot_work_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, text: str | None
) -> None:
    for name in ("ROTA_AI_FILE", "ROTA_AI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    found = examined(write(tmp_path / "words", PIPELINE.replace("MODEL", settings)))
    assert found.loaded is not None
    messages = [problem.message for problem in found.problems]
    if text is None:
        assert messages == []
    else:
        assert len(messages) == 1
        assert text in messages[0]


GENERATED = """name: x
input: {generate: {prompt: Words, schema: [w], autoApprove: true, model: opnai:m}}
map: {prompt: "Say {{w}}", model: offline:m}
reduce: {type: json}
"""
LOADED = """name: x
nodes:
  made: {kind: load, source: {type: ai, prompt: Words, schema: [w], model: opnai:m}}
  say: {kind: map, from: made, prompt: "Say {{w}}", model: offline:m}
"""


@pytest.mark.parametrize(("text", "line"), [(GENERATED, 2), (LOADED, 3)])
def test_the_model_that_generates_items_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    for name in ("ROTA_AI_FILE", "ROTA_AI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    [problem] = examined(write(tmp_path / "words", text)).problems
    assert "'opnai' is not a provider" in problem.message
    assert problem.position.line == line
