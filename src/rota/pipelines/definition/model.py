"""The content of a pipeline.yaml, as types: the one source of checks, JSON Schema and reference.

Keys in the file are camelCase. Rules that types alone cannot express (exactly one of two keys,
names that must exist) are in `checks` and `graph`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from rota.pipelines.definition.nodes import LoadNode, Node
from rota.pipelines.definition.rules import RuleGroup
from rota.pipelines.definition.schedule_block import ScheduleBlock
from rota.pipelines.definition.sections import (
    AiFilter,
    Item,
    Job,
    MapStep,
    Parameter,
    PipelineSettings,
    ReduceStep,
    Sample,
    Section,
)
from rota.pipelines.definition.sources import FileSource, Generator, LoadSource

Meta = msgspec.Meta

__all__ = ["Filter", "Generate", "Input", "Pipeline"]


class Generate(Generator, frozen=True, kw_only=True):
    """Items made by an AI call."""

    auto_approve: Annotated[
        bool, Meta(description="Run without a review of the generated items.")
    ] = False


class Input(Section, frozen=True, kw_only=True):
    """The source of items: exactly one of items, from and generate."""

    items: Annotated[
        list[Item] | None,
        Meta(description="The items themselves. If empty, pass the items to the run."),
    ] = None
    source: Annotated[
        list[Item] | FileSource | None,
        Meta(description="A list of items, or a source of items."),
    ] = msgspec.field(default=None, name="from")
    generate: Annotated[Generate | None, Meta(description="Items made by an AI call.")] = None
    parameters: Annotated[
        list[Parameter] | dict[str, Any],
        Meta(description="Values for every item; a field of the item overrides them."),
    ] = msgspec.field(default_factory=list)
    offset: Annotated[
        Annotated[int, Meta(ge=0)], Meta(description="Skip this many items at the start.")
    ] = 0
    limit: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Take at most this many items, after offset, before sample and filter."),
    ] = None
    sample: Annotated[
        Sample | None, Meta(description="A seeded random choice, after offset and limit.")
    ] = None


class Filter(Section, frozen=True, kw_only=True):
    """Which items continue to the map."""

    type: Annotated[
        Literal["rule", "ai", "hybrid"], Meta(description="By rules, by an AI, or by both.")
    ]
    rule: Annotated[RuleGroup | None, Meta(description="The rules.")] = None
    ai: Annotated[AiFilter | None, Meta(description="The question to the AI.")] = None
    combine_mode: Annotated[
        Literal["and", "or"],
        Meta(
            description="hybrid only. and: the AI is asked about items that pass the rules; "
            "or: about items that do not."
        ),
    ] = "and"


class Pipeline(Section, frozen=True, kw_only=True):
    """A whole pipeline.yaml. It has input, map and reduce, or a job, or nodes."""

    name: Annotated[str, Meta(min_length=1, description="The display name.")]
    description: Annotated[str | None, Meta(description="One line for lists.")] = None
    schedule: Annotated[ScheduleBlock | None, Meta(description="The schedule.")] = None
    working_directory: Annotated[
        str | None,
        Meta(
            description="Working folder of AI sessions and commands; relative to the pipeline's"
            " folder."
        ),
    ] = None
    parameters: Annotated[
        list[Parameter] | dict[str, Any],
        Meta(description="Values for templates: a list of name and value, or a mapping."),
    ] = msgspec.field(default_factory=list)
    settings: Annotated[PipelineSettings, Meta(description="Defaults for every part.")] = (
        PipelineSettings()
    )
    input: Annotated[Input | None, Meta(description="The source of items.")] = None
    filter: Annotated[Filter | None, Meta(description="Which items continue.")] = None
    map: Annotated[MapStep | None, Meta(description="One AI call for each item.")] = None
    reduce: Annotated[ReduceStep | None, Meta(description="All results into one.")] = None
    job: Annotated[Job | None, Meta(description="A single AI call instead of items.")] = None
    nodes: Annotated[
        dict[str, Node] | None,
        Meta(description="A graph instead of input, map and reduce: an id and a node each."),
    ] = None

    @property
    def mode(self) -> Literal["map-reduce", "job", "graph"]:
        """Which of the three forms this is."""
        if self.nodes is not None:
            return "graph"
        return "job" if self.job is not None else "map-reduce"

    @property
    def sources(self) -> list[list[Item] | LoadSource | Generate]:
        """The sources of its items: the input, or the load nodes of a graph."""
        loads = [node for node in (self.nodes or {}).values() if isinstance(node, LoadNode)]
        given = [self.input.source, self.input.generate] if self.input is not None else []
        return [*(each for each in given if each is not None), *(node.source for node in loads)]
