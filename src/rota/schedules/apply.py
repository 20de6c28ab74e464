"""A deploy: the schedules that code and project file declare are brought into the database.

A schedule in the database is never reset or destroyed. A declaration that cannot be applied is
logged, and stays visible at the schedule itself.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rota.client.client import Client
from rota.client.schedule_view import ScheduleView, view_of
from rota.client.start import Startable
from rota.core.runs.lifecycle import Status
from rota.errors import BadSchedule, BadSetting, RotaError, UsageError
from rota.schedules.definition import CODE, GONE
from rota.schedules.edit import When
from rota.schedules.overrides import differences_text
from rota.schedules.preview import reading
from rota.schedules.toml import ScheduleTable
from rota.store.schedules import templates

log = logging.getLogger("rota.app")


class Declared(NamedTuple):
    """One declared schedule, and the program or file that declares it."""

    name: str
    workflow: Startable[..., Any]
    when: When
    origin: str
    words: dict[str, Any]
    is_file: bool = False


def origin_of(workflow: Startable[..., Any]) -> str:
    """The program a workflow comes from: its module. A script has the name it is imported by."""
    return origin_of_module(workflow.function.__module__)


def origin_of_module(module: str) -> str:
    """The name of a program by its module."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).stem if module == "__main__" and file else module


def log_outcome(log: logging.Logger, shown: ScheduleView, origin: str, *, is_new: bool) -> None:
    """Log how a deploy understood a schedule, if that is new, and where an operator's values
    differ from the declaration."""
    name = shown.schedule.name
    if is_new:
        log.info("schedule %s: %s", name, reading(shown))
    if shown.differences:
        log.warning(
            "schedule %s differs from %s: %s. The operator's values are kept; `rota schedule reset "
            "%s` restores the declared ones.",
            name, origin, "; ".join(differences_text(shown.differences)), name,
        )  # fmt: skip


def _refuse(name: str, error: RotaError) -> None:
    text = error.message.partition("\n")[0]  # further lines point into the cron expression
    end = "" if text.endswith("?") else "."
    log.error("schedule %s is not applied: %s%s %s", name, text, end, error.advice)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # the package around it is gone, too
        return False


class DeclaredSchedules:
    """The schedules that one program declares, in code and in its project file."""

    def __init__(self, client: Client, workflows: Mapping[str, Startable[..., Any]]) -> None:
        self._client = client
        self._workflows = workflows
        self._code: dict[str, Declared] = {}
        self._file: tuple[str, Mapping[str, ScheduleTable], Mapping[str, BadSetting]] | None = None

    def add(
        self, name: str, workflow: Startable[..., Any], when: When, words: dict[str, Any]
    ) -> None:
        """Add a declaration of the code."""
        if name in self._code:
            raise UsageError(
                f"schedule {name} is declared twice",
                hint='Give one of them another name: @app.schedule(…, name="…").',
            )
        self._code[name] = Declared(name, workflow, when, origin_of(workflow), words)

    def add_file(
        self, origin: str, tables: Mapping[str, ScheduleTable], bad: Mapping[str, BadSetting]
    ) -> None:
        """Add the declarations of a project file; its path is their origin.

        The deploy logs those that are `bad`, and leaves their schedules unchanged.
        """
        twice = sorted(self._code.keys() & {*tables, *bad})
        if twice:
            raise UsageError(
                f"{origin} and the code both declare schedule {', '.join(twice)}",
                hint="Keep one of the two.",
            )
        self._file = (origin, tables, bad)

    async def apply(self) -> None:
        """Bring them into the database; quarantine those without code."""
        deploy = _Deploy(self._client, self._workflows, list(self._code.values()))
        if self._file is not None:
            deploy.add_file(*self._file)
        await deploy.apply()


