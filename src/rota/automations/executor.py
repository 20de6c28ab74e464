"""The executor of automations: a claimed open run becomes one handler run, settled by itself.

Settling a run and inserting the next is one transaction with all the run leaves behind, so
`perform` returns nothing for the worker to settle.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

import msgspec

from rota.automations.auto_fix import Fix, Fixer, HandlerFailure, compiled
from rota.automations.definition import Automation, Function, Handler
from rota.automations.environment import AutomationEnvironment, HandlerSuspended, NotHappened
from rota.automations.handler_runner import HandlerRunner
from rota.automations.journal import HandlerJournal
from rota.automations.returned import shape_problems
from rota.automations.threads import HandlerThreads
from rota.core.automations.failure_policy import FailedAttempt
from rota.core.runs.failures import Kind, describe, is_outage
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.runs.worker_code import CodeSet, code_set
from rota.core.typed import json_text
from rota.engine.context import EngineContext
from rota.engine.outcome import JudgedFailure, judge_handler
from rota.engine.run_log import count_ends
from rota.engine.wakeups import READY, TIMER
from rota.errors import LeaseLost, ReadFailed, RotaError, StoreError, UsageError
from rota.store.automations import state
from rota.store.automations.events import AutomationKey
from rota.store.automations.handler_runs import commit
from rota.store.automations.handler_runs.begin import (
    Beginning,
    HandlerRunSettled,
    Notes,
    Work,
    died_of,
    host_error,
)
from rota.store.automations.handler_runs.commit import NewFix, Stop
from rota.tools.base import Tool

log = logging.getLogger("rota.automations")


class AutomationExecutor:
    """Executes the open runs of the automations that this process declares."""

    kind = "automation"
    keeps_open_run = True
    # An automation is claimed by the code set, while its code is the deployed one.
    names: Collection[str] = ()

    def __init__(self, declared: Mapping[str, Automation], base: EngineContext) -> None:
        self._declared = declared
        self._wakeups = base.wakeups
        threads = HandlerThreads(base.settings.threads)
        journal = HandlerJournal(base.database, base.clock, base.settings, base.ids)
        self._environment = AutomationEnvironment(
            base.database, base.clock, base.settings, base.ids, threads, journal
        )
        # The changes by fixes, by automation: the version, and functions by handler.
        self._fixed: dict[str, tuple[int, dict[str, dict[str, Function]]]] = {}

    @cached_property
    def code(self) -> CodeSet:
        """The code of the automations. The deploy at the start has computed all digests already."""
        digests = {name: one.digest() for name, one in self._declared.items()}
        return code_set(self._environment.settings.namespace, digests)

    def needs_records(self, claim: Claim) -> bool:
        """Never: it reads the records that it needs."""
        return False

    async def tidy(self) -> None:
        """Nothing: it keeps no runs in memory."""

    def look_again(self, claim: Claim) -> None:
        """Nothing to do: requests to end gracefully are for workflows."""

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome | None:
        """Take up the open run, run one handler, settle. None: it is settled."""
        digest = self.code.digests.get(claim.name, "")
        begun = await self._environment.journal.begin(
            Beginning(claim, digest, self._skip_after(claim) if claim.recoveries else {})
        )
        if isinstance(begun, Work):
            begun = await self._run(claim, begun)
        if begun.stale:
            log.warning("automation %s has a newer version; left to its workers", claim.name)
            return Outcome(claim, "release")
        # Without a next time a person is asked, and the notification loop has work.
        is_due = begun.next_at is None or begun.next_at <= self._environment.clock.now()
        self._wakeups.notify_soon(READY if is_due else TIMER)
        if begun.is_news and not is_due:
            self._wakeups.notify_soon(READY)
        return None

    def _skip_after(self, claim: Claim) -> dict[str, int]:
        """By consumer: after so many failures an item is skipped."""
        declared = self._declared.get(claim.name)
        if declared is None:
            return {}
        default = declared.policy.skip_after
        counts = {
            one.node.name: default if one.policy.skip_after is None else one.policy.skip_after
            for one in declared.handlers.values()
            if one.node.kind == "consumer"
        }
        return {name: count for name, count in counts.items() if count is not None}

    async def _run(self, claim: Claim, work: Work) -> HandlerRunSettled:
        declared = self._declared[claim.name]
        try:
            handler = await self._handler(declared, work)
        except RotaError as error:  # a stored fix that cannot be loaded any more
            handler = declared.handlers.get(work.run.handler)
            log.error("automation %s continues without its fix: %s", claim.name, error)
        runner = HandlerRunner(self._environment, claim, work, declared, handler)
        try:
            if work.killer:
                return await self._leave_out(runner)
            settled = await runner.perform()
            count_ends([claim], Status.COMPLETED, self._environment.clock.now())
            return settled
        except (LeaseLost, asyncio.CancelledError):
            raise
        except HandlerSuspended as pause:
            stop = Stop(
                runner.phase, pause.reason, describe(pause), runner.notes(),
                asks=pause.wake_at is None, wake_at=pause.wake_at,
            )  # fmt: skip
            return await self._stop(runner, stop)
        except Exception as error:
            return await self._settle_failure(runner, error)
        finally:
            await runner.close()

    async def _leave_out(self, runner: HandlerRunner) -> HandlerRunSettled:
        """End the run of an item that kills its workers, without executing it once more."""
        recoveries = runner.claim.recoveries
        text = died_of(recoveries)
        log.error("automation %s, %s: %s", runner.claim.name, runner.work.run.handler, text)
        stop = Stop(
            runner.phase, "crashes", host_error(text, "crashes"), runner.notes(),
            FailedAttempt(crashes=recoveries), dead_letter=runner.dead_letter,
        )  # fmt: skip
        return await self._stop(runner, stop)

    async def _settle_failure(self, runner: HandlerRunner, error: Exception) -> HandlerRunSettled:
        """Settle a failed handler run. An automation keeps an open run even if the database cannot
        store what the handler reports: then a person is asked."""
        try:
            return await self._failed(runner, error)
        except (LeaseLost, StoreError):
            raise
        except Exception as worse:
            log.exception("automation %s: its failure cannot be stored", runner.claim.name)
            stop = Stop(runner.phase, Kind.INTERNAL, describe(worse), Notes())
            return await self._stop(runner, stop)

    async def _failed(self, runner: HandlerRunner, error: Exception) -> HandlerRunSettled:
        claim, failure = runner.claim, judge_handler(error)
        if not failure.asks:
            count_ends([claim], Status.FAILED, self._environment.clock.now())
        level = logging.WARNING if failure.passes else logging.ERROR
        log.log(
            level, "automation %s, %s: %s: %s", claim.name, runner.work.run.handler, failure.kind,
            error, exc_info=error,
        )  # fmt: skip
        tool = runner.tool_of(error)
        failed = FailedAttempt(
            retried=failure.passes, outage=_is_outage(error, failure, tool),
            refuted=isinstance(error, NotHappened),
            failed_read=isinstance(error, ReadFailed) and tool is not None,
            error_names=failure.names, retry_after_s=failure.retry_after_s,
        )  # fmt: skip
        fix = await self._fix(runner, error) if failure.kind == Kind.LOGIC else None
        counterpart = "the database" if tool is None else tool.label
        stop = Stop(
            runner.phase, failure.kind, failure.detail, runner.notes(), failed,
            waits_for=counterpart if failed.outage else None, asks=failure.asks, fix=fix,
            refused=runner.refused, seen=runner.seen, next_run_at=runner.next_run_at(),
            dead_letter=runner.dead_letter,
        )  # fmt: skip
        return await self._stop(runner, stop, tool)

    async def _stop(
        self, runner: HandlerRunner, stop: Stop, tool: Tool | None = None
    ) -> HandlerRunSettled:
        now = self._environment.clock.now()
        return await self._environment.write(
            commit.stop, runner.claim, runner.work, stop, policy=runner.policy(tool),
            chance=random.random(), now=now, new_ids=self._environment.ids.endless(now),
        )  # fmt: skip

    # -- fixes -----------------------------------------------------------------------------

    async def _handler(self, declared: Automation, work: Work) -> Handler | None:
        """The handler as declared, with what a fix has changed about it."""
        handler = declared.handlers.get(work.run.handler)
        if handler is None or work.handler is None:
            return None
        # The first version of an automation is a deploy, so it has no fixes to read.
        version, changed = self._fixed.get(declared.name, (1, {}))
        if version != work.automation.version:
            sources = await self._environment.journal.fix_sources(work.automation)
            changed = {
                name: compiled(declared.handlers[name].functions, texts)
                for name, texts in sources.items()
                if name in declared.handlers
            }
            self._fixed[declared.name] = (work.automation.version, changed)
        return handler._replace(functions=changed.get(handler.node.name, handler.functions))

    async def _fix(self, runner: HandlerRunner, error: Exception) -> NewFix | None:
        """Ask the hook, if there is one and its budget is not used up."""
        work = runner.work
        declared = self._declared[work.automation.name]
        if declared.fix is None:
            return None
        if work.automation.fixes >= self._environment.settings.fixes_max:
            runner.remark(f"given up after {work.automation.fixes} fixes in a row")
            return None
        try:
            sources = await self._environment.journal.fix_sources(work.automation)
            earlier = sources.get(work.run.handler, {})
            asked = _asked(declared.fix, await self._failure(runner, error, earlier))
            fix = await self._environment.within(asked, self._environment.settings.phase_s)
            if fix is None:
                runner.remark("no fix was found")
                return None
            handler = declared.handlers[work.run.handler]
            changed = compiled(handler.functions, fix.source)
            name = f"consumer {work.run.handler}"
            wrong = list(shape_problems(name, changed, takes_event=handler.takes_event))
            if wrong:
                raise UsageError("; ".join(wrong))
            sources = {**sources, work.run.handler: {**earlier, **fix.source}}
            return NewFix(json_text(declared.graph()), json_text(sources), str(fix.comment)[:2000])
        except Exception as problem:  # the failure must survive a fixer that fails
            log.warning("automation %s: the fix was refused: %s", declared.name, problem)
            runner.remark(f"the fix was refused: {problem}")
            return None

    async def _failure(
        self, runner: HandlerRunner, error: Exception, earlier: Mapping[str, str]
    ) -> HandlerFailure:
        """The input of the hook; `earlier` is what earlier fixes have written, by phase."""
        work = runner.work
        key = AutomationKey(work.automation.namespace, work.automation.name)
        made = await self._environment.database.read(state.versions, key)
        deployed = next((one for one in made if one.made_by == "deploy"), None)
        original = msgspec.json.decode((deployed and deployed.source) or "{}")
        source = {**original.get(work.run.handler, {}), **earlier}
        return HandlerFailure(
            work.automation.name, work.run.handler, runner.phase, describe(error), runner.logs,
            source, work.automation.version, work.automation.fixes + 1,
            tuple(one.comment for one in made if one.comment),
        )  # fmt: skip


async def _asked(fixer: Fixer, failure: HandlerFailure) -> Fix | None:
    return await fixer(failure)


def _is_outage(error: Exception, failure: JudgedFailure, tool: Tool | None) -> bool:
    """Whether only an unreachable counterpart caused the failure, and nothing happened there. Any
    number of retries is safe then."""
    if isinstance(error, StoreError):
        return True
    return tool is not None and is_outage(error, failure.kind)
