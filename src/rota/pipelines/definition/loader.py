"""A pipeline's folder → its checked definition, or every problem at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from rota.core.pipelines.names import run_name
from rota.core.time.recurrence import next_after
from rota.core.time.zones import zone_named
from rota.errors import BadInput, BadPipeline, RotaError, UnknownZone
from rota.pipelines.definition.checks import check_linear
from rota.pipelines.definition.compiler import graph_of, prompt_path, question_key
from rota.pipelines.definition.graph import check_graph
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.nodes import FilterNode, ReduceNode
from rota.pipelines.definition.notify_checks import check_notify
from rota.pipelines.definition.placeholders import check_names
from rota.pipelines.definition.problems import (
    FilePosition,
    Path,
    Problem,
    ProblemReport,
    errors_of,
    ordered,
    refusal,
)
from rota.pipelines.definition.prompts import (
    read_prompt,
    read_skill,
    skill_folders,
    with_skills,
)
from rota.pipelines.definition.rules import questions_of
from rota.pipelines.definition.schedule_block import (
    ScheduleBlock,
    Timed,
    bound,
    timed,
)
from rota.pipelines.definition.sections import AiSection
from rota.pipelines.definition.type_check import Shape
from rota.pipelines.definition.yaml_tree import read_yaml
from rota.schedules.definition import policies
from rota.schedules.host_zone import host_zone_name

NAMES = ("pipeline.yaml", "pipeline.yml")
_TYPE = inspect.type_info(Pipeline)


class Loaded(NamedTuple):
    """A pipeline that can be run."""

    pipeline: Pipeline
    pipeline_id: str  # the name of its folder
    folder: FilePath
    file: FilePath
    prompts: dict[str, str]  # "map", "reduce", "filter", "job", or the id of a node
    schedule: Timed | None
    warnings: list[Problem]
    digest: str  # changes when the file, a prompt file or a skill does


def entry_file(path: FilePath) -> FilePath:
    """The pipeline.yaml that a file or a folder means."""
    if path.is_dir():
        files = [path / name for name in NAMES if (path / name).is_file()]
        if len(files) == 2:
            raise BadInput(f"{path} holds pipeline.yaml and pipeline.yml", hint="Remove one.")
        if not files:
            raise BadInput(f"{path} holds no pipeline.yaml", hint="Name another folder.")
        return files[0]
    if not path.exists():
        raise BadInput(f"{path} is not there", hint="Name a pipeline.yaml, or its folder.")
    return path


def holds_pipeline(folder: FilePath) -> bool:
    """Whether a folder has a pipeline.yaml."""
    return any((folder / name).is_file() for name in NAMES)


def read_pipeline(path: FilePath, *, now: int, host_zone: str | None = None) -> Loaded:
    """Read and check a pipeline, or raise BadPipeline with everything that is wrong with it."""
    file = entry_file(path)
    try:
        raw = file.read_bytes()
    except OSError as error:
        problem = Problem(str(file), FilePosition(1, 1), f"it cannot be read: {error.strerror}")
        raise refusal(str(file), [problem]) from error
    return read_text(raw, file, now=now, host_zone=host_zone)


def read_text(
    raw: bytes | str, file: FilePath, *, now: int, host_zone: str | None = None
) -> Loaded:
    """Read and check the text of a pipeline; it may differ from the file, as in an editor."""
    text = raw.decode("utf-8-sig", "replace") if isinstance(raw, bytes) else raw
    document = read_yaml(raw, str(file))
    report = ProblemReport(document, str(file), text)
    if not document.positions:
        raise refusal(str(file), report.problems)
    if not isinstance(document.value, dict):
        report.error((), "a pipeline is a mapping: name, input, map and reduce")
        raise refusal(str(file), report.problems)
    pipeline, node_ids = _converted(document.value, report)
    folder = file.parent
    written = {
        key for key, section in document.value.items() if section is not None or key == "nodes"
    }
    check_linear(pipeline, written, report)
    if pipeline.nodes is not None:
        check_graph(pipeline.nodes, node_ids, report)
    prompts = _prompts(pipeline, folder, skill_folders(folder), report)
    check_names(pipeline, prompts, report)
    zone = host_zone or host_zone_name()
    schedule = _schedule(pipeline.schedule, folder.resolve().name, zone, now, report)
    if errors_of(report.problems):
        raise refusal(str(file), report.problems)
    digest = hashlib.sha256("\0".join([text, *prompts.values()]).encode()).hexdigest()[:16]
    return Loaded(
        pipeline, folder.resolve().name, folder, file, prompts, schedule,
        ordered(report.problems), digest,
    )  # fmt: skip


def _converted(value: dict[str, Any], report: ProblemReport) -> tuple[Pipeline, set[str]]:
    """The definition from the right parts of the file, so that they are checked too."""
    Shape(report).check(value, _TYPE, ())
    nodes = value.get("nodes")
    node_ids = set(nodes) if isinstance(nodes, dict) else set()
    right: dict[str, Any] = {"name": "?"}
    for key, section in value.items():
        cuts = [path[: _in_list(path)] for path in report.wrong if path[0:1] == (key,)]
        pruned = _without({key: section}, cuts)
        if pruned and _converts({"name": "?", **pruned}, key if not cuts else None, report):
            right |= pruned
    return msgspec.convert(right, Pipeline), node_ids


def _converts(value: dict[str, Any], sound: str | None, report: ProblemReport) -> bool:
    """Whether a part can be converted. If a `sound` part cannot, that is reported."""
    try:
        msgspec.convert(value, Pipeline)
    except msgspec.ValidationError as error:
        if sound is not None:
            report.error((sound,), f"{sound}: {error}")
        return False
    return True


def _in_list(path: Path) -> int:
    """The length of the path to cut away: a whole node or list, so that no index changes."""
    if path[:1] == ("nodes",):
        return 2
    return next((n for n, key in enumerate(path) if isinstance(key, int)), len(path))


def _without(value: dict[Any, Any], paths: list[Path]) -> dict[Any, Any]:
    """A copy of the value without what is at these paths."""
    copy = dict(value)
    for key in {path[0] for path in paths if path}:
        inner = [path[1:] for path in paths if path and path[0] == key]
        if all(inner) and isinstance(copy.get(key), dict):
            copy[key] = _without(copy[key], inner)
        else:
            copy.pop(key, None)
    return copy


# -- prompts -------------------------------------------------------------------------------


def asking_parts(pipeline: Pipeline) -> Iterator[tuple[str, AiSection, Path]]:
    """Every part with a prompt of its own, by its place."""
    nodes = graph_of(pipeline)
    for node_id, node in nodes.items():
        path = prompt_path(pipeline, node_id)
        if isinstance(node, FilterNode):
            for number, question in enumerate(questions_of(node.rule)):
                yield question_key(node_id, number), question, path
        elif isinstance(node, ReduceNode):
            if node.type == "ai":
                yield node_id, node, path
        elif isinstance(node, AiSection):
            yield node_id, node, path


def _prompts(
    pipeline: Pipeline, folder: FilePath, skills: list[FilePath], report: ProblemReport
) -> dict[str, str]:
    prompts: dict[str, str] = {}
    for key, section, path in asking_parts(pipeline):
        text = section.prompt
        if text is None and section.prompt_file:
            try:
                text = read_prompt(section.prompt_file, folder)
            except BadInput as error:
                report.error((*path, "promptFile"), error.message)
        skill_texts: dict[str, str] = {}
        for name in section.skill_names:
            try:
                skill_texts[name] = read_skill(name, skills)
            except BadInput as error:
                where = "skill" if name == section.skill else "skills"
                report.error((*path, where), error.message)
        if text is not None:
            prompts[key] = with_skills(text, skill_texts)
    return prompts


# -- schedule ------------------------------------------------------------------------------


def _schedule(
    block: ScheduleBlock | None, pipeline_id: str, zone: str, now: int, report: ProblemReport
) -> Timed | None:
    if block is None:
        return None
    count = len(errors_of(report.problems))
    _check_block(block, pipeline_id, report)
    try:
        zone = zone_named(zone if block.timezone is None else block.timezone).key
    except UnknownZone as error:
        report.error(("schedule", "timezone"), _error_text(error))
    if len(errors_of(report.problems)) > count:  # check the cron text alone
        block = ScheduleBlock(cron=block.cron)
    try:
        plain = msgspec.structs.replace(block, timezone=zone)
        made = timed(plain, workflow=run_name(pipeline_id), host_zone=zone)
    except RotaError as error:
        report.error(("schedule", "cron"), _error_text(error))
        return None
    if next_after(made.intent.spec, now) is None:
        report.warning(("schedule",), "the schedule is over: no occurrence is left", at_key=True)
    return made


def _check_block(block: ScheduleBlock, pipeline_id: str, report: ProblemReport) -> None:
    words = {"jitter": block.jitter, "grace": block.grace, "expires_after": block.expires_after}
    given: dict[str, Any] = {word: text for word, text in words.items() if text is not None}
    for word, text in given.items():
        try:
            policies(**{word: text})
        except RotaError as error:
            key = {"expires_after": "expiresAfter"}.get(word, word)
            report.error(("schedule", key), f"schedule.{key}: {error.message}")
    delay = block.window.max_delay_minutes
    if delay is not None and delay * 60 < 1:
        reason = f"with {delay:g} no execution would run; give at least 0.02"
        key = "maxDelayMinutes"
        report.error(("schedule", "window", key), f"schedule.window.{key}: {reason}")
    for key, text in (("start", block.start), ("end", block.end)):
        try:
            bound(key, text, "UTC")
        except RotaError as error:
            report.error(("schedule", key), _error_text(error))
    if pipeline_id in block.after_ids:
        report.error(("schedule", "after"), "a pipeline cannot wait for itself")
    condition = block.condition
    if condition is not None and not any(
        (condition.file_exists, condition.file_missing, condition.command)
    ):
        report.error(("schedule", "condition"), "schedule.condition asks for nothing", at_key=True)
    if block.notify is not None:
        check_notify(block.notify, report)


def _error_text(error: RotaError) -> str:
    """An error of the core in one line."""
    first = error.message.strip().splitlines()[0]
    return f"{first}. {error.advice}" if error.advice else first


def problems_of(error: BadPipeline) -> list[Problem]:
    """The problems of a refused pipeline."""
    problems = error.facts.get("problems", [])
    return list(problems) if isinstance(problems, list) else []
