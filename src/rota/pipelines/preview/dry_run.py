"""A dry run: the prompts as they would be sent, and an estimate of the cost. Calls no model and
changes nothing.

Files are read, since the prompts are made of them. Commands are run only on request. Values that
only a run finds out (replies, generated items) are bounded, and the notes say how.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import msgspec

from rota.ai.base import ANSWER_TOKENS, Invoker
from rota.ai.model_data import listed
from rota.ai.tokens import ASCII_CHARS, estimate
from rota.core.pipelines import filter_rules
from rota.errors import BadInput, RotaError
from rota.pipelines.definition.compiler import place_of
from rota.pipelines.definition.graph import order
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.nodes import (
    AiNode,
    FilterNode,
    LoadNode,
    MapNode,
    MergeNode,
    Node,
    ReduceNode,
    ScriptNode,
    TransformNode,
    parents_of,
)
from rota.pipelines.definition.sections import AiSection, MapStep, ReduceStep
from rota.pipelines.definition.sources import AiSource, CommandSource, StdinSource
from rota.pipelines.run.filter_stage import Sieve, sieve_of
from rota.pipelines.run.generated_items import generate_question
from rota.pipelines.run.inputs import Item, select, source_items
from rota.pipelines.run.prompt_builder import ModelPrompt, PromptBuilder
from rota.pipelines.run.results import counts
from rota.pipelines.run.transforms import merged, transformer
from rota.pipelines.snapshot import Overrides, take

NOTES_MAX = 5  # items that cannot be rendered, each with its reason


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

    def add(self, more: PreviewedPrompt | Share, *, calls: int, times: int = 1) -> None:
        """Add calls with what they take."""
        self.calls += calls
        self.tokens_in += more.tokens_in * times
        self.tokens_out += more.tokens_out * times
        known = self.cost_usd is not None and more.cost_usd is not None
        self.cost_usd = (self.cost_usd or 0.0) + (more.cost_usd or 0.0) * times if known else None


class Forecast(msgspec.Struct):
    """The estimate of a run, part by part."""

    items: int | None = None  # that come in; None: only the run finds out
    kept: int | None = None  # that pass the filter, at most
    shares: list[Share] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)

    def share(self, place: str) -> Share:
        """The share of a part; the first call makes it."""
        for share in self.shares:
            if share.place == place:
                return share
        self.shares.append(Share(place))
        return self.shares[-1]

    def total(self) -> Share:
        """All parts together."""
        whole = Share("total")
        for each in self.shares:
            whole.add(each, calls=each.calls)
            whole.is_bound |= each.is_bound
            whole.is_open |= each.is_open
        return whole

    def note(self, text: str) -> None:
        """Add a note, unless it is there already."""
        if text not in self.notes:
            self.notes.append(text)


class DryRunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that the run would be started with."""

    parameters: Mapping[str, Any] = {}
    model: str | None = None
    runs_commands: bool = False
    stdin: IO[bytes] | None = None


