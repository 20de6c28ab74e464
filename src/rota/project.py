"""Find and load a project: its `rota.toml`, its app, and the settings that go with both.

A setting is looked for in this order: flag, environment (`ROTA_DATABASE`, `ROTA_SLOTS` …),
`rota.toml`, code. Paths in `rota.toml`, and in the app it names, start at its folder; those in a
`.py` file that is named as the project start at the folder of that file.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from rota import settings as settings_
from rota.app import Rota
from rota.client.inbound_webhook import WebhookTable
from rota.client.start import NO_OPTIONS
from rota.core.runs.queue_options import QueueOptions
from rota.core.suggest import close_names, did_you_mean, hint_of
from rota.core.time.instants import SECOND, micros
from rota.errors import BadInput, BadSetting, RotaError, StoreUnreachable, UsageError
from rota.notifications.definition import NotificationTable, declared
from rota.schedules.toml import ScheduleTable
from rota.settings import Settings
from rota.workflows.children import AppStarter

Table = TypeVar("Table", bound=msgspec.Struct)

FILE = "rota.toml"
DATABASE_VARIABLE = "ROTA_DATABASE"
_OWN_FOLDER = str(Path(__file__).parent)
DEFAULT = "rota.db"  # what `Rota()` uses; taken for a project when it is there


class QueueTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One `[queues.NAME]`: what `Rota.queue` takes; `rate` is written `"100/1m"`."""

    worker_concurrency: int | None = None
    concurrency: int | None = None
    concurrency_per_key: int | None = None
    rate: str | None = None
    open_per_key: int | None = None
    weight: int | None = None
    age: str | None = None
    round_robin: bool = False


class ProjectTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The `[project]` table."""

    app: str | None = None
    database: str | None = None


class ProjectFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of `rota.toml`."""

    project: ProjectTable = ProjectTable()
    settings: dict[str, Any] = {}
    queues: dict[str, QueueTable] = {}
    schedules: dict[str, ScheduleTable] = {}
    notifications: dict[str, NotificationTable] = {}
    webhooks: dict[str, WebhookTable] = {}
    http: dict[str, Any] = {}  # read by `rota.http.options`, when a server starts


class Project(NamedTuple):
    """The facts that are known before any user code is imported."""

    source: str  # for people: where this was found
    folder: Path
    app: str | None
    file: ProjectFile = ProjectFile()
    is_file: bool = False
    bad_schedules: Mapping[str, BadSetting] = {}  # by name: tables that cannot be read


class Given(NamedTuple):
    """The values of the command line and the environment; both beat the project."""

    database: str | None
    settings: dict[str, Any]


class ProjectLocation(NamedTuple):
    """The database and the settings, once every source was asked."""

    url: str
    settings: Settings


def given(environ: Mapping[str, str], *, database: str | None = None, **flags: Any) -> Given:
    """Flags over the environment; a flag that is None was not given."""
    chosen = {name: value for name, value in flags.items() if value is not None}
    return Given(
        database or environ.get(DATABASE_VARIABLE) or None,
        settings_.from_environment(environ) | chosen,
    )


# -- finding -----------------------------------------------------------------------------------


def find(target: str | None, folder: Path) -> Project | None:
    """The project that `target` names, or the nearest `rota.toml` from `folder` upwards."""
    if not target:
        return next(
            (read(up / FILE) for up in (folder, *folder.parents) if (up / FILE).is_file()), None
        )
    path = folder / target
    if path.is_dir() or path.suffix == ".toml":
        return read(path / FILE if path.is_dir() else path)
    return Project(target, folder, target)


