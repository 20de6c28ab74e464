"""The records of a run: items, calls, texts, as steps of its chain, in pages.

Keys sort by stage and position, so a page is a range of the primary key and memory stays flat:

    in/<list>/<writer>/<position>    a chunk of items; `in/<list>/~end/<attempt>` names the writer
    at/<stage>/<position>/<content>  what became of one item, or of one call
    to/<name>/<writer>/<number>      a piece of a text; `to/<name>/~end/<attempt>` names the writer
    pt/<node>/<position>             the run of a shard
    us/<writer>/<slot>               what the calls of a slot took, and the one in progress
    as/<writer>/<number>             a call with an assumed usage
    co/<key of a call>               the true cost of an assumed call, by a person
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from rota.core.pipelines.item_chunks import KIND, packed, unpacked
from rota.core.runs.failures import kind_of
from rota.core.runs.model import Claim, StoredStep
from rota.engine.clock import Clock
from rota.engine.journal import Journal
from rota.pipelines.run import call_ledger
from rota.pipelines.run.call_ledger import CallLedger, CallTotals, Slot
from rota.pipelines.run.stages import ERROR
from rota.store.backend.database import Database
from rota.store.pipelines import steps as store
from rota.store.pipelines.steps import StepKey

PAGE = 200
KEYS_PAGE = 2000
CHUNK_ITEMS = 200
CHUNK_BYTES = 256 * 1024
PIECE_CHARS = 100_000
SHARDS = "pt/"  # the prefix of the steps of shards
LAST = "\uffff"  # sorts after every key
_END = "~end"
_ESCAPES = str.maketrans({"/": "%2F", "%": "%25"})
MESSAGE_CHARS_MAX = 2000

Item = dict[str, Any]
T = TypeVar("T")
S = TypeVar("S", StoredStep, StepKey)


class PositionedItem(NamedTuple):
    """An item and its place among those of its list."""

    position: int
    item: Item


class ItemRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one item or one call: the output of its step."""

    output: dict[str, Any] | None = None
    text: str | None = None
    raw: str | None = None  # the reply that could not be read
    model: str | None = None  # provider:model that answered
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    unpriced: int = 0
    requests: list[str] = []  # the names that the provider gave to the calls
    ms: int = 0


