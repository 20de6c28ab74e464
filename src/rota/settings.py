"""Every setting: name, unit, default, bound, one line of help. Reference and `--help` follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from rota.core.suggest import suggestion
from rota.errors import BadSetting

Meta = msgspec.Meta
# Earlier name → name of today.
RENAMED = {"seats": "slots"}
DAYS_MAX = 36_500  # for every duration; longer ones do not fit into instants


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings with their defaults."""

    namespace: Annotated[
        str,
        Meta(
            pattern=r"^[\w.-]{1,64}$", description="Tenant: a process sees only its own namespace."
        ),
    ] = "default"
    slots: Annotated[
        int, Meta(ge=1, le=10_000, description="Concurrency: runs that a worker executes at once.")
    ] = 100
    threads: Annotated[
        int, Meta(ge=1, le=1_000, description="Threads of a worker for sync workflows and steps.")
    ] = 32
    lease_s: Annotated[
        float,
        Meta(
            ge=1,
            description="Lease (visibility timeout) of a claimed run. Its worker renews the lease"
            " after a third of this time; if it lapses, another worker recovers the run.",
        ),
    ] = 30.0
    heartbeat_s: Annotated[
        float,
        Meta(
            gt=0, description="Interval of the heartbeat, which also reaps runs with lapsed leases."
        ),
    ] = 5.0
    poll_s: Annotated[
        float, Meta(gt=0, description="Interval of polling, in case a notification is lost.")
    ] = 5.0
    stop_s: Annotated[
        float,
        Meta(
            ge=0,
            description="Graceful stop: time for runs to end. Then the worker releases them.",
        ),
    ] = 20.0
    recoveries_max: Annotated[
        int,
        Meta(
            ge=0,
            description="Recoveries of a run before the next crash quarantines it (dead letter)."
            " From the second recovery on, its worker executes no other run meanwhile.",
        ),
    ] = 5
    payload_bytes_max: Annotated[
        int, Meta(ge=1024, description="Largest input, output or step result, as JSON.")
    ] = 2 * 1024 * 1024
    synchronous: Annotated[
        Literal["full", "normal"],
        Meta(
            description="SQLite: `full` survives a power cut; `normal` may lose the last commits."
        ),
    ] = "full"
    busy_s: Annotated[
        float, Meta(gt=0, description="SQLite: longest wait for a lock that another process holds.")
    ] = 10.0
    connections: Annotated[
        int, Meta(ge=2, le=100, description="PostgreSQL: size of the connection pool of a process.")
    ] = 5
    listen_url: Annotated[
        str,
        Meta(
            description="PostgreSQL: URL for LISTEN that bypasses a pooler in transaction mode."
            " Empty: the database URL."
        ),
    ] = ""
    keep_days: Annotated[
        float,
        Meta(
            ge=0,
            description="Delete finished runs, with their retries, this long after their end;"
            " 0 keeps all.",
        ),
    ] = 30.0
    keep_events_days: Annotated[
        float,
        Meta(
            ge=0,
            description="Automations: delete consumed and skipped events, with their inputs,"
            " after this time; 0 keeps all. Afterwards their message ids count as new.",
        ),
    ] = 0.0
    keep_runs: Annotated[
        int,
        Meta(
            ge=0,
            description="Keep this many finished runs, those that ended last, and all that ended in"
            " the last 10 minutes; 0 sets no limit. A run with its retries counts once.",
        ),
    ] = 0
    keep_logs: Annotated[
        bool, Meta(description="Store the log lines of each run (`logging`), up to a limit.")
    ] = True
    traces: Annotated[
        bool, Meta(description="Create OpenTelemetry spans; needs the extra `otel`.")
    ] = False
    stuck_s: Annotated[
        float,
        Meta(gt=0, description="Health checks fail when the event loop is blocked this long."),
    ] = 10.0
    phase_s: Annotated[
        float, Meta(gt=0, description="Automations: timeout of one phase of a handler.")
    ] = 300.0
    tool_s: Annotated[float, Meta(gt=0, description="Automations: timeout of one tool call.")] = (
        60.0
    )
    reconcile_s: Annotated[
        float, Meta(gt=0, description="Automations: timeout of one `reconcile` call.")
    ] = 30.0
    reconcile_max: Annotated[
        int,
        Meta(
            ge=1,
            description="Automations: `reconcile` calls for one change. If none finds the outcome,"
            " the run waits for an operator.",
        ),
    ] = 5
    backoff_s: Annotated[
        float,
        Meta(gt=0, description="Automations: delay before the first retry; doubles each time."),
    ] = 10.0
    backoff_s_max: Annotated[
        float, Meta(gt=0, description="Automations: longest delay before a retry.")
    ] = 600.0
    failures_max: Annotated[
        int,
        Meta(
            ge=0, description="Automations: retries in a row before the run waits for an operator."
        ),
    ] = 5
    fixes_max: Annotated[
        int,
        Meta(ge=0, description="Automations: fixes in a row by the `fix` hook, if there is one."),
    ] = 3
    wake_s_min: Annotated[
        float, Meta(ge=1, description="Automations: shortest delay of a consumer's `wake_at`.")
    ] = 30.0
    wake_s_max: Annotated[
        float, Meta(ge=1, description="Automations: longest delay of a consumer's `wake_at`.")
    ] = 86_400.0
    stale_days: Annotated[
        float, Meta(gt=0, description="Automations: an input pending longer than this is stale.")
    ] = 7.0
    secret_fields: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^\s,]{1,100}$")], ...],
        Meta(
            description="Fields to hide, at any depth, in output, pages, errors and log lines. In"
            " the environment, separate the names by commas."
        ),
    ] = ()


