"""The map: a sliding window of calls over items, each result durable before its slot is free.

Items that an earlier attempt has finished are passed over. Items that failed in this attempt stay
failed; those of an earlier attempt are tried again. A failed item is a result too, not an
exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable, Sequence
from typing import Any, TypeAlias

import msgspec

from rota.core.runs.model import StoredStep
from rota.errors import BadReply, ItemsFailed, TruncatedReply
from rota.pipelines.definition.fields import BatchMismatch, Fields, read_batch, read_reply
from rota.pipelines.definition.sections import MapStep
from rota.pipelines.run.content_keys import unasked_key
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.model_caller import LOST, STOPPING, Usage
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.run_store import (
    Item,
    ItemRecord,
    PositionedItem,
    RunReader,
    item_key,
    record_of,
    stage_prefix,
)
from rota.pipelines.run.sliding_window import first_of
from rota.pipelines.run.stages import ERROR

OPEN, DONE, FAILED = 0, 1, 2
# The result or failure of one item: its step, and the record in it.
MappedItem: TypeAlias = tuple[StoredStep, ItemRecord]


def failures_max(step: MapStep, total: int) -> int | None:
    """How many items may fail; None for any number."""
    if step.fail_fast:
        return 0
    if isinstance(step.max_failures, str):
        return total * int(step.max_failures.rstrip("%")) // 100
    return step.max_failures


class MapStage:
    """One pass over items that asks about each."""

    def __init__(
        self,
        context: PipelineContext,
        name: str,
        step: MapStep,
        total: int,
        *,
        moved: bool = False,
        failed_before: int = 0,
    ) -> None:
        """`moved`: its items may have other positions than before; results are found by content.

        `failed_before`: the number of items that failed in an earlier stage; they count.
        """
        self._moved, self._failed_before = moved, failed_before
        self._context, self._name, self._step = context, name, step
        self._asking = PromptBuilder(context.snapshot, name, step)
        self._failures_max = failures_max(step, total)
        self._marks = bytearray(total)  # OPEN, DONE or FAILED, by position
        self._stopped: Exception | None = None

    async def perform(self, items: AsyncIterator[PositionedItem]) -> None:
        """Ask about every item that is open; raises what stopped it before the end. Items that
        failed in a node before are not asked about."""
        await self._mark_earlier_attempts()
        self._context.progress.report()
        self._check_ceiling()
        parallel = parallel_of(self._context.snapshot, self._step.parallel)
        count = max(1, min(parallel, len(self._marks)))
        await self._sweep(self._works(items), count)
        if self._stopped is not None:
            raise self._stopped

    async def mark(self, shards: Sequence[RunReader]) -> None:
        """Mark the items that shards of the run have done; a retry maps those that failed there."""
        first = self._context.run_store.claim.attempt == 1
        for reader in shards:
            async for key in reader.keys(stage_prefix(self._name)):
                if key.status == "completed" or first:
                    self._mark(key.position, failed=key.status != "completed")

    def _mark(self, position: int, *, failed: bool) -> None:
        progress = self._context.progress
        if self._marks[position] == OPEN:
            progress.done += 1
            progress.failed += failed
        elif self._marks[position] == FAILED and not failed:
            progress.failed -= 1
        self._marks[position] = FAILED if failed else DONE

    async def _mark_earlier_attempts(self) -> None:
        """Mark the items that earlier attempts have done."""
        run_store = self._context.run_store
        if run_store.claim.is_fresh or self._moved:
            return
        async for key in run_store.keys(stage_prefix(self._name)):
            if key.status == "completed":
                self._mark(key.position, failed=False)
            elif key.run_attempt == run_store.claim.attempt and not self._marks[key.position]:
                self._mark(key.position, failed=True)

    async def _sweep(
        self, works: AsyncGenerator[list[PositionedItem], None], parallel: int
    ) -> None:
        """Do all works, in any order; begin no further ones once the stage is stopped."""
        lock = asyncio.Lock()

        async def slot() -> None:
            while self._stopped is None:
                async with lock:
                    work = await anext(works, None)
                if work is None:
                    return
                await self._in_slot(work)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(parallel):
                    group.create_task(slot())
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        finally:
            await works.aclose()

    async def _in_slot(self, work: list[PositionedItem]) -> None:
        progress = self._context.progress
        progress.running += len(work)
        try:
            if self._step.batch_size == 1:
                await self._single(work[0])
            else:
                await self._batch(work, Usage())
        except STOPPING as error:
            self._stopped = self._stopped or error
        finally:
            progress.running -= len(work)

    async def _works(
        self, items: AsyncIterator[PositionedItem]
    ) -> AsyncGenerator[list[PositionedItem], None]:
        size = self._step.batch_size
        waiting: dict[Hashable, list[PositionedItem]] = {}
        async for placed in items:
            if self._marks[placed.position] != OPEN or ERROR in placed.item:
                continue
            if size == 1:
                yield [placed]
                continue
            try:
                shared = self._asking.shared(placed.item)
            except Exception:  # it has no value for a name: it will fail alone
                yield [placed]
                continue
            group = waiting.setdefault(shared, [])
            group.append(placed)
            if len(group) == size:
                yield waiting.pop(shared)
        for group in waiting.values():
            yield group

    # -- one item --------------------------------------------------------------------------

    async def _single(self, placed: PositionedItem) -> None:
        started_at = self._context.run_store.clock.now()
        usage = Usage()
        content = ""
        try:
            question = self._asking.for_item(placed.item)
            content = question.content
            if await self._from_cache(placed, content, started_at):
                return
            value = await self._context.asker.ask(question, usage, reader_of(question.fields))
        except (*LOST, *STOPPING):
            raise
        except Exception as error:
            key = content or unasked_key(placed.item)
            record = usage.record(raw=usage.raw)
            await self._write([self._result(placed, key, record, error, started_at)], usage)
            return
        record = with_value(usage.record(), value)
        await self._write([self._result(placed, content, record, None, started_at)], usage)

    async def _from_cache(self, placed: PositionedItem, content: str, started_at: int) -> bool:
        key = item_key(self._name, placed.position, content)
        for cache in self._context.caches:
            hit = await cache.find(self._name, key)
            if hit is None:
                continue
            if hit.key == key and cache.reader.root_id == self._context.run_store.root_id:
                self._count()  # it is there already
            else:
                result = self._result(placed, content, free(record_of(hit)), None, started_at)
                await self._write([result])
            return True
        return False

    # -- batches ---------------------------------------------------------------------------

    async def _batch(self, group: list[PositionedItem], usage: Usage) -> None:
        started_at = self._context.run_store.clock.now()
        if self._context.caches:
            keys = [self._content_in_batch(each.item) for each in group]
            pairs = list(zip(group, keys, strict=True))
            group = [
                each for each, key in pairs if not await self._from_cache(each, key, started_at)
            ]
        if not group:
            return
        count = len(group)
        try:
            question = self._asking.for_batch([each.item for each in group])
            values = await self._context.asker.ask(
                question, usage, lambda text: read_batch(text, question.fields, count)
            )
        except (BatchMismatch, TruncatedReply) as error:
            if count == 1:
                await self._fail_all(group, error, usage, started_at)
                return
            middle = (count + 1) // 2
            # The cost of the wrong answer is reported with the first half.
            await self._batch(group[:middle], usage)
            await self._batch(group[middle:], Usage())
            return
        except (*LOST, *STOPPING):
            raise
        except Exception as error:
            await self._fail_all(group, error, usage, started_at)
            return
        await self._spread(group, values, usage, started_at)

    async def _spread(
        self, group: list[PositionedItem], values: list[Any], usage: Usage, started_at: int
    ) -> None:
        """Write the results of a batch in one commit, then ask alone about items without one."""
        wrong: list[PositionedItem] = []
        results = []
        for number, (placed, value) in enumerate(zip(group, values, strict=True)):
            record = usage.record(len(group), first=number == 0)
            is_bad = isinstance(value, BadReply)
            if is_bad and len(group) > 1:
                wrong.append(placed)
                continue
            results.append(
                self._result(
                    placed, self._content_in_batch(placed.item),
                    record if is_bad else with_value(record, value),
                    value if is_bad else None, started_at,
                )
            )  # fmt: skip
        await self._write(results, usage)
        for placed in wrong:
            await self._batch([placed], Usage())

    async def _fail_all(
        self, group: list[PositionedItem], error: Exception, usage: Usage, started_at: int
    ) -> None:
        results = [
            self._result(
                placed, self._content_in_batch(placed.item),
                usage.record(len(group), first=number == 0, raw=usage.raw), error, started_at,
            )
            for number, placed in enumerate(group)
        ]  # fmt: skip
        await self._write(results, usage)

    def _content_in_batch(self, item: Item) -> str:
        return self._asking.content_of(item, in_batch=True)

    # -- writing down ----------------------------------------------------------------------

    def _result(
        self,
        placed: PositionedItem,
        content: str,
        record: ItemRecord,
        error: Exception | None,
        started_at: int,
    ) -> MappedItem:
        key = item_key(self._name, placed.position, content)
        step = self._context.run_store.made(
            key, kind="item", position=placed.position, output=record, error=error,
            started_at=started_at,
        )  # fmt: skip
        return step, record

    async def _write(self, results: Sequence[MappedItem], usage: Usage | None = None) -> None:
        """Write results and the calls that led to them, in one commit."""
        owed = None if usage is None else usage.owed
        await self._context.run_store.put([step for step, _ in results], owed)
        for step, record in results:
            self._context.progress.count(record)
            self._context.progress.failed += step.status == "failed"
            self._count()
        self._check_ceiling()

    def _count(self) -> None:
        self._context.progress.done += 1
        self._context.progress.report()

    def _check_ceiling(self) -> None:
        failed, limit = self._context.progress.failed + self._failed_before, self._failures_max
        if limit is None or failed <= limit or self._stopped is not None:
            return
        allowed = "fail_fast allows none" if self._step.fail_fast else f"max_failures is {limit}"
        self._stopped = ItemsFailed(
            f"stopped after {failed} of {len(self._marks)} items failed; {allowed}",
            failed=failed,
        )


def reader_of(fields: Fields) -> Callable[[str], Any]:
    """The reader of a reply: its fields, or the text unchanged."""
    return (lambda text: read_reply(text, fields)) if fields else (lambda text: text)


def free(record: ItemRecord) -> ItemRecord:
    """The record without its usage: it was paid for elsewhere."""
    return msgspec.structs.replace(
        record, calls=0, tokens_in=0, tokens_out=0, cost_usd=None, unpriced=0, requests=[], ms=0
    )


def with_value(record: ItemRecord, value: Any) -> ItemRecord:
    """The record with the value of its reply."""
    field = "output" if isinstance(value, dict) else "text"
    return msgspec.structs.replace(record, **{field: value})
