"""`rota pipeline render`: prompts and an estimate; no model is called, nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit.pipelines import (
    KINDS,
    document,
    rota,
)
from tests.pipelines.kit import write

LINE = """
name: Line
settings: {model: "openai:gpt-5-mini"}
parameters: {tone: warm}
input: {items: [{n: 1}, {n: 2}, {n: 3}, {n: 4}, {n: 5}]}
map: {prompt: "Say {{n}} in a {{tone}} way"}
reduce: {type: json}
"""


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything below a folder, with sizes and times."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_starter_renders_and_leaves_no_trace(folder: Path, kind: str) -> None:
    rota("init", "one", "--template", kind)
    before = files(folder)
    shown = document("render", "one", "--all", input="")
    assert shown["total"]["calls"] >= 3
    assert shown["prompts"][0]["tokens_in"] > 0
    assert files(folder) == before


def test_the_first_prompts_are_shown_and_all_are_counted(folder: Path) -> None:
    write(folder / "line", LINE)
    shown = rota("render", "line", "--first", "2").stdout
    assert "--- map, item 1 (openai:gpt-5-mini)\nSay 1 in a warm way\n" in shown
    assert "Say 2 in a warm way" in shown
    assert "Say 3" not in shown
    assert "prompts not shown: 3" in shown
    output = document("render", "line", "--all")
    assert [each["number"] for each in output["prompts"]] == [1, 2, 3, 4, 5]
    assert output["total"]["calls"] == 5
    assert output["total"]["cost_usd"] == pytest.approx(0.01, rel=0.1)


def test_parameters_of_the_line_win_over_a_file_which_wins_over_the_pipeline(folder: Path) -> None:
    write(folder / "line", LINE)
    (folder / "more.yaml").write_text("tone: cold\n")

    def first(*words: str) -> str:
        return str(document("render", "line", *words)["prompts"][0]["prompt"])

    assert first() == "Say 1 in a warm way"
    assert first("--params", "more.yaml") == "Say 1 in a cold way"
    assert first("--params", "more.yaml", "-p", "tone=a=b") == "Say 1 in a a=b way"


def test_items_may_come_from_elsewhere(folder: Path) -> None:
    write(folder / "line", LINE)
    (folder / "rows.csv").write_text("n\n7\n8\n9\n")

    def numbers(*words: str, **more: Any) -> list[str]:
        shown = document("render", "line", "--all", *words, **more)
        return [each["prompt"].split()[1] for each in shown["prompts"]]

    assert numbers("--items", "rows.csv") == ["7", "8", "9"]
    assert numbers("--items", "rows.csv", "--limit", "1") == ["7"]
    assert numbers("--items", "-", input='{"n": 10}\n{"n": 11}\n') == ["10", "11"]
    assert numbers("--items", "-", "--items-format", "csv", input="n\n12\n") == ["12"]
    assert len(numbers("--sample", "2")) == 2
    assert numbers("--sample", "2") == numbers("--sample", "2")
    assert numbers("--limit", "0") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--items", "gone.csv"], "the items in gone.csv cannot be read: there is no such file"),
        (["--items", "line/pipeline.yaml"], "have no known format"),
        (["--items", "list.yaml", "--items-format", "lines"], "lines are read from stdin only"),
        (["--first", "1", "--all"], "--all shows every prompt: omit --first"),
        (["--seed", "1"], "--seed means something only with --sample"),
        (["--items-format", "csv"], "--items-format means something only with --items"),
        (["-p", "tone"], "'tone' is not name=value"),
        (["-p", "ITEMS=x"], "ITEMS is filled in by the runner"),
        (["--params", "gone.yaml"], "the parameters in gone.yaml cannot be read"),
        (["--params", "list.yaml"], "list.yaml holds no parameters"),
        (["--limit", "-1"], "-1 is not in the range"),
    ],
)
def test_bad_options_are_reported(folder: Path, words: list[str], said: str) -> None:
    write(folder / "line", LINE)
    (folder / "list.yaml").write_text("- a\n")
    result = rota("render", "line", *words, code=2)
    assert said in result.stderr
    assert result.stdout == ""


def test_a_parameter_nobody_asks_for_is_a_warning(folder: Path) -> None:
    write(folder / "line", LINE)
    said = rota("render", "line", "-p", "tune=x").stderr
    assert (
        'Warning: nothing in the pipeline uses the parameter "tune"; did you mean "tone"?' in said
    )


def test_a_command_is_not_run_unless_asked(folder: Path) -> None:
    write(
        folder / "made",
        """
        name: Made
        settings: {model: "offline:x"}
        input:
          from: {type: command, run: "touch ran; echo '[{\\"n\\": 3}, {\\"n\\": 4}]'"}
        map: {prompt: "Say {{n}}"}
        reduce: {type: json}
        """,
    )
    shown = document("render", "made")
    assert shown["items"] is None
    assert shown["total"]["is_open"]
    assert shown["prompts"][0]["prompt"] == "Say {{n}}"
    assert any("which was not run" in note for note in shown["notes"])
    assert not (folder / "made" / "ran").exists()
    shown = document("render", "made", "--run-commands")
    assert (shown["items"], shown["total"]["calls"]) == (2, 2)
    assert (folder / "made" / "ran").exists()


def test_rules_are_applied_and_an_ai_filter_is_bounded(folder: Path) -> None:
    write(
        folder / "both",
        """
        name: Both
        settings: {model: "offline:x"}
        input: {items: [{n: 1}, {n: 2}, {n: 3}]}
        filter:
          type: hybrid
          rule: {rules: [{field: n, operator: gte, value: 2}]}
          ai: {prompt: "Keep {{n}}? yes or no"}
        map: {prompt: "Say {{n}}", batchSize: 2, output: [word]}
        reduce: {type: ai, prompt: "{{COUNT}}: {{RESULTS}}"}
        """.replace("Say {{n}}", "Say {{ITEMS}}"),
    )
    shown = document("render", "both", "--all")
    assert (shown["items"], shown["kept"]) == (3, 2)
    parts = {each["place"]: each for each in shown["parts"]}
    assert (parts["filter"]["calls"], parts["map"]["calls"]) == (2, 1)
    assert parts["map"]["is_bound"]
    batch = next(each for each in shown["prompts"] if each["place"] == "map")
    assert batch["prompt"].startswith('Say [{"n": 2}, {"n": 3}]')
    assert "exactly 2 elements" in batch["prompt"]
    assert shown["prompts"][-1]["prompt"] == "2: {{RESULTS}}"


def test_items_that_cannot_be_rendered_are_reported_by_number(folder: Path) -> None:
    write(folder / "line", LINE)
    (folder / "rows.jsonl").write_text('{"n": 1}\n{"m": 2}\n')
    shown = document("render", "line", "--items", "rows.jsonl")
    assert shown["total"]["calls"] == 1
    assert any("item 2: {{n}} in line 1 of the prompt has no value" in n for n in shown["notes"])


def test_a_model_without_a_price_or_a_provider_is_reported(folder: Path) -> None:
    write(folder / "line", LINE)
    shown = document("render", "line", "--model", "openai:unheard-of")
    assert shown["total"]["cost_usd"] is None
    assert any("no price is known for openai:unheard-of" in note for note in shown["notes"])
    shown = document("render", "line", "--model", "opnai:gpt-5")
    assert any("'opnai' is not a provider" in note for note in shown["notes"])
    assert shown["total"]["calls"] == 5


def test_a_job_is_one_call(folder: Path) -> None:
    write(folder / "job", 'name: Job\njob: {prompt: "About {{topic}}", model: "offline:x"}\n')
    shown = document("render", "job", "-p", "topic=tea")
    assert shown["prompts"][0]["prompt"] == "About tea"
    assert "{{topic}} in line 1 of the prompt has no value" in rota("render", "job", code=2).stderr
    assert "has no items to limit" in rota("render", "job", "--limit", "1", code=2).stderr


def test_a_graph_is_followed_as_far_as_its_items_are_known(folder: Path) -> None:
    write(
        folder / "graph",
        """
        name: Graph
        settings: {model: "offline:x"}
        nodes:
          rows: {kind: load, source: {type: inline, items: [{a: 1}, {a: 2}, {a: 3}]}}
          some: {kind: filter, from: rows, rule: {type: field, field: a, op: gt, value: 1}}
          named: {kind: transform, from: some, ops: [{op: add, field: b, value: "n{{a}}"}]}
          ask: {kind: map, from: named, prompt: "About {{b}}", output: [word]}
          script: {kind: script, from: ask, run: "touch ran", output: json}
          more: {kind: map, from: script, prompt: "More {{word}}"}
          last: {kind: reduce, from: more, type: ai, prompt: "{{RESULTS}}"}
        """,
    )
    shown = document("render", "graph", "--all")
    parts = {each["place"]: (each["calls"], each["is_open"]) for each in shown["parts"]}
    assert parts == {"ask": (2, False), "more": (1, True), "last": (1, True)}
    assert [each["prompt"].splitlines()[0] for each in shown["prompts"]] == [
        "About n2", "About n3", "More {{word}}", "{{RESULTS}}",
    ]  # fmt: skip
    assert not (folder / "graph" / "ran").exists()
    assert document("render", "graph", "--limit", "2")["items"] == 2


def test_questions_of_a_graphs_filter_are_rendered(folder: Path) -> None:
    write(
        folder / "graph",
        """
        name: Graph
        settings: {model: "offline:x"}
        nodes:
          rows: {kind: load, source: {type: ai, prompt: "Make {{n}}", schema: [a]}, limit: 4}
          fixed: {kind: load, source: {type: inline, items: [{a: 1}, {a: 2}]}}
          some: {kind: filter, from: fixed, rule: {type: ai, prompt: "Is {{a}} odd?"}}
          ask: {kind: map, from: [rows, some], prompt: "About {{a}}"}
        """,
    )
    shown = document("render", "graph", "--all", "-p", "n=tea")
    texts = [each["prompt"].splitlines()[0] for each in shown["prompts"]]
    assert texts == ["Make tea", "Is 1 odd?", "Is 2 odd?", "About {{a}}"]
    assert {each["place"]: each["calls"] for each in shown["parts"]} == {
        "rows": 1, "some": 2, "ask": 6,
    }  # fmt: skip


def test_a_graph_groups_the_batches_of_a_map_as_a_run_does(folder: Path) -> None:
    write(
        folder / "graph",
        """
        name: Graph
        settings: {model: "offline:x"}
        nodes:
          rows:
            kind: load
            source: {type: inline, items: [{kind: a, n: 1}, {kind: b, n: 2}, {kind: a, n: 3}]}
          ask: {kind: map, from: rows, batchSize: 2, prompt: "{{kind}}: {{ITEMS}}"}
        """,
    )
    shown = document("render", "graph", "--all")
    assert [(each["number"], each["prompt"].splitlines()[0]) for each in shown["prompts"]] == [
        (1, 'a: [{"kind": "a", "n": 1}, {"kind": "a", "n": 3}]'),
        (2, 'b: [{"kind": "b", "n": 2}]'),
    ]


def test_a_question_of_a_graphs_filter_that_cannot_be_rendered_is_a_note(folder: Path) -> None:
    write(
        folder / "graph",
        """
        name: Graph
        settings: {model: "offline:x"}
        nodes:
          rows: {kind: load, source: {type: inline, items: [{a: 1}, {b: 2}]}}
          some: {kind: filter, from: rows, rule: {type: ai, prompt: "Is {{a}} odd?"}}
        """,
    )
    shown = document("render", "graph", "--all")
    assert [each["prompt"].splitlines()[0] for each in shown["prompts"]] == ["Is 1 odd?"]
    assert any("some, item 2: {{a}} in line 1 of the prompt has no value" in n
               for n in shown["notes"])  # fmt: skip
