"""`rota schedule create`, `update` and `reset`: the definition of a schedule from options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import click

from rota.cli import argument_values, complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions, F
from rota.cli.schedule import page
from rota.cli.schedule.next import zone_options
from rota.client.client import Client
from rota.client.schedule_view import ScheduleView
from rota.core.schedules.intent import Missed, Overlap
from rota.core.time.instants import micros
from rota.errors import UsageError
from rota.schedules.host_zone import zone_or_host
from rota.schedules.preview import read_when, time_in, wall, zone_of
from rota.schedules.toml import POLICIES

Callback = Callable[[click.Context, click.Parameter, str | None], int | str | None]
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
    """Reads a duration, or `none`; a bad one is refused before a database is opened."""
    if text is not None and text != NONE:
        micros(text)
    return text


def _options(command: F) -> F:
    """The options of a schedule beside its time; `none` clears a limit."""
    rows: list[tuple[str, Any, str | None, str]] = [
        ("--overlap", click.Choice([o.value for o in Overlap]), None,
            "Choose what happens while the previous run is open."),
        ("--missed", click.Choice([m.value for m in Missed]), None,
            "Missed occurrences: run the latest, none or all."),
        ("--missed-max", click.IntRange(min=0), "N", "With --missed all: run at most N."),
        ("--max-delay", _length, "DURATION", "Skip an occurrence that is later than this."),
        ("--grace", str, "DURATION", "Delay that still counts as on time, not missed. [30s]"),
        ("--expires-after", _length, "DURATION", "Skip a fired run that begins later than this."),
        ("--jitter", _length, "DURATION", "Delay each occurrence by a fixed part of this time."),
        ("--max-runs", _count(1), "N", "Fire N times, then end."),
        ("--pause-after-failures", _count(1), "N", "Pause after N failures in a row."),
        ("--retries", _count(0), "N", "Retries of each run, instead of the workflow's."),
        ("--timeout", _length, "DURATION", "Timeout of each run, instead of the workflow's."),
        ("--start", str, "TIME", "No occurrence before this time."),
        ("--end", str, "TIME", "No occurrence after this time."),
        ("--input", str, "JSON", "Arguments: JSON, @file, or - for stdin; or KEY=VALUE."),
        ("--queue", str, "NAME", "Queue, instead of the workflow's."),
        ("--priority", int, "N", "Priority, higher first; instead of the workflow's."),
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
@click.argument("words", nargs=-1, metavar="WHEN... [KEY=VALUE]...")
@_options
@click.option(
    "--paused", is_flag=True, default=None, help="Create it paused; with --replace, pause it."
)
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
    when, pairs = _split(words)
    if not when:
        raise UsageError("WHEN is missing", hint="Say when: 5m, '0 9 * * *', weekdays at 9:30.")
    given = argument_values.arguments(pairs, options.pop("input"))

    async def make(client: Client, target: Any, kwargs: dict[str, Any]) -> ScheduleView:
        # Without the option it stays None: a schedule that is made again keeps its zone.
        timezone = options.pop("timezone")
        zone = zone_or_host(timezone)
        fields = _fields(options, zone, client.clock.now())
        return await client.schedules.create(
            name, target, read_when(when, zone=zone), input=kwargs, timezone=timezone, **fields
        )

    report(call, connect.run_checked(call, workflow, given, make))


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
    when, pairs = _split(words)
    if not words and not any(value not in (None, False) for value in options.values()):
        raise UsageError("nothing to change was named", hint="See `rota schedule update --help`.")
    source = options.pop("input")
    has_input = bool(pairs) or source is not None
    given = argument_values.arguments(pairs, source)

    async def change(client: Client, _: Any, kwargs: dict[str, Any]) -> ScheduleView:
        shown = await client.schedules.get(name)
        zone = options["timezone"]
        zone = zone_of(shown.intent.spec) if zone is None else zone
        fields = _fields(options, zone, client.clock.now())
        if has_input:
            fields["input"] = kwargs
        if when:
            fields["when"] = read_when(when, zone=zone)
        return await client.schedules.update(name, **fields)

    workflow = options["workflow"]
    if has_input:
        if workflow is None:
            shown = connect.ask(call, lambda client: client.schedules.get(name))
            workflow = shown.intent.workflow
        report(call, connect.run_checked(call, workflow, given, change))
        return
    app = connect.project_app(call) if workflow else None  # it knows its workflows
    if app is not None:
        report(call, connect.run(app, lambda client: change(client, None, {})))
    else:
        report(call, connect.ask(call, lambda client: change(client, None, {})))


@click.command(cls=BaseCommand)
@complete.SCHEDULE
@click.argument("fields", nargs=-1, metavar="[FIELD]...", shell_complete=complete.fields)
@click.option("--confirm", is_flag=True, help="Accept that missed occurrences run at once.")
@click.pass_obj
def reset(call: CommonOptions, name: str, fields: tuple[str, ...], confirm: bool) -> None:
    """Restore the declared values of a schedule.

    If an operator changes a schedule that code, rota.toml or a pipeline declares, deploys keep the
    change. This command drops the changes of the named fields (when, timezone, max-delay, ...), or
    all of them. `rota schedule show NAME` lists them with both values. A pause stays.
    """
    names = [field.replace("-", "_") for field in fields]
    report(call, connect.ask(call, lambda c: c.schedules.reset(name, *names, confirm=confirm)))


def _split(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The words of WHEN, and the arguments: words such as `KEY=VALUE`."""
    pairs = [word for word in words if _PAIR.match(word)]
    return [word for word in words if word not in pairs], pairs


def _fields(options: dict[str, Any], zone: str, now: int) -> dict[str, Any]:
    """The fields of a schedule that the options name, for the client."""
    fields = _policies(options) | _bounds(options, zone, now)
    return fields | {key: value for key, value in options.items() if value is not None}


def _policies(options: dict[str, Any]) -> dict[str, Any]:
    """The policies that were named; `none` becomes None, for jitter 0."""
    named = {key: options.pop(key) for key in POLICIES}
    chosen = {key: value for key, value in named.items() if value is not None}
    return {
        key: (0 if key == "jitter" else None) if value == NONE else value
        for key, value in chosen.items()
    }


def _bounds(options: dict[str, Any], zone: str, now: int) -> dict[str, Any]:
    named = {key: options.pop(key) for key in ("start", "end")}
    return {
        key: None if text == NONE else time_in(text, zone, now)
        for key, text in named.items()
        if text is not None
    }


def report(call: CommonOptions, shown: ScheduleView) -> None:
    """A schedule after a command changed it."""
    render.page(call.json, shown, page.document, lambda view: render.say(_in_a_line(view)))


def _in_a_line(shown: ScheduleView) -> str:
    """A schedule in one line: its state, what it means, and when it comes next."""
    row = shown.schedule
    zone = zone_of(shown.intent.spec)
    if row.status == "paused":
        until = f" until {wall(row.available_at, zone)}" if row.available_at else ""
        return f"schedule {row.name} is paused{until} ({render.clean(row.reason or '')})"
    due = "never" if row.due_at is None else wall(row.due_at, zone)
    return f"schedule {row.name} runs {render.clean(shown.text)}; next: {due}"
