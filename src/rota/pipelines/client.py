"""`app.pipelines`: what an app does with pipelines. Start, listen, read results, try again.

Loads what it needs with the first call, so an app without pipelines pays nothing for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import msgspec

from rota.client.handle import RunHandle
from rota.client.start import RunOptions
from rota.core import typed
from rota.core.pipelines.names import KIND, pipeline_id_of, run_name
from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import NewRun, Run
from rota.core.runs.names import checked_limit, checked_position, checked_search, folded
from rota.core.runs.retry import RetryPolicy
from rota.core.suggest import suggestion
from rota.core.typed import JsonReader as TypedReader
from rota.engine.wakeups import READY
from rota.errors import BadInput, UnknownPipeline, WrongState
from rota.pipelines.executor import PART_NAME
from rota.store.pipelines import steps as store
from rota.store.runs.manual_retry import retry_chain

if TYPE_CHECKING:
    from rota.ai.base import Invoker
    from rota.client.client import Client
    from rota.pipelines.definition.loader import Loaded
    from rota.pipelines.outcome import (
        CostPage,
        CostUnit,
        ItemOutcome,
        ItemsPage,
        PipelineResult,
        Progress,
    )
    from rota.pipelines.preview.dry_run import Forecast
    from rota.pipelines.snapshot import Snapshot
    from rota.pipelines.trust import Trust

Settings = Mapping[str, Any] | str | Path


class KnownPipeline(NamedTuple):
    """A pipeline: whether its folder is known to this process, and its newest run."""

    id: str
    is_here: bool
    last_run: Run | None = None


class PipelineWorker(NamedTuple):
    """How to start and stop the worker of an app, and make it send notifications of schedules."""

    start: Callable[[], Awaitable[None]]
    stop: Callable[[float | None], Awaitable[None]]
    register_notifications: Callable[[], None]


class PipelineClient:
    """The pipelines of an app."""

    def __init__(self, client: Client, worker: PipelineWorker | None = None) -> None:
        self._client = client
        self._worker = worker
        # The folders of pipelines on this machine, as far as they were given.
        self._folders: dict[str, Path | None] = {}
        # The names of the runs that this process may execute, in the order of their declaration.
        self.run_names: dict[str, None] = {}
        self._ai: Invoker | None = None
        self._settings: Settings | None = None
        self._own_ai = False
        self.serves = False
        self.trust: Trust | None = None  # None: all folders that this program names
        self.listeners: list[Callable[[Progress], object]] = []
        self.stdin: dict[str, IO[bytes]] = {}

    # -- what this process executes --------------------------------------------------------

    def know(self, pipeline_id: str, folder: Path | str | None = None) -> None:
        """Let this process execute runs of a pipeline.

        Args:
            pipeline_id: The pipeline.
            folder: Its folder on this machine.
        """
        self._folders[pipeline_id] = None if folder is None else Path(folder)
        self.run_names[run_name(pipeline_id)] = None

    def forget(self, pipeline_id: str) -> None:
        """Execute no further runs of a pipeline.

        Args:
            pipeline_id: The pipeline.
        """
        self._folders.pop(pipeline_id, None)
        self.run_names.pop(run_name(pipeline_id), None)

    def serve(self) -> None:
        """Execute shards of other machines' big runs, and send the notifications of schedules.

        Call it before the worker starts.
        """
        if not self.serves and self._worker is not None:
            self.serves = True
            self.run_names[PART_NAME] = None
            self._worker.register_notifications()

    def located(self, pipeline_id: str) -> Path:
        """Find the folder of a pipeline on this machine.

        Args:
            pipeline_id: The pipeline.

        Returns:
            The folder.

        Raises:
            UnknownPipeline: This process does not know it.
        """
        folder = self._folders.get(pipeline_id)
        if folder is None:
            known = sorted(name for name, path in self._folders.items() if path is not None)
            raise UnknownPipeline(
                f"the folder of pipeline {pipeline_id!r} is not known to this process",
                hint=suggestion(pipeline_id, known, f"Known: {', '.join(known) or 'none'}."),
            )
        return folder

    async def known(
        self, *, search: str = "", after: str = "", limit: int = 1_000
    ) -> list[KnownPipeline]:
        """List the pipelines with a folder here, and those that have runs, by name.

        Args:
            search: A part of the name.
            after: The last name of the page before.
            limit: The most pipelines to return, up to 1,000.
        """
        text = folded(checked_search(search))
        here = {name for name, at in self._folders.items() if at}
        names = here | await self._names_of_runs()
        wanted = sorted(name for name in names if text in folded(name) and name > after)
        pipelines = []
        for name in wanted[: checked_limit(limit)]:
            last = await self._client.runs.page(name=run_name(name), limit=1)
            pipelines.append(KnownPipeline(name, name in here, *last.runs))
        return pipelines

    async def _names_of_runs(self) -> set[str]:
        from rota.store.runs.lists import names_of_kinds

        stored = await self._client.connection.database.read(
            names_of_kinds, namespace=self._client.settings.namespace
        )
        prefix = run_name("")
        return {pipeline_id_of(name) for name in stored if name.startswith(prefix)} - {
            pipeline_id_of(PART_NAME)
        }

    async def forecast(
        self,
        pipeline: Loaded | Path | str,
        *,
        parameters: Mapping[str, Any] | None = None,
        model: str | None = None,
    ) -> Forecast:
        """Estimate calls, tokens and cost of a run. No model is called, no command is run.

        Args:
            pipeline: A folder or file, or a loaded pipeline.
            parameters: Parameters of the run.
            model: Another model.

        Returns:
            The estimate.
        """
        from rota.pipelines.preview.dry_run import DryRunOptions, dry_run

        loaded = self.load(pipeline) if isinstance(pipeline, str | Path) else pipeline
        return await dry_run(
            loaded, self._invoker(), DryRunOptions(parameters=parameters or {}, model=model)
        )

    async def cost(
        self, run_id: str, *, by: CostUnit = "model", after: int = 0, limit: int = 200
    ) -> CostPage:
        """The calls, tokens and cost of a run's items. Other stages do not count.

        Args:
            run_id: The id of any attempt of the run.
            by: model, day (in UTC, on which an item ended) or item.
            after: `next` of the page before.
            limit: The most shares to return, up to 1,000.
        """
        from rota.pipelines.run import result_reader

        return await result_reader.cost(
            self._client, run_id, by=by, after=checked_position(after), limit=checked_limit(limit)
        )

    # -- the AI ----------------------------------------------------------------------------

    def use(self, ai: Invoker | Settings) -> None:
        """Choose the model provider.

        Args:
            ai: An invoker, or settings for one (a mapping, or a file).
        """
        if isinstance(ai, Mapping | str | Path):
            self._settings, self._ai, self._own_ai = ai, None, False
        else:
            self._ai, self._own_ai = ai, False

    def _invoker(self) -> Invoker:
        """The model provider. The first call makes it from the settings or the environment."""
        if self._ai is None:
            from rota.ai.registry import invoker_of
            from rota.ai.shared_limits import shared

            database, namespace = self._client.connection.database, self._client.settings.namespace
            limit = shared(database, self._client.clock, namespace=namespace)
            self._ai, self._own_ai = invoker_of(self._settings, limit=limit), True
        return self._ai

    async def close(self) -> None:
        """Close what the invoker holds open."""
        if self._ai is not None:
            from rota.ai.base import release

            await release(self._ai)
            if self._own_ai:
                self._ai = None

    # -- starting --------------------------------------------------------------------------

    def load(self, path: Path | str) -> Loaded:
        """Read and check a pipeline.

        Args:
            path: Its folder or file.

        Returns:
            The pipeline.

        Raises:
            BadPipeline: It has problems; the message lists all of them.
        """
        from rota.pipelines.definition.loader import read_pipeline

        return read_pipeline(Path(path), now=self._client.clock.now())

    async def start(
        self,
        pipeline: Loaded | Path | str,
        *,
        parameters: Mapping[str, Any] | None = None,
        items: Iterable[Mapping[str, Any]] | None = None,
        model: str | None = None,
        limit: int | None = None,
        parallel: int | None = None,
        timeout_ms: int | None = None,
        cache_from: str | None = None,
        external_id: str | None = None,
        trigger: str = Trigger.MANUAL,
        queue: str = "default",
        priority: int = 0,
        tags: dict[str, str] | None = None,
        timeout: float | None = None,
        retries: int = 0,
        retry_delay_s: float = 60.0,
        stdin: IO[bytes] | None = None,
    ) -> RunHandle[PipelineResult]:
        """Start a run; it is stored when this returns.

        Args:
            pipeline: A folder or file, or a loaded pipeline.
            parameters: Values for the placeholders.
            items: Items instead of those of the file.
            model, limit, parallel: Override the file.
            timeout_ms, timeout: The longest duration of a call, and of the run in seconds.
            cache_from: An earlier run: results of equal item, prompt and model are reused.
            trigger: For Rota's own use.
            external_id, queue, priority, tags: As in `StartOptions`.
            retries, retry_delay_s: Further attempts of the run, and the pause before each.
            stdin: Input for a source that reads stdin.

        Returns:
            A handle of the run.

        Raises:
            BadPipeline: The definition has problems.
            NotTrusted: The pipeline needs `rota pipeline trust`.

        Example:
            run = await app.pipelines.start("reviews", parameters={"topic": "tea"})
        """
        from rota.pipelines import snapshot as snapshots

        loaded = self.load(pipeline) if isinstance(pipeline, str | Path) else pipeline
        if cache_from is not None:
            cache_from = (await self._client.runs.get(cache_from)).root_id
        overrides = snapshots.Overrides(
            model=model, parallel=parallel, timeout_ms=timeout_ms, limit=limit,
            cache_from=cache_from,
        )  # fmt: skip
        taken = snapshots.take(loaded, parameters=parameters, items=items, overrides=overrides)
        if self.trust is not None:
            self.trust.check_run(loaded.pipeline, loaded.folder)
        _check(loaded, taken)
        policy = RetryPolicy(1 + retries, retry_delay_s, delay_s_max=max(300.0, retry_delay_s))
        options = RunOptions(
            external_id=external_id, queue=queue, priority=priority, tags=tags, timeout=timeout,
            retries=policy if retries else None,
        )  # fmt: skip
        fresh = self._new_run(taken, trigger, options)
        self.know(loaded.pipeline_id, loaded.folder)
        if stdin is not None:
            self.stdin[fresh.id] = stdin
        started = await self._client.starter.send(fresh)
        return self._ref(started.id, existed=started.existed)

    def _new_run(self, taken: Snapshot, trigger: str, options: RunOptions) -> NewRun:
        limit = self._client.settings.payload_bytes_max
        text = typed.encode(taken, what=f"the input of {taken.pipeline_id}", bytes_max=limit)
        fresh = self._client.starter.encoded_run(run_name(taken.pipeline_id), text, options)
        return msgspec.structs.replace(fresh, kind=KIND, trigger=trigger)

    async def retry(
        self, run_id: str, *, model: str | None = None, queue: str | None = None
    ) -> RunHandle[PipelineResult]:
        """Retry a run: results that succeeded are kept, the rest is executed.

        Partial, failed, cancelled and crashed runs get one more attempt. A run that waits for a
        person continues. The run keeps the models that it began with, unless `model` names another.

        Args:
            run_id: The id of any attempt.
            model: The model of the calls that are left.
            queue: Another queue for a run that has not ended.

        Returns:
            A handle of the attempt.

        Raises:
            WrongState: Nothing is left to do, or the default model here is another one than that
                of the run, and `model` does not choose.
        """
        from rota.ai.routes import routes_of
        from rota.pipelines.run import frozen_models

        run = (await self._client.runs.chain(run_id))[-1]
        if run.kind != "pipeline":
            raise WrongState(f"run {run_id} is not a pipeline run", hint="Use `rota run retry`.")
        now = self._client.clock.now()
        if run.status == "completed" and run.reason != "partial":
            raise WrongState(f"run {run.id} completed; there is nothing to retry")
        await frozen_models.choose(self._client, run, routes_of(self._invoker()), model)
        pipeline_id = pipeline_id_of(run.name)
        self.know(pipeline_id, self._folders.get(pipeline_id))
        if not run.is_final:
            await self._client.connection.database.write(store.take_up, run, queue=queue, now=now)
        else:
            new_id = self._client.ids.make(now)
            await self._client.connection.database.write(
                retry_chain, run.root_id, new_id, now=now, queue=queue, even_completed=True
            )
        await self._client.connection.wakeups.announce(READY)
        return self._ref(run.root_id)

    def _ref(self, root_id: str, *, existed: bool = False) -> RunHandle[PipelineResult]:
        from rota.pipelines.outcome import PipelineResult

        return RunHandle(self._client, root_id, TypedReader(PipelineResult), existed)

    # -- watching --------------------------------------------------------------------------

    def listen(self, callback: Callable[[Progress], object]) -> Callable[[], None]:
        """Listen to runs that this process executes.

        Args:
            callback: It gets each event.

        Returns:
            A function that stops listening.
        """
        self.listeners.append(callback)

        def stop() -> None:
            if callback in self.listeners:
                self.listeners.remove(callback)

        return stop

    async def result(self, run_id: str) -> PipelineResult:
        """Return the state or the end of a run, its whole output included.

        Args:
            run_id: The id of any attempt.

        Raises:
            UnknownRun: No run has this id.
        """
        from rota.pipelines.run import result_reader

        return await result_reader.result(self._client, run_id)

    async def items(self, run_id: str) -> AsyncIterator[ItemOutcome]:
        """Iterate over the items of a run and their outcomes, in order.

        Args:
            run_id: The id of any attempt.

        Returns:
            The items.
        """
        from rota.pipelines.run import result_reader

        async for each in result_reader.items(self._client, run_id):
            yield each

    async def items_page(
        self, run_id: str, *, after: int = 0, limit: int = 100, status: str | None = None
    ) -> ItemsPage:
        """Read a page of `items`.

        With a status, a page looks at 2,000 items and may hold fewer than `limit`.

        Args:
            run_id: The id of any attempt.
            after: `next` of the page before.
            limit: At most so many.
            status: Only items with this status.

        Returns:
            The items, and `next`.
        """
        from rota.pipelines.run import result_reader

        return await result_reader.items_page(
            self._client, run_id, after=checked_position(after), limit=checked_limit(limit),
            status=status,
        )  # fmt: skip

    async def output(self, run_id: str) -> AsyncIterator[str]:
        """Iterate over the output of a run, piece by piece, however long it is.

        Args:
            run_id: The id of any attempt.

        Returns:
            The pieces.
        """
        from rota.pipelines.run import result_reader

        async for piece in result_reader.output(self._client, run_id):
            yield piece

    async def write_results(self, run_id: str, folder: Path | None = None) -> str | None:
        """Write the results file of a run from its records.

        Args:
            run_id: The id of any attempt.
            folder: The folder of the pipeline.

        Returns:
            The name of the file, relative to the folder; None without results.
        """
        from rota.pipelines.run import result_reader

        return await result_reader.write_results(self._client, run_id, folder)


def _check(loaded: Loaded, taken: Snapshot) -> None:
    """Refuse a run that could not finish, before anything is paid."""
    from rota.pipelines.run.readiness import obstacles

    source = loaded.pipeline.input
    generate = source.generate if source is not None else None
    if generate is not None and not generate.auto_approve and taken.items is None:
        raise BadInput(
            f"{loaded.pipeline_id} generates its items, and they were not reviewed",
            hint="Review them first and pass them as items, or set autoApprove: true.",
        )
    reasons = obstacles(loaded, given=taken.given, items=taken.items)
    if reasons:
        listed = "\n".join(f"  - {each.message}" for each in reasons)
        raise BadInput(f"{loaded.pipeline_id} cannot run:\n{listed}", hint="Nothing was started.")