class PromptPreview:
    """Writes, prices and shows questions as a run would ask them. It sends none."""

    def __init__(
        self,
        loaded: Loaded,
        ai: Invoker,
        options: DryRunOptions,
        show: Callable[[PreviewedPrompt], None],
    ) -> None:
        self.folder, self.options = loaded.folder, options
        overrides = Overrides(model=options.model)
        self.snapshot = take(loaded, parameters=options.parameters, overrides=overrides)
        self.forecast = Forecast()
        self._ai, self._show = ai, show
        self._failed = 0  # questions that cannot be rendered

    def asking(self, place: str, section: AiSection) -> PromptBuilder:
        """The prompts of a part."""
        return PromptBuilder(self.snapshot, place, section)

    def question(
        self, place: str, made: ModelPrompt, number: int | None = None, *, times: int = 1
    ) -> None:
        """Show and count a question."""
        asked = self._priced(place, made, number)
        self._show(asked)
        self.forecast.share(place).add(asked, calls=times, times=times)

    def keeps(self, place: str, sieve: Sieve, item: Item, number: int) -> bool:
        """Whether a filter keeps an item. A question about it is shown, and taken as kept."""
        verdict = filter_rules.judge(sieve.rule, item)
        if verdict.asks is None:
            return verdict.kept
        with self.reporting(place, number):
            self.question(place, sieve.questions[verdict.asks].for_decision(item), number)
        self.forecast.note("an AI filter is taken to keep every item it is asked about")
        return True

    def open_map(self, place: str, section: MapStep, count: int) -> None:
        """Show and count the questions of a map about unknown items: placeholders stay."""
        batch = section.batch_size if section.batch_size > 1 else None
        if count:
            made = self.asking(place, section).for_unknown(batch=batch)
            self.question(place, made, times=-(-count // section.batch_size))

    def open_results(self, place: str, section: AiSection, replies: int | None) -> None:
        """Show and count the calls of a reduce over replies of a guessed length."""
        step = section if isinstance(section, ReduceStep) else ReduceStep(type="ai")
        chars = (replies or 1) * ANSWER_TOKENS * ASCII_CHARS
        parts = max(1, -(-chars // step.max_chars))
        calls = parts + (parts > 1)
        known = {} if replies is None else counts(replies)
        asking = self.asking(place, section)
        full = asking.for_unknown({**known, "RESULTS": "x" * min(chars, step.max_chars)})
        share = self.forecast.share(place)
        share.add(self._priced(place, full), calls=calls, times=calls)
        share.is_bound = True
        self._show(self._priced(place, asking.for_unknown(known)))

    def _priced(self, place: str, made: ModelPrompt, number: int | None = None) -> PreviewedPrompt:
        """A question with an estimate of what it takes."""
        prompt = made.prompt
        try:
            guess = self._ai.estimate(made.request())
        except RotaError as error:
            self.forecast.note(f"{error.message}. {error.advice}")
            tokens = estimate(prompt)
            return PreviewedPrompt(place, number, made.model, prompt, tokens, ANSWER_TOKENS, None)
        if guess.cost_usd is None:
            self.forecast.note(
                f"no price is known for {guess.model} in the list of {listed().date}, so its cost "
                "is not counted"
            )
        return PreviewedPrompt(
            place, number, guess.model, prompt, guess.tokens_in, guess.tokens_out, guess.cost_usd
        )

    @contextlib.contextmanager
    def reporting(self, place: str, number: int) -> Iterator[None]:
        """Note an item that cannot be rendered, and continue without its question."""
        try:
            yield
        except BadInput as error:
            self._failed += 1
            if self._failed <= NOTES_MAX:
                self.forecast.note(f"{place}, item {number}: {error.message}")

    def end(self) -> Forecast:
        """The forecast with its last notes."""
        if self._failed:
            self.forecast.note(f"items that cannot be rendered, and would fail: {self._failed}")
        if self.forecast.total().cost_usd:
            self.forecast.note(f"prices are of {listed().date}, unless the AI settings have others")
        self.forecast.note(
            f"replies are guessed to be {ANSWER_TOKENS} tokens long, or maxTokens; "
            "tries after a failure are not counted"
        )
        return self.forecast


async def dry_run(
    loaded: Loaded,
    ai: Invoker,
    options: DryRunOptions,
    show: Callable[[PreviewedPrompt], None] = lambda _: None,
) -> Forecast:
    """Go through a pipeline without asking; `show` gets every question, in order."""
    preview = PromptPreview(loaded, ai, options, show)
    await _graph(preview, preview.snapshot.nodes)
    return preview.end()


def known_items(preview: PromptPreview, node: LoadNode) -> AsyncIterator[Item] | None:
    """The items as a stream, or None when only the run finds them, which is noted."""
    options, source = preview.options, node.source
    if isinstance(source, AiSource):
        return None
    if isinstance(source, CommandSource) and not options.runs_commands:
        preview.forecast.note(f"the items come from `{source.run}`, which was not run")
        return None
    if isinstance(source, StdinSource) and options.stdin is None:
        preview.forecast.note("the items come from standard input, and nothing was piped in")
        return None
    items = source_items(source, preview.folder, options.stdin)
    return select(items, offset=node.offset, limit=node.limit, sample=node.sample)


class MapPreview:
    """The questions of a map, one for each item or batch, while the items come in."""

    def __init__(self, preview: PromptPreview, place: str, section: MapStep) -> None:
        self._preview, self._place, self._size = preview, place, section.batch_size
        self._asking = preview.asking(place, section)
        self._batches: dict[Hashable, dict[int, Item]] = {}  # by number

    def take(self, item: Item, number: int) -> None:
        """One more item."""
        with self._preview.reporting(self._place, number):
            if self._size == 1:
                self._preview.question(self._place, self._asking.for_item(item), number)
                return
            key = self._asking.shared(item)
            batch = self._batches.setdefault(key, {})
            batch[number] = item
            if len(batch) == self._size:
                self._ask(self._batches.pop(key))

    def close(self) -> None:
        """That was the last item: ask about batches that are not full."""
        for batch in self._batches.values():
            self._ask(batch)

    def _ask(self, batch: dict[int, Item]) -> None:
        question = self._asking.for_batch(list(batch.values()))
        self._preview.question(self._place, question, min(batch))


# -- nodes ---------------------------------------------------------------------------------


class Flow(NamedTuple):
    """The items that leave a node, if they are known; otherwise their number, at most."""

    most: int | None = None  # None: only the run finds out
    items: list[Item] | None = None


def _known(items: Iterable[Item]) -> Flow:
    listed = list(items)
    return Flow(len(listed), listed)


def _joined(before: list[Flow], strategy: str = "concat") -> Flow:
    """The items of several nodes, as a merge node joins them."""
    lists = [flow.items for flow in before if flow.items is not None]
    if len(lists) == len(before):
        return _known(merged(lists, strategy))
    counts = [flow.most for flow in before if flow.most is not None]
    if len(counts) < len(before):
        return Flow()
    return Flow(min(counts) if strategy == "zip" else sum(counts))


async def _graph(preview: PromptPreview, nodes: Mapping[str, Node]) -> None:
    """Every node after its parents."""
    flows: dict[str, Flow] = {}
    for node_id in order({each: parents_of(node) for each, node in nodes.items()}):
        before = [flows[parent] for parent in parents_of(nodes[node_id])]
        flows[node_id] = await _after(preview, node_id, nodes[node_id], before)


async def _after(preview: PromptPreview, node_id: str, node: Node, before: list[Flow]) -> Flow:
    flow = _joined(before)
    match node:
        case LoadNode():
            return await _loaded(preview, node_id, node)
        case FilterNode():
            return _filtered(preview, node_id, node, flow)
        case MapNode():
            return _mapped(preview, node_id, node, flow)
        case ReduceNode() | AiNode():
            return _reduced(preview, node_id, node, flow)
        case MergeNode(strategy=strategy):
            return _joined(before, strategy)
        case TransformNode(ops=ops):
            transform = transformer(ops, preview.snapshot.parameters)
            return flow if flow.items is None else _known(map(transform, flow.items))
        case ScriptNode(output="passthrough"):
            return flow
        case ScriptNode():
            preview.forecast.note(f"{node_id}: the script was not run; what it gives is not known")
            return Flow()


async def _loaded(preview: PromptPreview, node_id: str, node: LoadNode) -> Flow:
    if isinstance(node.source, AiSource):
        preview.question(node_id, generate_question(preview.snapshot, node.source))
    items = known_items(preview, node)
    if items is None:
        return Flow(node.limit)
    flow = _known([item async for item in items])
    preview.forecast.items = (preview.forecast.items or 0) + (flow.most or 0)
    return flow


def _filtered(preview: PromptPreview, node_id: str, node: FilterNode, flow: Flow) -> Flow:
    sieve = sieve_of(preview.snapshot, node_id, node.rule)
    if flow.items is None:
        for asking in sieve.questions[:1]:
            preview.question(node_id, asking.for_unknown(), times=flow.most or 1)
            _open(preview, node_id, known=flow.most is not None)
        return flow
    numbered = enumerate(flow.items, start=1)
    kept = _known(item for n, item in numbered if preview.keeps(node_id, sieve, item, n))
    preview.forecast.kept = (preview.forecast.kept or 0) + (kept.most or 0)
    return kept


def _mapped(preview: PromptPreview, node_id: str, node: MapNode, flow: Flow) -> Flow:
    if flow.items is None:
        preview.open_map(node_id, node, 1 if flow.most is None else flow.most)
        _open(preview, node_id, known=flow.most is not None)
        return flow
    if not flow.items:
        place = place_of(preview.snapshot.pipeline, node_id)
        preview.forecast.note(f"no item would reach {'the map' if place == 'map' else place}")
    if any(share.place in parents_of(node) for share in preview.forecast.shares):
        preview.forecast.share(node_id).is_bound = True  # a filter may drop some
    mapped = MapPreview(preview, node_id, node)
    for number, item in enumerate(flow.items, start=1):
        mapped.take(item, number)
    mapped.close()
    return Flow(flow.most)  # the model decides what its fields will hold


def _reduced(preview: PromptPreview, node_id: str, node: ReduceNode | AiNode, flow: Flow) -> Flow:
    if isinstance(node, ReduceNode) and node.type != "ai":
        return Flow(1)
    if flow.items is None:
        preview.open_results(node_id, node, flow.most)
        _open(preview, node_id, known=flow.most is not None)
        return Flow(1)
    listed = json.dumps(flow.items, ensure_ascii=False)
    filled: dict[str, Any] = {}
    if parents_of(node):
        filled = {**counts(len(flow.items)), "ITEMS": listed, "RESULTS": listed}
    preview.question(node_id, preview.asking(node_id, node).without_item(filled))
    return Flow(1)


def _open(preview: PromptPreview, node_id: str, *, known: bool = False) -> None:
    share = preview.forecast.share(node_id)
    share.is_bound, share.is_open = known, not known
    if not known:
        preview.forecast.note(f"{node_id}: how many items reach it is not known; counted is one")
