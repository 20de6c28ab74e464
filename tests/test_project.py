"""Projects: how they are found, read, loaded, and which source of a setting wins."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import project
from rota.app import Rota
from rota.core.runs.model import Queue
from rota.errors import BadSetting, StoreUnreachable, UsageError
from rota.project import Project, given
from rota.settings import Settings
from rota.store.backend.database import open_url
from rota.store.backend.sqlite import SqliteDatabase

APP = 'from rota import Rota\napp = Rota("sqlite:///code.db", slots=5, namespace="code")\n'


@pytest.fixture(autouse=True)
def forget_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules that a test imports are gone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("jobs", "shop", "queue_", "half"):
            del sys.modules[name]
    importlib.invalidate_caches()


def write(folder: Path, **files: str) -> Path:
    """Modules of a project by name; `toml` is its rota.toml."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / ("rota.toml" if name == "toml" else f"{name}.py")).write_text(text)
    return folder


def found(folder: Path, target: str | None = None) -> Project:
    """The project, which must be there."""
    project_ = project.find(target, folder)
    assert project_ is not None
    return project_


# -- finding and reading -----------------------------------------------------------------------


def test_the_nearest_file_upwards_is_the_project(tmp_path: Path) -> None:
    write(tmp_path, toml='[project]\napp = "outer:app"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert found(inner).app == "outer:app"
    write(tmp_path / "a", toml='[project]\napp = "inner:app"\n')
    assert found(inner).app == "inner:app"
    assert found(inner).folder == tmp_path / "a"


def test_a_folder_a_file_or_an_app_may_be_named(tmp_path: Path) -> None:
    write(tmp_path / "x", toml='[project]\napp = "jobs:app"\n')
    assert found(tmp_path, "x").app == "jobs:app"
    assert found(tmp_path, "x/rota.toml").folder == tmp_path / "x"
    assert found(tmp_path, "jobs:app").app == "jobs:app"
    assert found(tmp_path, "x/jobs.py").app == "x/jobs.py"


def test_no_project_is_none_and_a_named_one_must_be_there(tmp_path: Path) -> None:
    assert project.find(None, tmp_path) is None
    (tmp_path / "x").mkdir()
    with pytest.raises(UsageError, match=r"there is no .*rota\.toml"):
        project.find("x", tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[project\n", "rota.toml: Expected ']'"),
        ("[projct]\n", 'rota.toml: unknown key "projct"; did you mean "project"'),
        ("[project]\nap = 'x'\n", r'rota.toml \[project\]: unknown key "ap"; did you mean "app"'),
        (
            "[project]\napp = 5\n",
            r"rota.toml \[project\]: Expected `str | null`, got `int` - at `\$\.app`",
        ),
        ("[settings]\nslot = 5\n", r"rota.toml \[settings\]: there is no setting slot"),
        ("[settings]\nslots = 0\n", r"rota.toml \[settings\]: slots = 0: expected int >= 1"),
        ("[settings]\nkeep_days = inf\n", "keep_days = inf: expected float <= 36500"),
        ("[settings]\npoll_s = 1e300\n", "poll_s = 1e[+]300: expected float <= 3153600000"),
        ("schedules = 3\n", "rota.toml: schedules is not a table"),
        ("[queues.mail]\nrate = '5'\n", r"rota.toml \[queues.mail\]: '5' is not a rate"),
        ("[queues.mail]\nrate = '0/1m'\n", "'0/1m' is not a rate"),
        ("[queues.mail]\nrate = '5/0s'\n", "'5/0s' is not a rate"),
        ("[queues.mail]\nrate = '5/soon'\n", "'5/soon' is not a rate"),
        (
            "[queues.mail]\nconcurency = 1\n",
            r'\[queues.mail\]: unknown key "concurency"; did you mean "concurrency"',
        ),
        ("[notifications.ops]\n", r"\[notifications.ops\]: .* has no channel"),
        (
            "[notifications.ops]\ncommand = 'true'\nkinds = ['faild']\n",
            r"\[notifications.ops\]: .* no kind 'faild'; did you mean \"failed\"",
        ),
        (
            "[notifications.ops]\nwebhok = 'https://a.example'\n",
            r'\[notifications.ops\]: unknown key "webhok"; did you mean "webhook"',
        ),
        (
            "[notifications.ops.mail]\nhost='h'\nsender='a@b.c'\nto=['a@b.c']\npassword='x'\n",
            r"\[notifications.ops\]: .*password",
        ),
    ],
)
def test_a_bad_file_is_named_with_the_bad_key(tmp_path: Path, text: str, says: str) -> None:
    write(tmp_path, toml=text)
    with pytest.raises(BadSetting, match=says):
        project.find(None, tmp_path)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    write(tmp_path, toml="\ufeff[settings]\nslots = 7\n")
    found = project.find(None, tmp_path)
    assert found is not None
    assert found.file.settings == {"slots": 7}


def test_an_endless_duration_in_the_environment_is_refused() -> None:
    with pytest.raises(BadSetting, match="ROTA_KEEP_DAYS='inf': expected float <= 36500"):
        project.given({"ROTA_KEEP_DAYS": "inf"})


# -- loading -----------------------------------------------------------------------------------


def test_an_app_is_found_by_module_and_by_file(tmp_path: Path) -> None:
    write(tmp_path, jobs=APP)
    for target in ("jobs:app", "jobs", "jobs.py", "jobs.py:app", str(tmp_path / "jobs.py")):
        assert project.load(found(tmp_path, target)).settings.slots == 5


def test_a_file_inside_a_package_may_use_relative_imports(tmp_path: Path) -> None:
    write(tmp_path / "shop", __init__="", base=APP, jobs="from .base import app\n")
    assert project.load(found(tmp_path, "shop/jobs.py")).settings.slots == 5


def test_a_file_named_like_a_standard_module_is_still_the_file(tmp_path: Path) -> None:
    write(tmp_path, queue=APP)
    assert project.load(found(tmp_path, "queue.py")).settings.slots == 5
    assert not hasattr(sys.modules.get("queue"), "app")


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, toml='[project]\napp = "jobs:app"\n', jobs="from half import app\n", half=APP)
    below = tmp_path / "below"
    below.mkdir()
    assert project.load(found(below)).settings.slots == 5


