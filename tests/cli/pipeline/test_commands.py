"""`rota pipeline init|validate|list|show`: everything that needs no database."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.kit.pipelines import (
    KINDS,
    document,
    rota,
)
from tests.pipelines.kit import write

BROKEN = """
name: Broken
inptu:
  items: []
map:
  promt: "About {{title}}"
  parallel: 0
reduce:
  type: tabel
"""


# -- init --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_starter_is_good_and_is_called_after_its_folder(folder: Path, kind: str) -> None:
    rota("init", "my-first_one", "--template", kind)
    assert document("validate", "my-first_one", "--strict") == [
        {"pipeline": "my-first_one", "folder": "my-first_one", "valid": True, "problems": []}
    ]
    assert document("show", "my-first_one")["name"] == "My first one"


def test_what_is_there_is_never_changed(folder: Path) -> None:
    mine = folder / "mine"
    mine.mkdir()
    (mine / "tickets.csv").write_text("my,own\n")
    said = rota("init", "mine", "--template", "data", code=5).stderr
    assert "mine has tickets.csv already; nothing was written" in said
    assert os.listdir(mine) == ["tickets.csv"]
    rota("init", "mine")
    assert (mine / "tickets.csv").read_text() == "my,own\n"
    assert "has pipeline.yaml already" in rota("init", "mine", code=5).stderr


def test_init_says_what_it_wrote(folder: Path) -> None:
    shown = document("init", "a/b", "--template", "data")
    assert shown["files"] == ["a/b/pipeline.yaml", "a/b/prompts/classify.md", "a/b/tickets.csv"]
    assert all((folder / name).is_file() for name in shown["files"])


def test_a_folder_with_quotes_in_its_name_is_no_trouble(folder: Path) -> None:
    rota("init", 'say "hi"')
    assert document("show", 'say "hi"')["name"] == 'Say "hi"'


def test_a_file_in_the_way_is_reported(folder: Path) -> None:
    (folder / "taken").write_text("")
    assert "taken is a file, not a folder" in rota("init", "taken", code=2).stderr


def test_a_starter_names_the_schema_that_is_beside_the_pipelines(folder: Path) -> None:
    rota("init", "pipelines/before")
    rota("schema", "-o", "pipelines/pipeline.schema.json")
    written = (folder / "pipelines" / "pipeline.schema.json").read_text()
    assert written == rota("schema").stdout
    rota("init", "pipelines/after")
    mark = "# yaml-language-server: $schema="
    assert mark not in (folder / "pipelines" / "before" / "pipeline.yaml").read_text()
    first = (folder / "pipelines" / "after" / "pipeline.yaml").read_text().splitlines()[0]
    named = folder / "pipelines" / "after" / first.removeprefix(mark)
    assert json.loads(named.read_text())["title"] == "pipeline.yaml of Rota"
    assert document("validate", "pipelines/after", "--strict")[0]["valid"]


def test_a_schema_that_cannot_be_written_is_reported(folder: Path) -> None:
    (folder / "taken").write_text("")
    assert "taken/s.json cannot be written" in rota("schema", "-o", "taken/s.json", code=2).stderr
    assert document("schema", "-o", "s.json") == {"file": "s.json"}


# -- validate ----------------------------------------------------------------------------------


def test_all_problems_are_reported_at_once_with_their_places(folder: Path) -> None:
    write(folder / "broken", BROKEN)
    lines = rota("validate", "broken", code=2).stdout.splitlines()
    file = "broken/pipeline.yaml"
    assert f'{file}:2:1: error: the pipeline: unknown key "inptu"; did you mean "input"?' in lines
    assert sum(line.startswith(f"{file}:5:") for line in lines) == 1
    assert sum(line.startswith(f"{file}:6:") for line in lines) == 1
    assert sum(line.startswith(f"{file}:8:") for line in lines) == 1


def test_problems_for_machines_have_their_place_in_fields(folder: Path) -> None:
    write(folder / "broken", BROKEN)
    [found] = document("validate", "broken", code=2)
    assert found["valid"] is False
    assert found["problems"][1] == {
        "file": "broken/pipeline.yaml", "line": 2, "column": 1, "level": "error",
        "message": 'the pipeline: unknown key "inptu"; did you mean "input"?',
    }  # fmt: skip


def test_a_folder_represents_all_pipelines_in_it(folder: Path) -> None:
    rota("init", "pipelines/good")
    write(folder / "pipelines" / "broken", BROKEN)
    for words in ([], ["."], ["pipelines"]):
        found = document("validate", *words, code=2)
        assert [(each["pipeline"], each["valid"]) for each in found] == [
            ("broken", False), ("good", True),
        ]  # fmt: skip
    assert "2 pipelines: 1 valid, 1 broken" in rota("validate", code=2).stderr


def test_columns_and_files_are_looked_at_too(folder: Path) -> None:
    write(
        folder / "rows",
        """
        name: Rows
        input:
          from: {type: csv, path: rows.csv}
        map:
          prompt: "About {{titel}} in {{tone}}"
        reduce: {type: json}
        """,
    )
    [absent] = document("validate", "rows")[0]["problems"]
    assert (absent["level"], absent["line"]) == ("warning", 3)
    assert "rows.csv cannot be read: No such file or directory" in absent["message"]
    (folder / "rows" / "rows.csv").write_text("title\nx\n")
    shown = [each["message"] for each in document("validate", "rows")[0]["problems"]]
    assert shown == [
        '{{titel}} in the prompt of map has no value; did you mean "title"?',
        "{{tone}} in the prompt of map has no value",
    ]
    assert document("validate", "rows", "-p", "tone=warm", "-p", "titel=x")[0]["problems"] == []
    rota("validate", "rows", "--strict", code=2)
    rota("validate", "rows", "--strict", "-p", "tone=warm", "-p", "titel=x")


def test_a_parameter_that_settles_a_warning_silences_it(folder: Path) -> None:
    write(folder / "job", 'name: Job\njob:\n  prompt: "About {{topic}}"\n')
    [warned] = document("validate", "job")[0]["problems"]
    assert (warned["line"], warned["column"]) == (3, 18)
    assert "{{topic}} has no value" in warned["message"]
    assert document("validate", "job", "-p", "topic=tea")[0]["problems"] == []
    [remark] = document("validate", "job", "-p", "topic=tea", "-p", "topics=x")[0]["problems"]
    assert 'nothing in the pipeline uses the parameter "topics"' in remark["message"]


def test_pipelines_that_wait_for_each_other_are_reported(folder: Path) -> None:
    for mine, other in (("a", "b"), ("b", "a")):
        write(
            folder / mine,
            f'name: X\nschedule: {{cron: "@daily", after: {other}}}\njob: {{prompt: hi}}\n',
        )
    found = document("validate", code=2)
    assert all("wait for each other: a → b → a" in each["problems"][0]["message"] for each in found)


# -- list and show -----------------------------------------------------------------------------


def test_the_list_has_broken_ones_too(folder: Path) -> None:
    rota("init", "good", "--template", "data")
    write(folder / "broken", BROKEN)
    result = rota("list")
    assert result.stdout.startswith("PIPELINE  STATUS  INPUT  SCHEDULE  NOTE\n")
    assert "to see the problems: rota pipeline validate broken" in result.stderr
    broken, good = document("list")
    assert (broken["pipeline"], broken["valid"]) == ("broken", False)
    assert (good["pipeline"], good["input"], good["form"]) == ("good", "csv", "map-reduce")


def test_an_empty_folder_says_how_to_begin(folder: Path) -> None:
    assert "`rota pipeline init NAME` makes one" in rota("list").stdout
    assert "Make one with `rota pipeline init ./NAME`" in rota("validate", code=4).stderr
    assert document("list") == []


def test_a_page_shows_what_is_done_and_when(folder: Path) -> None:
    write(
        folder / "daily",
        """
        name: Daily
        schedule: {cron: "0 9 * * 1-5", timezone: Europe/Berlin}
        settings: {model: "offline:x", budget: {maxCost: 5}}
        parameters: {tone: warm}
        input: {items: [{title: one}]}
        filter:
          type: hybrid
          rule: {rules: [{field: title, operator: equals, value: one}]}
          ai: {prompt: "Keep {{title}}?"}
        map: {prompt: "{{title}} {{tone}}", output: [severity], batchSize: 1}
        reduce: {type: ai, prompt: "{{RESULTS}}"}
        """,
    )
    page = rota("show", "daily").stdout
    for words in (
        "at 09:00, Monday to Friday (Europe/Berlin)", "at most $5", "warm", "offline:x",
        "1 rule, all; and an AI decides", "one AI call over all results", "severity",
    ):  # fmt: skip
        assert words in page
    shown = document("show", "daily")
    assert shown["next_at"].endswith("Z") or "+00:00" in shown["next_at"]
    assert shown["names"] == ["title", "tone", "RESULTS"]


def test_nodes_are_shown_in_the_order_they_run(folder: Path) -> None:
    write(
        folder / "graph",
        """
        name: Graph
        nodes:
          out: {kind: reduce, from: ask, type: json}
          ask: {kind: map, from: rows, prompt: "{{a}}"}
          rows: {kind: load, source: {type: inline, items: [{a: 1}]}}
        """,
    )
    lines = rota("show", "graph").stdout.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("PART"))
    assert [line.split()[0] for line in lines[start + 1 : start + 4]] == ["rows", "ask", "out"]


def test_a_broken_one_is_shown_by_its_problems(folder: Path) -> None:
    write(folder / "broken", BROKEN)
    said = rota("show", "broken", code=2).stderr
    assert 'broken/pipeline.yaml:2:1: error: the pipeline: unknown key "inptu"' in said


@pytest.mark.parametrize("command", ["show", "render", "validate"])
def test_a_name_that_is_nearly_right_is_reported(folder: Path, command: str) -> None:
    rota("init", "pipelines/daily-report")
    said = rota(command, "daily-raport", code=4).stderr
    assert 'there is no pipeline daily-raport; did you mean "daily-report"?\n' in said


def test_a_name_is_found_in_the_folder_pipelines(folder: Path) -> None:
    rota("init", "pipelines/daily")
    for words in ("daily", "pipelines/daily", "pipelines/daily/pipeline.yaml"):
        assert document("show", words)["pipeline"] == "daily"


def test_a_folder_of_pipelines_is_no_pipeline(folder: Path) -> None:
    rota("init", "all/one")
    said = rota("show", "all", code=4).stderr
    assert "all holds no pipeline.yaml" in said
    assert "name one of them: one" in said