def read(path: Path) -> Project:
    """A project from its file; every problem names the file and the key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors write a mark
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no {path}", hint=f"A project is a folder with a {FILE}, or module:app."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path}: {error}", hint=_FORM) from error
    schedules, bad = _schedules(raw.pop("schedules", {}), path)
    table = msgspec.structs.replace(_tables(raw, path), schedules=schedules)
    settings_.load(table.settings, source=f"{path} [settings]")
    for name, queue in table.queues.items():
        _rate(queue.rate, f"{path} [queues.{name}]")
    return Project(str(path), path.parent.resolve(), table.project.app, table, True, bad)


def _schedules(raw: Any, path: Path) -> tuple[dict[str, ScheduleTable], dict[str, BadSetting]]:
    """The schedules of a project file, and the errors of those that cannot be read.

    `read` does not raise them: most commands have nothing to do with schedules."""
    if not isinstance(raw, dict):
        raise BadSetting(f"{path}: schedules is not a table", hint=_FORM)
    good: dict[str, ScheduleTable] = {}
    bad: dict[str, BadSetting] = {}
    for name, one in raw.items():
        where = f"{path} [schedules.{name}]"
        try:
            table = _table(one, ScheduleTable, where)
            table.check(where)
            good[name] = table
        except BadSetting as error:
            bad[name] = error
    return good, bad


def _tables(raw: dict[str, Any], path: Path) -> ProjectFile:
    """The other tables of a project file; a problem names its table."""
    fields = dict(raw)
    if "project" in raw:
        fields["project"] = _table(raw["project"], ProjectTable, f"{path} [project]")
    kinds: dict[str, type[msgspec.Struct]] = {"queues": QueueTable, "webhooks": WebhookTable}
    for noun, kind in kinds.items():
        if isinstance(raw.get(noun), dict):
            fields[noun] = {
                name: _table(one, kind, f"{path} [{noun}.{name}]")
                for name, one in raw[noun].items()
            }
    if isinstance(raw.get("notifications"), dict):
        fields["notifications"] = {
            name: _notification(name, one, path) for name, one in raw["notifications"].items()
        }
    return _table(fields, ProjectFile, str(path))


def _notification(name: str, raw: Any, path: Path) -> NotificationTable:
    where = f"{path} [notifications.{name}]"
    table = _table(raw, NotificationTable, where)
    try:
        declared(name, str(path), table)
    except UsageError as error:
        raise BadSetting(f"{where}: {error.message}", hint=error.advice) from error
    return table


def _table(raw: Any, kind: type[Table], where: str) -> Table:
    known = kind.__struct_fields__
    keys = f"Use one of: {', '.join(known)}."
    for key in raw if isinstance(raw, dict) else ():
        if key not in known:
            is_misplaced = key in ProjectTable.__struct_fields__
            raise BadSetting(
                f'{where}: unknown key "{key}"{did_you_mean(key, known)}',
                hint=f"Write {key} under [project]." if is_misplaced else keys,
            )
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        is_text = "Expected `str" in str(error)
        hint = "This value is text: write it in quotes." if is_text else keys
        raise BadSetting(f"{where}: {error}", hint=hint) from error


_FORM = (
    "It has [project] app and database, [settings], [queues.NAME], [schedules.NAME], "
    "[notifications.NAME], [webhooks.NAME] and [http]."
)


def _rate(text: str | None, where: str) -> tuple[int, float] | None:
    """`"100/1m"` as a count and seconds."""
    if text is None:
        return None
    count, _, per = text.partition("/")
    try:
        rate = int(count), micros(per) / SECOND
    except (ValueError, BadInput):
        rate = 0, 0.0
    if min(rate) <= 0:
        raise BadSetting(f"{where}: {text!r} is not a rate", hint='Write rate = "100/1m".')
    return rate


# -- where the database is ---------------------------------------------------------------------


def place(project: Project | None, chosen: Given) -> ProjectLocation:
    """URL and settings. User code is imported only when nothing else names the database."""
    known = place_without_code(project, chosen)
    if known is not None:
        return known
    if project is None or project.app is None:
        raise UsageError(
            "no database is known",
            hint=f"Give --database URL or --project file.py, set {DATABASE_VARIABLE} or "
            f"ROTA_PROJECT, or go to a folder with a {FILE}.",
        )
    app = configure(load(project), project, chosen)
    return ProjectLocation(app.url, app.settings)


def place_without_code(project: Project | None, chosen: Given) -> ProjectLocation | None:
    """The values of flags, environment and files, if they name the database."""
    url = chosen_database(project, chosen)
    if project is None and not url and Path(DEFAULT).is_file():
        url = f"sqlite:///{DEFAULT}"
    if not url:
        return None
    values = (project.file.settings if project else {}) | chosen.settings
    return ProjectLocation(url, settings_.load(values, source="settings"))


def chosen_database(project: Project | None, chosen: Given) -> str | None:
    """The database that a flag, the environment or rota.toml names, in this order."""
    if chosen.database or project is None:
        return chosen.database
    url = project.file.project.database
    return url and anchored(url, project.folder)


def code_folder(project: Project) -> Path:
    """The start of relative paths in the app's code: at rota.toml, or at the file that was named.

    A module that was named is found by Python's path, so the current folder stays the start."""
    location = _split(project.app or "")[0]
    if project.is_file or not location.endswith(".py"):
        return project.folder
    return (project.folder / location).resolve().parent


