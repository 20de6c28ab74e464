"""A dry run: the prompts as they would be sent, and an estimate of the cost. Calls no model and
changes nothing.

Files are read, since the prompts are made of them. Commands are run only on request. Values that
only the run itself can tell (replies, generated items) are bounded, and the notes say how.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from typing import IO, Any

import msgspec

from rota.ai.base import ANSWER_TOKENS, Invoker, Request
from rota.ai.tokens import ASCII_CHARS, estimate
from rota.core.pipelines import filter_rules
from rota.core.pipelines.templates import Missing, Template
from rota.errors import BadInput, RotaError
from rota.pipelines.definition.fields import fields_of, instruction
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.model import Generate, Input, Pipeline
from rota.pipelines.definition.sections import AiSection, CallOptions, ReduceStep
from rota.pipelines.definition.sources import AiSource, CommandSource, StdinSource
from rota.pipelines.run import prompt_builder
from rota.pipelines.run.generated_items import generate_question
from rota.pipelines.run.inputs import items_of
from rota.pipelines.run.transforms import tree_of_filter
from rota.pipelines.snapshot import Overrides, take

Item = dict[str, Any]
TOLD_MAX = 5  # items that cannot be rendered, each with its reason


class PreviewedPrompt(msgspec.Struct, frozen=True):
    """One call that a run would make."""

    place: str  # "input", "filter", "map", "reduce", "job", or the id of a node
    number: int | None  # of the item, from one; the first one of a batch
    model: str
    prompt: str
    tokens_in: int
    tokens_out: int
    cost_usd: float | None


class Share(msgspec.Struct):
    """The estimate of one part of the pipeline."""

    place: str
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = 0.0  # None: no price is known for a model
    is_bound: bool = False  # at most this
    is_open: bool = False  # there may be more; the number is unknown

    def add(self, asked: PreviewedPrompt, times: int = 1) -> None:
        """Count a call."""
        self.calls += times
        self.tokens_in += asked.tokens_in * times
        self.tokens_out += asked.tokens_out * times
        known = self.cost_usd is not None and asked.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (asked.cost_usd or 0.0) * times if known else None


class Forecast(msgspec.Struct):
    """The estimate of a run, part by part."""

    items: int | None = None  # that come in; None: only the run will tell
    kept: int | None = None  # that pass the filter, at most
    shares: list[Share] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    def share(self, place: str) -> Share:
        """The one of a part; made when it is first asked for."""
        found = next((each for each in self.shares if each.place == place), None)
        if found is None:
            found = Share(place)
            self.shares.append(found)
        return found

    def total(self) -> Share:
        """All parts together."""
        whole = Share("total")
        for each in self.shares:
            whole.calls += each.calls
            whole.tokens_in += each.tokens_in
            whole.tokens_out += each.tokens_out
            known = whole.cost_usd is not None and each.cost_usd is not None
            whole.cost_usd = (whole.cost_usd or 0) + (each.cost_usd or 0) if known else None
            whole.is_bound |= each.is_bound
            whole.is_open |= each.is_open
        return whole

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)


class DryRunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a run was to be started with."""

    parameters: Mapping[str, Any] = {}
    model: str | None = None
    runs_commands: bool = False
    stdin: IO[bytes] | None = None


