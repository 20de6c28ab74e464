"""Both forms of a pipeline are one program: equal results, and equal calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.pipelines.outcome import PipelineResult
from rota.pipelines.preview.dry_run import DryRunOptions, PreviewedPrompt, dry_run
from tests.ai.kit.model_server import Model, Say
from tests.pipelines.kit.live_app import World, says, world

CASES = 60
RULE = {"field": "n", "operator": "gte", "value": 2}
REDUCES = [
    *({"type": kind} for kind in ("list", "table", "json", "csv", "text")),
    {"type": "ai", "prompt": "Join {{COUNT}} {{RESULTS}}", "includeFailures": True},
    {"type": "ai", "prompt": "Join {{FAILURE_COUNT}} {{RESULTS}}", "output": ["word"]},
]
ASK = {"prompt": "Keep {{n}}?", "parallel": 2}


def node_rule(part: Mapping[str, Any]) -> dict[str, Any]:
    """The rule of a filter node that does the same as a filter of the linear form."""
    rule = {"type": "field", "field": "n", "op": "gte", "value": 2}
    ask = {"type": "ai", **ASK}
    if part["type"] == "hybrid":
        return {"type": part["combineMode"], "rules": [rule, ask]}
    return rule if part["type"] == "rule" else ask


def as_graph(linear: Mapping[str, Any]) -> dict[str, Any]:
    """The same pipeline, written as a graph by hand."""
    if "job" in linear:
        return {"name": "g", "nodes": {"job": {"kind": "ai", **linear["job"]}}}
    section = dict(linear["input"])
    source = {"type": "inline", "items": section.pop("items")}
    nodes: dict[str, Any] = {"input": {"kind": "load", "source": source, **section}}
    last = "input"
    if "filter" in linear:
        rule = node_rule(linear["filter"])
        nodes["filter"] = {"kind": "filter", "from": last, "rule": rule}
        last = "filter"
    nodes["map"] = {"kind": "map", "from": last, **linear["map"]}
    nodes["reduce"] = {"kind": "reduce", "from": "map", **linear["reduce"]}
    return {"name": "g", "settings": linear["settings"], "nodes": nodes}


@st.composite
def linear_pipelines(
    draw: st.DrawFn, filters: Sequence[str] = ("", "rule", "ai", "hybrid"), reduces: int = 7
) -> dict[str, Any]:
    """Pipelines of the linear form, as their file holds them; with the first so many reduces."""
    if draw(st.integers(0, 9)) == 0:
        output = draw(st.sampled_from([[], ["word"]]))
        return {"name": "l", "job": {"prompt": "Say 1", "output": output}}
    items = [{"n": n} for n in draw(st.lists(st.integers(0, 7), min_size=3, max_size=7))]
    section: dict[str, Any] = {"items": items, "offset": draw(st.integers(0, 1))}
    section |= draw(st.sampled_from([{}, {"limit": 4}, {"sample": {"size": 3, "seed": 1}}]))
    mapped = {
        "prompt": "Say {{n}}", "parallel": draw(st.integers(1, 3)),
        "output": draw(st.sampled_from([[], ["word"]])),
        **draw(st.sampled_from([{}, {}, {"failFast": True, "parallel": 1}, {"maxFailures": 9}])),
    }  # fmt: skip
    if draw(st.booleans()):
        mapped |= {"prompt": "Say {{ITEMS}}", "batchSize": draw(st.integers(1, 3))}
    reduced = draw(st.sampled_from(REDUCES[:reduces]))
    pipeline = {
        "name": "l", "settings": {"retry": {"maxRetries": 0}}, "input": section, "map": mapped,
        "reduce": reduced,
    }  # fmt: skip
    kind = draw(st.sampled_from(filters))
    if kind:
        keys = {"rule": {"rules": [RULE]}, "ai": ASK}
        part: dict[str, Any] = {"type": kind, "combineMode": draw(st.sampled_from(["and", "or"]))}
        part |= {key: keys[key] for key in keys if kind in (key, "hybrid")}
        pipeline["filter"] = part
    return pipeline


def draw_cases(pipelines: st.SearchStrategy[dict[str, Any]]) -> list[dict[str, Any]]:
    """So many pipelines; the same ones in every run of the tests."""
    cases: list[dict[str, Any]] = []

    @settings(max_examples=CASES, deadline=None)
    @given(pipelines)
    def draw(pipeline: dict[str, Any]) -> None:
        cases.append(pipeline)

    draw()
    assert len(cases) >= CASES / 2
    return cases


def answer(prompt: str) -> Any:
    """Keeps no 4, cannot say anything about 5, and cannot be asked whether to keep 6."""
    first = prompt.splitlines()[0]
    if first.startswith("Keep"):
        return Say(status=400) if "6" in first else "no" if "4" in first else "yes"
    if "5" in first and first.startswith("Say"):
        return Say(status=400)
    if "exactly" in prompt:
        return [{"word": str(item["n"])} for item in json.loads(first.removeprefix("Say "))]
    return {"word": first} if "word" in prompt else first


def facts(result: PipelineResult) -> dict[str, Any]:
    """A result without its times and file names."""
    replaced = msgspec.structs.replace(
        result, duration_ms=0, result_file=None, pipeline_id="", definition=""
    )
    return msgspec.to_builtins(
        msgspec.structs.replace(
            replaced,
            warnings=[each.replace("node reduce: ", "") for each in result.warnings],
            error=(result.error or "").replace("/l/", "/g/") or None,
        )
    )


async def run_both(it: World, linear: Mapping[str, Any]) -> None:
    """Run both forms, and compare their results, items and prompts."""
    found = []
    for name, pipeline in (("l", linear), ("g", as_graph(linear))):
        it.model.asked.clear()
        result = await it.run(json.dumps(pipeline), name=name)
        run_id = (await it.app.runs.list())[0].id
        items = [
            msgspec.structs.replace(each, duration_ms=0, finished_at=None)
            async for each in it.app.pipelines.items(run_id)
        ]
        found.append((facts(result), items, Counter(it.prompts)))
    assert found[0] == found[1]


async def check_dry_run(it: World, linear: Mapping[str, Any]) -> None:
    """Compare the prompts of a dry run with those of the run, in both forms."""
    for pipeline in (linear, as_graph(linear)):
        it.model.asked.clear()
        loaded = it.app.pipelines.load(it.pipeline(json.dumps(pipeline)))
        shown: list[PreviewedPrompt] = []
        await dry_run(loaded, it.app.pipelines._invoker(), DryRunOptions(), shown.append)
        await it.run(json.dumps(pipeline))
        assert Counter(each.prompt for each in shown) == Counter(it.prompts)


@pytest.mark.slow
async def test_a_dry_run_shows_the_prompts_that_the_run_sends(tmp_path: Path) -> None:
    """As far as no prompt depends on a reply. Nothing stops the run, and every call succeeds."""
    drawn = draw_cases(linear_pipelines(filters=["", "rule"], reduces=5))
    assert any("filter" in each for each in drawn)
    model = Model(answer=says(lambda prompt: answer(prompt.replace("5", "7"))))
    async with world(f"sqlite:///{tmp_path / 'r.db'}", tmp_path, model) as it:
        for case in drawn:
            await check_dry_run(it, case)


@pytest.mark.slow
async def test_a_linear_pipeline_and_its_graph_do_the_same(tmp_path: Path) -> None:
    cases = draw_cases(linear_pipelines())
    async with world(f"sqlite:///{tmp_path / 'r.db'}", tmp_path, Model(answer=says(answer))) as it:
        for case in cases:
            await run_both(it, case)
