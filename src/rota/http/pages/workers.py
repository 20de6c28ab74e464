"""Workers by their heartbeat, and queues with their limits."""

from __future__ import annotations

from dataclasses import dataclass

from rota.client.overview import QueueState, WorkerState
from rota.core.runs.model import Queue
from rota.core.time.instants import instant, span
from rota.errors import RotaError
from rota.http.pages.chart import share
from rota.http.pages.status import STATES, WORKERS, StatusView, named
from rota.http.pages.text import Stamp, WallClock, counted, number, rough
from rota.http.pages.view import SEARCH_FROM, button, clock_of, link, page
from rota.http.request import Answer, WebRequest

LIVE = "worker run"
PAGE_SIZE = 50
OPEN = StatusView("Open", "s-ok", "ok")
FULL = StatusView("At its limit", "s-warn", "warn")


@dataclass(frozen=True)
class WorkerRow:
    """One worker."""

    id: str
    name: str
    pid: int
    up: str
    state: StatusView
    beat: str
    since: Stamp | None
    word: str
    slots: str
    percent: float
    free: int
    serves: str
    version: str
    pinned: str  # the open runs that need this version
    mark: str


@dataclass(frozen=True)
class QueueRow:
    """One queue."""

    name: str
    limits: str
    state: StatusView
    running: str
    percent: float
    tone: str
    pending: int
    oldest: Stamp | None
    is_paused: bool
    verb: str
    mark: str
    worker_count: int = 0


@dataclass(frozen=True)
class FleetView:
    """Everything the page and the overview know about workers and queues."""

    workers: list[WorkerRow]
    queues: list[QueueRow]

    @property
    def alive(self) -> list[WorkerRow]:
        """Workers with a fresh heartbeat."""
        return [row for row in self.workers if row.state == WORKERS["alive"]]

    @property
    def slots_free(self) -> int:
        """Slots of the living workers that hold no run."""
        return sum(row.free for row in self.alive)

    def held_back(self, queue: str) -> str:
        """Why no run of a queue can start now; empty when one can."""
        if not self.alive:
            return "no worker is alive"
        row = next((queue_row for queue_row in self.queues if queue_row.name == queue), None)
        if row is None or not row.worker_count:
            return f"no worker serves queue {queue}"
        if row.is_paused:
            return f"queue {queue} is paused"
        if row.state == FULL:
            return f"queue {queue} is at its limit, {row.running.partition(',')[0]}"
        return "" if self.slots_free else "every slot is taken"


async def fleet_of(request: WebRequest) -> FleetView:
    """The state of workers and queues."""
    overview, clock = request.client.overview, clock_of(request)
    return FleetView(
        [worker_row(state, clock) for state in await overview.workers()],
        [queue_row(state, clock) for state in await overview.queues()],
    )


def worker_row(state: WorkerState, clock: WallClock) -> WorkerRow:
    """The row of a worker; its state follows from the heartbeat."""
    worker, lost = state.worker, state.state in ("gone", "silent")
    age = rough(clock.now - worker.heartbeat_at)
    return WorkerRow(
        id=worker.id, name=worker.host.partition("/")[0], pid=worker.pid,
        up=rough(clock.now - worker.started_at), state=named(WORKERS, state.state),
        beat=f"for {age}" if lost else f"{age} ago", since=clock.stamp(worker.heartbeat_at),
        word="is gone" if state.state == "gone" else "has been silent",
        slots=f"{state.busy} of {worker.slots}", percent=share(state.busy, worker.slots),
        free=max(0, worker.slots - state.busy), serves=", ".join(state.queues),
        version=worker.version, pinned=pinned_text(state), mark="bad" if lost else "",
    )  # fmt: skip


def pinned_text(state: WorkerState) -> str:
    """How many open runs need the version of this worker."""
    if state.pinned_runs:
        return f"{counted(state.pinned_runs, 'pinned run')} left"
    return "drained" if state.is_drained else ""


def queue_row(queue: QueueState, clock: WallClock) -> QueueRow:
    """The row of a queue."""
    running, most = queue.running, queue.limits.running_max if queue.limits else None
    is_full = bool(most and running >= most)
    state = STATES["paused"] if queue.is_paused else FULL if is_full else OPEN
    text = f"{number(running)} of {number(most)}" if most else f"{number(running)}, no limit"
    oldest = None if queue.oldest_at is None else instant(queue.oldest_at)
    return QueueRow(
        queue.name, limits_text(queue.limits), state, f"{text}, at its limit" if is_full else text,
        share(running, most) if most else (5.0 if running else 0.0), "warn" if is_full else "run",
        queue.pending, clock.stamp(oldest), queue.is_paused,
        "resume" if queue.is_paused else "pause", "warn" if is_full and queue.pending else "",
        queue.worker_count,
    )  # fmt: skip


def limits_text(limit: Queue | None) -> str:
    """The limits of a queue in a few words."""
    if limit is None:
        return "no limits"
    per = rough(limit.rate_per_us or 0).removeprefix("1 ")
    parts = [
        limit.running_max and f"at most {number(limit.running_max)} at once",
        limit.key_running_max and f"{number(limit.key_running_max)} at once per key",
        limit.key_open_max and f"{number(limit.key_open_max)} open per key",
        limit.rate_count and f"{number(limit.rate_count)} starts per {per}",
        limit.age_us and f"priority +1 per {span(limit.age_us)}",
        limit.round_robin and "keys alternate",
    ]
    return ", ".join(str(part) for part in parts if part) or "no limits"


async def show(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The page."""
    fleet, clock = await fleet_of(request), clock_of(request)
    search, after_id = request.query.get("q").strip(), request.query.get("after")
    states = await request.client.overview.workers(
        search=search, after=after_id, limit=PAGE_SIZE + 1
    )
    rows = [worker_row(state, clock) for state in states[:PAGE_SIZE]]
    has_more = len(states) > PAGE_SIZE
    waiting = sum(row.pending for row in fleet.queues)
    none = "Nothing waits. Start a worker:"
    if waiting:
        none = f"Pending: {counted(waiting, 'run')}. None is lost; a worker starts them:"
    headline, context = sentences(fleet)
    return page(
        request, "workers.html", title="Workers and queues", place="workers", live=LIVE,
        problem=problem, headline=headline,
        context=context, workers=rows, queues=fleet.queues, none_alive=none,
        silent=[row for row in fleet.workers if row.mark][:3], search=search,
        is_long=len(fleet.workers) > SEARCH_FROM or bool(search),
        older=link("/workers", q=search, after=rows[-1].id) if has_more else "",
        first=link("/workers", q=search) if after_id else "",
        shown=f"{counted(len(rows), 'worker')} shown, in the order of their start",
    )  # fmt: skip


def sentences(fleet: FleetView) -> tuple[str, str]:
    """How many workers are alive, and which queues hold runs back."""
    alive = len(fleet.alive)
    head = "No worker is alive."
    if alive:
        verb = "is" if alive == 1 else "are"
        head = f"{counted(alive, 'worker')} {verb} alive, {counted(fleet.slots_free, 'slot')} free."
    notes = [f"Queue {row.name} is at its limit." for row in fleet.queues if row.state == FULL]
    notes += [f"Queue {row.name} is paused." for row in fleet.queues if row.is_paused]
    return head, " ".join(notes[:4])


def _href(_: str) -> str:
    return "/workers"


pause = button(show, _href, "paused", lambda client, name: client.pause_queue(name))
resume = button(show, _href, "resumed", lambda client, name: client.pause_queue(name, paused=False))