class SettingOptions(TypedDict, total=False):
    """The same as keywords of `Rota(...)`, for type checkers."""

    namespace: str
    slots: int
    threads: int
    lease_s: float
    heartbeat_s: float
    poll_s: float
    stop_s: float
    recoveries_max: int
    payload_bytes_max: int
    synchronous: Literal["full", "normal"]
    busy_s: float
    connections: int
    listen_url: str
    keep_days: float
    keep_events_days: float
    keep_runs: int
    keep_logs: bool
    traces: bool
    stuck_s: float
    phase_s: float
    tool_s: float
    reconcile_s: float
    reconcile_max: int
    backoff_s: float
    backoff_s_max: float
    failures_max: int
    fixes_max: int
    wake_s_min: float
    wake_s_max: float
    stale_days: float
    secret_fields: tuple[str, ...]


def load(values: Mapping[str, Any], *, source: str) -> Settings:
    """Settings from a mapping (file, environment); every problem names its key and source."""
    known = set(Settings.__struct_fields__)
    unknown = sorted(set(values) - known)
    if unknown:
        first = unknown[0]
        listed = f"Known settings: {', '.join(sorted(known))}."
        raise BadSetting(
            f"{source}: there is no setting {', '.join(unknown)}",
            hint=f"It is called {RENAMED[first]} now."
            if first in RENAMED
            else suggestion(first, known, listed),
        )
    try:
        return _converted(values)
    except msgspec.ValidationError as error:
        refused, _, path = str(error).partition(" - at `$.")
        name = path.rstrip("`")
        shown = f"{name} = {values[name]!r}: " if name in values else ""
        raise BadSetting(f"{source}: {shown}{_plain(refused)}") from error


def _converted(values: Mapping[str, Any]) -> Settings:
    """Values as settings; msgspec's error names the first that does not fit."""
    found = msgspec.convert(_listed(values), Settings, strict=False)
    for name in values:
        longest = DAYS_MAX if name.endswith("_days") else DAYS_MAX * 86_400
        if isinstance(value := getattr(found, name), float) and value > longest:  # also infinity
            raise msgspec.ValidationError(f"Expected `float` <= {longest} - at `$.{name}`")
    return found


def _listed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values with lists in the place of texts that separate their parts by commas."""
    given = values.get("secret_fields")
    if not isinstance(given, str):
        return dict(values)
    return {**values, "secret_fields": [one.strip() for one in given.split(",") if one.strip()]}


def _plain(refused: str) -> str:
    """The message of msgspec, as the end of a sentence."""
    return refused[:1].lower() + refused[1:].replace("`", "")


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`ROTA_SLOTS=50` and the like, as values for `load`; one that does not fit is refused."""
    names = {f"ROTA_{name.upper()}": name for name in Settings.__struct_fields__}
    for old, new in RENAMED.items():  # Unknown variables are ignored; these must not be.
        if (key := f"ROTA_{old.upper()}") in environ:
            raise BadSetting(
                f"the environment variable {key} is no longer read",
                hint=f"Set ROTA_{new.upper()} instead.",
            )
    found = {names[key]: value for key, value in environ.items() if key in names}
    for name, value in found.items():
        try:
            _converted({name: value})
        except msgspec.ValidationError as error:
            refused = _plain(str(error).partition(" - at `")[0])
            raise BadSetting(
                f"the environment variable ROTA_{name.upper()}={value!r}: {refused}"
            ) from error
    return found
