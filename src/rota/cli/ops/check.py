"""`rota check`: read workflow code for what would differ at a replay. The code is not imported."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from rota import project
from rota.cli import complete, connect, exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.core.workflows.replay_check import (
    ReplayFinding,
    SourceReport,
    Unread,
    check_source,
    source_text,
    unreadable,
)
from rota.errors import RotaError, UsageError

SKIPPED = ("node_modules", "site-packages")  # and hidden folders, and virtual environments


class _Checked(NamedTuple):
    workflow_count: int
    silenced_count: int
    findings: list[ReplayFinding]
    unread: list[Unread]
    errors: list[RotaError]  # of files that are not Python


@click.command(cls=BaseCommand)
@click.argument("targets", nargs=-1, metavar="[PATH]...", shell_complete=complete.files)
@click.pass_obj
def check(call: CommonOptions, targets: tuple[str, ...]) -> int:
    """Check workflow code for what would differ at a replay.

    PATH is a Python file, a folder or a project; without one it is the project. It reads the text
    of each file and does not import it. It follows calls within a file, up to steps.

    A comment on the line, "# rota: ok" and a reason, silences a finding. The exit code is 1 if
    there are findings, and 2 if a file cannot be read.
    """
    checked = _check(sorted(set(_files(_paths(call, targets)))))
    if call.json:
        render.document(_document(checked))
    else:
        _print(checked)
    if checked.errors:
        raise _as_one(checked.errors)
    return exit_codes.FAILED if checked.findings else exit_codes.OK


# -- files -------------------------------------------------------------------------------------


def _paths(call: CommonOptions, targets: Sequence[str]) -> list[Path]:
    if targets:
        return [path for target in targets for path in _named(target)]
    known = connect.project_of(call)
    if known is None:
        raise UsageError(
            "no project is known",
            hint="Name files or folders: `rota check src`. Or give --project, set ROTA_PROJECT, or "
            f"go to a folder with a {project.FILE}.",
        )
    return project.code_paths(known)


def _named(target: str) -> list[Path]:
    path = Path(target)
    is_project = path.suffix == ".toml" or (path / project.FILE).is_file()
    if path.exists() and not is_project:
        return [path]
    found = project.find(target, Path.cwd())
    return [] if found is None else project.code_paths(found)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path.resolve()
            continue
        for folder, folders, names in os.walk(path.resolve()):
            folders[:] = [name for name in folders if not _is_skipped(Path(folder, name))]
            files = (Path(folder, name) for name in names if name.endswith(".py"))
            yield from (file for file in files if file.is_file())


def _is_skipped(folder: Path) -> bool:
    is_hidden = folder.name.startswith(".") or folder.name in SKIPPED
    return is_hidden or (folder / "pyvenv.cfg").is_file()


# -- the check ---------------------------------------------------------------------------------


def _check(files: Sequence[Path]) -> _Checked:
    checked = _Checked(0, 0, [], [], [])
    for file in files:
        try:
            report = _report(file)
        except RotaError as error:
            checked.errors.append(error)
            continue
        checked.findings.extend(report.findings)
        checked.unread.extend(report.unread)
        checked = checked._replace(
            workflow_count=checked.workflow_count + len(report.workflows),
            silenced_count=checked.silenced_count + report.silenced_count,
        )
    return checked


def _report(file: Path) -> SourceReport:
    here = Path.cwd().resolve()
    name = str(file.relative_to(here) if here in file.parents else file)
    try:
        source = file.read_bytes()
    except OSError as error:
        raise unreadable(name, str(error.strerror)) from error
    return check_source(source_text(source, name), name)


def _as_one(errors: Sequence[RotaError]) -> UsageError:
    """One error for all files that cannot be read; the first is its sentence."""
    message = "\n".join(error.message for error in errors)
    return UsageError(message, hint=errors[0].advice)


# -- the answer --------------------------------------------------------------------------------


def _document(checked: _Checked) -> dict[str, object]:
    return {
        "workflows": checked.workflow_count,
        "findings": [finding._asdict() for finding in checked.findings],
        "silenced": checked.silenced_count,
        "not_read": [unread._asdict() for unread in checked.unread],
        "errors": [error.message for error in checked.errors],
    }


def _print(checked: _Checked) -> None:
    for finding in checked.findings:
        render.say(render.clean(finding.text), hang=4)
    for unread in checked.unread:
        place = f"{unread.file}:{unread.line}  {unread.name}"
        text = f"{place} is not read: it is not a function of this file"
        render.say(render.clean(text), hang=4)
    read = f"{render.count(checked.workflow_count, 'workflow')} read"
    found = render.count(len(checked.findings), "finding") if checked.findings else "nothing found"
    silenced = f" ({checked.silenced_count} silenced)" if checked.silenced_count else ""
    render.say(f"{read}, {found}{silenced}")