class _Deploy:
    """One deploy of one program."""

    def __init__(
        self,
        client: Client,
        workflows: Mapping[str, Startable[..., Any]],
        declared: list[Declared],
    ) -> None:
        self._client = client
        self._schedules = client.schedules
        self._workflows = workflows
        self._declared = declared
        self._bad: set[str] = set()
        # This program also manages the schedules that these origins declared before.
        self._origins = {origin_of(workflow) for workflow in workflows.values()}

    def add_file(
        self, origin: str, tables: Mapping[str, ScheduleTable], bad: Mapping[str, BadSetting]
    ) -> None:
        """Add the declarations of a project file; refuse the bad ones."""
        self._origins.add(origin)
        for name, error in bad.items():
            self._bad.add(name)
            _refuse(name, error)
        for name, one in tables.items():
            workflow = self._workflows.get(one.workflow)
            if workflow is None:
                log.error(
                    "schedule %s of %s: there is no workflow %s in the code, so it does not run",
                    name, origin, one.workflow,
                )  # fmt: skip
                continue
            self._declared.append(Declared(name, workflow, one.when, origin, one.words(), True))

    async def apply(self) -> None:
        """Create and update the declared schedules; handle those that are no longer declared."""
        known = {shown.schedule.name: shown for shown in await self._ours()}
        for one in self._declared:
            await self._apply(one, known.get(one.name))
        await self._adopt_orphans()
        names = {one.name for one in self._declared} | self._bad
        for shown in await self._ours():
            if shown.schedule.name in names or shown.problem is not None:
                continue
            if shown.intent.ignored in self._origins:
                await self._schedules._forget_declaration(shown.schedule.name)
            elif shown.intent.origin in self._origins:
                await self._no_longer(shown)

    async def _ours(self) -> list[ScheduleView]:
        """The schedules that these origins declare, or have declared, by name."""
        rows = await self._client.connection.database.read(
            templates.declared_by, namespace=self._client.settings.namespace,
            origins=sorted(self._origins),
        )  # fmt: skip
        return [view_of(row) for row in rows]

    async def _adopt_orphans(self) -> None:
        """Take over the schedules of modules that were removed from a package of this program."""
        packages = {origin.partition(".")[0] for origin in self._origins if "." in origin}
        for package in sorted(packages):
            origins = await self._client.connection.database.read(
                templates.origins_in, namespace=self._client.settings.namespace, package=package
            )
            for origin in origins:
                if origin not in self._origins and not _exists(origin):
                    self._origins.add(origin)

    async def _apply(self, one: Declared, before: ScheduleView | None) -> None:
        try:
            shown = await self._schedules.create(
                one.name, one.workflow, one.when, owner=CODE, origin=one.origin, replace=True,
                **one.words,
            )  # fmt: skip
        except UsageError as error:
            # A mistake in code stops the worker. Times that are over, or one table of a file, are
            # no reason to keep everything else from running.
            if not one.is_file and not isinstance(error, BadSchedule):
                text = f"schedule {one.name}: {error.message}"
                raise type(error)(text, hint=error.advice) from error
            _refuse(f"{one.name} of {one.origin}", error)
            return
        if shown.intent.owner != CODE:
            log.warning(
                "schedule %s is declared in %s, but an operator has made one of that name: the "
                "declaration is ignored. Give it another name, or `rota schedule delete %s`.",
                one.name, one.origin, one.name,
            )  # fmt: skip
        elif (shown.schedule.reason or "").startswith(GONE):
            log.warning("schedule %s continues: its workflow is back", one.name)
            await self._schedules.resume(one.name)
        if shown.intent.owner == CODE:
            is_new = before is None or shown.intent.spec != before.intent.spec
            log_outcome(log, shown, one.origin, is_new=is_new)
        if before is not None and before.problem and before.intent.code and not shown.problem:
            log.warning(
                "schedule %s could not be read (%s) and has its declared values again; an "
                "operator's changes of %s are lost", one.name, before.problem,
                ", ".join(each.field for each in before.differences),
            )  # fmt: skip

    async def _no_longer(self, shown: ScheduleView) -> None:
        name, intent = shown.schedule.name, shown.intent
        if intent.workflow in self._workflows:
            log.warning(
                "schedule %s is no longer declared in %s; it still fires. "
                "Remove it with `rota schedule delete %s`.", name, intent.origin, name,
            )  # fmt: skip
        elif shown.schedule.status == Status.SCHEDULED:
            note = f"{GONE} {intent.workflow} is gone from the code"
            await self._schedules.pause(name, note=note)
            log.error("schedule %s: %s", name, note)
