"""Loads the named queries of `sql/**/*.sql`; one in `sql/<dialect>.sql` replaces its namesake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from rota.core.access.model import ApiToken, AuditEntry, Session
from rota.core.automations.model import (
    AnswerRow,
    AutomationVersion,
    DeployedAutomation,
    HandlerRun,
    InputRow,
    LedgerRow,
    StoredEvent,
)
from rota.core.automations.planner import DeployedHandler
from rota.core.runs.model import Claim, LogLine, Queue, Run, Schedule, StoredStep
from rota.store.backend.dialect import POSTGRES, SQLITE, Compiled, Dialect

_QUERY = re.compile(r"\{query (\w+)\}")
_CREATE_TABLE = re.compile(r"^create table (\w+)", re.MULTILINE)
_SERVED = re.compile(r"\{served (\w+)\}")
_ALIAS = re.compile(r" as \w+$")
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
# Comments are removed: SQLite prepares a statement that begins with a comment again at every
# execution.
_REMARK = re.compile(r"^\s*--.*\n", re.MULTILINE)

# Column lists come from the records that read them, so the two cannot drift apart.
_RECORDS = {
    "run": (Run, "runs"),
    "claim": (Claim, "runs"),
    "step": (StoredStep, "steps"),
    "queue": (Queue, "queues"),
    "schedule": (Schedule, "runs"),
    "automation": (DeployedAutomation, "automations"),
    "definition": (AutomationVersion, "definitions"),
    "handler": (DeployedHandler, "handlers"),
    "handler run": (HandlerRun, "handler_runs"),
    "event": (StoredEvent, "events"),
    "mutation": (LedgerRow, "mutations"),
    "input": (InputRow, "inputs"),
    "answer": (AnswerRow, "answers"),
    "token": (ApiToken, "api_tokens"),
    "session": (Session, "sessions"),
    "audit": (AuditEntry, "audit"),
    "log line": (LogLine, "run_logs"),
}


def parse(text: str) -> dict[str, str]:
    """Blocks of `-- name: …` by name, without remarks."""
    parts = _NAME.split(text)[1:]
    return {
        name: _REMARK.sub("", body).strip().rstrip(";")
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


def _columns(record: str) -> str:
    kind, table = _RECORDS[record]
    names = [f"{table}.{name}" for name in kind.__struct_fields__]
    return ", ".join(_WIDE.get(name, name) for name in names)


def _claim_array() -> str:
    """A claim as it will be, as one JSON array, read before the claim is written."""
    names = [f"runs.{name}" for name in Claim.__struct_fields__]
    texts = [_CLAIMING.get(name) or _WIDE.get(name, name) for name in names]
    return f"json_array({', '.join(_ALIAS.sub('', text) for text in texts)})"


_CLAIMING = {
    "runs.claim_count": "runs.claim_count + 1",
    "runs.lease_owner": ":worker_id",
    "runs.started_at": "coalesce(runs.started_at, :now)",
}

# `{served runs}`: conditions of a claim, with the alias of the runs.
_SERVED_BY_NAME = "runs.name {in names} and {version fits runs}"
# The same for a worker with a code set: its code of the automation has to be the deployed one. As
# single values: for an `exists` the server would read the whole set.
_SERVED_BY_CODE = (
    "(runs.name {in names} or (runs.kind = 'automation' and (select code_digests.digest"
    " from code_digests where code_digests.code_id = :code_id and code_digests.name = runs.name)"
    " = (select automations.digest from automations"
    " where automations.namespace = runs.namespace and automations.name = runs.name)))"
    " and {version fits runs}"
)
# Both columns are null for nearly all runs.
_VERSION_FITS = (
    "(runs.pinned_version is null or runs.pinned_version = :version)"
    " and (runs.refused_versions is null or runs.refused_versions"
    " = replace(runs.refused_versions, ' ' || :version || ' ', ''))"
)
_BY_CODE = "_by_code"
# `{claimable runs}`: what a queue without limits holds for a worker. Runs that crashed twice are
# executed alone.
_CLAIMABLE = (
    "namespace = :namespace and queue = :queue and status = 'pending' and {served runs}"
    " and recoveries < 2"
)

# `{fits seen}`: what a list of runs selects by, with the alias of rows that have these columns.
_FILTERED = ("id", "namespace", "kind", "name", "status", "queue", "schedule_id", "external_id",
    "root_id", "tags")  # fmt: skip
_FITS = re.compile(r"\{fits (\w+)\}")
# A search: a part of the name, the beginning of the external id, an end of the id.
_SEARCHED = (
    ":search = ''",
    "lower(seen.name) like :name_like escape '!'",
    "substr(seen.external_id, 1, length(:search)) = :search",
    "(:id_part <> '' and substr(seen.id, 1, length(:id_part)) = :id_part)",
    "(:id_part <> '' and substr(seen.id, length(seen.id) - length(:id_part) + 1) = :id_part)",
)
_EQUAL = ("name", "status", "queue", "kind", "schedule_id", "external_id", "root_id")
# `{last attempt runs}`: no other attempt of the chain follows, with the alias of the runs.
_LAST_ATTEMPT = re.compile(r"\{last attempt (\w+)\}")
_NO_SUCCESSOR = (
    # A run always follows one that continued as new, even if retention has deleted it.
    r"coalesce(\1.reason, '') <> 'continued' and not exists (select 1 from runs as later"
    r" where later.root_id = \1.root_id and later.retry_of = \1.id)"
)


def _fits(alias: str) -> str:
    """The filters that an index did not decide. An empty text selects everything."""
    equal = [f"(:{name} = '' or {alias}.{name} = :{name})" for name in _EQUAL]
    tags = f"coalesce({alias}.tags, '')"
    return "\n    and ".join(
        [
            f"{alias}.namespace = :namespace and {alias}.kind <> 'schedule'",
            *equal,
            f"(:tag = '' or replace({tags}, :tag, '') <> {tags})",
            f"({' or '.join(_SEARCHED).replace('seen.', f'{alias}.')})",
        ]
    )


def served_query(name: str, code_id: str) -> str:
    """The form of a query with `{served runs}`: by names alone, or by a code set, too. The first
    opens two tables less for every claim."""
    return f"{name}{_BY_CODE}" if code_id else name


# Payloads over the inline limit live in `payloads`; readers see one column either way.
_WIDE = {
    # The external id stays with the first attempt; the others are known by it too.
    "runs.external_id": "case when runs.retry_of is null then runs.external_id else (select"
    " first.external_id from runs as first where first.id = runs.root_id) end as external_id",
    "runs.input": "coalesce(runs.input, (select body from payloads"
    " where run_id = coalesce(runs.segment_id, runs.root_id) and part = 'input')) as input",
    "runs.output": "coalesce(runs.output, (select body from payloads"
    " where run_id = runs.id and part = 'output')) as output",
    "runs.error": "coalesce(runs.error, (select body from payloads"
    " where run_id = runs.id and part = 'error')) as error",
}


def shared_files(folder: Traversable) -> Iterator[Traversable]:
    """The files with queries for both databases, folder by folder."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            yield from shared_files(path)
        elif path.name.endswith(".sql") and path.name not in ("sqlite.sql", "postgres.sql"):
            yield path


