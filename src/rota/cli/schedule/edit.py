"""`rota schedule create` and `update`: the words of a schedule, from options to the client."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rota.cli import complete, connect, render, values
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.schedule import page
from rota.cli.schedule.options import zone_options
from rota.core.schedules.intent import Missed, Overlap
from rota.core.time.instants import micros, moment
from rota.errors import UsageError

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.client.schedule_view import ScheduleView

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Callback = Callable[[click.Context, click.Parameter, str | None], int | str | None]
POLICIES = ("overlap", "missed", "missed_max", "max_delay", "jitter", "max_runs",
    "pause_after_failures", "retries", "timeout", "grace", "expires_after")  # fmt: skip
NONE = "none"  # clears a limit
_PAIR = re.compile(r"(?!(?:CRON_)?TZ=)[A-Za-z_]\w*=", re.DOTALL)


def _count(low: int) -> Callback:
    """Reads a number, or `none`."""

    def read(_: click.Context, option: click.Parameter, text: str | None) -> int | str | None:
        if text is None or text == NONE:
            return text
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if number < low:
            raise click.BadParameter(
                f"{text!r} is not a number from {low} on, nor none", param=option
            )
        return number

    return read


def _length(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Reads a duration, or `none`; refused before anything is opened."""
    if text is not None and text != NONE:
        micros(text)
    return text


def _options(command: Decorated) -> Decorated:
    """The options of a schedule beside its time; `none` clears a limit."""
    rows: list[tuple[str, Any, str | None, str]] = [
        ("--overlap", click.Choice([o.value for o in Overlap]), None,
            "Choose what happens while the previous run is open."),
        ("--missed", click.Choice([m.value for m in Missed]), None,
            "Missed occurrences: run the latest, none or all."),
        ("--missed-max", click.IntRange(min=0), "N", "With --missed all: run at most N."),
        ("--max-delay", _length, "DURATION", "Skip an occurrence that is later than this."),
        ("--grace", str, "DURATION", "Delay that still counts as on time, not missed. [30s]"),
        ("--expires-after", _length, "DURATION", "Skip a fired run that has not begun by then."),
        ("--jitter", _length, "DURATION", "Delay each occurrence by a fixed part of this time."),
        ("--max-runs", _count(1), "N", "Fire N times in all."),
        ("--pause-after-failures", _count(1), "N", "Pause after N failures in a row."),
        ("--retries", _count(0), "N", "Retries of each run, instead of the workflow's."),
        ("--timeout", _length, "DURATION", "Time limit of each run, instead of the workflow's."),
        ("--start", str, "TIME", "No occurrence before this time."),
        ("--end", str, "TIME", "No occurrence after this time."),
        ("--input", str, "JSON", "Arguments: JSON, @file, or - for stdin; or KEY=VALUE."),
        ("--queue", str, "NAME", "Queue, instead of the workflow's."),
        ("--priority", int, "N", "Higher goes first; instead of the workflow's."),
    ]  # fmt: skip
    for name, kind, metavar, text in reversed(rows):
        reads = inspect.isfunction(kind)
        command = click.option(
            name, type=str if reads else kind, callback=kind if reads else None, metavar=metavar,
            help=text,
        )(command)  # fmt: skip
    sub_second = click.option(
        "--sub-second", is_flag=True, help="Allow more than one occurrence a second."
    )
    return zone_options(sub_second(command))


@click.command(cls=BaseCommand)
@click.argument("name")
@click.argument("workflow", shell_complete=complete.workflows)
@click.argument("words", nargs=-1, required=True, metavar="WHEN... [KEY=VALUE]...")
@_options
@click.option("--paused", is_flag=True, help="Create it paused.")
@click.option("--replace", is_flag=True, help="Replace the schedule if it exists.")
@click.pass_obj
def create(
    call: CommonOptions, /, name: str, workflow: str, words: tuple[str, ...], **options: Any
) -> None:
    """Create schedule NAME, which runs WORKFLOW.

    WHEN is cron in quotes ("0 9 * * MON-FRI"), an interval (5m), a time (2027-03-28T09:00) or
    words (weekdays at 9:30); several quoted ones are one schedule. `rota next WHEN` shows what it
    means first. TIME is wall time in the schedule's zone, unless it has an offset.
    """
    pairs = [word for word in words if _PAIR.match(word)]
    when = [word for word in words if not _PAIR.match(word)]
    if not when:
        raise UsageError("WHEN is missing", hint="Say when: 5m, '0 9 * * *', weekdays at 9:30.")
    given, said = values.arguments(pairs, options.pop("input"))

    async def make(client: Client, target: Any, kwargs: dict[str, Any]) -> ScheduleView:
        from rota.schedules.host_zone import host_zone_name
        from rota.schedules.preview import read_when

        # Not said, it stays unsaid: a schedule that is made again keeps the zone it has.
        timezone = options.pop("timezone")
        wall = timezone or host_zone_name()
        words_of = _policies(options) | _bounds(options, wall, client.clock.now())
        rest = {key: value for key, value in options.items() if value is not None}
        return await client.schedules.create(
            name, target, read_when(when, zone=wall), input=kwargs, timezone=timezone,
            **words_of, **rest,
        )  # fmt: skip

    _done(call, _checked(call, workflow, given, said, make))


