"""Mistakes on the command line, in project files and in database URLs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import apsw

from tests.golden.kit import Place, case

JOBS = """
from rota import Rota
app = Rota("sqlite:///rota.db")

@app.workflow
async def order(number: int, text: str = "") -> None: ...

@app.workflow
async def report() -> None: ...
"""


def _project(place: Place, code: str = JOBS, toml: str = "") -> None:
    place.write("jobs.py", code)
    place.write("rota.toml", f'[project]\napp = "jobs:app"\n{toml}')


@case("argument of the wrong type, command line")
def wrong_type(place: Place) -> str:
    _project(place)
    return place.rota("run", "start", "order", "number=seven")


@case("missing argument, command line")
def missing_argument(place: Place) -> str:
    _project(place)
    return place.rota("run", "start", "order")


@case("unknown argument, command line")
def unknown_argument(place: Place) -> str:
    _project(place)
    return place.rota("run", "start", "order", "number=7", "txt=x")


@case("unknown workflow, command line")
def unknown_workflow(place: Place) -> str:
    _project(place)
    return place.rota("run", "start", "oder", "number=7")


@case("unknown command")
def unknown_command(place: Place) -> str:
    return place.rota("rnu")


@case("unknown option")
def unknown_option(place: Place) -> str:
    return place.rota("run", "list", "--stauts", "failed")


@case("bad cron, command line")
def bad_cron(place: Place) -> str:
    return place.rota("next", "61 9 * * *")


@case("cron that never comes, command line")
def impossible_cron(place: Place) -> str:
    return place.rota("next", "0 0 30 2 *")


@case("unknown time zone, command line")
def bad_zone(place: Place) -> str:
    return place.rota("next", "0 9 * * *", "--timezone", "Europe/Berln")


@case("bad duration, command line")
def bad_duration(place: Place) -> str:
    _project(place)
    return place.rota("run", "start", "report", "--delay", "1 fortnight")


@case("error while the project is imported")
def import_error(place: Place) -> str:
    _project(place, "import nothing_of_that_name\n")
    return place.rota("up")


@case("syntax error in the project")
def syntax_error(place: Place) -> str:
    _project(place, "from rota import Rota\ndef f(:\n")
    return place.rota("up")


@case("bad cron in the project")
def bad_cron_in_project(place: Place) -> str:
    _project(place, JOBS + '\napp.schedule("61 9 * * *")(report)\n')
    return place.rota("up")


@case("schedule without the arguments of its workflow")
def schedule_without_arguments(place: Place) -> str:
    _project(place, JOBS + '\n@app.schedule("@daily")\n@app.workflow\nasync def s(n: int): ...\n')
    return place.rota("up")


@case("app of rota.toml outside its table")
def misplaced_app(place: Place) -> str:
    place.write("rota.toml", 'app = "jobs:app"\n')
    return place.rota("up")


@case("number in rota.toml where text belongs")
def unquoted(place: Place) -> str:
    place.write("rota.toml", "[queues.mail]\nrate = 100\n")
    return place.rota("up")


@case("no such module")
def no_such_module(place: Place) -> str:
    place.write("rota.toml", '[project]\napp = "job:app"\n')
    return place.rota("up")


@case("worker for a queue without a name")
def empty_queue(place: Place) -> str:
    _project(place)
    return place.rota("up", "--queue", "")


@case("no app in the module")
def no_app(place: Place) -> str:
    _project(place, "x = 1\n")
    return place.rota("up", "jobs.py")


@case("two apps in the module")
def two_apps(place: Place) -> str:
    _project(place, JOBS + "\nother = Rota()\n")
    return place.rota("up", "jobs.py")


@case("no app of that name")
def wrong_attribute(place: Place) -> str:
    _project(place)
    return place.rota("up", "jobs:ap")


@case("no such project file")
def no_module(place: Place) -> str:
    return place.rota("up", "nowhere.py")


@case("phrase with several readings, command line")
def ambiguous_phrase(place: Place) -> str:
    return place.rota("next", "every hour from 9 to 5")


@case("phrase that cron cannot express, command line")
def every_other_phrase(place: Place) -> str:
    return place.rota("next", "every other friday at 9")


@case("words that are not a schedule, command line")
def unknown_phrase(place: Place) -> str:
    return place.rota("next", "whenever the moon is full")


@case("zone without daylight saving time")
def fixed_zone(place: Place) -> str:
    return place.rota("next", "every day at 9", "--timezone", "EST")


@case("unknown key in rota.toml")
def toml_key(place: Place) -> str:
    _project(place, toml="[queues.mail]\nconcurency = 1")
    return place.rota("up")


@case("rota.toml is not TOML")
def toml_syntax(place: Place) -> str:
    _project(place, toml="[settings")
    return place.rota("up")


@case("unknown setting in rota.toml")
def toml_setting(place: Place) -> str:
    _project(place, toml="[settings]\nslotz = 5")
    return place.rota("up")


@case("bad setting in the environment")
def environment(place: Place) -> str:
    _project(place)
    return place.rota("up", ROTA_SLOTS="many")


@case("database URL that Rota does not know")
def bad_url(place: Place) -> str:
    return place.rota("run", "list", "--database", "mysql://ann:secret@host/db")


@case("database URL with a driver, as for SQLAlchemy")
def sqlalchemy_url(place: Place) -> str:
    return place.rota("run", "list", "--database", "postgresql+asyncpg://ann:secret@host/db")


@case("SQLite URL with two slashes")
def two_slashes(place: Place) -> str:
    return place.rota("migrate", "--database", "sqlite://e.db")


@case("asyncpg is not installed, command line")
def no_asyncpg(place: Place) -> str:
    code = (
        "import sys; sys.modules['asyncpg'] = None\n"
        "from rota.cli.main import main; sys.argv[0] = 'rota'; main()\n"
    )
    words = ["run", "list", "--database", "postgresql://host/db"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    return f"{done.stderr}exit code {done.returncode}\n"


@case("PostgreSQL is down")
def postgres_down(place: Place) -> str:
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        return place.rota("run", "list", "--database", f"postgresql://ann@127.0.0.1:{port}/db")


@case("PostgreSQL host is unknown")
def postgres_host(place: Place) -> str:
    said = place.rota("run", "list", "--database", "postgresql://ann@nowhere.invalid/db")
    before, _, rest = said.partition("(")  # what the system calls it differs
    return before + "(…" + rest[rest.index(")") :]


@case("PostgreSQL has no such database", needs_postgres=True)
def postgres_database(place: Place) -> str:
    url, _, _ = place.postgres_url().partition("?")
    return _without_server(place.rota("run", "list", "--database", _renamed(url)))


def _renamed(url: str) -> str:
    return f"{url.rpartition('/')[0]}/nowhere"


def _without_server(said: str) -> str:
    """The address of the test's server differs from run to run."""
    command, _, rest = said.partition("\n")
    sentence, _, more = rest.partition("\n")
    where, _, what = sentence.removeprefix("Error: ").partition(": ")
    assert where
    return f"{command.partition(' --database')[0]}\nError: SERVER: {what}\n{more}"


