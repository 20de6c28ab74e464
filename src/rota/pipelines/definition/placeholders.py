"""Whether every {{placeholder}} of a pipeline can have a value, as far as the file shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rota.core.pipelines.templates import RESERVED, Template
from rota.core.plurals import some
from rota.pipelines.definition.model import Input, Pipeline
from rota.pipelines.definition.parameters import parameters_of
from rota.pipelines.definition.problems import Level, Path, ProblemReport
from rota.pipelines.definition.sections import Item

BATCH = ("ITEMS",)


def check_names(pipeline: Pipeline, prompts: Mapping[str, str], report: ProblemReport) -> None:
    """Check the prompts against parameters and inline items; `prompts` by their place.

    A scheduled pipeline gets no values at the start, so a missing one is an error. Without a
    schedule the value may still be given at the start: a warning.
    """
    level = Level.WARNING if pipeline.schedule is None else Level.ERROR
    checking = _Checking(report, level, list(parameters_of(pipeline)))
    if pipeline.job is not None:
        checking.against(prompts.get("job"), ("job", "prompt"), [])
        checking.against(pipeline.job.model, ("job", "model"), [])
    if pipeline.reduce is not None:
        checking.against(prompts.get("reduce"), ("reduce", "prompt"), list(RESERVED))
    items = inline_items(pipeline.input)
    if items:
        checking.items(prompts.get("filter"), ("filter", "ai", "prompt"), items)
        checking.items(prompts.get("map"), ("map", "prompt"), items)
        checking.items(pipeline.map.model if pipeline.map else None, ("map", "model"), items)
    if pipeline.map is not None and "map" in prompts and not Template(prompts["map"]).names:
        report.warning(
            ("map", "prompt"), "the prompt holds no {{placeholder}}: every item asks the same"
        )


def inline_items(section: Input | None) -> list[Item]:
    """The items that are in the file itself."""
    if section is None:
        return []
    return section.source if isinstance(section.source, list) else section.items or []


class _Checking(NamedTuple):
    report: ProblemReport
    level: Level
    parameters: list[str]

    def against(self, text: str | None, path: Path, names: list[str]) -> None:
        """Names that are neither parameters nor filled in."""
        for absent in Template(text or "").missing([*self.parameters, *names]):
            self._say(path, absent.name, f"has no value{absent.advice}")

    def items(self, text: str | None, path: Path, items: Sequence[Mapping[str, Any]]) -> None:
        """Names that not every item has."""
        template = Template(text or "")
        every = {*self.parameters, *BATCH, *(key for item in items for key in item)}
        nowhere = {absent.name: absent.advice for absent in template.missing(every)}
        for name in template.names:
            if name in nowhere:
                self._say(path, name, f"is not a field of the items{nowhere[name]}")
                continue
            lacking = list(_lacking(name, items, [*self.parameters, *BATCH]))
            if lacking:
                self._say(path, name, f"has no value in item {some([*map(str, lacking)], 5)}")

    def _say(self, path: Path, name: str, message: str) -> None:
        self.report.placeholder(path, name, message, self.level)


def _lacking(name: str, items: Sequence[Mapping[str, Any]], known: Sequence[str]) -> Iterator[int]:
    for number, item in enumerate(items, start=1):
        if Template(f"{{{{{name}}}}}").missing([*known, *item]):
            yield number
