"""Messages about mistakes in a pipeline.yaml: all of it, with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.errors import BadInput, BadPipeline
from rota.pipelines.definition.loader import entry_file, read_pipeline
from tests.pipelines.kit import GOOD, NOW, load, problem_lines, write
from tests.pipelines.kit.invalid_documents import (
    CASES,
    INPUT,
    MAP,
    NAME,
    REDUCE,
)


@pytest.mark.parametrize("what", CASES)
def test_the_file_is_reported_about(tmp_path: Path, what: str) -> None:
    text, said = CASES[what]
    assert problem_lines(tmp_path / "p", text) == said


def test_a_good_pipeline_has_no_problems(tmp_path: Path) -> None:
    assert problem_lines(tmp_path / "p", GOOD) == []


def test_the_error_reads_like_a_compilers(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", NAME + INPUT + "map: {promt: x}\n" + "reduce: {type: tabel}\n")
    with pytest.raises(BadPipeline) as caught:
        read_pipeline(folder, now=NOW)
    file = folder / "pipeline.yaml"
    assert str(caught.value) == (
        f"{file}: 2 problems\n"
        f'  {file}:3:7: error: map: unknown key "promt"; did you mean "prompt"?\n'
        f'  {file}:4:16: error: reduce.type: "tabel" is not one of ai, csv, json, list, table, '
        'text; did you mean "table"?'
    )
    assert caught.value.code == "bad_pipeline"


def test_a_misspelt_placeholder_is_reported_in_its_line(tmp_path: Path) -> None:
    text = """
    name: n
    input:
      items:
        - {title: one, size: 3}
    map:
      prompt: |
        Look at this.
        Its titel is {{titel}}, its size {{size}}.
    reduce: {type: list}
    """
    assert problem_lines(tmp_path / "p", text) == [
        'warning 8:18 {{titel}} is not a field of the items; did you mean "title"?'
    ]


def test_a_field_that_some_items_lack_is_reported_with_their_numbers(tmp_path: Path) -> None:
    text = NAME + "input: {items: [{a: 1}, {b: 1}, {a: 2}, {}]}\n" + MAP + REDUCE
    assert problem_lines(tmp_path / "p", text) == ["warning 3:16 {{a}} has no value in item 2, 4"]


def test_what_a_scheduled_pipeline_lacks_is_an_error(tmp_path: Path) -> None:
    text = NAME + "schedule: {cron: '@daily'}\njob: {prompt: 'About {{topic}}'}\n"
    assert problem_lines(tmp_path / "p", text) == ["3:22 {{topic}} has no value"]
    given = text + "parameters: {topic: tea}\n"
    assert problem_lines(tmp_path / "p", given) == []


def test_all_problems_of_a_schedule_are_reported_at_once(tmp_path: Path) -> None:
    text = """
    name: n
    schedule:
      cron: "61 * * * *"
      timezone: America/New_Yrok
      enabled: no
      overlap: sometimes
      jitter: soon
      start: tomorrow
      after: p
    job: {prompt: x}
    """
    lines = problem_lines(tmp_path / "p", text)
    assert [line.partition(" ")[0] for line in lines] == [
        "3:9", "4:13", "5:12", "6:12", "7:11", "8:10", "9:10",
    ]  # fmt: skip
    assert "America/New_York" in lines[1]


def test_a_prompt_file_is_looked_for_in_three_places(tmp_path: Path) -> None:
    text = NAME + INPUT + "map: {promptFile: ask.md}\n" + REDUCE
    folder = tmp_path / "p"
    [said] = problem_lines(folder, text)
    places = [folder / "ask.md", folder / "prompts" / "ask.md", tmp_path / "prompts" / "ask.md"]
    assert said == "3:19 the prompt file ask.md is not there; looked for " + ", ".join(
        str(place) for place in places
    )
    for place in reversed(places):
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"---\nname: x\n---\nFrom {place.parent.name} {{{{a}}}}", encoding="utf-8")
        assert load(folder, text).prompts["map"] == f"From {place.parent.name} {{{{a}}}}"


def test_an_empty_prompt_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "ask.md").write_text("---\nname: x\n---\n\n", encoding="utf-8")
    [said] = problem_lines(tmp_path / "p", NAME + INPUT + "map: {promptFile: ask.md}\n" + REDUCE)
    assert said.endswith("ask.md is empty")


def test_skills_come_before_the_prompt_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    skill = tmp_path / ".github" / "skills" / "calm" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: calm\n---\nBe calm about {{a}}.\n", encoding="utf-8")
    text = NAME + INPUT + 'map: {prompt: "Do {{a}}", skills: [calm]}\n' + REDUCE
    assert load(tmp_path / "pipes" / "p", text).prompts["map"] == (
        "[Skill Guidance: calm]\nBe calm about {{a}}.\n\n[Task]\nDo {{a}}"
    )
    [missing] = problem_lines(tmp_path / "pipes" / "p", text.replace("calm", "wild"))
    assert "the skill wild is not there; looked for" in missing
    [illegal] = problem_lines(tmp_path / "pipes" / "p", text.replace("calm", "../x"))
    assert '"../x" is not the name of a skill' in illegal


def test_a_file_or_a_folder_may_be_named_and_yml_is_as_good(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", GOOD)
    assert entry_file(folder) == entry_file(folder / "pipeline.yaml")
    (folder / "pipeline.yaml").rename(folder / "pipeline.yml")
    assert read_pipeline(folder, now=NOW).pipeline.name == "Good"
    write(tmp_path / "p", GOOD)
    with pytest.raises(BadInput, match=r"holds pipeline\.yaml and pipeline\.yml"):
        entry_file(folder)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_a_pipeline_is_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=name):
        read_pipeline(tmp_path / name, now=NOW)


def test_the_digest_follows_the_file_and_its_prompts(tmp_path: Path) -> None:
    text = NAME + INPUT + "map: {promptFile: ask.md}\n" + REDUCE
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "ask.md").write_text("One {{a}}", encoding="utf-8")
    first = load(tmp_path / "p", text).digest
    assert load(tmp_path / "p", text).digest == first
    (tmp_path / "p" / "ask.md").write_text("Two {{a}}", encoding="utf-8")
    assert load(tmp_path / "p", text).digest != first
