"""`PipelineScheduler`: runs the pipelines of a folder by their schedule blocks.

It holds the lock with its heartbeat, watches the files and emits the events. The engine fires the
schedules and executes the runs. See `registry` and `run_tracker`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from rota.core.runs.lifecycle import Status
from rota.core.runs.stored_errors import end_of, run_failed
from rota.core.time.instants import Duration, micros
from rota.errors import BadInput, RotaError, SchedulerLockError, UsageError, WrongState
from rota.pipelines.client import PipelineClient
from rota.pipelines.folder import schedule_sync, watcher
from rota.pipelines.folder.commands import ScheduleCommands
from rota.pipelines.folder.events import (
    Events,
    ExecutionWaiting,
    Listener,
    ScheduleChanged,
    SchedulerState,
    SchedulerStatus,
)
from rota.pipelines.folder.lock_file import HEARTBEAT_US, STALE_US, LockHeartbeat
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.run_tracker import RunTracker
from rota.pipelines.folder.scheduled_pipeline import EntryChange, ScheduledPipeline
from rota.pipelines.folder.state_file import HISTORY_MAX
from rota.pipelines.folder.watcher import SETTLED_US, Watch
from rota.pipelines.outcome import PipelineResult, Progress

if TYPE_CHECKING:
    from rota.client.client import Client

log = logging.getLogger("rota.pipelines")

STOP_S = 30.0
# How often executions are polled without notifications: while some are open, and otherwise.
BUSY_US, IDLE_US = 1_000_000, 10_000_000
GAP_US = 50_000  # between two polls, however many notifications come


class PipelineScheduler(ScheduleCommands):
    """Runs the scheduled pipelines of a folder. One for a folder: a second one is refused.

    The commands about schedules work before, while and after it runs.
    `app` executes the runs; its worker is started and stopped with the scheduler, unless it runs
    already. Listeners (`on`) are plain functions and get one event object.
    """

    def __init__(
        self,
        app: Client,
        directory: Path | str,
        *,
        history_max: int = HISTORY_MAX,
        lock_stale: Duration = STALE_US / 1e6,
        heartbeat: Duration = HEARTBEAT_US / 1e6,
        watch: Duration | None = SETTLED_US / 1e6,
    ) -> None:
        pipelines = getattr(app, "pipelines", None)
        if not isinstance(pipelines, PipelineClient) or pipelines._worker is None:
            raise UsageError("a scheduler needs an app, not a client", hint="Use Rota(url).")
        self.directory = Path(directory)
        self._app, self._clock = app, app.clock
        self._pipelines = pipelines
        self._worker = pipelines._worker
        self._lock = LockHeartbeat(
            self.directory, app.clock, stale_us=micros(lock_stale),
            beat_us=micros(heartbeat), lost=lambda: self._begin("goodbye", self.stop),
        )  # fmt: skip
        self._watch_us = None if watch is None else micros(watch)
        self._history_max = history_max
        self._events = Events()
        self._begin_again()
        super().__init__(app, self.registry, now=app.clock.now)
        self._watched: Watch | None = None
        self._owns_worker = False
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by the name of the loop
        self._changing = asyncio.Lock()
        self._unlisten: Callable[[], None] | None = None
        self._trouble = ""
        self._waiting: set[str] = set()  # executions that wait for their provider
        self.status: SchedulerState = "stopped"
        self.stopped = asyncio.Event()
        self.stopped.set()

    def _begin_again(self) -> None:
        """Forget all pipelines and executions. They are read again at the next start or query."""
        self.registry = PipelineRegistry(
            self._app, self.directory, history_max=self._history_max, trust=self._pipelines.trust
        )
        self._tracker = RunTracker(self._app, self.registry, self._events)

    # -- events ----------------------------------------------------------------------------

    def on(self, name: str, listener: Listener) -> None:
        """Call `listener` with every event of this name (`execution:start`, …; `*` for all)."""
        self._events.on(name, listener)

    def off(self, name: str, listener: Listener) -> None:
        """Do not call `listener` any more."""
        self._events.off(name, listener)

    def _emit_status(self, status: SchedulerState) -> None:
        self.status = status
        self._events.emit(SchedulerStatus(at=self.now(), status=status))

    # -- life ------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it runs the pipelines of its folder."""
        return self.status == "running"

    @property
    def lost(self) -> SchedulerLockError | None:
        """The reason why it stopped by itself: another scheduler took its lock."""
        return self._lock.lost

    async def start(self) -> None:
        """Take the lock, read the pipelines, continue their state, and begin to run them.

        SchedulerLockError when another scheduler holds the lock.
        """
        if self.status != "stopped":
            raise WrongState(f"the scheduler is {self.status} already")
        if not self.directory.is_dir():
            raise BadInput(
                f"{self.directory} is not a folder",
                hint="Name the folder that holds the pipelines.",
            )
        await self._app.connect()
        self._lock.take()
        self.stopped.clear()
        self._begin_again()
        self._emit_status("starting")
        try:
            self._begin("heartbeat", self._lock.beat)
            await self._load()
            await self._run()
        except BaseException:
            await self._end(0)
            raise
        self._emit_status("running")

    async def _load(self) -> None:
        """Read all that must be known before the first schedule fires."""
        before = await self._scan_files() or {}
        changes = await self.registry.sync(now=self.now())
        for entry in self.registry.entries.values():
            self._take(entry)
        await self._tracker.write()
        self._report(changes)
        # Prompt files are known only now. A change since the pipeline was read counts as a change.
        seen = await self._scan_files() or {}
        same = {name: each for name, each in seen.items() if name in before}
        same = {name: e for name, e in same.items() if e[: len(before[name])] == before[name]}
        self._watched = Watch(before | same)

    def _take(self, entry: ScheduledPipeline) -> None:
        """Execute the runs of an entry here, and track them."""
        if entry.row is not None:
            self._pipelines.know(schedule_sync.pipeline_of(entry.row), entry.folder)
            self._tracker.take(entry)

    async def _run(self) -> None:
        self._unlisten = self._pipelines.listen(self._progressed)
        self._app.connection.wakeups.subscribe(self._notified)
        self._pipelines.serve()
        self._owns_worker = self._app.connection.worker is None
        if self._owns_worker:
            await self._worker.start()
        self._begin("follow", self._follow_on)
        if self._watch_us is not None:
            self._begin("watch", self._watch)

    async def stop(self, timeout: Duration = STOP_S) -> None:
        """Stop gracefully: begin nothing new, and give executions in progress this time to end.

        An execution that does not end is handed over: the next scheduler continues it.
        """
        if self.status in ("stopped", "stopping"):
            await self.stopped.wait()
            return
        self._emit_status("stopping")
        await self._end(micros(timeout) / 1e6)

    async def stop_at_once(self) -> None:
        """Hand over all executions in progress, even in the middle of a graceful stop."""
        if not self.stopped.is_set():
            await self._end(0)

    @property
    def begun_count(self) -> int:
        """Executions that are in progress."""
        return self._tracker.begun_count

    async def _end(self, timeout_s: float) -> None:
        await self._cease("watch")
        if self._owns_worker:
            await self._worker.stop(timeout_s)
            self._owns_worker = False
        elif timeout_s > 0:
            await self._drain(timeout_s)
        await self._cease("follow")
        if self._stop_listening():
            await self._quietly(self._follow)
        self._tracker.close()
        await self._cease("heartbeat")
        self._lock.release()
        self._begin_again()
        self._emit_status("stopped")
        self.stopped.set()

    async def _drain(self, timeout_s: float) -> None:
        """Wait for executions in a worker that is not ours to stop."""
        until = self.now() + micros(timeout_s)
        while self._tracker.begun_count and self.now() < until:
            self._tracker.nudge.clear()
            await self._quietly(self._follow)
            if self._tracker.begun_count:
                await self._clock.wait(self._tracker.nudge, min(until, self.now() + BUSY_US))

    def dispose(self) -> None:
        """Release the lock and stop all tasks at once, without waiting."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        self._tracker.close()
        self._events.clear()
        self._stop_listening()
        self._lock.release()
        self.status = "stopped"
        self.stopped.set()

    def _stop_listening(self) -> bool:
        """Stop listening to runs and notifications; returns whether it listened."""
        if self._unlisten is None:
            return False
        self._unlisten()
        self._unlisten = None
        self._app.connection.wakeups.unsubscribe(self._notified)
        return True

    # -- loops -----------------------------------------------------------------------------

    def _begin(self, name: str, loop: Callable[[], Coroutine[object, object, None]]) -> None:
        self._tasks[name] = asyncio.create_task(loop(), name=name)

    async def _cease(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _quietly(self, act: Callable[[], Awaitable[object]]) -> None:
        """Call `act`, and log a failure once. The next iteration tries again."""
        try:
            await act()
        except (RotaError, OSError) as error:
            if str(error) != self._trouble:
                log.warning("the scheduler continues, but: %s", error)
            self._trouble = str(error)
        except Exception:
            log.exception("the scheduler continues, but something failed")
        else:
            self._trouble = ""

    async def _follow_on(self) -> None:
        while True:
            self._tracker.nudge.clear()
            await self._quietly(self._follow)
            await self._clock.wait(asyncio.Event(), self.now() + GAP_US)
            rest = BUSY_US if self._tracker.open_count else IDLE_US
            await self._clock.wait(self._tracker.nudge, self.now() + rest)

    async def _follow(self) -> None:
        async with self._changing:
            gone = await self._tracker.follow()
        if gone and self.is_running:  # the files decide
            log.warning("deleted, but still in its file: %s", ", ".join(gone))
            await self.refresh(gone)

    def _notified(self, topic: str) -> None:
        self._tracker.nudge.set()

    def _progressed(self, progress: Progress) -> None:
        if progress.phase in ("begun", "ended"):
            self._tracker.nudge.set()
        self._report_wait(progress)

    def _report_wait(self, progress: Progress) -> None:
        """Emit an event when an execution begins to wait for its provider or continues."""
        root_id = progress.root_id
        if (progress.waiting is not None) == (root_id in self._waiting):
            return
        entry = self.registry.entries.get(progress.pipeline_id)
        if entry is None or progress.schedule_id is None:
            return
        if progress.waiting is None:
            self._waiting.discard(root_id)
        else:
            self._waiting.add(root_id)
        self._events.emit(
            ExecutionWaiting(
                at=self.now(), schedule_id=entry.schedule_id, pipeline_id=entry.pipeline_id,
                run_id=root_id, reason=progress.waiting,
            )
        )  # fmt: skip

    # -- files -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        assert self._watch_us is not None
        while True:
            await self._clock.wait(asyncio.Event(), self.now() + self._watch_us)
            await self._quietly(self.look)

    async def look(self) -> None:
        """Poll the files once, and sync pipelines with changes that have settled."""
        assert self._watched is not None
        seen = await self._scan_files()
        if seen is None:
            return  # the whole folder is gone, as a mount may be: that removes no pipeline
        names = self._watched.changed(seen, self.now())
        if names:
            await self.refresh(names)
            for name in names:
                self._watched.took(name, seen.get(name))

    async def refresh(self, names: Sequence[str] | None = None) -> None:
        """Read pipelines again at once: these folders, or all."""
        async with self._changing:
            changes = await self.registry.sync(names, now=self.now())
            for each in changes:
                if each.change == "removed":
                    self._tracker.drop(each.entry)
                else:
                    self._take(each.entry)
            await self._tracker.write()
            self._report(changes)

    async def _scan_files(self) -> dict[str, watcher.Seen] | None:
        return await asyncio.to_thread(watcher.scan, self.registry.root, self.registry.beside)

    def _report(self, changes: Sequence[EntryChange]) -> None:
        for each in changes:
            self._events.emit(
                ScheduleChanged(
                    at=self.now(), schedule_id=each.entry.schedule_id,
                    pipeline_id=each.entry.pipeline_id, change=each.change,
                    problem=each.entry.problem or UNSET,
                )
            )  # fmt: skip

    # -- commands --------------------------------------------------------------------------

    async def _read(self) -> None:
        await (self._follow() if self._keeps_registry else super()._read())

    @property
    def _has_scheduler(self) -> bool:
        return self._keeps_registry or super()._has_scheduler

    @property
    def _keeps_registry(self) -> bool:
        """Whether the loops of this scheduler keep the registry in step with files and store."""
        return self._unlisten is not None

    async def trigger_now(self, schedule_id: str) -> PipelineResult:
        """Run it now, beside its schedule, and wait for the result; RunFailed when it fails."""
        run_id = await self.trigger(schedule_id)
        self._tracker.nudge.set()
        ended = await self._app.runs.wait(run_id)
        if self.is_running:
            await self._follow()
        if ended.status != Status.COMPLETED:
            raise run_failed(run_id, end_of(ended.status, ended.reason, ended.error))
        return msgspec.json.decode(ended.output or "null", type=PipelineResult)