@cache
def texts(dialect_name: str) -> dict[str, str]:
    """Every query's text for one dialect, before tokens are replaced."""
    folder = files("rota.store") / "sql"
    shared: dict[str, str] = {}
    for path in shared_files(folder):
        shared.update(parse(path.read_text()))
    return shared | parse((folder / f"{dialect_name}.sql").read_text())


class Queries(dict[str, Compiled]):
    """The queries of one database by name, each compiled when it is first asked for: most processes
    use a few of them. On PostgreSQL each names its schema: the search path of a session is lost
    behind a pooler.
    """

    def __init__(self, dialect: Dialect, schema: str) -> None:
        super().__init__()
        self._dialect = dialect
        self._schema = schema

    def __missing__(self, name: str) -> Compiled:
        base, served = name, _SERVED_BY_NAME
        if name.endswith(_BY_CODE):
            base, served = name.removesuffix(_BY_CODE), _SERVED_BY_CODE
        one = self._dialect.compile(_expand(_whole(self._dialect.name, base), served))
        if self._dialect is POSTGRES:
            one = one._replace(
                text=qualified(one.text, self._schema), single=qualified(one.single, self._schema)
            )
        self[name] = one
        return one


@cache
def compiled(dialect_name: str, schema: str = "rota") -> Queries:
    """The queries of one database."""
    return Queries(SQLITE if dialect_name == "sqlite" else POSTGRES, schema)


def _whole(dialect_name: str, name: str) -> str:
    found = texts(dialect_name)
    return _include(found[name], found).replace("{claimable runs}", _CLAIMABLE)


def qualified(text: str, schema: str) -> str:
    """With the schema before each of our tables."""
    return _tables().sub(rf"\1 {schema}.\2", text).replace("{schema}", schema)


@cache
def table_names() -> frozenset[str]:
    """Every table that the migrations create."""
    folder = files("rota.store") / "migrations"
    found = {"migrations"}
    for path in folder.iterdir():
        if path.name[:4].isdigit():
            found.update(_CREATE_TABLE.findall(path.read_text()))
    return frozenset(found)


@cache
def _tables() -> re.Pattern[str]:
    names = "|".join(sorted(table_names()))
    return re.compile(rf"\b(from|join|into|update)\s+({names})\b(?!\.)")


def _include(text: str, found: dict[str, str]) -> str:
    """Replace `{query name}` by that query's text."""
    while _QUERY.search(text):
        text = _QUERY.sub(lambda match: found[match.group(1)], text)
    return text


def _expand(text: str, served: str) -> str:
    """Replace `{served alias}`, `{fits alias}` and `{last attempt alias}` by their conditions,
    then lists of columns."""
    served = served.replace("{version fits runs}", _VERSION_FITS)
    text = _SERVED.sub(lambda match: served.replace("runs.", f"{match.group(1)}."), text)
    text = _FITS.sub(lambda match: _fits(match.group(1)), text)
    text = _LAST_ATTEMPT.sub(_NO_SUCCESSOR, text)
    text = text.replace("{filter columns}", ", ".join(f"runs.{name}" for name in _FILTERED))
    for record in _RECORDS:
        if f"{{{record} columns}}" in text:
            text = text.replace(f"{{{record} columns}}", _columns(record))
    return text.replace("{claim array}", _claim_array())
