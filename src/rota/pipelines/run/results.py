"""Results from the records of a chain: in the order of items, in pages."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple, Self

import msgspec

from rota.core.runs.model import StoredStep
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso_if_known
from rota.pipelines.definition.nodes import MapNode, Node
from rota.pipelines.outcome import ERRORS_MAX, ItemError, ItemOutcome
from rota.pipelines.run.filter_stage import Unasked
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
from rota.pipelines.run.stages import ERROR, dropped_list, failed_list, node_input
from rota.pipelines.snapshot import Snapshot


class Source(NamedTuple):
    """Reads items and results of a map: of its own chain first, then of its shards."""

    reader: RunReader
    item_list: str
    stage: str
    shards: Sequence[RunReader] = ()
    # The content key of an item, where items may have moved since an earlier attempt: the record at
    # a position may then be about another item.
    content: Callable[[Item], str] | None = None
    total: int = 0  # of the items
    failed: int = 0  # how many of them failed in a node before

    @property
    def own(self) -> int:
        """How many items the map is asked about."""
        return self.total - self.failed


def may_have_moved(items: ItemList | None) -> bool:
    """Whether a list was filled again by a retry, so that its items may be elsewhere."""
    return items is not None and items.attempt > 1


async def source_of(
    reader: RunReader, snapshot: Snapshot, nodes: Mapping[str, Node], node_id: str
) -> Source:
    """The items and results of a map node."""
    node, item_list = nodes[node_id], node_input(nodes, node_id)
    assert isinstance(node, MapNode)
    listed = await reader.item_list(item_list)
    source = Source(reader, item_list, node_id, await reader.shards(node_id))
    if listed is None:
        return source
    source = source._replace(total=listed.count, failed=listed.failed)
    if not may_have_moved(listed):
        return source
    asking, in_batch = PromptBuilder(snapshot, node_id, node), node.batch_size > 1
    return source._replace(content=lambda item: asking.content_of(item, in_batch=in_batch))


async def outcomes(
    source: Source, *, skip: int = 0, passes_failed: bool = False
) -> AsyncIterator[ItemOutcome]:
    """Every item of the map with its outcome, in order, without the first `skip`.

    Items that failed in a node before are not the map's; `passes_failed` gives them too.
    """
    start = 0 if source.failed and not passes_failed else skip
    prefix = stage_prefix(source.stage)
    own = StepsByPosition(source.reader.steps(prefix, start=start))
    theirs = StepsByPosition(
        step for shard in source.shards async for step in shard.steps(prefix, start=start)
    )
    left = skip - start
    async for placed in source.reader.items(source.item_list, start=start):
        if ERROR in placed.item:
            if passes_failed:
                yield failed_before(placed)
            continue
        step = _best(await own.at(placed.position), placed.item, source.content)
        other = _best(await theirs.at(placed.position), placed.item, source.content)
        left -= 1
        if left < 0:
            # The run itself comes after its shards: the executed definition counts.
            yield outcome_of(placed, step or other)


def failed_before(placed: PositionedItem) -> ItemOutcome:
    """An item that failed in a node before."""
    item = dict(placed.item)
    error = str(item.pop(ERROR))
    return ItemOutcome(position=placed.position, item=item, status="failed", error=error)


async def dropped_items(
    reader: RunReader, nodes: Mapping[str, Node], node_id: str, *, skip: int = 0
) -> AsyncIterator[ItemOutcome]:
    """The items that a filter has dropped, with the reason, without the first `skip`."""
    incoming: AsyncIterator[PositionedItem] | None = None
    source = None
    async for placed in reader.items(dropped_list(node_id), start=skip):
        if incoming is None:
            incoming = reader.items(node_input(nodes, node_id), start=placed.item["at"])
        while source is None or source.position < placed.item["at"]:
            source = await anext(incoming)  # a dropped item is on the list of incoming ones
        yield ItemOutcome(
            position=placed.position, item=source.item, status="filtered",
            reason=placed.item["reason"],
        )  # fmt: skip


async def unreadable(
    reader: RunReader, node_id: str, *, skip: int = 0
) -> AsyncIterator[ItemOutcome]:
    """The items that a load node could not read, without the first `skip`."""
    async for placed in reader.items(node_id):
        if ERROR in placed.item:
            skip -= 1
            if skip < 0:
                yield msgspec.structs.replace(failed_before(placed), error_type="BadInput")


async def unasked(reader: RunReader, node_id: str, *, skip: int = 0) -> AsyncIterator[ItemOutcome]:
    """The items about which a filter could not ask, without the first `skip`."""
    failed = reader.items(failed_list(node_id), start=skip)
    listed = [msgspec.convert(placed.item, Unasked) async for placed in failed]
    if not listed:
        return
    types = {each.position: each.error_type for each in listed}
    async for placed in reader.items(node_id, start=listed[0].position):
        if placed.position in types:
            outcome = failed_before(placed)
            yield msgspec.structs.replace(outcome, error_type=types[placed.position])


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
        self.models: set[str] = set()

    def add(self, outcome: ItemOutcome) -> None:
        """One more item."""
        if outcome.model is not None:
            self.models.add(outcome.model)
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

    def outcomes(self) -> Iterator[ItemOutcome]:
        """All of them again, from the first."""
        decoder = msgspec.json.Decoder(ItemOutcome)
        self._file.seek(0)
        while line := self._file.readline():
            offset = self._file.tell()
            yield decoder.decode(line)
            self._file.seek(offset)


def described(failed: ItemOutcome) -> str:
    """The error of an item with its class, as far as it is known."""
    return ": ".join(filter(None, [failed.error_type, failed.error]))