@click.command(cls=BaseCommand)
@complete.SCHEDULE
@click.argument("words", nargs=-1, metavar="[WHEN]... [KEY=VALUE]...")
@_options
@click.option("--workflow", metavar="NAME", help="Run another workflow.")
@click.option("--confirm", is_flag=True, help="Accept that missed occurrences run at once.")
@click.pass_obj
def update(call: CommonOptions, /, name: str, words: tuple[str, ...], **options: Any) -> None:
    """Change a schedule. Fields you do not name stay.

    Use `none` to clear a limit: --max-delay none, --end none. New arguments replace all existing
    ones. Rota refuses an edit that would run missed occurrences at once, unless you confirm. A
    schedule that has ended continues if the edit allows it. An edit repairs a quarantined one.
    """
    pairs = [word for word in words if _PAIR.match(word)]
    when = [word for word in words if not _PAIR.match(word)]
    if not words and not any(value not in (None, False) for value in options.values()):
        raise UsageError("nothing to change was named", hint="See `rota schedule update --help`.")
    source = options.pop("input")
    given, said = values.arguments(pairs, source)

    async def change(client: Client, _: Any, kwargs: dict[str, Any]) -> ScheduleView:
        from rota.schedules.preview import read_when, zone_of

        shown = await client.schedules.get(name)
        zone = options["timezone"] or zone_of(shown.intent.spec)
        words_of = _policies(options) | _bounds(options, zone, client.clock.now())
        rest = {key: value for key, value in options.items() if value is not None}
        if pairs or source is not None:
            rest["input"] = kwargs
        if when:
            rest["when"] = read_when(when, zone=zone)
        return await client.schedules.update(name, **words_of, **rest)

    async def keep(client: Client) -> ScheduleView:
        return await change(client, None, {})

    if not pairs and source is None:
        found = connect.project_of(call) if options["workflow"] else None
        if found is not None and found.app is not None:  # it knows its workflows
            _done(call, connect.run(connect.app_of(call, found), keep))
        else:
            _done(call, connect.ask(call, keep))
        return
    workflow = (
        options["workflow"]
        or connect.ask(call, lambda client: client.schedules.get(name)).intent.workflow
    )
    _done(call, _checked(call, workflow, given, said, change))


@click.command(cls=BaseCommand)
@complete.SCHEDULE
@click.argument("fields", nargs=-1, metavar="[FIELD]...", shell_complete=complete.fields)
@click.option("--confirm", is_flag=True, help="Accept that missed occurrences run at once.")
@click.pass_obj
def reset(call: CommonOptions, name: str, fields: tuple[str, ...], confirm: bool) -> None:
    """Restore the declared values of a schedule.

    An operator's changes of a schedule in code, rota.toml or a pipeline outlive deploys. This ends
    them: of the named fields (when, timezone, max-delay, ...), or of all. `rota schedule show NAME`
    lists them with both values. A pause stays.
    """
    names = [field.replace("-", "_") for field in fields]
    _done(call, connect.ask(call, lambda c: c.schedules.reset(name, *names, confirm=confirm)))


def _policies(options: dict[str, Any]) -> dict[str, Any]:
    """The policies that were named; `none` as None, and no jitter as none of it."""
    named = {key: options.pop(key) for key in POLICIES}
    chosen = {key: value for key, value in named.items() if value is not None}
    return {
        key: (0 if key == "jitter" else None) if value == NONE else value
        for key, value in chosen.items()
    }


def _bounds(options: dict[str, Any], zone: str, now: int) -> dict[str, Any]:
    from rota.schedules.preview import read_time, to_instant

    named = {key: options.pop(key) for key in ("start", "end")}
    return {
        key: None if text == NONE else moment(to_instant(read_time(text, zone, now), zone))
        for key, text in named.items()
        if text is not None
    }


def _checked(
    call: CommonOptions,
    name: str,
    given: dict[str, Any],
    said: dict[str, str],
    work: Callable[[Client, Any, dict[str, Any]], Awaitable[ScheduleView]],
) -> ScheduleView:
    """With a project's app the input is checked; with a bare database it is taken unchanged."""
    found = connect.project_of(call)
    if found is None or found.app is None:
        return connect.ask(call, lambda client: work(client, name, given))
    app = connect.app_of(call, found)
    workflow = app.starter.workflow_named(name)
    limit = app.settings.payload_bytes_max
    kwargs = values.checked(workflow, given, said, bytes_max=limit)
    return connect.run(app, lambda client: work(client, workflow, kwargs))


def _done(call: CommonOptions, shown: ScheduleView) -> None:
    if call.json:
        render.document(page.document(shown))
    else:
        click.echo(in_a_line(shown))


def in_a_line(shown: ScheduleView) -> str:
    """A schedule in one line: its state, what it means, and when it comes next."""
    from rota.schedules.preview import wall, zone_of

    row = shown.schedule
    zone = zone_of(shown.intent.spec)
    if row.status == "paused":
        until = f" until {wall(row.available_at, zone)}" if row.available_at else ""
        return f"schedule {row.name} is paused{until} ({render.clean(row.reason or '')})"
    due = "never" if row.due_at is None else wall(row.due_at, zone)
    return f"schedule {row.name} runs {render.clean(shown.text)}; next: {due}"
