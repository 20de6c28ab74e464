"""The scheduled pipelines of a folder, as the files and the store have them.

`read` changes nothing. `sync` makes schedules for new blocks, updates changed ones, and deletes
those without a block or a pipeline. A broken pipeline keeps its last good schedule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota.client.schedule_view import view_of
from rota.core.runs.model import Schedule
from rota.engine.wakeups import SCHEDULE
from rota.errors import BadInput, BadSchedule
from rota.pipelines.definition.discovery import (
    Listed,
    listed_pipeline,
    may_be_pipeline,
    names_in,
    with_chains,
)
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.problems import FilePosition, Problem
from rota.pipelines.folder import schedule_sync, state_file_sync
from rota.pipelines.folder.schedule_sync import Block
from rota.pipelines.folder.scheduled_pipeline import (
    EntryChange,
    ScheduledPipeline,
    expected,
    in_force,
    problem_text,
    prompt_files,
    stored,
)
from rota.pipelines.folder.state_file import HISTORY_MAX, ScheduleState
from rota.pipelines.run import content_keys
from rota.schedules import definition
from rota.schedules.apply import log_outcome
from rota.store.backend.database import Tx
from rota.store.schedules import attempts
from rota.store.schedules import templates as store
from rota.store.schedules.attempts import Attempt

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.pipelines.trust import Trust

log = logging.getLogger("rota.pipelines")


class PipelineRegistry:
    """The pipelines of one folder."""

    def __init__(
        self,
        client: Client | None,
        root: Path,
        *,
        history_max: int = HISTORY_MAX,
        trust: Trust | None = None,
    ) -> None:
        self._client = client
        self._trust = trust
        self.root = root.resolve()
        self.origin = str(self.root)
        self.history_max = history_max
        self._plain: dict[str, Listed] = {}  # each folder as it was read
        self._listed: dict[str, Listed] = {}  # with the problems of `after` among them
        # By pipeline: its watched files except pipeline.yaml.
        self.beside: dict[str, list[str]] = {}
        self.entries: dict[str, ScheduledPipeline] = {}  # by the pipeline's id
        self.broken: dict[str, str] = {}  # pipelines with no schedule in force, and why

    def of(self, schedule_id: str) -> ScheduledPipeline | None:
        """An entry by the id of its schedule, or of its pipeline."""
        if schedule_id in self.entries:
            return self.entries[schedule_id]
        return next((e for e in self.entries.values() if e.schedule_id == schedule_id), None)

    @property
    def names(self) -> list[str]:
        """Every pipeline of the folder, with a schedule or without."""
        return sorted(self._listed)

    # -- reading ---------------------------------------------------------------------------

    async def read(self, *, now: int) -> None:
        """Read all pipelines and their schedules."""
        await self._discover(now)
        rows = await self._rows()
        self.entries, self.broken = {}, {}
        for name, listed in self._listed.items():
            row, schedule_id = await self._known_as(listed, rows.get(self._key(name)))
            entry = self._entry(listed, row, schedule_id, now)
            if entry is None:
                if listed.loaded is None:
                    self.broken[name] = problem_text(listed.problems)
                continue
            if row is not None:
                if listed.loaded is not None:  # show it as it will be after the next sync
                    block = Block(row.name, row.namespace, self.origin, listed.loaded)
                    entry.row = schedule_sync.changed(row, block, now=now)
                await self._read_runs(entry)
            self.entries[name] = entry

    async def _discover(self, now: int) -> None:
        names = await asyncio.to_thread(names_in, self.root)
        await self._read_folders({*names, *self._plain}, now)

    async def _read_folders(self, names: Iterable[str], now: int) -> None:
        """Read these folders; the others stay as they were read last."""
        read = await asyncio.to_thread(_read_listed, self.root, list(names), now, self._trust)
        for name, listed in read.items():
            if listed is None:
                self._plain.pop(name, None)
            else:
                self._plain[name] = listed
        chained = with_chains([self._plain[name] for name in sorted(self._plain)])
        self._listed = {each.pipeline_id: each for each in chained}
        self.beside = {name: self._files_beside(each) for name, each in self._listed.items()}

    def _files_beside(self, listed: Listed) -> list[str]:
        """The watched files beside pipeline.yaml: prompts, skills, and the record of trust."""
        trusted = [] if self._trust is None else [str(self._trust.record_file(listed.folder))]
        return prompt_files(listed) + trusted

    def _key(self, name: str) -> str:
        """The pipeline's id: the name of its folder, or of the target of a link."""
        return (self.root / name).resolve().name

    async def _rows(self) -> dict[str, Schedule]:
        """The schedules of this folder that the store knows, by pipeline."""
        if self._client is None:
            return {}
        rows = await self._client.connection.database.read(
            store.declared_by, namespace=self._client.settings.namespace, origins=[self.origin]
        )
        mine = [row for row in rows if schedule_sync.is_ours(row, self.origin)]
        return {schedule_sync.pipeline_of(row): row for row in mine}

    async def _known_as(self, listed: Listed, row: Schedule | None) -> tuple[Schedule | None, str]:
        """The row of a pipeline's schedule, if there is one, and the id of the schedule.

        A pipeline without a row may come from another folder: then its state file names the
        schedule. If the other folder is gone, the pipeline continues that schedule. If it is still
        there, this one is a copy and gets a new id. If the store has no such schedule, the id of
        the state file stays if it is about the same pipeline.
        """
        new_id = content_keys.schedule_id(listed.pipeline_id, listed.folder)
        if row is not None:
            return row, row.name
        state = state_file_sync.peek(listed.folder)
        if self._client is None or state is None:
            return None, new_id
        row = await self._client.connection.database.read(
            store.find, namespace=self._client.settings.namespace, name=state.schedule_id
        )
        if row is None:
            same = state.pipeline_id == listed.pipeline_id
            return None, state.schedule_id if same else new_id
        is_ours = definition.found(row).intent.owner == schedule_sync.OWNER
        gone = not schedule_sync.still_there(row)
        return (row, row.name) if is_ours and gone else (None, new_id)

    def _entry(
        self, listed: Listed, row: Schedule | None, name: str, now: int
    ) -> ScheduledPipeline | None:
        """The state of a pipeline; None when it has no schedule, or none that ever worked."""
        loaded = listed.loaded
        problem = problem_text(listed.problems) if loaded is None else None
        config, title = in_force(listed, row)
        if config is None:
            return None
        new = ScheduleState(schedule_id=name, pipeline_id=listed.pipeline_id)
        state = state_file_sync.peek(listed.folder) or new
        state = msgspec.structs.replace(state, schedule_id=name, pipeline_id=listed.pipeline_id)
        if row is None and loaded is not None:
            state = expected(state, loaded, now)
        return ScheduledPipeline(
            name, listed.pipeline_id, listed.folder, title, config, row, state, problem
        )

    async def _read_runs(self, entry: ScheduledPipeline, *, catches_up: bool = True) -> None:
        """Read the executions in progress, and the state of the schedule. With `catches_up`, add
        executions that ended while no process wrote the state file."""
        assert self._client is not None
        assert entry.row is not None
        database, count = self._client.connection.database, self.history_max
        if catches_up:
            chains = await database.read(attempts.latest, entry.row.id, limit=count)
            entry.state = state_file_sync.caught_up(entry.state, chains, history_max=count)
        entry.under_way = await database.read(_open_of, entry.row.id)
        entry.state = state_file_sync.projected(entry.state, entry.row, entry.under_way)

    # -- syncing ---------------------------------------------------------------------------

    async def sync(self, names: Sequence[str] | None = None, *, now: int) -> list[EntryChange]:
        """Bring the store in step with some pipelines of the folder, or with the whole folder."""
        await (self._discover(now) if names is None else self._read_folders(names, now))
        rows = await self._rows()
        if names is None:
            known = {self._key(name) for name in self._listed}
            names = sorted(self._listed.keys() | (rows.keys() - known))
        changes = [await self._sync(name, rows.get(self._key(name)), now) for name in names]
        return [change for change in changes if change is not None]

    async def _sync(self, name: str, row: Schedule | None, now: int) -> EntryChange | None:
        listed = self._listed.get(name)
        if listed is not None and listed.loaded is None:
            return await self._in_trouble(listed, row, now)
        self.broken.pop(name, None)
        loaded = None if listed is None else listed.loaded
        if listed is not None and loaded is not None and loaded.schedule is not None:
            return await self._put(listed, loaded, row, now)
        if row is None:
            return None
        change = await self._drop(name, row, now)
        if listed is None:
            state_file_sync.clean_up(self.root / name)
        else:
            state_file_sync.archive(self.root / name)
        return change

    async def _put(
        self, listed: Listed, loaded: Loaded, row: Schedule | None, now: int
    ) -> EntryChange | None:
        assert self._client is not None
        before = self.entries.get(listed.pipeline_id)
        row, name = await self._known_as(listed, row)
        previous = state_file_sync.take_over(
            listed.folder, schedule_id=name, pipeline_id=listed.pipeline_id,
            is_known=row is not None, now=now,
        )  # fmt: skip
        if previous.warning:
            log.warning("%s", previous.warning)
        block = Block(name, self._client.settings.namespace, self.origin, loaded)
        try:
            synced = await self._client.connection.database.write(
                schedule_sync.put, block, None if previous.fresh else previous.state,
                new_ids=self._client.ids.endless(now), now=now,
            )  # fmt: skip
        except (BadSchedule, BadInput) as error:
            log.warning("pipeline %s: %s %s", listed.pipeline_id, error, error.advice)
            if row is None:
                self.broken[listed.pipeline_id] = error.message
            return None
        assert loaded.pipeline.schedule is not None
        config, title = loaded.pipeline.schedule, loaded.pipeline.name
        entry = before or ScheduledPipeline(
            name, listed.pipeline_id, listed.folder, title, config, synced.row, previous.state
        )
        repaired = entry.problem is not None
        # The same entry: the tracker of its executions continues.
        entry.title, entry.config, entry.row, entry.problem = title, config, synced.row, None
        await self._read_runs(entry, catches_up=before is None and row is not None)
        self.entries[listed.pipeline_id] = entry
        for problem in listed.problems:
            log.warning("%s", problem)
        view = view_of(synced.row)
        known = None if row is None else definition.found(row).intent.spec
        log_outcome(log, view, str(loaded.file), is_new=view.intent.spec != known)
        if repaired:
            log.info("pipeline %s is valid again", listed.pipeline_id)
        if synced.change is not None:
            await self._client.connection.wakeups.announce(SCHEDULE)
        change = synced.change or ("updated" if repaired else None)
        return None if change is None else EntryChange(entry, change)

    async def _in_trouble(
        self, listed: Listed, row: Schedule | None, now: int
    ) -> EntryChange | None:
        """A broken file: the last good definition stays in force, if there was one."""
        name, problem = listed.pipeline_id, problem_text(listed.problems)
        row, schedule_id = await self._known_as(listed, row)
        entry = self.entries.get(name)
        if entry is None and row is not None:
            entry = self._entry(listed, row, schedule_id, now)
            if entry is not None:
                await self._read_runs(entry)
                self.entries[name] = entry
        if entry is None:
            self.broken[name] = problem
            log.warning("pipeline %s is broken, so it has no schedule: %s", name, problem)
            return None
        entry.problem = problem
        log.warning(
            "pipeline %s is broken: its last good definition stays in force. %s", name, problem
        )
        return EntryChange(entry, "updated")

    async def _drop(self, name: str, row: Schedule, now: int) -> EntryChange:
        """Delete a schedule. Its runs stay, and those in progress continue."""
        assert self._client is not None
        await self._client.connection.database.write(store.delete, row.id, now=now)
        await self._client.connection.wakeups.announce(SCHEDULE)
        entry = self.entries.pop(name, None)
        if entry is None:
            folder = self.root / name
            state = state_file_sync.peek(folder) or ScheduleState(
                schedule_id=row.name, pipeline_id=name
            )
            config, title = stored(row)
            entry = ScheduledPipeline(row.name, name, folder, title, config, row, state)
        return EntryChange(entry, "removed")


async def _open_of(tx: Tx, schedule_id: str) -> list[list[Attempt]]:
    roots = [root for _, root in await attempts.open_chains(tx, [schedule_id])]
    chains = await attempts.chains(tx, roots) if roots else {}
    return list(chains.values())


def _read_listed(
    root: Path, names: list[str], now: int, trust: Trust | None
) -> dict[str, Listed | None]:
    """Each of these folders as it is now; None for one that is not a pipeline."""
    pipelines: dict[str, Listed | None] = {}
    for name in names:
        pipelines[name] = None
        if may_be_pipeline(root / name):
            pipelines[name] = _if_trusted(listed_pipeline(root / name, now=now), trust)
    return pipelines


def _if_trusted(listed: Listed, trust: Trust | None) -> Listed:
    """The pipeline; one with a schedule from an untrusted folder counts as broken."""
    loaded = listed.loaded
    if trust is None or loaded is None or loaded.schedule is None or trust.allows(listed.folder):
        return listed
    error = trust.refusal(listed.folder, "it has a schedule")
    problem = Problem(str(loaded.file), FilePosition(1, 1), f"{error.message}. {error.advice}")
    return listed._replace(loaded=None, problems=[problem])