def code_paths(project: Project) -> list[Path]:
    """The files and folders with the project's code. Nothing is imported.

    They are the folder of rota.toml, and the file or the top package of the app."""
    location = _split(project.app or "")[0]
    if location.endswith(".py"):
        named = [(project.folder / location).resolve()]
    else:
        top = location.partition(".")[0]
        folders = [str(project.folder), *sys.path]
        spec = importlib.machinery.PathFinder.find_spec(top, folders) if top else None
        found = spec and (spec.submodule_search_locations or [spec.origin or ""])
        named = [Path(each).resolve() for each in found or ()]
    if not project.is_file and not all(path.exists() for path in named or [Path("\0")]):
        raise _broken(location, project, ModuleNotFoundError(name=location))
    folder = project.folder.resolve()
    if not project.is_file:
        return named
    return [folder, *(path for path in named if path.exists() and folder not in path.parents)]


def anchored(url: str, folder: Path) -> str:
    """A relative SQLite path as one that starts at `folder`; any other URL as it is."""
    path = sqlite_path(url)
    if path is None or path == ":memory:" or Path(path).is_absolute():
        return url
    return f"sqlite:///{folder / path}"


def sqlite_path(url: str) -> str | None:
    """The file behind a SQLite URL, or None for another database."""
    scheme, _, rest = url.partition("://")
    return rest.removeprefix("/") if scheme == "sqlite" else None


def database_exists(url: str) -> bool:
    """Whether there is a database, as far as is known without opening it."""
    path = sqlite_path(url)
    return path is None or path == ":memory:" or Path(path).exists()


def must_exist(url: str) -> None:
    """Refuse a SQLite file that is not there: looking must not create it."""
    path = sqlite_path(url)
    if path is not None and not database_exists(url):
        raise StoreUnreachable(
            f"there is no database file {Path(path).absolute()}",
            hint="Check the path; `rota up` and `rota migrate` create it.",
        )


# -- loading -----------------------------------------------------------------------------------


def load(project: Project) -> Rota:
    """Import the project's app. Its code runs now."""
    if project.app is None:
        raise UsageError(
            f"{project.source} names no app", hint='Add app = "module:app" under [project].'
        )
    location, attribute = _split(project.app)
    if not location:
        raise UsageError(
            f"{project.source}: {project.app!r} names no module",
            hint="Name the app as package.module:app or as path/to/file.py.",
        )
    if str(project.folder) not in sys.path:
        sys.path.insert(0, str(project.folder))
    try:
        module = _import(location, project)
    except Exception as error:
        raise _broken(location, project, error) from error
    return _app_in(module, attribute, location)


def _split(target: str) -> tuple[str, str | None]:
    """`module:app` in two. The colon of a drive letter does not count."""
    location, colon, attribute = target.rpartition(":")
    return (location, attribute) if colon and attribute.isidentifier() else (target, None)


def _import(location: str, project: Project) -> ModuleType:
    if not location.endswith(".py"):
        return importlib.import_module(location)
    path = (project.folder / location).resolve()
    parts = [path.stem]
    folder = path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    if len(parts) > 1:  # inside a package its own relative imports must work
        return importlib.import_module(".".join(parts))
    # By path, so that a file called queue.py is never taken for the standard library's.
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    known = sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if known is module:
            del sys.modules[path.stem]
        raise
    return module