@pytest.mark.parametrize(
    ("body", "target", "says"),
    [
        (APP, "jbos:app", r"there is no module jbos \(looked in "),
        (APP, "jobs:ap", "jobs has no Rota app called 'ap'"),
        (APP, ":app", "':app' names no module"),
        ("x = 1\n", "jobs.py", "jobs.py has no Rota apps"),
        (APP + "b = Rota()\n", "jobs.py", "jobs.py has several Rota apps: app, b"),
        ("import nowhere_at_all\n", "jobs:app", "jobs cannot be imported: ModuleNotFoundError"),
        ("1\ndef f(:\n", "jobs.py", "jobs.py cannot be imported: SyntaxError: .* at .*jobs.py:2"),
        ("raise ValueError('no')\n", "jobs.py", "ValueError: no at .*jobs.py:1"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path: Path, body: str, target: str, says: str) -> None:
    write(tmp_path, jobs=body)
    with pytest.raises(UsageError, match=says):
        project.load(found(tmp_path, target))


def test_an_error_of_rota_in_a_module_keeps_its_sentence_and_hint(tmp_path: Path) -> None:
    body = APP + "@app.schedule('0 9 * *')\n@app.workflow\nasync def report() -> None: ...\n"
    write(tmp_path, jobs=body)
    with pytest.raises(UsageError, match=r"jobs.py:\d+: '0 9 \* \*' has 4 fields") as caught:
        project.load(found(tmp_path, "jobs.py"))
    assert caught.value.advice.startswith("The order is: [second] minute")


def test_two_names_of_one_app_are_one_app(tmp_path: Path) -> None:
    write(tmp_path, jobs=APP + "alias = app\n")
    assert project.load(found(tmp_path, "jobs.py")).settings.slots == 5


def test_a_project_without_an_app_cannot_be_loaded(tmp_path: Path) -> None:
    write(tmp_path, toml="[project]\n")
    with pytest.raises(UsageError, match="names no app"):
        project.load(found(tmp_path))


# -- settings ----------------------------------------------------------------------------------

TOML = """[project]
app = "jobs:app"
database = "sqlite:///file.db"
[settings]
slots = 6
poll_s = 6
[queues.mail]
worker_concurrency = 2
concurrency = 3
concurrency_per_key = 1
rate = "10/1m"
"""


def configured(folder: Path, environ: dict[str, str], **flags: object) -> Rota:
    """The app of the project in `folder`, for this call."""
    here = found(folder)
    return project.configure(project.load(here), here, given(environ, **flags))  # type: ignore[arg-type]


def test_flag_environment_file_and_code_win_in_this_order(tmp_path: Path) -> None:
    write(tmp_path, jobs=APP, toml=TOML)
    environ = {"ROTA_SLOTS": "7", "ROTA_DATABASE": "sqlite:///environment.db"}
    app = configured(tmp_path, environ, slots=8, database="sqlite:///flag.db")
    assert (app.settings.slots, app.url) == (8, "sqlite:///flag.db")
    app = configured(tmp_path, environ)
    assert (app.settings.slots, app.url) == (7, "sqlite:///environment.db")
    app = configured(tmp_path, {})
    assert (app.settings.poll_s, app.url) == (6.0, f"sqlite:///{tmp_path}/file.db")
    assert app.settings.namespace == "code"


@pytest.mark.parametrize("target", ["../code/jobs.py", "../code/jobs.py:app"])
def test_a_relative_database_follows_the_file_that_is_named_as_the_project(
    tmp_path: Path, target: str
) -> None:
    write(tmp_path / "code", jobs='from rota import Rota\napp = Rota("sqlite:///s.db")\n')
    (tmp_path / "elsewhere").mkdir()
    here = found(tmp_path / "elsewhere", target)
    app = project.configure(project.load(here), here, project.given({}))
    assert app.url == f"sqlite:///{(tmp_path / 'code' / 's.db').resolve()}"


def test_a_missing_database_is_named_with_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreUnreachable) as caught:
        project.must_exist("sqlite:///s.db")
    assert str(caught.value) == f"there is no database file {tmp_path / 's.db'}"


def test_relative_paths_start_at_the_project_from_any_folder(tmp_path: Path) -> None:
    write(tmp_path, jobs=APP, toml='[project]\napp = "jobs:app"\n')
    assert configured(tmp_path, {}).url == f"sqlite:///{tmp_path}/code.db"
    absolute, memory = "sqlite:////var/x.db", "sqlite:///:memory:"
    assert project.anchored(absolute, tmp_path) == absolute
    assert project.anchored(memory, tmp_path) == memory
    assert project.anchored("postgresql://h/db", tmp_path) == "postgresql://h/db"


def test_queues_follow_the_settings_and_the_file(tmp_path: Path) -> None:
    code = APP + 'app.queue("own", worker_concurrency=1, concurrency=9)\napp.queue("plain")\n'
    write(tmp_path, jobs=code, toml=TOML)
    queues = configured(tmp_path, {"ROTA_NAMESPACE": "ann"})._queues
    assert queues["own"] == (1, Queue("ann", "own", 9))
    assert queues["plain"] == (6, Queue("ann", "plain"))
    assert queues["mail"] == (2, Queue("ann", "mail", 3, 1, 10, 60_000_000))


def test_notification_rules_of_the_file_join_those_of_the_code(tmp_path: Path) -> None:
    code = APP + 'app.notify("own", command="true")\n'
    rule = '[notifications.ops]\nwebhook = "env:HOOK"\nkinds = ["missed"]\nlimit = "5/1h"\n'
    write(tmp_path, jobs=code, toml=TOML + rule)
    rules = configured(tmp_path, {}).notifications.declared
    assert {name: one.origin for name, one in rules.items()} == {
        "own": "jobs", "ops": str(tmp_path / "rota.toml"),
    }  # fmt: skip
    assert (rules["ops"].rule.limit, rules["ops"].rule.every_us) == (5, 3600 * 1_000_000)
    assert rules["ops"].channel.webhook == "env:HOOK"


async def test_a_configured_app_starts_runs_where_it_was_configured(tmp_path: Path) -> None:
    code = APP + "@app.workflow\nasync def work() -> None: ...\n"
    write(tmp_path, jobs=code, toml=TOML)
    app = configured(tmp_path, {}, namespace="ann")
    async with app.connected():
        run = await app.start("work")
        assert (await run.run()).namespace == "ann"
    assert (tmp_path / "file.db").exists()


def test_what_the_code_says_about_migrating_stays_said(tmp_path: Path) -> None:
    write(tmp_path, jobs="from rota import Rota\napp = Rota(migrate=False)\n")
    here = found(tmp_path, "jobs.py")
    app = project.configure(project.load(here), here, given({}, database="sqlite:///x.db"))
    assert app.migrates is False
    plain, server = Rota("sqlite:///x.db"), given({}, database="postgresql://h/db")
    assert project.configure(plain, here, server).migrates is False


def test_the_database_is_known_without_importing_code(tmp_path: Path) -> None:
    write(tmp_path, jobs="1 / 0\n", toml=TOML)
    place = project.place(found(tmp_path), given({}))
    assert place.url == f"sqlite:///{tmp_path}/file.db"
    assert place.settings == Settings(slots=6, poll_s=6.0)
    assert project.place(None, given({}, database="sqlite:///x.db")).url == "sqlite:///x.db"


def test_code_is_asked_when_nothing_else_names_the_database(tmp_path: Path) -> None:
    write(tmp_path, jobs=APP, toml='[project]\napp = "jobs:app"\n')
    place = project.place(found(tmp_path), given({}))
    assert place.url == f"sqlite:///{tmp_path}/code.db"
    assert place.settings.namespace == "code"


def test_without_any_source_the_database_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no database is known"):
        project.place(None, given({}))


def test_the_default_file_is_taken_where_there_is_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rota.db").touch()
    assert project.place(None, given({})).url == Rota().url == "sqlite:///rota.db"
    write(tmp_path, toml="[project]\n")
    with pytest.raises(UsageError, match="no database is known"):
        project.place(found(tmp_path), given({}))


def test_looking_must_not_create_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    with pytest.raises(StoreUnreachable, match=f"there is no database file {tmp_path}/x.db"):
        project.must_exist(url)
    assert not project.database_exists(url)
    (tmp_path / "x.db").touch()
    for there in (url, "postgresql://h/db", "sqlite://:memory:"):
        assert project.database_exists(there)
        project.must_exist(there)


@pytest.mark.parametrize(
    "url", ["sqlite:///a.db", "sqlite:////a/b.db", "sqlite://:memory:", "sqlite:///:memory:"]
)
def test_the_path_in_a_url_is_the_one_the_store_opens(url: str) -> None:
    database = open_url(url, Settings())
    assert isinstance(database, SqliteDatabase)
    path = project.sqlite_path(url)
    assert path is not None
    assert database.path == (path if path == ":memory:" else str(Path(path).absolute()))
