"""What a person reads who made a mistake in a pipeline.yaml: all of it, with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.errors import BadInput, BadPipeline
from rota.pipelines.definition.loader import entry_file, read_pipeline
from tests.pipelines.kit import GOOD, NOW, load, told, write

INPUT = "input: {items: [{a: 1}]}\n"
MAP = 'map: {prompt: "{{a}}"}\n'
REDUCE = "reduce: {type: list}\n"
NAME = "name: n\n"

# Each case: the file, and what is said about it.
CASES: dict[str, tuple[str, list[str]]] = {
    "no name": (INPUT + MAP + REDUCE, ['1:1 the pipeline: "name" is missing']),
    "an empty name": ('name: ""\n' + INPUT + MAP + REDUCE, ["1:7 name must not be empty"]),
    "a blank name": ('name: "  "\n' + INPUT + MAP + REDUCE, ["1:7 name must not be empty"]),
    "a name that is a number": (
        "name: 5\n" + INPUT + MAP + REDUCE,
        ["1:7 name must be text; put quotes around 5"],
    ),
    "nothing to do": (
        NAME,
        ["1:1 there is nothing to do: give input, map and reduce; or job; or nodes"],
    ),
    "a job with a map": (
        NAME + MAP + "job: {prompt: x}\n",
        ["2:1 map and job cannot stand together; choose one"],
    ),
    "a job without a prompt": (
        NAME + "job: {}\n",
        ["2:1 job has no prompt: give prompt or promptFile"],
    ),
    "a job with two prompts": (
        NAME + "job: {prompt: x, promptFile: y.md}\n",
        ["2:18 job has prompt and promptFile; keep one"],
    ),
    "no map": (
        NAME + INPUT + REDUCE,
        ['1:1 "map" is missing: a pipeline has input, map and reduce'],
    ),
    "a map without a prompt": (
        NAME + INPUT + "map: {}\n" + REDUCE,
        ["3:1 map has no prompt: give prompt or promptFile"],
    ),
    "a map with an empty prompt": (
        NAME + INPUT + 'map: {prompt: ""}\n' + REDUCE,
        [
            "3:15 map.prompt is empty",
            "warning 3:15 the prompt holds no {{placeholder}}: every item asks the same",
        ],
    ),
    "a map with two prompts": (
        NAME + INPUT + 'map: {prompt: "{{a}}", promptFile: b.md}\n' + REDUCE,
        ["3:24 map has prompt and promptFile; keep one"],
    ),
    "a skill that is no text": (
        NAME + INPUT + 'map: {prompt: "{{a}}", skill: [x]}\n' + REDUCE,
        ["3:31 map.skill must be text; it is a list"],
    ),
    "an output that is no list": (
        NAME + INPUT + 'map: {prompt: "{{a}}", output: x}\n' + REDUCE,
        ['3:32 map.output must be a list; it is "x"'],
    ),
    "an output field twice": (
        NAME + INPUT + 'map: {prompt: "{{a}}", output: [x, x]}\n' + REDUCE,
        ['3:36 map.output: "x" stands here twice'],
    ),
    "a batch that is no number": (
        NAME + INPUT + 'map: {prompt: "{{ITEMS}}", batchSize: 2.5}\n' + REDUCE,
        ["3:39 map.batchSize must be a whole number, at least 1; it is 2.5"],
    ),
    "a batch of none": (
        NAME + INPUT + 'map: {prompt: "{{ITEMS}}", batchSize: 0}\n' + REDUCE,
        ["3:39 map.batchSize must be a whole number, at least 1; it is 0"],
    ),
    "a batch that its prompt does not show": (
        NAME + INPUT + 'map: {prompt: "{{a}}", batchSize: 2}\n' + REDUCE,
        ["warning 3:15 batchSize is more than 1, but the prompt does not hold {{ITEMS}}"],
    ),
    "no reduce": (
        NAME + INPUT + MAP,
        ['1:1 "reduce" is missing: a pipeline has input, map and reduce'],
    ),
    "an unknown reduce": (
        NAME + INPUT + MAP + "reduce: {type: jsno}\n",
        [
            ('4:16 reduce.type: "jsno" is not one of ai, csv, json, list, table, text; '
            'did you mean "json"?')
        ],
    ),
    "an AI reduce without a prompt": (
        NAME + INPUT + MAP + "reduce: {type: ai}\n",
        ["4:1 reduce has no prompt: give prompt or promptFile"],
    ),
    "a prompt for a reduce that asks nobody": (
        NAME + INPUT + MAP + "reduce: {type: json, prompt: x}\n",
        ["4:22 reduce.prompt means something only with type: ai; this is type: json"],
    ),
    "no input": (
        NAME + MAP + REDUCE,
        ['1:1 "input" is missing: a pipeline has input, map and reduce'],
    ),
    "an input without a source": (
        NAME + "input: {}\n" + MAP + REDUCE,
        ["2:1 input has no source: give items, from or generate"],
    ),
    "two sources": (
        NAME + "input: {items: [{a: 1}], from: {type: csv, path: b}}\n" + MAP + REDUCE,
        ["2:26 input has more than one source: items and from; keep one"],
    ),
    "an unsupported source": (
        NAME + "input: {from: {type: xlsx, path: b}}\n" + MAP + REDUCE,
        [
            '2:22 input.from.type: "xlsx" is not one of csv, json, jsonl, glob, command, stdin'
        ],
    ),
    "a source that is a word": (
        NAME + "input: {from: bugs.csv}\n" + MAP + REDUCE,
        ['2:15 input.from must be a list or a mapping (key: value); it is "bugs.csv"'],
    ),
    "a CSV without a path": (
        NAME + "input: {from: {type: csv}}\n" + MAP + REDUCE,
        ['2:9 input.from: "path" is missing'],
    ),
    "the source one level too high": (
        NAME + "input: {type: csv, path: b.csv}\n" + MAP + REDUCE,
        [
            '2:9 input: unknown key "type"; put type and path under "from:"',
            '2:20 input: unknown key "path"; put type and path under "from:"',
        ],
    ),
    "items that are no list": (
        NAME + "input: {items: {a: 1}}\n" + MAP + REDUCE,
        ["2:16 input.items must be a list; it is a mapping"],
    ),
    "an item that is a word": (
        NAME + "input: {items: [x]}\n" + MAP + REDUCE,
        ['2:17 input.items[1] must be a mapping (key: value); it is "x"'],
    ),
    "parameters that are no list": (
        NAME + "input: {items: [{a: 1}], parameters: x}\n" + MAP + REDUCE,
        ['2:38 input.parameters must be a list or a mapping (key: value); it is "x"'],
    ),
    "a parameter without a name": (
        NAME + "input: {items: [{a: 1}], parameters: [{value: 1}]}\n" + MAP + REDUCE,
        ['2:39 input.parameters[1]: "name" is missing'],
    ),
    "a parameter without a value": (
        NAME + "parameters: [{name: p, value: }, {name: q}]\n" + INPUT + MAP + REDUCE,
        ['2:34 parameters[2]: "value" is missing'],
    ),
    "a parameter that is null": (
        NAME + "parameters: [{name: p, value: ~}]\n" + INPUT + MAP + REDUCE,
        ['2:14 the parameter "p" has no value'],
    ),
    "a parameter twice, and a reserved one": (
        NAME + "parameters: [{name: p, value: 1}, {name: p, value: 2}, {name: COUNT, value: 2}]\n"
        + INPUT + MAP + REDUCE,
        [
            '2:35 the parameter "p" is given twice',
            '2:56 "COUNT" is filled in by the runner; choose another name',
        ],
    ),
    "a generation without a prompt": (
        NAME + "input: {generate: {prompt: '', schema: [a], autoApprove: true}}\n" + MAP + REDUCE,
        ["2:28 input.generate.prompt must not be empty"],
    ),
    "a generation without fields": (
        NAME + "input: {generate: {prompt: x, schema: [], autoApprove: true}}\n" + MAP + REDUCE,
        ["2:39 input.generate.schema must not be empty"],
    ),
    "generated fields that are no names": (
        NAME + "input: {generate: {prompt: x, schema: [a, 'b c', a], autoApprove: true}}\n"
        + MAP + REDUCE,
        [
            ('2:43 input.generate.schema: "b c" is no name; use letters, digits and _, '
            "a letter first"),
            '2:50 input.generate.schema: "a" stands here twice',
        ],
    ),
    "an approval that is no boolean": (
        NAME + "input: {generate: {prompt: x, schema: [a], autoApprove: yes}}\n" + MAP + REDUCE,
        ['2:57 input.generate.autoApprove must be true or false; "yes" is text, write true'],
    ),
    "a generation that a person must approve": (
        NAME + "input: {generate: {prompt: x, schema: [a]}}\n" + MAP + REDUCE,
        [
            ("warning 2:9 input.generate without autoApprove: a person must look at the items "
            "before the run goes on")
        ],
    ),
    "a limit of nothing": (
        NAME + "input: {items: [{a: 1}], limit: 0}\n" + MAP + REDUCE,
        ["warning 2:33 input.limit is 0, so no item is taken"],
    ),
    "a negative limit": (
        NAME + "input: {items: [{a: 1}], limit: -3}\n" + MAP + REDUCE,
        ["2:33 input.limit must be a whole number, at least 0; it is -3"],
    ),
    "no parallel calls": (
        NAME + INPUT + 'map: {prompt: "{{a}}", parallel: 0}\n' + REDUCE,
        ["3:34 map.parallel must be a whole number, at least 1; it is 0"],
    ),
    "a prompt without placeholders": (
        NAME + INPUT + "map: {prompt: hello}\n" + REDUCE,
        ["warning 3:15 the prompt holds no {{placeholder}}: every item asks the same"],
    ),
    "a rule filter without rules": (
        NAME + INPUT + "filter: {type: rule, rule: {rules: []}}\n" + MAP + REDUCE,
        ["3:36 filter.rule has no rules"],
    ),
    "a rule filter without rule": (
        NAME + INPUT + "filter: {type: rule}\n" + MAP + REDUCE,
        ['3:1 filter: "rule" is missing for type: rule'],
    ),
    "an AI filter without a prompt": (
        NAME + INPUT + "filter: {type: ai, ai: {}}\n" + MAP + REDUCE,
        ["3:20 filter.ai has no prompt: give prompt or promptFile"],
    ),
    "an AI filter that cannot answer": (
        NAME + INPUT + "filter: {type: ai, ai: {prompt: '{{a}}?', output: [why]}}\n" + MAP + REDUCE,
        [
            '3:51 filter.ai.output needs the field "include": it says whether the item is kept'
        ],
    ),
    "an unknown operator": (
        NAME + INPUT + "filter: {type: rule, rule: {rules: [{field: a, operator: is, value: 1}]}}\n"
        + MAP + REDUCE,
        [
            ('3:58 filter.rule.rules[1].operator: "is" is not one of contains, eq, equals, '
            "greater_than, gt, gte, in, less_than, lt, lte, matches, neq, nin, not_contains, "
            "not_equals, not_in")
        ],
    ),
    "a cron that cannot be": (
        NAME + "schedule: {cron: '0 25 * * *'}\n" + INPUT + MAP + REDUCE,
        [
            ("2:18 hour: 25 is outside 0-23. The hour takes 0-23: a value, a list 9,17, "
            "a range 9-17, a step */2, or *.")
        ],
    ),
    "a jitter without a unit": (
        NAME + "schedule: {cron: '@daily', jitter: '5 parsecs'}\n" + INPUT + MAP + REDUCE,
        ["2:36 schedule.jitter: '5 parsecs' is not a duration"],
    ),
    "a pipeline as a list": ("- a\n", ["1:1 a pipeline is a mapping: name, input, map and reduce"]),
    "everything one could wish for, misspelt": (
        ("nmae: x\nshedule: {cron: '@daily'}\ninput: {itmes: []}\nmap: {promptfile: a.md}\n"
        "reduce: {typ: list}\n"),
        [
            '1:1 the pipeline: unknown key "nmae"; did you mean "name"?',
            '2:1 the pipeline: unknown key "shedule"; did you mean "schedule"?',
            '3:9 input: unknown key "itmes"; did you mean "items"?',
            '4:7 map: unknown key "promptfile"; did you mean "promptFile"?',
            '5:10 reduce: unknown key "typ"; did you mean "type"?',
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_the_file_is_told_about(tmp_path: Path, what: str) -> None:
    text, said = CASES[what]
    assert told(tmp_path / "p", text) == said


def test_a_good_pipeline_has_no_problems(tmp_path: Path) -> None:
    assert told(tmp_path / "p", GOOD) == []


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


def test_a_misspelt_placeholder_is_told_in_its_line(tmp_path: Path) -> None:
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
    assert told(tmp_path / "p", text) == [
        'warning 8:18 {{titel}} is no field of the items; did you mean "title"?'
    ]


def test_a_field_that_some_items_lack_is_told_with_their_numbers(tmp_path: Path) -> None:
    text = NAME + "input: {items: [{a: 1}, {b: 1}, {a: 2}, {}]}\n" + MAP + REDUCE
    assert told(tmp_path / "p", text) == ["warning 3:16 {{a}} has no value in item 2, 4"]


def test_what_a_scheduled_pipeline_lacks_is_an_error(tmp_path: Path) -> None:
    text = NAME + "schedule: {cron: '@daily'}\njob: {prompt: 'About {{topic}}'}\n"
    assert told(tmp_path / "p", text) == ["3:22 {{topic}} has no value"]
    given = text + "parameters: {topic: tea}\n"
    assert told(tmp_path / "p", given) == []


def test_all_problems_of_a_schedule_are_told_at_once(tmp_path: Path) -> None:
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
    lines = told(tmp_path / "p", text)
    assert [line.partition(" ")[0] for line in lines] == [
        "3:9", "4:13", "5:12", "6:12", "7:11", "8:10", "9:10",
    ]  # fmt: skip
    assert "America/New_York" in lines[1]


def test_a_prompt_file_is_looked_for_in_three_places(tmp_path: Path) -> None:
    text = NAME + INPUT + "map: {promptFile: ask.md}\n" + REDUCE
    folder = tmp_path / "p"
    [said] = told(folder, text)
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
    [said] = told(tmp_path / "p", NAME + INPUT + "map: {promptFile: ask.md}\n" + REDUCE)
    assert said.endswith("ask.md is empty")


def test_skills_come_before_the_prompt_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    skill = tmp_path / ".github" / "skills" / "calm" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: calm\n---\nBe calm about {{a}}.\n", encoding="utf-8")
    text = NAME + INPUT + 'map: {prompt: "Do {{a}}", skills: [calm]}\n' + REDUCE
    assert load(tmp_path / "pipes" / "p", text).prompts["map"] == (
        "[Skill Guidance: calm]\nBe calm about {{a}}.\n\n[Task]\nDo {{a}}"
    )
    [missing] = told(tmp_path / "pipes" / "p", text.replace("calm", "wild"))
    assert "the skill wild is not there; looked for" in missing
    [illegal] = told(tmp_path / "pipes" / "p", text.replace("calm", "../x"))
    assert '"../x" is no name of a skill' in illegal


def test_a_file_or_a_folder_may_be_named_and_yml_is_as_good(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", GOOD)
    assert entry_file(folder) == entry_file(folder / "pipeline.yaml")
    (folder / "pipeline.yaml").rename(folder / "pipeline.yml")
    assert read_pipeline(folder, now=NOW).pipeline.name == "Good"
    write(tmp_path / "p", GOOD)
    with pytest.raises(BadInput, match=r"holds pipeline\.yaml and pipeline\.yml"):
        entry_file(folder)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_a_pipeline_is_told(tmp_path: Path, name: str) -> None:
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
