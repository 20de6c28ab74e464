"""Values for templates, and which of them wins.

From the strongest: what the runner fills in (ITEMS, RESULTS, …), the fields of the item, the
parameters given at the start, `input.parameters`, `parameters` of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.pipelines.templates import RESERVED
from rota.core.suggest import did_you_mean
from rota.errors import BadInput
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.sections import Parameter


def as_mapping(given: Sequence[Parameter] | Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by name, from either way of writing them."""
    if isinstance(given, Mapping):
        return dict(given)
    return {each.name: each.value for each in given}


def parameters_of(pipeline: Pipeline, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of a run; a value given at its start wins."""
    inner = as_mapping(pipeline.input.parameters) if pipeline.input else {}
    return as_mapping(pipeline.parameters) | inner | dict(given or {})


def values_for(
    item: Mapping[str, Any],
    parameters: Mapping[str, Any],
    filled: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The values of a template for one item."""
    return {**parameters, **item, **(filled or {})}


def read_given(pairs: Sequence[str]) -> dict[str, str]:
    """`name=value` from a command line; a value may hold further equals signs."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, mark, value = pair.partition("=")
        if not mark or not name.strip():
            raise BadInput(f"{pair!r} is not name=value", hint="Write --param name=value.")
        if name.strip() in RESERVED:
            raise BadInput(
                f"{name.strip()} is filled in by the runner", hint="Choose another name."
            )
        given[name.strip()] = value
    return given


def check_given(given: Mapping[str, Any], pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """Remarks about given parameters that nothing in the pipeline asks for."""
    known = [*parameters_of(pipeline), *names]
    return [
        f'nothing in the pipeline uses the parameter "{name}"{did_you_mean(name, known)}'
        for name in given
        if name not in known
    ]
