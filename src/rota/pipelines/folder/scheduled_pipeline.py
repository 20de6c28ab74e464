"""The state of one scheduled pipeline, and how it is read from its files. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rota.core.runs.model import Schedule
from rota.core.time.recurrence import next_after
from rota.errors import BadInput
from rota.pipelines import snapshot
from rota.pipelines.definition.discovery import Listed
from rota.pipelines.definition.loader import Loaded, asking_parts
from rota.pipelines.definition.problems import Problem, errors_of
from rota.pipelines.definition.prompts import SKILL_FILE, prompt_places, skill_folders
from rota.pipelines.definition.schedule_block import ScheduleBlock
from rota.pipelines.folder import schedule_sync
from rota.pipelines.folder.events import Change
from rota.pipelines.folder.state_file import ScheduleState, planned
from rota.store.schedules.attempts import Attempt


@dataclass
class ScheduledPipeline:
    """One scheduled pipeline. `row` is None while the store does not know it."""

    schedule_id: str
    pipeline_id: str
    folder: Path
    title: str
    config: ScheduleBlock
    row: Schedule | None
    state: ScheduleState
    problem: str | None = None
    under_way: list[list[Attempt]] = field(default_factory=list)


@dataclass
class EntryChange:
    """The change of one scheduled pipeline by a sync with its files."""

    entry: ScheduledPipeline
    change: Change


def problem_text(problems: Sequence[Problem]) -> str:
    """The problem of a file, in a line: the first error with its place, and how many more."""
    wrong = errors_of(list(problems)) or list(problems)
    if not wrong:
        return "it cannot be read"
    first = wrong[0]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{first.file}:{first.position.line}:{first.position.column}: {first.message}{more}"


def in_force(listed: Listed, row: Schedule | None) -> tuple[ScheduleBlock | None, str]:
    """The schedule block that counts: the file's, or the stored one while the file is broken."""
    if listed.loaded is not None:
        return listed.loaded.pipeline.schedule, listed.loaded.pipeline.name
    return (None, "") if row is None else stored(row)


def stored(row: Schedule) -> tuple[ScheduleBlock, str]:
    """The schedule block of a row and the name of its pipeline."""
    try:
        pipeline = snapshot.read(row.input).pipeline
    except BadInput:
        return ScheduleBlock(cron=row.cron_expr or "?"), schedule_sync.pipeline_of(row)
    return pipeline.schedule or ScheduleBlock(cron=row.cron_expr or "?"), pipeline.name


def expected(state: ScheduleState, loaded: Loaded, now: int) -> ScheduleState:
    """The state of a schedule that no scheduler has seen yet."""
    assert loaded.schedule is not None
    if not loaded.schedule.enabled:
        return msgspec.structs.replace(state, status="disabled", enabled=False, next_run=None)
    if loaded.schedule.start_paused or state.status == "paused":
        return msgspec.structs.replace(state, status="paused", next_run=None)
    return planned(state, next_after(loaded.schedule.intent.spec, now))


def prompt_files(listed: Listed) -> list[str]:
    """Every place where prompt files and skills of a pipeline may be found."""
    if listed.loaded is None:
        return []
    files: list[Path] = []
    for _, section, _ in asking_parts(listed.loaded.pipeline):
        if section.prompt_file:
            files += prompt_places(section.prompt_file, listed.folder)
        for name in section.skill_names:
            files += [folder / name / SKILL_FILE for folder in skill_folders(listed.folder)]
    return [str(each) for each in files]