class PromptPreview:
    """A place where questions are written, priced and shown, but not sent."""

    def __init__(
        self,
        loaded: Loaded,
        ai: Invoker,
        options: DryRunOptions,
        show: Callable[[PreviewedPrompt], None],
    ) -> None:
        self.loaded, self.options = loaded, options
        overrides = Overrides(model=options.model)
        self._snapshot = take(loaded, parameters=options.parameters, overrides=overrides)
        self.parameters = self._snapshot.parameters
        self.forecast = Forecast()
        self._ai, self._show = ai, show

    def asking(self, place: str, part: AiSection) -> prompt_builder.PromptBuilder:
        """How a run asks in this part."""
        return prompt_builder.PromptBuilder(self._snapshot, place, part)

    def question(
        self, place: str, made: prompt_builder.ModelPrompt, number: int | None = None
    ) -> None:
        """Show and count a question as a run would ask it."""
        self.asked(place, made.model, made.prompt, number, options=made.options)

    def open_question(
        self, place: str, part: AiSection, times: int, batch: int | None = None
    ) -> None:
        """Show and count a prompt with an unknown item: its names stay as they are."""
        text = Template(self.loaded.prompts[place]).render(self.parameters, Missing.KEEP)
        prompt = text + instruction(fields_of(part.output), batch)
        model = self.model(part.model, self.parameters)
        self.asked(place, model, prompt, times=times, options=self._options(part))

    def generation(self, place: str, part: Generate | AiSource) -> None:
        """Show and count the question that asks for items."""
        self.question(place, generate_question(self._snapshot, part))

    def asked(
        self,
        place: str,
        model: str,
        prompt: str,
        number: int | None = None,
        times: int = 1,
        options: CallOptions | None = None,
    ) -> PreviewedPrompt:
        """The same for a prompt that is written already."""
        asked = self.priced(place, model, prompt, number, options)
        self._show(asked)
        self.forecast.share(place).add(asked, times)
        return asked

    def _options(self, part: CallOptions) -> CallOptions:
        return prompt_builder.options_of(part, self.loaded.pipeline.settings)

    def priced(
        self,
        place: str,
        model: str,
        prompt: str,
        number: int | None = None,
        options: CallOptions | None = None,
    ) -> PreviewedPrompt:
        """A question with what it takes."""
        sent = options.call_options if options is not None else {}
        try:
            told = self._ai.estimate(Request(model, prompt, **sent))
        except RotaError as error:
            self.forecast.note(f"{error.message}. {error.advice}")
            return PreviewedPrompt(
                place, number, model, prompt, estimate(prompt), ANSWER_TOKENS, None
            )
        if told.cost_usd is None:
            self.forecast.note(f"no price is known for {told.model}, so its cost is not counted")
        return PreviewedPrompt(
            place, number, told.model, prompt, told.tokens_in, told.tokens_out, told.cost_usd
        )

    def model(self, text: str | None, values: Mapping[str, Any]) -> str:
        """The model of a part: what was asked for, what the part says, what the settings say."""
        if self.options.model:
            return self.options.model
        named = Template(text or "").render(values, Missing.KEEP)
        return named or self.loaded.pipeline.settings.model or ""

    def open_results(
        self, place: str, part: AiSection, base: Mapping[str, Any], replies: int
    ) -> None:
        """The last call over unknown replies: as long as they are guessed to be."""
        room = part.max_chars if isinstance(part, ReduceStep) else ReduceStep(type="ai").max_chars
        chars = replies * ANSWER_TOKENS * ASCII_CHARS
        parts = max(1, -(-chars // room))
        filled = {"RESULTS": "x" * min(chars, room)}
        text = Template(self.loaded.prompts[place]).render({**base, **filled}, Missing.KEEP)
        plain = Template(self.loaded.prompts[place]).render(base, Missing.KEEP)
        tail = instruction(fields_of(part.output))
        model = self.model(part.model, base)
        share = self.forecast.share(place)
        options = self._options(part)
        share.add(self.priced(place, model, text + tail, None, options), parts + (parts > 1))
        share.is_bound = True
        self._show(self.priced(place, model, plain + tail, None, options))


async def dry_run(
    loaded: Loaded,
    ai: Invoker,
    options: DryRunOptions,
    show: Callable[[PreviewedPrompt], None] = lambda _: None,
) -> Forecast:
    """Go through a pipeline without asking; `show` sees every question, in order."""
    preview = PromptPreview(loaded, ai, options, show)
    pipeline = loaded.pipeline
    if pipeline.nodes is not None:
        from rota.pipelines.preview.dry_run_graph import walk

        await walk(preview, pipeline.nodes)
    elif pipeline.job is not None:
        preview.question("job", preview.asking("job", pipeline.job).without_item())
    else:
        await _Line(preview, pipeline).go()
    preview.forecast.note(
        f"replies are guessed to be {ANSWER_TOKENS} tokens long, or maxTokens; "
        "tries after a failure are not counted"
    )
    return preview.forecast


def known_items(preview: PromptPreview, part: Input) -> AsyncIterator[Item] | None:
    """The items as a stream, or None when only the run will tell, which is noted."""
    options = preview.options
    if part.generate is not None:
        return None
    if isinstance(part.source, CommandSource) and not options.runs_commands:
        preview.forecast.note(f"the items come from `{part.source.run}`, which was not run")
        return None
    if isinstance(part.source, StdinSource) and options.stdin is None:
        preview.forecast.note("the items come from standard input, and nothing was piped in")
        return None
    return items_of(part, preview.loaded.folder, stdin=options.stdin)


class _Line:
    """input, filter, map, reduce."""

    def __init__(self, preview: PromptPreview, pipeline: Pipeline) -> None:
        assert pipeline.input is not None
        assert pipeline.map is not None
        self._preview, self._pipeline = preview, pipeline
        self._input, self._map = pipeline.input, pipeline.map
        self._filter = pipeline.filter
        self._tree = tree_of_filter(pipeline.filter) if pipeline.filter else None
        self._asking = preview.asking("map", pipeline.map)
        ai = pipeline.filter.ai if pipeline.filter else None
        self._judging = preview.asking("filter", ai) if ai else None
        self._batches: dict[Hashable, list[Item]] = {}
        self._bad: list[int] = []

    async def go(self) -> None:
        """From the first item to the reduce."""
        preview = self._preview
        forecast = preview.forecast
        items = known_items(preview, self._input)
        if items is None:
            calls = self._unknown()
        else:
            forecast.items = forecast.kept = 0
            async for item in items:
                forecast.items += 1
                if self._keeps(item, forecast.items):
                    forecast.kept += 1
                    self._take(item, forecast.items)
            for batch in self._batches.values():
                preview.question("map", self._asking.for_batch(batch))
            calls = forecast.kept
            if not forecast.kept:
                forecast.note("no item would reach the map")
        if self._bad:
            forecast.note(f"items that cannot be rendered, and would fail: {len(self._bad)}")
        reduce = self._pipeline.reduce
        if reduce is not None and reduce.type == "ai" and calls:
            counts = {"COUNT": calls, "SUCCESS_COUNT": calls, "FAILURE_COUNT": 0}
            preview.open_results("reduce", reduce, {**preview.parameters, **counts}, calls)

    def _unknown(self) -> int:
        """Unknown items: one question to look at, as many as the limit allows."""
        preview = self._preview
        generate = self._input.generate
        if generate is not None:
            preview.generation("input", generate)
        limit = self._input.limit
        count = 1 if limit is None else limit
        ai = self._filter.ai if self._filter else None
        size = self._map.batch_size
        if ai is not None and count:
            preview.open_question("filter", ai, count)
        if count:
            preview.open_question("map", self._map, -(-count // size), size if size > 1 else None)
        for share in preview.forecast.shares:
            if share.place != "input":
                share.is_bound, share.is_open = limit is not None, limit is None
        if limit is None:
            preview.forecast.note("how many items there will be is not known; counted is one")
        return count

    def _keeps(self, item: Item, number: int) -> bool:
        if self._tree is None:
            return True
        verdict = filter_rules.judge(self._tree, item)
        if verdict.asks is None or self._judging is None:
            return verdict.kept
        with self._reporting(number):
            self._preview.question("filter", self._judging.for_decision(item), number)
        self._preview.forecast.share("map").is_bound = True
        self._preview.forecast.note("the AI filter is taken to keep every item it is asked about")
        return True

    def _take(self, item: Item, number: int) -> None:
        with self._reporting(number):
            if self._map.batch_size == 1:
                self._preview.question("map", self._asking.for_item(item), number)
                return
            key = self._asking.shared(item)
            batch = self._batches.setdefault(key, [])
            batch.append(item)
            if len(batch) == self._map.batch_size:
                self._preview.question("map", self._asking.for_batch(self._batches.pop(key)))

    @contextlib.contextmanager
    def _reporting(self, number: int) -> Iterator[None]:
        """An item that cannot be rendered is reported, and counted no further."""
        try:
            yield
        except BadInput as error:
            if len(self._bad) < TOLD_MAX:
                self._preview.forecast.note(f"item {number}: {error.message}")
            self._bad.append(number)
