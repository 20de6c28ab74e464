"""From an item to the question about it: template, values, fields, model. One way for all.

Runs, dry runs and rendering build their prompts here, so what is shown is what is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rota.ai.base import Request
from rota.ai.routes import ModelRoute
from rota.core.pipelines.templates import Template, text_of
from rota.errors import BadInput, BadSetting, UsageError
from rota.pipelines.definition import fields as fields_
from rota.pipelines.definition.fields import Fields, fields_of
from rota.pipelines.definition.parameters import values_for
from rota.pipelines.definition.sections import AiSection, CallOptions, Retry
from rota.pipelines.run.content_keys import CallContent, call_key, unasked_key
from rota.pipelines.run.stages import ERROR
from rota.pipelines.snapshot import Snapshot

TIMEOUT_MS = 300_000
PARALLEL = 5
YES_OR_NO = "\n\nReply with yes or no."

Item = Mapping[str, Any]


class ModelPrompt(NamedTuple):
    """One call to be made."""

    prompt: str
    route: ModelRoute
    fields: Fields
    timeout_s: float
    retry: Retry
    cwd: str | None = None
    batch: int | None = None  # how many items it is about, when several
    options: CallOptions = CallOptions()

    @property
    def content(self) -> str:
        """The content key: two questions with the same key are the same call."""
        options = self.options
        return call_key(CallContent(
            provider=self.route.provider, model=self.route.model, prompt=self.prompt,
            system=options.system, temperature=options.temperature, body=options.body,
            headers=options.headers, fields=list(self.fields), batch=self.batch,
        ))  # fmt: skip

    @property
    def model(self) -> str:
        """The model as the invoker is asked for it."""
        return self.route.text

    def request(self, prompt: str | None = None, timeout_s: float | None = None) -> Request:
        """The request to an invoker."""
        is_object = bool(self.fields) and self.batch is None
        return Request(
            model=self.route.text, prompt=self.prompt if prompt is None else prompt,
            timeout_s=timeout_s or self.timeout_s, cwd=self.cwd, wants_json=is_object,
            schema=fields_.schema_of(self.fields) if is_object else None,
            **self.options.call_options,
        )  # fmt: skip


class PromptBuilder:
    """One part of a pipeline that asks: map, filter, reduce, job, or a node."""

    def __init__(self, snapshot: Snapshot, key: str, section: AiSection) -> None:
        settings, overrides = snapshot.pipeline.settings, snapshot.overrides
        self.key = key
        self.template = Template(snapshot.prompts.get(key, section.prompt or ""))
        self._lists = "ITEMS" in self.template.names
        self.fields = fields_of(section.output)
        self.model = Template(overrides.model or section.model or settings.model or "")
        self._routes = snapshot.routes
        self.timeout_s = (
            overrides.timeout_ms or section.timeout_ms or settings.timeout_ms or TIMEOUT_MS
        ) / 1000
        self.retry = section.retry or settings.retry
        self._parameters = snapshot.parameters
        # The folder in which commands that answer work.
        cwd = snapshot.pipeline.working_directory or settings.working_directory
        self._cwd = None if cwd is None else str(snapshot.path / cwd)
        self.options = options_of(section, settings)

    def for_item(self, item: Item) -> ModelPrompt:
        """The question about one item; BadInput for an item without content."""
        if ERROR in item:
            raise BadInput(str(item[ERROR]))
        self._must_have_content(item)
        values = values_for(item, self._parameters)
        if self._lists:
            values["ITEMS"] = json.dumps([dict(item)], ensure_ascii=False)
        prompt = self.template.render(values) + fields_.instruction(self.fields)
        return self._question(prompt, self.model.render(values))

    def _must_have_content(self, item: Item) -> None:
        """Refuse a prompt of which the item fills every placeholder with nothing."""
        own = [name for name in self.template.names if name in item and name != "ITEMS"]
        if own and not self._lists and not any(text_of(item[name]).strip() for name in own):
            listed = ", ".join(f"{{{{{name}}}}}" for name in own)
            raise BadInput(f"the item has no content: {listed} is empty, so the model is not asked")

    def for_decision(self, item: Item) -> ModelPrompt:
        """The question of a filter; without fields of its own it asks for yes or no."""
        question = self.for_item(item)
        return question if self.fields else question._replace(prompt=question.prompt + YES_OR_NO)

    def for_batch(self, items: Sequence[Item]) -> ModelPrompt:
        """The question about several; the other names are those of the first."""
        if ERROR in items[0]:
            raise BadInput(str(items[0][ERROR]))
        count = len(items)
        listed = json.dumps([dict(item) for item in items], ensure_ascii=False)
        values = values_for(items[0], self._parameters, {"ITEMS": listed})
        prompt = self.template.render(values) + fields_.instruction(self.fields, count)
        return self._question(prompt, self.model.render(values))._replace(batch=count)

    def content_of(self, item: Item, *, in_batch: bool) -> str:
        """The content key of what became of an item: alone, or in a batch, in whatever company."""
        try:
            return (self.for_batch([item]) if in_batch else self.for_item(item)).content
        except Exception:  # it has no value for a name: it fails, under a key of its own
            return unasked_key(item)

    def without_item(self, filled: Mapping[str, Any] | None = None, more: str = "") -> ModelPrompt:
        """The question that is about no single item; `more` is put after the template."""
        values = values_for({}, self._parameters, filled)
        text = self.template.render(values) + more
        prompt = text + fields_.instruction(self.fields)
        return self._question(prompt, self.model.render(values))

    def for_unknown(
        self, filled: Mapping[str, Any] | None = None, batch: int | None = None
    ) -> ModelPrompt:
        """The question about an item that is not known yet: placeholders without a value stay."""
        values = values_for({}, self._parameters, filled)
        prompt = self.template.render(values, keeps_missing=True)
        prompt += fields_.instruction(self.fields, batch)
        model = self.model.render(values, keeps_missing=True)
        return self._routed(prompt, ModelRoute("", model, model))

    def shared(self, item: Item) -> tuple[str, ...]:
        """The values that the items of a batch share: the model, and all names but ITEMS."""
        if ERROR in item:
            raise BadInput(str(item[ERROR]))
        values = values_for(item, self._parameters)
        names = [name for name in self.template.names if name != "ITEMS"]
        return (
            self.model.render(values),
            *(Template(f"{{{{{n}}}}}").render(values) for n in names),
        )

    def _question(self, prompt: str, model: str) -> ModelPrompt:
        try:
            return self._routed(prompt, self._routes.route(model))
        except UsageError as error:
            if self.model.names:
                raise  # it is the model of one item
            raise BadSetting(error.message, hint=error.advice) from error

    def _routed(self, prompt: str, route: ModelRoute) -> ModelPrompt:
        return ModelPrompt(
            prompt, route, self.fields, self.timeout_s, self.retry, self._cwd, options=self.options
        )


def options_of(section: CallOptions, settings: CallOptions) -> CallOptions:
    """The options sent with the prompts of a part: its own over those of the settings."""
    own, default = section.call_options, settings.call_options
    chosen = {name: default[name] if value is None else value for name, value in own.items()}
    for name in ("headers", "body"):
        chosen[name] = {**default[name], **own[name]}
    return CallOptions(**chosen)


def parallel_of(snapshot: Snapshot, own: int | None) -> int:
    """How many calls at the same time."""
    chosen = snapshot.overrides.parallel or own or snapshot.pipeline.settings.parallel
    return chosen or PARALLEL
