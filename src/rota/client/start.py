"""What a start is made of: arguments and options in, runs about to be born out. Writes nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from rota.core import typed
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import NewRun
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import Duration, instant, micros
from rota.errors import BadInput, UnknownWorkflow
from rota.settings import Settings
from rota.store.runs.transitions import BulkItem, PlainItem

TAGS_BYTES_MAX = 4096


class Startable(Protocol):
    """What a client needs to know of a registered workflow."""

    kind: str
    name: str
    queue: str
    priority: int
    version: str
    signature: typed.Signature


class Start(NamedTuple):
    """One item of `start_many`: arguments and, if wanted, its own external id and key."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    external_id: str | None = None
    key: str | None = None


class StartOptions(msgspec.Struct, frozen=True):
    """How to start, beside the arguments."""

    external_id: str | None = None
    queue: str | None = None
    priority: int | None = None
    delay: Duration | None = None
    at: datetime | None = None
    key: str | None = None
    tags: dict[str, str] | None = None
    retries: int | RetryPolicy | None = None
    timeout: Duration | None = None

    def available_at(self, now: int) -> int:
        """The earliest instant to run."""
        if self.delay is not None and self.at is not None:
            raise BadInput("give delay or at, not both")
        if self.delay is not None:
            return now + max(0, micros(self.delay))
        return now if self.at is None else instant(self.at)

    def stored(self) -> str | None:
        """Policies that differ from the workflow's, as JSON."""
        if self.retries is None and self.timeout is None:
            return None
        policies: dict[str, Any] = {}
        if self.retries is not None:
            policies["retry"] = RetryPolicy.of(self.retries)
        if self.timeout is not None:
            policies["timeout_us"] = micros(self.timeout)
        return msgspec.json.encode(policies).decode()


class Bulk(NamedTuple):
    """Many runs about to be born: what they share, and a row for each."""

    template: NewRun
    rows: Sequence[PlainItem] | Sequence[BulkItem]
    plain: bool  # whether only id and input differ


class RunBuilder:
    """Makes runs about to be born, with checked inputs. `door` is the registered workflow."""

    def __init__(self, settings: Settings, ids: IdMaker) -> None:
        self._settings = settings
        self._ids = ids

    def new_run(
        self,
        door: Startable | None,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        options: StartOptions,
        *,
        now: int,
    ) -> NewRun:
        """One run."""
        text = self._input(door, name, args, kwargs)
        return self._born(door, name, text, options, now)

    def bulk(
        self,
        door: Startable | None,
        name: str,
        items: Iterable[tuple[Any, ...] | Start],
        options: StartOptions,
        *,
        now: int,
    ) -> Bulk:
        """Many runs that share everything but a few columns."""
        chosen = list(items)
        template = self._born(door, name, None, options, now)
        ids = self._ids.take(now, len(chosen))
        if door is not None and not any(isinstance(item, Start) for item in chosen):
            limit = self._settings.payload_bytes_max
            texts = door.signature.write_all(chosen, what=name, bytes_max=limit)
            return Bulk(template, list(zip(ids, texts, strict=True)), plain=True)
        rows = [self._row(door, name, *pair) for pair in zip(ids, chosen, strict=True)]
        if any((external_id, key) != (None, None) for _, external_id, key, _ in rows):
            return Bulk(template, rows, plain=False)
        return Bulk(template, [(i, text) for i, _, _, text in rows], plain=True)

    def _row(
        self, door: Startable | None, name: str, run_id: str, item: tuple[Any, ...] | Start
    ) -> BulkItem:
        one = item if isinstance(item, Start) else Start(item)
        return (run_id, one.external_id, one.key, self._input(door, name, one.args, one.kwargs))

    def _born(
        self, door: Startable | None, name: str, text: str | None, options: StartOptions, now: int
    ) -> NewRun:
        tags = options.tags
        priority = options.priority
        return NewRun(
            id=self._ids.make(now),
            namespace=self._settings.namespace,
            name=name,
            available_at=options.available_at(now),
            input=text,
            queue=options.queue or (door.queue if door else "default"),
            priority=priority if priority is not None else (door.priority if door else 0),
            external_id=options.external_id,
            limit_key=options.key,
            version=door.version if door else None,
            tags=typed.encode(tags, what="tags", bytes_max=TAGS_BYTES_MAX) if tags else None,
            options=options.stored(),
        )

    def _input(
        self, door: Startable | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str | None:
        limit = self._settings.payload_bytes_max
        if door is not None:
            return door.signature.write(args, kwargs, what=name, bytes_max=limit)
        if args:
            raise BadInput(
                f"workflow {name} is not registered here, so its arguments have no names",
                hint="Name each argument, or start it through the app that registers it.",
            )
        return (
            typed.encode(kwargs, what=f"the input of {name}", bytes_max=limit) if kwargs else None
        )


def unknown_workflow(name: str, known: Iterable[str]) -> UnknownWorkflow:
    """The error for a name nobody registered, with the nearest ones."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 3, 0.5)
    hint = f"Did you mean {', '.join(near)}?" if near else f"Known: {', '.join(names) or 'none'}."
    return UnknownWorkflow(f"there is no workflow {name!r}", hint=hint, name=name)
