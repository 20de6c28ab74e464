"""Results from the records of a chain: in the order of items, in pages."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import IO, NamedTuple, Self

import msgspec

from rota.core.runs.model import StoredStep
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso_if_known
from rota.errors import ItemsFailed
from rota.pipelines.definition.nodes import MapNode
from rota.pipelines.outcome import ERRORS_MAX, ItemError, ItemOutcome
from rota.pipelines.run import withheld_items
from rota.pipelines.run.filter_stage import DROPPED
from rota.pipelines.run.prompt_builder import PromptBuilder
from rota.pipelines.run.run_store import (
    Item,
    ItemList,
    PositionedItem,
    RunReader,
    content_of,
    record_of,
    stage_prefix,
)
from rota.pipelines.run.stages import ERROR, INPUT, MAP, mapped_list, node_input, node_stage
from rota.pipelines.run.withheld_items import Withheld
from rota.pipelines.snapshot import Snapshot


class Source(NamedTuple):
    """Reads items and results of a stage: of its own chain first, then of its shards."""

    reader: RunReader
    item_list: str
    stage: str
    shards: Sequence[RunReader] = ()
    withheld: Mapping[int, Withheld] = MappingProxyType({})
    # The content key of an item, where items may have moved since an earlier attempt: the record at
    # a position may then be about another item.
    content: Callable[[Item], str] | None = None


def may_have_moved(items: ItemList | None) -> bool:
    """Whether a list was filled again by a retry, so that its items may be elsewhere."""
    return items is not None and items.attempt > 1


def source_of_map(
    reader: RunReader,
    snapshot: Snapshot,
    withheld: Mapping[int, Withheld],
    shards: Sequence[RunReader] = (),
) -> Source:
    """The items and results of the map of the linear form."""
    return Source(reader, mapped_list(snapshot), MAP, shards, withheld)


async def source_of_node(
    reader: RunReader, snapshot: Snapshot, node_id: str, node: MapNode
) -> Source:
    """The items and results of a map node of a graph."""
    item_list = node_input(snapshot, node_id)
    source = Source(reader, item_list, node_stage(node_id))
    if not may_have_moved(await reader.item_list(item_list)):
        return source
    asking, in_batch = PromptBuilder(snapshot, node_id, node), node.batch_size > 1
    return source._replace(content=lambda item: asking.content_of(item, in_batch=in_batch))


async def count_outcomes(source: Source) -> int:
    """How many outcomes the stage has."""
    listed = await source.reader.item_list(source.item_list)
    return 0 if listed is None else listed.count - len(_left_out(source))


def _left_out(source: Source) -> list[int]:
    """The positions without an outcome: what a retry of the filter dropped."""
    return sorted(at for at, held in source.withheld.items() if not held.is_failed)


async def outcomes(source: Source, *, skip: int = 0) -> AsyncIterator[ItemOutcome]:
    """Every item of the stage with its outcome, in order. The first `skip` are not read."""
    start = skip
    for at in _left_out(source):
        start += at <= start
    prefix = stage_prefix(source.stage)
    own = StepsByPosition(source.reader.steps(prefix, start=start))
    theirs = StepsByPosition(
        step for shard in source.shards async for step in shard.steps(prefix, start=start)
    )
    async for placed in source.reader.items(source.item_list, start=start):
        held = source.withheld.get(placed.position)
        if held is not None:
            if held.is_failed:
                yield _unasked(placed.item, held)
            continue
        step = _best(await own.at(placed.position), placed.item, source.content)
        other = _best(await theirs.at(placed.position), placed.item, None)
        # The run itself comes after its shards: the executed definition counts.
        yield outcome_of(placed, step or other)


async def dropped_items(
    reader: RunReader, stage: str, held: Mapping[int, Withheld], *, skip: int = 0
) -> AsyncIterator[ItemOutcome]:
    """The items that a filter has dropped, with the reason, without the first `skip`; those of
    retries come last."""
    dropped = await reader.item_list(stage + DROPPED)
    count = dropped.count if dropped else 0
    incoming: AsyncIterator[PositionedItem] | None = None
    source = None
    async for placed in reader.items(stage + DROPPED, start=skip):
        if incoming is None:
            incoming = reader.items(INPUT, start=placed.item["at"])
        while source is None or source.position < placed.item["at"]:
            source = await anext(incoming)  # a dropped item is on the list of incoming ones
        yield ItemOutcome(
            position=placed.position, item=source.item, status="filtered",
            reason=placed.item["reason"],
        )  # fmt: skip
    if all(each.is_failed for each in held.values()):
        return
    async for placed in reader.items(stage):
        late = held.get(placed.position)
        if late is not None and not late.is_failed:
            if count >= skip:
                yield ItemOutcome(
                    position=count, item=placed.item, status="filtered", reason=late.reason
                )
            count += 1


async def unasked(reader: RunReader, item_list: str) -> AsyncIterator[ItemOutcome]:
    """The items about which a filter node could not ask."""
    held = await withheld_items.read(reader, item_list)
    if not held:
        return
    async for placed in reader.items(item_list):
        if placed.position in held:
            item = {name: value for name, value in placed.item.items() if name != ERROR}
            yield _unasked(item, held[placed.position])


def _unasked(item: Item, held: Withheld) -> ItemOutcome:
    return ItemOutcome(
        position=held.position, item=item, status="failed", error=held.error,
        error_type=held.error_type,
    )  # fmt: skip


def _best(
    steps: Sequence[StoredStep], item: Item, content: Callable[[Item], str] | None
) -> StoredStep | None:
    """The step that counts for an item: a completed one, of the last attempt that has one."""
    if steps and content is not None:
        wanted = content(item)
        steps = [step for step in steps if content_of(step.key) == wanted]
    return max(steps, key=lambda step: (step.status == "completed", step.run_attempt), default=None)


class StepsByPosition:
    """Steps that come in the order of their positions, read one step ahead."""

    def __init__(self, steps: AsyncIterator[StoredStep]) -> None:
        self._steps = steps
        self._ahead: StoredStep | None = None

    async def at(self, position: int) -> list[StoredStep]:
        """The steps at a position. Positions only grow, and each position is asked for once."""
        found: list[StoredStep] = []
        step = self._ahead or await anext(self._steps, None)
        while step is not None and step.position <= position:
            if step.position == position:
                found.append(step)
            step = await anext(self._steps, None)
        self._ahead = step
        return found


def outcome_of(placed: PositionedItem, step: StoredStep | None) -> ItemOutcome:
    """An item with the outcome in its step; an item without a step was not begun."""
    item = {name: value for name, value in placed.item.items() if name != ERROR}
    if step is None:
        return ItemOutcome(position=placed.position, item=item, status="skipped")
    record = record_of(step)
    error = read_error(step.error) if step.status == "failed" else None
    return ItemOutcome(
        position=placed.position, item=item,
        status="completed" if error is None else "failed",
        output=record.output, text=record.text, raw=record.raw if error else None,
        error=error["message"] if error else None,
        error_type=error["type"] if error else None,
        model=record.model, calls=record.calls, tokens_in=record.tokens_in,
        tokens_out=record.tokens_out, cost_usd=record.cost_usd, duration_ms=record.ms,
        finished_at=iso_if_known(step.finished_at), requests=record.requests,
    )  # fmt: skip


class Tally:
    """The number of items by outcome, and the first errors."""

    def __init__(self) -> None:
        self.processed = self.failed = self.skipped = 0
        self.errors: list[ItemError] = []
        self.failed_by: Counter[str] = Counter()

    def add(self, outcome: ItemOutcome) -> None:
        """One more item."""
        if outcome.status == "completed":
            self.processed += 1
        elif outcome.status == "failed":
            kind = outcome.error_type or "Error"
            self.failed += 1
            self.failed_by[kind] += 1
            if len(self.errors) < ERRORS_MAX:
                self.errors.append(ItemError(outcome.position, outcome.error or "", kind))
        else:
            self.skipped += 1

    @property
    def total(self) -> int:
        """All of them."""
        return self.processed + self.failed + self.skipped

    @property
    def counts(self) -> dict[str, int]:
        """The counts for a reduce prompt."""
        return counts(self.processed, self.failed)


def counts(success: int, failure: int = 0) -> dict[str, int]:
    """The values about the items that a reduce prompt may use, by their names in a template."""
    return {"COUNT": success + failure, "SUCCESS_COUNT": success, "FAILURE_COUNT": failure}


class Spool:
    """Results in a temporary file, for several passes with little memory."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.tally = Tally()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    async def take(self, outcomes: AsyncIterator[ItemOutcome], *, whole: bool = False) -> None:
        """Write every item. Items that were not begun are only counted, unless `whole`."""
        async for outcome in outcomes:
            self.tally.add(outcome)
            if whole or outcome.status != "skipped":
                self._file.write(msgspec.json.encode(outcome) + b"\n")

    def check(self) -> None:
        """ItemsFailed if all items failed: there is nothing to reduce."""
        if self.tally.failed and not self.tally.processed:
            first = self.tally.errors[0]
            raise ItemsFailed(
                f"all {self.tally.failed} items failed; the first: {first.type}: {first.message}",
                failed=self.tally.failed,
            )

    def outcomes(self) -> Iterator[ItemOutcome]:
        """All of them again, from the first."""
        decoder = msgspec.json.Decoder(ItemOutcome)
        self._file.seek(0)
        while line := self._file.readline():
            offset = self._file.tell()
            yield decoder.decode(line)
            self._file.seek(offset)