def _broken(location: str, project: Project, error: Exception) -> UsageError:
    missing = isinstance(error, ModuleNotFoundError) and location.startswith(error.name or "\0")
    kind = "" if location.endswith(".py") else "module "
    if missing or not (kind or (project.folder / location).is_file()):
        return UsageError(
            f"there is no {kind}{location} (looked in {project.folder})",
            hint="Name the app as package.module:app or as path/to/file.py.",
        )
    where = _place_of(error)
    if isinstance(error, RotaError):  # its message is enough: only the line is missing
        sentence, _, picture = error.message.partition("\n")
        message = f"{where}: {sentence}" + (f"\n{picture}" if picture else "")
        return UsageError(message, hint=error.advice)
    problem = error.msg if isinstance(error, SyntaxError) else str(error)
    return UsageError(
        f"{location} cannot be imported: {type(error).__name__}: {problem} at {where}",
        hint="Fix the module, or rerun with --debug for the whole traceback.",
    )


def _place_of(error: Exception) -> str:
    """The line of the project's code at which an import failed."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith(_OWN_FOLDER)
    ]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "an unknown line"


def _app_in(module: ModuleType, attribute: str | None, location: str) -> Rota:
    apps = {name: item for name, item in vars(module).items() if isinstance(item, Rota)}
    if attribute is not None:
        if attribute in apps:
            return apps[attribute]
        near = close_names(attribute, apps) or list(apps)
        raise UsageError(
            f"{location} has no Rota app called {attribute!r}",
            hint=hint_of(near, 'Write app = Rota("sqlite:///…").'),
        )
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    raise UsageError(
        f"{location} has {'several' if apps else 'no'} Rota apps"
        + (f": {', '.join(apps)}" if apps else ""),
        hint=f"Name the one you mean: {location}:{next(iter(apps))}."
        if apps
        else 'Write app = Rota("sqlite:///rota.db") in it.',
    )


def configure(app: Rota, project: Project, chosen: Given) -> Rota:
    """Override the settings of the app by those of rota.toml, the environment and the flags."""
    values = msgspec.to_builtins(app.settings) | project.file.settings | chosen.settings
    before, app.settings = app.settings, settings_.load(values, source="settings")
    app.starter = AppStarter(app, app.workflows)
    own = anchored(app.url, code_folder(project))
    _move(app, chosen_database(project, chosen) or own)
    # Queues were declared under the settings of the code: bring them along.
    app._queues = {
        name: (
            app.settings.slots if slots == before.slots else slots,
            msgspec.structs.replace(limits, namespace=app.settings.namespace),
        )
        for name, (slots, limits) in app._queues.items()
    }
    for name, queue in project.file.queues.items():
        limits = msgspec.structs.asdict(queue) | {"rate": _rate(queue.rate, name)}
        app.queue(name, **cast(QueueOptions, limits))
    for name, hook in project.file.webhooks.items():
        app.add_webhook(name, hook)
    if project.is_file:
        # Schedules and rules of other files stay; those of this file are compared.
        origin = str(Path(project.source).resolve())
        app.declared.add_file(origin, project.file.schedules, project.bad_schedules)
        app.notifications.declared.add_file(origin, project.file.notifications)
        app.notifications.declared.page_url = str(project.file.http.get("url") or "")
    return app


def unfit_schedules(app: Rota, project: Project) -> list[BadSetting]:
    """The schedules of rota.toml that a deploy refuses because of the app's code."""
    found: list[BadSetting] = []
    for name, table in project.file.schedules.items():
        try:
            app.starter.new_run(table.workflow, (), table.input, NO_OPTIONS)
        except RotaError as error:
            where = f"{project.source} [schedules.{name}]"
            found.append(BadSetting(f"{where}: {error.message}", hint=error.advice))
    return found


def _move(app: Rota, url: str) -> None:
    """Point the app to another database. A choice of `migrate` in the code stays."""
    was_default = app.migrates == app.url.startswith("sqlite")
    app.url = url
    if was_default:
        app.migrates = url.startswith("sqlite")
