"""The worker: owns the slots, claims runs in batches, and settles ended runs. One iteration settles
outcomes and claims the next runs in one commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rota.core import trace_spans
from rota.core.runs.claim_positions import QueuePositions
from rota.core.runs.failures import Kind, describe
from rota.core.runs.lifecycle import FINAL, RULES
from rota.core.runs.model import Claim, NewRun, Outcome, Queue, Started, StoredStep
from rota.core.runs.worker_code import NO_CODE, CodeSet
from rota.core.time.instants import micros
from rota.engine import run_log
from rota.engine.context import EngineContext
from rota.engine.executor import Executor, traced
from rota.engine.journal import insist
from rota.engine.run_task import RunTask, is_stopped
from rota.engine.slots import AloneRuns, QueueSlots, claimable, divided, filled, lacks_slots
from rota.engine.unstorable_outcome import settle_one
from rota.engine.wakeups import ANY, CANCEL, DONE, READY, TIMER
from rota.errors import LeaseLost, StoreError
from rota.store.backend.batching import Batch
from rota.store.backend.database import BRIEF
from rota.store.runs import claim as claiming
from rota.store.runs import steps, wake
from rota.store.runs.claim import Claimed, ClaimRequest
from rota.store.runs.history import ChainResult
from rota.store.runs.recover import renew_leases, return_strays
from rota.store.runs.settle import SettleResult, settle_and_claim, settle_runs
from rota.store.runs.start import start_and_claim

log = logging.getLogger("rota.worker")


class Worker:
    """Executes runs of the given executors from the given queues."""

    def __init__(
        self,
        worker_id: str,
        base: EngineContext,
        executors: Sequence[Executor],
        queues: Sequence[QueueSlots],
        version: str,
    ) -> None:
        self.id, self.version = worker_id, version
        self.claiming = True
        self.held: dict[str, Claim] = {}
        self.wake = asyncio.Event()
        self._database = base.database
        self._clock = base.clock
        self._settings = base.settings
        self._wakeups = base.wakeups
        self._results = base.results
        self._executors = {executor.kind: executor for executor in executors}
        self._queues = {queue.name: queue for queue in queues}
        self.queue_names = list(self._queues)
        self._weighted = any(queue.weight is not None for queue in queues)
        self._limits: dict[str, Queue] = {}
        self._tasks: dict[str, RunTask] = {}
        self._outcomes: list[Outcome] = []
        self._starting = 0  # claimed, and about to be executed
        self._recorded: Batch[str, Sequence[StoredStep]] = Batch(self._load)
        self._lease_us = micros(base.settings.lease_s)
        self._due_at: int | None = 0
        self._wake_count = 0  # a wake-up may arrive during a claim that has read the rows already
        self._claim_outcome_unknown = False
        self._alone = AloneRuns(self._lease_us)
        self._positions = QueuePositions()
        self._stopping = False
        self._handing_over: set[str] = set()
        self._iterating = asyncio.Lock()
        self._idle = False
        self.renew_now = asyncio.Event()
        base.wakeups.subscribe(self._notified)

    @property
    def free(self) -> int:
        """Free slots."""
        return self._settings.slots - len(self._tasks) - self._starting

    @property
    def due_at(self) -> int | None:
        """When the next sleeping run is due, as far as this worker knows."""
        return self._due_at if self.claiming else None

    @property
    def idle(self) -> bool:
        """Whether no run is claimed and no outcome is left to settle."""
        return not self._tasks and not self._outcomes and not self._starting

    def limit(self, limits: Sequence[Queue]) -> None:
        """Set the limits that hold across all workers."""
        before = {name: queue.paused for name, queue in self._limits.items()}
        self._limits = {queue.name: queue for queue in limits if queue.is_limited}
        if before != {name: queue.paused for name, queue in self._limits.items()}:
            self._assume_work()

    def expect_alone(self, waits: bool) -> None:
        """Note whether a run waits that has to be executed alone."""
        if waits or self._alone.waits:
            self.wake.set()
        busy = not (self.idle or self._alone.is_executed(self.held.values()))
        self._alone.expect(waits, busy=busy, now=self._clock.now())

    async def run(self) -> None:
        """Iterate until stopped; wait while there is nothing to do."""
        poll_us = micros(self._settings.poll_s)
        poll_at = self._clock.now() + poll_us
        while not self._stopping:
            self.wake.clear()
            if not 0 < poll_at - self._clock.now() <= poll_us:  # due, or the clock was set back
                self.poll()
                poll_at = self._clock.now() + poll_us
            if await self.iterate():
                if not self._outcomes and not self._may_have_more:
                    await asyncio.sleep(0)  # claimed runs begin before anything else is done
            else:
                rest = poll_at if self.due_at is None else min(poll_at, self.due_at)
                self._idle = True
                await self._clock.wait(self.wake, rest)
                self._idle = False

    def poll(self) -> None:
        """Poll for work at the next iteration, even if the last claim was empty."""
        self._due_at = 0
        self._assume_work()

    @property
    def _may_have_more(self) -> bool:
        return any(queue.may_have_more for queue in self._queues.values())

    def _assume_work(self) -> None:
        """Assume that every queue may have work."""
        self._wake_count += 1
        for queue in self._queues.values():
            queue.may_have_more = True
        self.wake.set()

    def stop(self) -> None:
        """Claim no more and leave the loop after this iteration."""
        self.claiming = False
        self._stopping = True
        self.wake.set()

    async def begin(self, fresh: Sequence[NewRun]) -> list[Started] | None:
        """Insert runs and claim in the same commit. None if the worker is busy, has too few free
        slots, or would need a round trip for each statement: nothing is written then."""
        if not self._idle or self._iterating.locked() or not self._database.is_local:
            return None
        now = self._clock.now()
        queue = self._queues.get(fresh[0].queue)
        ours = queue is not None and queue.name not in self._limits and all(
            run.queue == queue.name and run.available_at <= now for run in fresh
        )  # fmt: skip
        names = self.names()
        slots = min(self.free, queue.slots_max - queue.active) if queue and ours else 0
        reserved = self._alone.waits or self._alone.keeps_slots_empty(self.held.values(), now)
        if not self.claiming or self._claim_outcome_unknown or reserved or slots < len(fresh):
            return None
        async with self._iterating:
            request = ClaimRequest(
                self._settings.namespace, self.id, names, [(fresh[0].queue, slots)], len(fresh),
                frozenset(), now, now + self._lease_us, code_id=self.code.id, version=self.version,
            )  # fmt: skip
            try:
                started, claimed = await self._database.write_brief(start_and_claim, fresh, request)
            except BaseException:
                self._claim_outcome_unknown = True
                raise
            self._hold(claimed.claims)
            self._perform_all(claimed.claims)
            run_log.count_waits(claimed.claims, self._clock.now())
        begun = {claim.id for claim in claimed.claims}
        if any(not one.existed and one.id not in begun for one in started):
            await self._wakeups.announce(READY)  # older runs of the queue were claimed first
        return started

    async def iterate(self) -> bool:
        """Settle, wake what is due, claim; return whether anything happened."""
        async with self._iterating:
            return await self._iterate()

    async def _iterate(self) -> bool:
        now = self._clock.now()
        moved = await self._wake_due(now)
        outcomes, self._outcomes = self._outcomes, []
        request = self._request(now, bool(outcomes))
        if lacks_slots(self._queues.values(), self.free if self.claiming else 0):
            self._wakeups.ask_more()
        wake_count = self._wake_count
        try:
            if request is not None and self._claim_outcome_unknown:
                await self._return_strays()
            settled, claimed = await self._write(outcomes, request, now)
        except BaseException as error:
            # No outcome may get lost: the next iteration settles what this one could not.
            self._outcomes = outcomes + self._outcomes
            self._claim_outcome_unknown = self._claim_outcome_unknown or request is not None
            if not outcomes or not isinstance(error, Exception) or isinstance(error, StoreError):
                raise
            log.warning("%d outcomes cannot be stored together: %s", len(outcomes), error)
            await self._settle_singly(now)
            return True
        for outcome in outcomes:  # before the claims: one of these may be claimed again already
            self.held.pop(outcome.claim.id, None)
        self._hold(claimed.claims)
        claimed_at = self._clock.now()
        if len(self._outcomes) > BRIEF:  # many wait: write them first, then process this result
            self._starting = len(claimed.claims)
            asyncio.get_running_loop().call_soon(self._absorb, outcomes, settled, claimed.claims)
        else:
            self._after_settling(outcomes, settled)
            self._perform_all(claimed.claims)
            if len(claimed.claims) <= BRIEF and not self._outcomes:
                await asyncio.sleep(0)  # they begin before the notes below are made
        if request is not None:
            run_log.count_waits(claimed.claims, claimed_at)
            self._note_claim(request, claimed, wake_count)
            moved = moved or request.one_alone or bool(request.parent_id)  # look again after these
        return bool(moved or outcomes or claimed.claims)

    async def _settle_singly(self, now: int) -> None:
        """Settle each run on its own: one with a value that the database cannot hold fails, and
        its neighbours are settled as they ended."""
        left, self._outcomes = self._outcomes, []
        try:
            while left:
                outcome, settled = await settle_one(self._database, left[0], now)
                left.pop(0)
                self.held.pop(outcome.claim.id, None)
                self._after_settling([outcome], settled)
        finally:
            self._outcomes = left + self._outcomes

    def _absorb(
        self, outcomes: list[Outcome], settled: SettleResult, claims: Sequence[Claim]
    ) -> None:
        self._starting = 0
        self._after_settling(outcomes, settled)
        self._perform_all(claims)

    async def _write(
        self, outcomes: list[Outcome], request: ClaimRequest | None, now: int
    ) -> tuple[SettleResult, Claimed]:
        nothing = SettleResult(frozenset(), woke=False), Claimed([])
        if request is None and not outcomes:
            return nothing
        if request is None:
            return await self._database.write(settle_runs, outcomes, now=now), nothing[1]
        # idle: claim at once on this thread, because a caller may wait for the run to begin
        if not outcomes and self.idle:
            return nothing[0], await self._database.write_brief(claiming.claim, request)
        if not outcomes:
            return nothing[0], await self._database.write(claiming.claim, request)
        if len(outcomes) <= BRIEF and len(self._tasks) <= BRIEF:
            return await self._database.write_brief(settle_and_claim, outcomes, request)
        return await self._database.write(settle_and_claim, outcomes, request)

    def _request(self, now: int, settling: bool) -> ClaimRequest | None:
        """The next claim, of half the slots at most. While outcomes flow, it waits for a fair part
        of them: claims of one or two runs would cost a commit each."""
        free = min(self.free, max(self._settings.slots // 2, 1))
        if not self.claiming or free <= 0 or (settling and free < self._settings.slots // 4):
            return None
        wanted = claimable(self._queues.values())
        one_alone = self._alone.is_next and not self.held and not self._tasks
        if one_alone:
            wanted, free = [(name, 1) for name in self._alone.in_order(self._queues)], 1
        elif self._alone.keeps_slots_empty(self.held.values(), now):
            return None
        names, code = self.names(), self.code
        if not (wanted and (names or code.id)):
            return None
        if self._weighted and not one_alone:
            wanted = divided([(self._queues[name], most) for name, most in wanted], free)
        return ClaimRequest(
            self._settings.namespace, self.id, names, wanted, free,
            frozenset(self._limits), now, now + self._lease_us, one_alone,
            self._positions.after(now), code.id, self._alone.parent_id, self._alone.in_order,
            self.version,
        )  # fmt: skip

    def names(self) -> list[str]:
        """The names that its executors can execute, whatever the deployed code is."""
        return [name for one in self._executors.values() for name in one.names]

    @property
    def code(self) -> CodeSet:
        """The names that it executes only while its code is the deployed one."""
        return next((one.code for one in self._executors.values() if one.code.id), NO_CODE)

    def _note_claim(self, request: ClaimRequest, claimed: Claimed, wake_count: int) -> None:
        """Note what a claim says about the runs that are left; `wake_count` is from before it."""
        if request.one_alone:
            self._alone.note_claim(claimed.claims)
            self._assume_work()  # after it, the worker claims other runs once
        else:
            self._alone.parent_id = ""
            self._note_queues(request, claimed.claims, wake_count)
        if claimed.retry_at is not None:
            self._clock.call_at(claimed.retry_at, self.poll)

    def _note_queues(self, request: ClaimRequest, claims: Sequence[Claim], wake_count: int) -> None:
        full = filled(request, claims)
        if not self._database.is_local:
            self._positions.note(
                {name: full[name] for name in full.keys() - request.limited}, claims,
                began=request.now, ended=self._clock.now(),
            )  # fmt: skip
        if wake_count == self._wake_count:
            for name, is_full in full.items():
                # A full batch means more may be pending. Otherwise wait for a notification.
                self._queues[name].may_have_more = is_full or name in request.after
            if self._may_have_more:
                self._wakeups.ask_more()

    async def _wake_due(self, now: int) -> bool:
        if self._due_at is None or self._due_at > now or not self.claiming:
            return False
        wake_count = self._wake_count
        woken = await self._database.write(
            wake.wake_due, namespace=self._settings.namespace, now=now
        )
        self._due_at = woken.next_at if wake_count == self._wake_count else 0
        if woken.one_alone:
            self.expect_alone(True)
        if woken.total:
            self._assume_work()
            if woken.total >= wake.WAKE_BATCH:
                self._due_at = now
                self._wakeups.notify_soon(READY)
        return bool(woken.total)

    async def _return_strays(self) -> None:
        """Release runs of a claim that this worker never received (broken connection)."""
        await self._database.write(
            return_strays, namespace=self._settings.namespace, worker_id=self.id,
            held=list(self.held.values()),
        )  # fmt: skip
        self._claim_outcome_unknown = False

    def _hold(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.held[claim.id] = claim
            queue = self._queues[claim.queue]
            queue.active += 1
            queue.used += 1 / (queue.weight or 1)

    def _perform_all(self, claims: Sequence[Claim]) -> None:
        loop = asyncio.get_running_loop()
        run_log.begin(claims)
        for claim in claims:
            if (lost := self._tasks.get(claim.id)) is not None:
                lost.stop()  # the server lost the commit of an earlier claim
            self._tasks[claim.id] = RunTask(self._perform(claim), loop=loop, name=claim.id)

    async def _perform(self, claim: Claim) -> None:
        outcome: Outcome | None = None
        run_log.enter(claim)
        executor = self._executors[claim.kind]
        recorded: Sequence[StoredStep] = ()
        try:
            if executor.needs_records(claim):
                recorded = await self._recorded.gather(claim.segment)
            if secret_fields := self._settings.secret_fields:
                run_log.hide_secrets(claim, recorded, secret_fields)
            work = executor.perform(claim, recorded)
            if trace_spans.is_on():
                work = traced(work, claim, self._clock)
            outcome = await work
        except LeaseLost as lost:
            log.info("run %s (%s) was taken from this worker: %s", claim.id, claim.name, lost)
        except asyncio.CancelledError:
            outcome = self._cancelled(claim)
        except Exception as error:
            log.exception("run %s (%s) failed inside the engine", claim.id, claim.name)
            outcome = Outcome(claim, "fail", reason=Kind.INTERNAL, error=describe(error))
        finally:
            if claim.id in self._handing_over and claim.id in self.held:
                outcome = Outcome(claim, "release")  # whatever it returned after its cancellation
            self._free_slot(claim, outcome)

    async def _load(self, roots: Sequence[str]) -> list[Sequence[StoredStep]]:
        """The recorded steps of each of these segments."""
        recorded = await insist(
            self._clock, lambda: self._database.read(steps.load, roots), "reading steps", StoreError
        )
        return [recorded[root] for root in roots]

    def _cancelled(self, claim: Claim) -> Outcome | None:
        if self.held.get(claim.id) is not claim:
            return None  # another worker has it
        if self._stopping or is_stopped(self._tasks.get(claim.id)):
            return Outcome(claim, "release")  # otherwise its lease lapses: a recovery is counted
        log.error("code outside of Rota cancelled run %s (%s)", claim.id, claim.name)
        return None

    def _free_slot(self, claim: Claim, outcome: Outcome | None) -> None:
        self._queues[claim.queue].active -= 1
        held = self.held.get(claim.id)
        if held is None or held is claim:  # otherwise it was claimed again, and has another task
            self._tasks.pop(claim.id, None)
        if held is not claim:
            if outcome is not None and outcome.verb != "release":
                log.warning(
                    "run %s (%s) continued after it was taken from this worker and swallowed the "
                    "cancellation; its result is dropped. Let CancelledError pass through.",
                    claim.id, claim.name,
                )  # fmt: skip
        elif outcome is not None:
            self._outcomes.append(outcome)
        else:
            del self.held[claim.id]
        self.wake.set()

    def _after_settling(self, outcomes: list[Outcome], settled: SettleResult) -> None:
        ours = [outcome for outcome in outcomes if outcome.claim.id in settled.ids]
        if len(ours) < len(outcomes):
            lost = sorted({outcome.claim.id for outcome in outcomes} - settled.ids)
            log.info("settled by another worker: %s", ", ".join(lost))
        run_log.ended(ours, self._clock.now())
        ended = False
        for outcome in ours:
            if outcome.verb != "complete":
                self._note_wake(outcome)
            target = RULES[outcome.verb].target
            if target in FINAL and outcome.retry is None:
                ended = True
                root_id = outcome.claim.root_id
                if root_id in self._results.awaited:
                    self._results.ended(
                        ChainResult(root_id, target, outcome.reason, outcome.output, outcome.error)
                    )
        limited = bool(self._limits) and any(o.claim.queue in self._limits for o in ours)
        if settled.woke or limited or settled.cancelled:
            self._wakeups.notify_soon(READY)
        if settled.cancelled:
            self._wakeups.notify_soon(CANCEL)
            self._wakeups.notify_soon(DONE)
        elif ended:
            self._wakeups.notify_others(DONE)

    def _note_wake(self, outcome: Outcome) -> None:
        wake_at = outcome.retry.available_at if outcome.retry else outcome.wake_at
        if wake_at is not None and (self._due_at is None or wake_at < self._due_at):
            self._due_at = wake_at

    def _notified(self, topic: str) -> None:
        if topic in (READY, ANY):
            self._assume_work()
        if topic in (TIMER, ANY):
            self.poll()
        if topic in (CANCEL, ANY):
            self.renew_now.set()

    async def renew(self) -> None:
        """Renew the leases of held runs; stop runs that this worker no longer holds."""
        if not (held := list(self.held.values())):
            return
        until = self._clock.now() + self._lease_us
        ours = await self._database.write(renew_leases, held, lease_until=until)
        for claim in held:
            if ours.get(claim.id):
                self._executors[claim.kind].look_again(claim)
            elif claim.id not in ours and self.held.get(claim.id) is claim:
                self._interrupt(claim)

    async def tidy(self) -> None:
        """Drop what executors keep of runs that are not ours any more."""
        await asyncio.gather(*(executor.tidy() for executor in self._executors.values()))

    def _interrupt(self, claim: Claim) -> None:
        if claim.id not in self._tasks:
            return  # it has ended meanwhile: its settlement is refused
        del self.held[claim.id]
        self._tasks[claim.id].stop()

    async def drain(self, until: int) -> None:
        """Stop claiming, let runs end until the deadline, then hand over the rest."""
        self.stop()
        await asyncio.sleep(0)  # runs claimed just now begin, so that they can be handed over
        while not self.idle and self._clock.now() < until:
            self.wake.clear()
            if not await self.iterate():
                await self._clock.wait(self.wake, until)
        self._handing_over = set(self._tasks)
        for task in list(self._tasks.values()):
            task.stop()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=5)
        await self.iterate()
        if self._claim_outcome_unknown:
            await self._return_strays()
        self._wakeups.notify_soon(READY)
        self._wakeups.unsubscribe(self._notified)
