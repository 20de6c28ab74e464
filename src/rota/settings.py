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


def about(description: str, **bounds: Any) -> Meta:
    """The help of a setting, and its bounds."""
    return Meta(description=description, **bounds)


Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings with their defaults."""

    namespace: Annotated[
        str, about("Tenant: a process sees only its own namespace.", pattern=r"^[\w.-]{1,64}$")
    ] = "default"
    code_version: Annotated[
        str,
        about(
            "Version of the code that a worker has, such as a commit id. Empty: a digest of its"
            " workflows.",
            pattern=r"^[\w.:/+@-]{0,100}$",
        ),
    ] = ""
    slots: Annotated[
        int, about("Concurrency: runs that a worker executes at once.", ge=1, le=10_000)
    ] = 100
    threads: Annotated[
        int, about("Threads of a worker for sync workflows and steps.", ge=1, le=1_000)
    ] = 32
    warm_runs: Annotated[
        int,
        about(
            "Waiting runs of async workflows that a worker keeps in memory; 0 keeps none."
            " Other runs are replayed when they continue.",
            ge=0,
            le=1_000_000,
        ),
    ] = 10_000
    warm_memory_mb: Annotated[
        int,
        about(
            "Memory of the process above which a worker keeps fewer runs in memory: the least"
            " recently used go first.",
            ge=1,
        ),
    ] = 1024
    lease_s: Annotated[
        float,
        about(
            "Lease (visibility timeout) of a claimed run. Its worker renews the lease after a"
            " third of this time; if it lapses, another worker recovers the run.",
            ge=1,
        ),
    ] = 30.0
    heartbeat_s: Annotated[
        Positive, about("Interval of the heartbeat, which also reaps runs with lapsed leases.")
    ] = 5.0
    poll_s: Annotated[Positive, about("Interval of polling, in case a notification is lost.")] = 5.0
    stop_s: Annotated[
        NotNegative, about("Graceful stop: time for runs to end. Then the worker releases them.")
    ] = 20.0
    recoveries_max: Annotated[
        int,
        about(
            "Recoveries of a run before the next crash quarantines it (dead letter). From the"
            " second recovery on, its worker executes no other run meanwhile.",
            ge=0,
        ),
    ] = 5
    payload_bytes_max: Annotated[
        int, about("Largest input, output or step result, as JSON.", ge=1024)
    ] = 2 * 1024 * 1024
    synchronous: Annotated[
        Literal["full", "normal"],
        about("SQLite: `full` survives a power cut; `normal` may lose the last commits."),
    ] = "full"
    busy_s: Annotated[
        Positive, about("SQLite: longest wait for a lock that another process holds.")
    ] = 10.0
    connections: Annotated[
        int, about("PostgreSQL: size of the connection pool of a process.", ge=2, le=100)
    ] = 5
    listen_url: Annotated[
        str,
        about(
            "PostgreSQL: URL for LISTEN that bypasses a pooler in transaction mode. Empty:"
            " the database URL."
        ),
    ] = ""
    keep_days: Annotated[
        NotNegative,
        about("Delete finished runs, with their retries, this long after their end; 0 keeps all."),
    ] = 30.0
    keep_events_days: Annotated[
        NotNegative,
        about(
            "Automations: delete consumed and skipped events, with their inputs, after this"
            " time; 0 keeps all. Afterwards their message ids count as new."
        ),
    ] = 0.0
    keep_runs: Annotated[
        int,
        about(
            "Keep this many finished runs, those that ended last, and all that ended in the"
            " last 10 minutes; 0 sets no limit. A run with its retries counts once.",
            ge=0,
        ),
    ] = 0
    keep_logs: Annotated[
        bool, about("Store the log lines of each run (`logging`), up to a limit.")
    ] = True
    traces: Annotated[bool, about("Create OpenTelemetry spans; needs the extra `otel`.")] = False
    stuck_s: Annotated[
        Positive, about("Health checks fail when the event loop is blocked this long.")
    ] = 10.0
    phase_s: Annotated[Positive, about("Automations: timeout of one phase of a handler.")] = 300.0
    tool_s: Annotated[Positive, about("Automations: timeout of one tool call.")] = 60.0
    reconcile_s: Annotated[Positive, about("Automations: timeout of one `reconcile` call.")] = 30.0
    reconcile_max: Annotated[
        int,
        about(
            "Automations: `reconcile` calls for one change. If none finds the outcome, the"
            " run waits for an operator.",
            ge=1,
        ),
    ] = 5
    backoff_s: Annotated[
        Positive, about("Automations: delay before the first retry; doubles each time.")
    ] = 10.0
    backoff_s_max: Annotated[Positive, about("Automations: longest delay before a retry.")] = 600.0
    retry_after_s_max: Annotated[
        Positive, about("Automations: longest Retry-After of a counterpart that is obeyed.")
    ] = 3600.0
    failures_max: Annotated[
        int, about("Automations: retries in a row before the run waits for an operator.", ge=0)
    ] = 5
    fixes_max: Annotated[
        int, about("Automations: fixes in a row by the `fix` hook, if there is one.", ge=0)
    ] = 3
    wake_s_min: Annotated[
        float, about("Automations: shortest delay of a consumer's `wake_at`.", ge=1)
    ] = 30.0
    wake_s_max: Annotated[
        float, about("Automations: longest delay of a consumer's `wake_at`.", ge=1)
    ] = 86_400.0
    stale_days: Annotated[
        Positive, about("Automations: an input pending longer than this is stale.")
    ] = 7.0
    secret_fields: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^[^\s,]{1,100}$")], ...],
        about(
            "Fields to hide, at any depth, in output, pages, errors and log lines. In the"
            " environment, separate the names by commas."
        ),
    ] = ()


class SettingOptions(TypedDict, total=False):
    """The same as keywords of `Rota(...)`, for type checkers."""

    namespace: str
    code_version: str
    slots: int
    threads: int
    warm_runs: int
    warm_memory_mb: int
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
    retry_after_s_max: float
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
