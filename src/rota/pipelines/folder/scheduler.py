"""`PipelineScheduler`: runs the pipelines of a folder by their schedule blocks.

Owns the life of a daemon: the lock with its heartbeat, the watching of files, the events. The
engine decides when something fires, and what becomes of a run; see `registry` and `following`.
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
from rota.pipelines.folder.commands import UPCOMING, ScheduleCommands, Scheduled, Upcoming
from rota.pipelines.folder.events import (
    Events,
    ExecutionWaiting,
    Listener,
    ScheduleChanged,
    SchedulerState,
    SchedulerStatus,
)
from rota.pipelines.folder.lock_file import HEARTBEAT_US, STALE_US
from rota.pipelines.folder.lock_heartbeat import LockHeartbeat
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.run_tracker import RunTracker
from rota.pipelines.folder.scheduled_pipeline import Moved, ScheduledPipeline
from rota.pipelines.folder.state_file import HISTORY_MAX, RunRecord
from rota.pipelines.folder.watcher import SETTLED_US, Watch
from rota.pipelines.outcome import PipelineResult, Progress

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.engine.clock import Clock

log = logging.getLogger("rota.pipelines")

STOP_S = 30.0
# How often executions are polled without notifications: while some are open, and otherwise.
BUSY_US, IDLE_US = 1_000_000, 10_000_000
GAP_US = 50_000  # between two polls, however many notifications come


class PipelineScheduler:
    """Runs the scheduled pipelines of a folder. One for a folder: a second one is refused.

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
        self._app = app
        self._pipelines = pipelines
        self._worker = pipelines._worker
        self._holding = LockHeartbeat(
            self.directory, lambda: self._clock, stale_us=micros(lock_stale),
            beat_us=micros(heartbeat), lost=lambda: self._begin("goodbye", self.stop),
        )  # fmt: skip
        self._watch_us = None if watch is None else micros(watch)
        self._history_max = history_max
        self._events = Events()
        self._begin_again()
        self._watched: Watch | None = None
        self._owns_worker = False
        self._tasks: list[asyncio.Task[None]] = []
        self._changing = asyncio.Lock()
        self._unlisten: Callable[[], None] | None = None
        self._trouble = ""
        self._waiting: set[str] = set()  # executions that wait for their provider
        self.status: SchedulerState = "stopped"
        self.stopped = asyncio.Event()
        self.stopped.set()

    def _begin_again(self) -> None:
        """Know nothing yet: everything is read when it is asked for, or at the start."""
        self._registry = PipelineRegistry(
            self._app, self.directory, history_max=self._history_max,
            trust=self._pipelines.trust,
        )  # fmt: skip
        self._commands = ScheduleCommands(self._app, self._registry, now=self._now)
        self._follower = RunTracker(
            self._app, self._registry, self._events, history_max=self._history_max
        )

    @property
    def _clock(self) -> Clock:
        return self._app.clock

    def _now(self) -> int:
        return self._app.clock.now()

    # -- events ----------------------------------------------------------------------------

    def on(self, name: str, listener: Listener) -> None:
        """Call `listener` with every event of this name (`execution:start`, …; `*` for all)."""
        self._events.on(name, listener)

    def off(self, name: str, listener: Listener) -> None:
        """Do not call it any more."""
        self._events.off(name, listener)

    def _emit_status(self, status: SchedulerState) -> None:
        self.status = status
        self._events.emit(SchedulerStatus(at=self._now(), status=status))

    # -- life ------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether it looks after its folder."""
        return self.status == "running"

    @property
    def lost(self) -> SchedulerLockError | None:
        """Why it stopped by itself: its lock was taken."""
        return self._holding.lost

    async def start(self) -> None:
        """Take the lock, read the pipelines, continue their state, and begin to run them.

        SchedulerLockError when another scheduler looks after the folder.
        """
        if self.status != "stopped":
            raise WrongState(f"the scheduler is {self.status} already")
        if not self.directory.is_dir():
            raise BadInput(
                f"{self.directory} is not a folder",
                hint="Name the folder that holds the pipelines.",
            )
        await self._app.connect()
        self._holding.take()
        self.stopped.clear()
        self._begin_again()
        self._emit_status("starting")
        try:
            self._begin("heartbeat", self._holding.beat)
            await self._load()
            await self._run()
        except BaseException:
            await self._end(0)
            raise
        self._emit_status("running")

    async def _load(self) -> None:
        """Everything that must be known before the first schedule fires."""
        before = await self._look_at_files() or {}
        moved = await self._registry.sync_all(now=self._now())
        for entry in self._registry.entries.values():
            self._take(entry)
        await self._follower.write()
        self._report(moved)
        # Prompt files are known only now. A change since the pipeline was read counts as a change.
        seen = await self._look_at_files() or {}
        same = {name: each for name, each in seen.items() if name in before}
        same = {name: e for name, e in same.items() if e[: len(before[name])] == before[name]}
        self._watched = Watch(before | same)

    def _take(self, entry: ScheduledPipeline) -> None:
        """Execute its runs here, and follow them."""
        if entry.row is not None:
            self._pipelines.know(schedule_sync.pipeline_of(entry.row), entry.folder)
            self._follower.take(entry)

    async def _run(self) -> None:
        self._commands.refresh = self._follow
        self._commands.on_change = self._follow_up
        self._commands.syncs = False  # the watching does
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
        """Stop gracefully: nothing new is begun, and what is in progress gets so much time to end.

        An execution that does not end is handed over: the next scheduler continues with it where it
        stopped.
        """
        if self.status in ("stopped", "stopping"):
            await self.stopped.wait()
            return
        self._emit_status("stopping")
        await self._end(micros(timeout) / 1e6)

    async def stop_at_once(self) -> None:
        """Hand over whatever is in progress, also in the middle of a graceful stop."""
        if not self.stopped.is_set():
            await self._end(0)

    @property
    def begun_count(self) -> int:
        """Executions that are in progress."""
        return self._follower.begun_count

    async def _end(self, timeout_s: float) -> None:
        await self._cease("watch")
        if self._owns_worker:
            await self._worker.stop(timeout_s)
            self._owns_worker = False
        elif timeout_s > 0:
            await self._drain(timeout_s)
        await self._cease("follow")
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
            self._app.connection.wakeups.unsubscribe(self._notified)
            await self._quietly(self._follow)
        self._follower.close()
        await self._cease("heartbeat")
        self._holding.release()
        self._begin_again()
        self._emit_status("stopped")
        self.stopped.set()

    async def _drain(self, timeout_s: float) -> None:
        """Wait for executions in a worker that is not ours to stop."""
        until = self._now() + micros(timeout_s)
        while self._follower.begun_count and self._now() < until:
            self._follower.nudge.clear()
            await self._quietly(self._follow)
            if self._follower.begun_count:
                await self._clock.wait(self._follower.nudge, min(until, self._now() + BUSY_US))

    def dispose(self) -> None:
        """Let go of everything at once, without waiting."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._follower.close()
        self._events.clear()
        if self._unlisten is not None:
            self._unlisten()
            self._unlisten = None
            self._app.connection.wakeups.unsubscribe(self._notified)
        self._holding.release()
        self.status = "stopped"
        self.stopped.set()

    # -- loops -----------------------------------------------------------------------------

    def _begin(self, name: str, loop: Callable[[], Coroutine[object, object, None]]) -> None:
        self._tasks.append(asyncio.create_task(loop(), name=name))

    async def _cease(self, name: str) -> None:
        for task in [task for task in self._tasks if task.get_name() == name]:
            self._tasks.remove(task)
            if task is not asyncio.current_task():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _quietly(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do it; what fails is said, once, and done the next time."""
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
            self._follower.nudge.clear()
            await self._quietly(self._follow)
            await self._clock.wait(asyncio.Event(), self._now() + GAP_US)
            rest = BUSY_US if self._follower.open_count else IDLE_US
            await self._clock.wait(self._follower.nudge, self._now() + rest)

    async def _follow(self) -> None:
        async with self._changing:
            gone = await self._follower.follow()
        if gone and self.is_running:  # the files decide
            log.warning("deleted, but still in its file: %s", ", ".join(gone))
            await self.refresh(gone)

    async def _follow_up(self, entry: ScheduledPipeline) -> None:
        await self._follow()

    def _notified(self, topic: str) -> None:
        self._follower.nudge.set()

    def _progressed(self, progress: Progress) -> None:
        if progress.phase in ("begun", "ended"):
            self._follower.nudge.set()
        self._report_wait(progress)

    def _report_wait(self, progress: Progress) -> None:
        """Emit an event when an execution begins to wait for its provider, and when it
        continues."""
        root_id = progress.root_id
        if (progress.waiting is not None) == (root_id in self._waiting):
            return
        entry = self._registry.entries.get(progress.pipeline_id)
        if entry is None or progress.schedule_id is None:
            return
        if progress.waiting is None:
            self._waiting.discard(root_id)
        else:
            self._waiting.add(root_id)
        self._events.emit(
            ExecutionWaiting(
                at=self._now(), schedule_id=entry.schedule_id, pipeline_id=entry.pipeline_id,
                run_id=root_id, reason=progress.waiting,
            )
        )  # fmt: skip

    # -- files -----------------------------------------------------------------------------

    async def _watch(self) -> None:
        assert self._watch_us is not None
        never = asyncio.Event()
        while True:
            await self._clock.wait(never, self._now() + self._watch_us)
            never.clear()
            await self._quietly(self.look)

    async def look(self) -> None:
        """Look at the files once; what has changed, and has settled, takes effect."""
        assert self._watched is not None
        seen = await self._look_at_files()
        if seen is None:
            return  # the whole folder is away, such as a mount: that removes no pipeline
        names = self._watched.changed(seen, self._now())
        if names:
            await self.refresh(names)
            for name in names:
                self._watched.took(name, seen.get(name))

    async def refresh(self, names: Sequence[str] | None = None) -> None:
        """Read pipelines again at once: these folders, or all."""
        async with self._changing:
            now = self._now()
            if names is None:
                moved = await self._registry.sync_all(now=now)
            else:
                moved = await self._registry.sync(names, now=now)
            for one in moved:
                if one.change == "removed":
                    self._follower.drop(one.entry)
                else:
                    self._take(one.entry)
            await self._follower.write()
            self._report(moved)

    async def _look_at_files(self) -> dict[str, watcher.Seen] | None:
        return await asyncio.to_thread(watcher.look, self._registry.root, self._registry.beside)

    def _report(self, moved: Sequence[Moved]) -> None:
        for one in moved:
            self._events.emit(
                ScheduleChanged(
                    at=self._now(), schedule_id=one.entry.schedule_id,
                    pipeline_id=one.entry.pipeline_id, change=one.change,
                    problem=one.entry.problem or UNSET,
                )
            )  # fmt: skip

    # -- verbs -----------------------------------------------------------------------------

    async def list_schedules(self) -> list[Scheduled]:
        """All scheduled pipelines, by name."""
        return await self._commands.listing()

    async def get_schedule(self, schedule_id: str) -> Scheduled | None:
        """One of them, by the id of its schedule or of its pipeline."""
        return await self._commands.get(schedule_id)

    async def trigger_now(self, schedule_id: str) -> PipelineResult:
        """Run it now, beside its schedule, and wait for the result; RunFailed when it fails."""
        run_id = await self._commands.trigger(schedule_id)
        self._follower.nudge.set()
        ended = await self._app.runs.wait(run_id)
        if self.is_running:
            await self._follow()
        if ended.status != Status.COMPLETED:
            raise run_failed(run_id, end_of(ended.status, ended.reason, ended.error))
        return msgspec.json.decode(ended.output or "null", type=PipelineResult)

    async def pause(self, schedule_id: str, *, note: str = "") -> Scheduled:
        """Skip upcoming executions until it is resumed; one in progress continues."""
        return await self._commands.pause(schedule_id, note=note)

    async def resume(self, schedule_id: str) -> Scheduled:
        """Continue with the next execution."""
        return await self._commands.resume(schedule_id)

    async def cancel(self, schedule_id: str) -> list[str]:
        """Cancel what is in progress or waits for its turn; returns the ids of the runs."""
        return await self._commands.cancel(schedule_id)

    async def get_upcoming(self, limit: int = UPCOMING) -> list[Upcoming]:
        """The next executions, across all schedules, soonest first."""
        return await self._commands.upcoming(limit)

    async def get_history(self, schedule_id: str, limit: int | None = None) -> list[RunRecord]:
        """Executions that have ended or wait for a person, newest first."""
        return await self._commands.history(schedule_id, limit)
