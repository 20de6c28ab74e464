"""The options that `render` and `run` share: which pipeline, with which parameters and items."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import click

from rota.ai import Request, invoker_of
from rota.cli import render
from rota.cli.base import option_group
from rota.core.pipelines.templates import RESERVED
from rota.errors import BadInput, MissingExtra, UsageError
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.locate import locate, open_pipeline
from rota.pipelines.definition.overrides import adjusted, reads_stdin
from rota.pipelines.definition.parameters import check_given, read_given
from rota.pipelines.definition.yaml_tree import read_yaml
from rota.pipelines.preview.validation import models_of, names_of
from rota.pipelines.run.readiness import obstacles

FORMATS = ("csv", "json", "jsonl", "lines")
AI = click.option(
    "--ai", metavar="FILE", type=click.Path(path_type=Path),
    help="AI settings: providers, limits, prices. [ROTA_AI_FILE]",
)  # fmt: skip
PARAMETERS = click.option(
    "-p", "--param", "params", multiple=True, metavar="NAME=VALUE",
    help="A parameter; may be repeated.",
)  # fmt: skip
# Which items, with which parameters, and for which model.
choices = option_group(
    PARAMETERS,
    click.option(
        "--params", "params_file", metavar="FILE", type=click.Path(path_type=Path),
        help="Parameters from a YAML or JSON file; -p overrides them.",
    ),
    click.option(
        "--items", metavar="FILE",
        help="Items from this .csv, .json or .jsonl file; - is stdin.",
    ),
    click.option(
        "--items-format", type=click.Choice(FORMATS), metavar="FORMAT",
        help="Format of --items: csv, json, jsonl or lines. Stdin: jsonl.",
    ),
    click.option("--limit", type=click.IntRange(0), metavar="N", help="At most N items."),
    click.option("--sample", type=click.IntRange(1), metavar="N", help="N random items."),
    click.option(
        "--seed", type=int, metavar="N", help="With --sample: seed of the random choice."
    ),
    click.option("--model", metavar="MODEL", help="This model for every call: provider:model."),
)  # fmt: skip


class PreparedRun(NamedTuple):
    """A pipeline, ready for a run."""

    loaded: Loaded
    typed_path: str  # as on the command line
    path: Path
    given: dict[str, Any]


def prepare(
    path: str,
    *,
    params: tuple[str, ...],
    params_file: Path | None,
    items: str | None,
    items_format: Any,
    limit: int | None,
    sample: int | None,
    seed: int | None,
) -> PreparedRun:
    """Read everything that was named; remarks go to stderr."""
    if seed is not None and sample is None:
        raise BadInput("--seed means something only with --sample")
    if items_format is not None and items is None:
        raise BadInput("--items-format means something only with --items")
    place = locate(path)
    given = read_file(params_file) | read_given(params)
    loaded = adjusted(
        open_pipeline(place), items=items, form=items_format, limit=limit, sample=sample, seed=seed
    )
    for remark in check_given(given, loaded.pipeline, names_of(loaded)):
        render.say(f"Warning: {remark}", err=True)
    return PreparedRun(loaded, path, place, given)


def must_be_ready(prepared: PreparedRun, *, model: str | None, ai: Path | None) -> None:
    """Refuse a run that could not come to its end, before anything is paid for."""
    _must_be_approved(prepared)
    problems = [each.message for each in obstacles(prepared.loaded, given=prepared.given)]
    answering = invoker_of(ai)
    for name in [model] if model else models_of(prepared.loaded.pipeline, prepared.loaded.prompts):
        try:
            answering.estimate(Request(name, ""))  # makes the provider, and calls no model
        except (UsageError, MissingExtra) as error:
            end = "" if error.message.endswith("?") else "."
            problems.append(f"{error.message}{end} {error.advice}")
    if reads_stdin(prepared.loaded.pipeline) and piped() is None:
        problems.append("the items come from standard input, and nothing is piped in")
    if problems:
        raise BadInput(
            "\n  ".join([f"{prepared.loaded.pipeline_id} cannot run:", *dict.fromkeys(problems)]),
            hint="Nothing was started. Give what is missing (-p NAME=VALUE, --model), or fix it.",
        )


def _must_be_approved(prepared: PreparedRun) -> None:
    """Refuse generated items that no person has checked, unless the file allows it."""
    part, path = prepared.loaded.pipeline.input, prepared.typed_path
    if part is not None and part.generate is not None and not part.generate.auto_approve:
        raise BadInput(
            f"{prepared.loaded.pipeline_id} generates its items, and they were not reviewed",
            hint=f"Review them first: `rota pipeline generate {path} > items.jsonl`, then "
            f"`rota pipeline run {path} --items items.jsonl`; or set autoApprove: true.",
        )


def piped() -> IO[bytes] | None:
    """Standard input, unless it is a terminal: people do not type items."""
    try:
        return None if os.isatty(sys.stdin.fileno()) else sys.stdin.buffer
    except (OSError, ValueError):  # not a real file, but something that holds what was piped
        return getattr(sys.stdin, "buffer", None)


def read_file(path: Path | None) -> dict[str, Any]:
    """Parameters from a file: a mapping in YAML, of which JSON is a part."""
    if path is None:
        return {}
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"the parameters in {path} cannot be read: {error.strerror}") from error
    document = read_yaml(raw, str(path))
    if document.problems:
        raise BadInput(f"the parameters cannot be read: {document.problems[0]}")
    value = document.value
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput(f"{path} holds no parameters", hint="Write name: value, one in each line.")
    for name in value:
        if name in RESERVED:
            raise BadInput(f"{path}: {name} is filled in by the runner", hint="Rename it.")
    return {str(name): setting for name, setting in value.items()}