@case("PostgreSQL is not migrated", needs_postgres=True)
def postgres_empty(place: Place) -> str:
    url = place.postgres_url()
    url += f"{'&' if '?' in url else '?'}schema=golden_none"
    said = place.rota("run", "list", "--database", url)
    return "$ rota run list" + said[said.index("\n") :]


@case("the database file is not there")
def no_file(place: Place) -> str:
    return place.rota("run", "list", "--database", place.url)


@case("the file is not a database")
def not_a_database(place: Place) -> str:
    place.write("rota.db", "this is not a database, and long enough to see that it is none " * 20)
    return place.rota("run", "list", "--database", place.url)


@case("another process holds the database")
def locked(place: Place) -> str:
    place.write("rota.toml", f'[project]\ndatabase = "{place.url}"\n[settings]\nbusy_s = 0.2')
    holder = apsw.Connection(str(place.folder / "rota.db"))
    holder.execute("create table t (a); begin exclusive; insert into t values (1)")
    try:
        return place.rota("migrate")
    finally:
        holder.close()


@case("no database and no project")
def nothing(place: Place) -> str:
    return place.rota("run", "list")


@case("run id that fits several runs")
def ambiguous(place: Place) -> str:
    _project(place)
    for number in (1, 2):
        _run(place.folder, "run", "start", "order", f"number={number}")
    return place.rota("run", "show", "0")


@case("unknown run")
def unknown_run(place: Place) -> str:
    _project(place)
    _run(place.folder, "migrate")
    return place.rota("run", "show", "order-7")


def _run(folder: Path, *words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "rota", *words], cwd=folder, check=True, capture_output=True,
        env={**os.environ},
    )  # fmt: skip
