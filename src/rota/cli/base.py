"""The parts that commands share: common options, help pages, suggestions, the exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from rota.cli import exit_codes

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class CommonOptions:
    """The options of every command, given before or after its name."""

    database: str | None = None
    project: str | None = None
    namespace: str | None = None
    json: bool = False
    debug: bool = False
    url: str | None = None  # of the database, once it is known; output hides its password


def _note(context: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep a common option where every command finds it; the innermost one wins."""
    call = context.find_object(CommonOptions)
    if call is not None and option.name and value not in (None, False):
        setattr(call, option.name, value)


def _common() -> list[click.Option]:
    def option(*names: str, **more: Any) -> click.Option:
        return click.Option(names, expose_value=False, callback=_note, is_eager=True, **more)

    return [
        option("--database", metavar="URL", help="Database URL. [ROTA_DATABASE]"),
        option("--project", metavar="TARGET",
            help="Folder with rota.toml, FILE.py or MODULE:APP. [ROTA_PROJECT]"),
        option("--namespace", metavar="NAME", help="Namespace to use. [ROTA_NAMESPACE]"),
        option("--json", is_flag=True, help="Print one JSON document instead of text."),
        option("--debug", is_flag=True, help="Print tracebacks and debug logs on stderr."),
    ]  # fmt: skip


def limit_option(default: int = 20, text: str = "How many.") -> Callable[[F], F]:
    """The option of a list: how many rows to show."""
    return click.option(
        "--limit", type=click.IntRange(1, 1000), default=default, show_default=True, help=text
    )


def is_given(option: str) -> bool:
    """Whether an option of the current command was written, rather than left at its default."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """A decorator for options that several commands share; help lists them in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


SEARCH = click.option("--search", default="", metavar="TEXT", help="Only names with this part.")
AFTER = click.option("--after", default="", metavar="NAME", help="After this one: the next page.")

BEFORE = click.option("--before", default="", metavar="ID", help="Older than this: the next page.")
NAME_COLUMNS = 50  # an option and its choices, on one line of help
COMMON = tuple(parameter.name for parameter in _common())


class BaseCommand(click.Command):
    """A command that takes the common options after its name. Its help page keeps them apart."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += _common()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        common: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            # Arguments are in the usage line and in the text; newer clicks list them here too.
            if record is not None and isinstance(parameter, click.Option):
                record = _narrow(parameter, record)
                (common if parameter.name in COMMON else own).append(record)
        for title, records in (("Options", own), ("Options of every command", common)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _narrow(option: click.Option, record: tuple[str, str]) -> tuple[str, str]:
    """An option with a long list of choices shows them in its help text, which wraps."""
    if len(record[0]) <= NAME_COLUMNS or not isinstance(option.type, click.Choice):
        return record
    name = f"{', '.join(option.opts)} {option.opts[-1].strip('-').upper()}"
    return name, f"{record[1]} One of: {', '.join(option.type.choices)}."


class CommandGroup(BaseCommand, click.Group):
    """The commands of one noun. For an unknown command it suggests the nearest names."""

    command_class = BaseCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help page if there is no argument, but not while a shell completes."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit(exit_codes.USAGE)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order they were added: the most used come first."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; for an unknown one, suggest names."""
        name = args[0]
        if (
            self.get_command(ctx, name) is None
            and not name.startswith("-")
            and not ctx.resilient_parsing
        ):
            raise exit_codes.NoSuchCommand(name, self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands before the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


CommandGroup.group_class = CommandGroup


class LazyGroup(CommandGroup):
    """A group of commands that import more than others do: `module`, which adds them, is imported
    when they are asked for."""

    def __init__(self, *args: Any, module: str, **more: Any) -> None:
        self._module = module
        super().__init__(*args, **more)

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """The commands by name."""
        import_module(self._module)
        return self._commands

    @commands.setter
    def commands(self, commands: MutableMapping[str, click.Command]) -> None:
        self._commands = commands


class Root(CommandGroup):
    """`rota` itself. Turns every error into a sentence and an exit code."""

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "rota",
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run and exit."""
        call = extra.setdefault("obj", None) or CommonOptions()
        extra["obj"] = call
        try:
            ended = super().main(args, prog_name, standalone_mode=False, **extra)
        except (Exception, KeyboardInterrupt) as error:
            call.json = call.json or "--json" in (sys.argv[1:] if args is None else args)
            url = call.url or call.database or os.environ.get("ROTA_DATABASE")
            ended = exit_codes.report(error, as_json=call.json, debug=call.debug, url=url)
        sys.exit(ended if isinstance(ended, int) else exit_codes.OK)
