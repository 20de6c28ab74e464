"""The reference pages about commands and settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from rota.cli import exit_codes
from rota.cli.base import COMMON
from rota.cli.main import cli
from rota.cli.pipeline.groups import scheduler
from rota.settings import Settings

COMMANDS_HEAD = """# The `rota` command

`make docs` makes this page from the commands.

## Project and database

A command needs a database. Rota takes it, and every setting, from the first of these that has it:

1. a flag: `--database`, `--namespace`, `rota up --slots`;
2. the environment: `ROTA_DATABASE`, and `ROTA_` with the name of a setting, such as `ROTA_SLOTS`;
3. the project's `rota.toml`;
4. the code of the project's app.

Without a project, a `rota.db` in this folder is the database, as for `Rota()`.

`--project` (or `ROTA_PROJECT`, or the TARGET of `rota up`) names the project: a folder with a
`rota.toml`, a `file.py`, `file.py:app` or `package.module:app`. Without any of these it is the
`rota.toml` of this folder or of the nearest parent that has one.

```toml
[project]
app = "module:app"                 # looked for in the folder of this file first
database = "sqlite:///rota.db"     # relative paths start at that folder

[settings]                         # any setting, see settings.md
slots = 50

[queues.mail]                      # as Rota.queue()
worker_concurrency = 10
concurrency = 20
concurrency_per_key = 1            # or open_per_key, age = "10m", round_robin = true
weight = 3
rate = "100/1m"

[schedules.nightly]                # applied by `rota up`; any option of `rota schedule create`
workflow = "backup"
when = "30 2 * * *"                # or a list
timezone = "Europe/Berlin"
input = { what = "db" }
overlap = "skip"
```

These commands import the project's code: `rota up`, `rota serve`, `rota mcp`, `rota run start`,
`rota schedule create` (and `update` with arguments or a workflow), `rota automation deploy` and
`publish`, `rota notification test`, `rota doctor` if `rota.toml` has schedules, and the completion
of workflow names. The others import it only if nothing else names the database. So name the
database, and the namespace if there is one, in `rota.toml`: then you can inspect runs even while
the code is broken.

A SQLite file is created or migrated only by `rota up`, `rota run start`, `rota schedule create` and
`update`, `rota automation deploy` and `publish`, `rota migrate`, `rota pipeline run` and `rota
pipeline schedule`. Only `rota migrate` and the flag `--migrate` migrate PostgreSQL.

Pipelines need no project. If nothing names a database, `rota pipeline` uses `.rota.db` in the
folder that holds the pipelines' folders. `rota scheduler` is an alias of `rota pipeline schedule`.

## Ids

A run is named by its id or its external id. The short id (the last 8 digits, as tables show it) and
a beginning that fits one run only are enough. If several runs fit, the error lists them.

## Completion

The shell completes commands, options, names and ids. Add the line of your shell to its start file:

    eval "$(_ROTA_COMPLETE=bash_source rota)"      # ~/.bashrc
    eval "$(_ROTA_COMPLETE=zsh_source rota)"       # ~/.zshrc
    _ROTA_COMPLETE=fish_source rota | source       # ~/.config/fish/config.fish

## Output

Lists are tables; colour is used only on a terminal. With `--json`, stdout has one JSON document,
with lists as arrays and instants as ISO 8601 in UTC. Errors go to stderr: a sentence, then a hint
(with `--json`, one object `{"error": {"code", "message", "hint"}}`).
Passwords in database URLs are never printed.

"""

SETTINGS_HEAD = """# Settings

`make docs` makes this page from `src/rota/settings.py`.

Pass a setting to `Rota(...)` as a keyword, or write it under `[settings]` in `rota.toml`. Its
environment variable is `ROTA_` and the name in capitals (`ROTA_SLOTS=50`). The `rota` command uses
the first of these that has it: flag, environment, `rota.toml`, code. In your own program, too, the
environment overrides the arguments of `Rota(...)`. Names end in their unit: `_s` seconds, `_days`,
`_bytes_max`.

| setting | default | bounds | meaning |
|---|---|---|---|
"""


def commands_page() -> str:
    """`cli.md`."""
    parts = [COMMANDS_HEAD, "## Exit codes\n\n| code | means |\n|---|---|\n"]
    parts += [f"| {code} | {meaning} |\n" for code, meaning in exit_codes.MEANINGS.items()]
    parts += ["\n[Errors](errors.md) lists the exit code of each error.\n"]
    parts += ["\n## Options of every command\n\nBefore or after the command's name.\n\n"]
    parts += [_options([option for option in cli.params if option.name in COMMON])]
    parts += [_section(path, command) for path, command in _walk("rota", cli)]
    return "".join(parts)


def _walk(path: str, group: click.Group) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if command is scheduler and group is cli:
            continue  # the alias of `rota pipeline schedule`
        if isinstance(command, click.Group):
            yield from _walk(f"{path} {name}", command)
        else:
            yield f"{path} {name}", command


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "")
    own = _options([option for option in command.params if option.name not in COMMON])
    return f"\n## `{path}`\n\n    {usage}\n\n{text}\n" + (f"\n{own}" if own else "")


def _options(options: list[click.Parameter]) -> str:
    rows = []
    for option in options:
        if isinstance(option, click.Option):
            names = ", ".join(option.opts)
            value = "" if option.is_flag else f" {option.metavar or _type_name(option)}"
            default = f" Default: {option.default}." if option.show_default else ""
            rows.append(f"| `{names}{value}` | {option.help}{default} |\n")
    return "| option | does |\n|---|---|\n" + "".join(rows) if rows else ""


def _type_name(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "STATUS" if option.name == "status" else "CHOICE"
    return {"integer": "N", "integer range": "N"}.get(option.type.name, "NAME")


def settings_page() -> str:
    """`settings.md`."""
    schema = msgspec.json.schema(Settings)["$defs"]["Settings"]["properties"]
    rows = [
        f"| `{name}` | `{field['default']}` | {_bounds(field)} | {field['description']} |\n"
        for name, field in schema.items()
    ]
    return SETTINGS_HEAD + "".join(rows)


def _bounds(field: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    parts = [f"{sign} {field[key]}" for key, sign in words.items() if key in field]
    if "enum" in field:
        parts.append(" or ".join(f"`{value}`" for value in sorted(field["enum"])))
    if "pattern" in field:
        parts.append(f"`{field['pattern']}`")
    return ", ".join(parts)