class ItemList(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item list, or a text, that was written to its end."""

    writer: str
    count: int
    attempt: int = 1
    whole: bool = True  # False: a retry may have more to put there
    failed: int = 0  # how many of the items failed in a node before


class RunReader:
    """Reads the records of a chain."""

    def __init__(self, database: Database, root_id: str) -> None:
        self._database = database
        self.root_id = root_id

    async def _read(self, function: Callable[..., Awaitable[T]], **where: Any) -> T:
        return await self._database.read(function, **where)

    def of(self, root_id: str) -> RunReader:
        """A reader of another chain."""
        return RunReader(self._database, root_id)

    async def shards(self, node_id: str | None = None) -> list[RunReader]:
        """The chains of the shards of the run, or of one node, in the order of their items."""
        prefix = SHARDS if node_id is None else shard_prefix(node_id)
        return [self.of(step.child_id) async for step in self.steps(prefix) if step.child_id]

    async def step(self, key: str) -> StoredStep | None:
        """One step, if it is there."""
        return await self._read(store.step, root_id=self.root_id, key=key)

    def steps(self, prefix: str, limit: int = PAGE, *, start: int = 0) -> AsyncIterator[StoredStep]:
        """The steps under a prefix from a position on, in the order of their keys."""
        after = f"{prefix}{start:09d}" if start else prefix
        return self._pages(store.page, after, prefix + LAST, limit)

    def keys(self, prefix: str) -> AsyncIterator[StepKey]:
        """The keys of all steps under a prefix, without their outputs."""
        return self._pages(store.keys, prefix, prefix + LAST, KEYS_PAGE)

    async def _pages(
        self, read: Callable[..., Awaitable[list[S]]], after: str, until: str, limit: int
    ) -> AsyncIterator[S]:
        while True:
            page = await self._read(
                read, root_id=self.root_id, after=after, until=until, limit=limit
            )
            for step in page:
                yield step
            if len(page) < limit:
                return
            after = page[-1].key

    async def item_list(self, name: str) -> ItemList | None:
        """Whether an item list is complete, and which run wrote it; the last attempt counts."""
        return await self._end(f"in/{slash_free(name)}/{_END}/")

    async def _end(self, prefix: str) -> ItemList | None:
        last: StoredStep | None = None
        async for step in self.steps(prefix):
            last = step
        return None if last is None else msgspec.json.decode(last.output or "", type=ItemList)

    async def items(self, name: str, *, start: int = 0) -> AsyncIterator[PositionedItem]:
        """The items of a list, in order, from a position on."""
        item_list = await self.item_list(name)
        if item_list is None:
            return
        prefix = f"in/{slash_free(name)}/{item_list.writer}/"
        # A chunk has its first position as its key, and at most so many items.
        async for step in self.steps(prefix, limit=4, start=max(0, start - CHUNK_ITEMS)):
            for number, item in enumerate(chunk_items(step)):
                if step.position + number >= start:
                    yield PositionedItem(step.position + number, item)

    async def joined(self, names: Iterable[str]) -> AsyncIterator[Item]:
        """The items of several lists, one after the other."""
        for name in names:
            async for placed in self.items(name):
                yield placed.item

    async def call_totals(self) -> CallTotals:
        """The cost of all calls of the chain, also of those with lost answers."""
        totals = await call_ledger.totals(self.steps(call_ledger.PREFIX))
        return totals + await call_ledger.corrections(self.steps(call_ledger.CORRECTED))

    async def text(self, name: str) -> AsyncIterator[str]:
        """A text as the last attempt wrote it, piece by piece."""
        end = await self._end(f"to/{slash_free(name)}/{_END}/")
        if end is None:
            return
        async for step in self.steps(f"to/{slash_free(name)}/{end.writer}/", limit=4):
            yield msgspec.json.decode(step.output or "", type=str)


class RunStore(RunReader):
    """Writes under a claim; LeaseLost when the run is not ours any more."""

    def __init__(self, database: Database, journal: Journal, claim: Claim) -> None:
        super().__init__(database, claim.root_id)
        self.claim = claim
        self._journal = journal
        # An item list that is written again after a hand-over must not mix with the first one.
        self._writer = f"{claim.id}.{claim.claim_count}"
        self.calls = CallLedger(self._put_slots, self._writer)
        # PostgreSQL compresses long texts itself, and its older workers do not know packed ones.
        self.packs = database.is_local

    @property
    def clock(self) -> Clock:
        """The clock of this process."""
        return self._journal.clock

    async def _read(self, function: Callable[..., Awaitable[T]], **where: Any) -> T:
        """Retry while the database is unavailable, so that the run does not fail."""
        return await self._journal.read(function, "reading back", **where)

    def made(
        self,
        key: str,
        *,
        kind: str,
        position: int = 0,
        output: Any = None,
        error: BaseException | None = None,
        started_at: int | None = None,
    ) -> StoredStep:
        """A step that ends now. Nothing is written yet."""
        now = self.clock.now()
        return StoredStep(
            root_id=self.root_id, key=key, position=position, kind=kind,
            status="completed" if error is None else "failed", attempt=1,
            run_attempt=self.claim.attempt,
            output=None if output is None else written(output),
            error=None if error is None else error_text(error), wake_at=None, child_id=None,
            started_at=now if started_at is None else started_at, finished_at=now,
        )  # fmt: skip

    async def put(self, steps: Sequence[StoredStep], owed: list[Slot] | None = None) -> None:
        """Write steps and their calls in one commit; durable when this returns."""
        calls = [] if owed is None else owed
        together = [*self._slot_steps(calls), *steps]
        if together:
            await self._journal.record_together(self.claim, together)
        self.calls.written(calls)

    async def _put_slots(self, slots: Sequence[Slot]) -> None:
        await self._journal.record_together(self.claim, self._slot_steps(slots))

    def _slot_steps(self, slots: Sequence[Slot]) -> list[StoredStep]:
        # The store replaces a completed step only if `started_at` is the same.
        began = self.claim.started_at
        records: list[tuple[str, Any]] = [(slot.key, slot.record) for slot in slots]
        records += [(slot.assumed_key, slot.assumed) for slot in slots if slot.assumed]
        return [
            self.made(key, kind="usage", output=record, started_at=began) for key, record in records
        ]

    def fill(self, name: str) -> ItemListWriter:
        """Begin to fill an item list; chunks of a crashed writer are not looked at again."""
        return ItemListWriter(self, f"in/{slash_free(name)}", self._writer)

    async def put_items(self, name: str, items: AsyncIterator[Item], *, whole: bool = True) -> int:
        """Fill an item list to its end; returns its number of items."""
        item_list = self.fill(name)
        async for item in items:
            await item_list.add(item)
        return await item_list.close(whole=whole)

    async def put_no_items(self, name: str, *, whole: bool) -> None:
        """Record that a list is complete, though its items are read elsewhere."""
        await self.fill(name).close(whole=whole)

    async def end(
        self,
        prefix: str,
        count: int,
        *,
        whole: bool = True,
        replaces: bool = False,
        failed: int = 0,
    ) -> int:
        """Record that a list or a text is complete. The first writer of an attempt counts: a
        later one, after a crash, has written the same. With `replaces` the last one counts."""
        key = f"{prefix}/{_END}/{self.claim.attempt:06d}"
        known = None if replaces else await self.step(key)
        if known is not None:
            return msgspec.json.decode(known.output or "", type=ItemList).count
        end = ItemList(self._writer, count, self.claim.attempt, whole, failed)
        # The store replaces a completed step only if `started_at` is the same.
        started_at = 0 if replaces else None
        await self.put([self.made(key, kind=KIND, output=end, started_at=started_at)])
        return count

    async def put_text(self, name: str, pieces: AsyncIterator[str]) -> int:
        """Write a text in pieces; returns its length. A later attempt writes it again."""
        prefix = f"to/{slash_free(name)}"
        number = length = 0
        async for piece in _larger(pieces):
            key = f"{prefix}/{self._writer}/{number:09d}"
            await self.put([self.made(key, kind="text", position=number, output=piece)])
            number, length = number + 1, length + len(piece)
        return await self.end(prefix, length)


class ItemListWriter:
    """Fills an item list, chunk by chunk. It counts only when it was closed."""

    def __init__(self, run_store: RunStore, prefix: str, writer: str) -> None:
        self._run_store, self._prefix, self._writer = run_store, prefix, writer
        self._chunk: list[msgspec.Raw] = []
        self._bytes = 0
        self.count = self.failed = 0

    async def add(self, item: Item) -> None:
        """One more item."""
        raw = msgspec.json.encode(item)
        self._chunk.append(msgspec.Raw(raw))
        self._bytes += len(raw)
        self.count += 1
        self.failed += ERROR in item
        if len(self._chunk) >= CHUNK_ITEMS or self._bytes >= CHUNK_BYTES:
            await self._flush()

    async def close(self, *, whole: bool = True, replaces: bool = False) -> int:
        """Write the rest, and record that the list is complete."""
        if self._chunk:
            await self._flush()
        return await self._run_store.end(
            self._prefix, self.count, whole=whole, replaces=replaces, failed=self.failed
        )

    async def _flush(self) -> None:
        position = self.count - len(self._chunk)
        key = f"{self._prefix}/{self._writer}/{position:09d}"
        chunk = packed(self._chunk) if self._run_store.packs else self._chunk
        step = self._run_store.made(key, kind=KIND, position=position, output=chunk)
        await self._run_store.put([step])
        self._chunk, self._bytes = [], 0


def shard_prefix(node_id: str) -> str:
    """The prefix of the keys of a node's shards."""
    return f"{SHARDS}{slash_free(node_id)}/"


async def chunk_prefix(reader: RunReader, name: str) -> str:
    """The prefix of the keys of a list's chunks."""
    item_list = await reader.item_list(name)
    return f"in/{slash_free(name)}/{item_list.writer if item_list else ''}/"


async def _larger(pieces: AsyncIterator[str]) -> AsyncIterator[str]:
    """Few large pieces of many small ones."""
    waiting: list[str] = []
    size = 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE_CHARS:
            yield "".join(waiting)
            waiting, size = [], 0
    if size:
        yield "".join(waiting)


def slash_free(name: str) -> str:
    """A name that can be between slashes."""
    return name.translate(_ESCAPES)


def item_key(stage: str, position: int, content: str) -> str:
    """The key of what became of one item, or of one call."""
    return f"at/{slash_free(stage)}/{position:09d}/{content}"


def stage_prefix(stage: str) -> str:
    """The prefix of the keys of a stage."""
    return f"at/{slash_free(stage)}/"


def content_of(key: str) -> str:
    """The content key within a key of a stage."""
    return key.rsplit("/", 1)[1]


def chunk_items(step: StoredStep) -> list[Item]:
    """The items of one chunk."""
    return msgspec.json.decode(unpacked(step.output), type=list[Item])


def record_of(step: StoredStep) -> ItemRecord:
    """The record of an item."""
    return msgspec.json.decode(step.output or "{}", type=ItemRecord)


def written(value: Any) -> str:
    """A value as JSON; lone surrogates, which some replies hold, are replaced."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        return text.encode("utf-8", "replace").decode()


def error_text(error: BaseException) -> str:
    """An error as it is stored with an item: short, since there may be many."""
    message = str(error)[:MESSAGE_CHARS_MAX]
    fields: Mapping[str, str] = {
        "type": type(error).__name__, "message": message, "kind": kind_of(error).value,
    }  # fmt: skip
    return written(fields)
