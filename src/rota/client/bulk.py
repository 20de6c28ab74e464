"""One verb for many runs: retry or cancel everything that filters select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Unpack

from rota.client.caller import refuse_in_workflow
from rota.client.run_pages import RunFilters, RunPages
from rota.core.runs.end_request import EndRequest
from rota.core.runs.filters import RunSelection
from rota.core.runs.lifecycle import OPEN, Status
from rota.core.runs.model import Run
from rota.core.runs.names import checked_key
from rota.core.suggest import check_options
from rota.core.time.instants import Duration, shown, timeout_micros
from rota.engine.wakeups import CANCEL, DONE, READY
from rota.errors import BadInput, WrongState
from rota.store.runs import history
from rota.store.runs.cancel import cancel_chains, cancel_gracefully
from rota.store.runs.manual_retry import retry_chain

BULK_MAX = 1_000
BulkVerb = Literal["retry", "cancel"]
# By verb: the statuses that it applies to, and those that it takes when none is named.
_APPLIES_TO: dict[str, Sequence[Status]] = {
    "retry": (Status.CANCELLED, Status.CRASHED, Status.FAILED),
    "cancel": sorted(OPEN),
}
_DONE = {"retry": "retried", "cancel": "cancelled"}
_TAKES = _APPLIES_TO | {"retry": (Status.FAILED, Status.CRASHED)}


class BulkResult(NamedTuple):
    """The runs that a verb was, or would be, applied to. `has_more`: further runs match; the next
    call takes them. `refused` maps runs that could not be changed to the reason."""

    matched: int
    has_more: bool
    run_ids: list[str]
    refused: dict[str, str]
    dry_run: bool


class BulkVerbs(RunPages):
    """Verbs about all runs that filters select."""

    async def apply(
        self,
        verb: BulkVerb,
        *,
        dry_run: bool = False,
        expected_count: int | None = None,
        reason: str = "by request",
        grace: Duration | None = None,
        **filters: Unpack[RunSelection],
    ) -> BulkResult:
        """Retry or cancel every run that the filters select, at most 1,000 a call.

        Retry takes the last attempts of chains that failed, crashed or were cancelled; without a
        status, those that failed or crashed. Cancel takes open runs.

        Args:
            verb: retry or cancel.
            dry_run: Only count; nothing is changed.
            expected_count: What a dry run matched; another number changes nothing.
            reason: Why runs are cancelled; it is stored with them.
            grace: The time that the code of cancelled runs has to clean up; see `cancel`.
            filters: The filters of `page`.

        Returns:
            How many runs fit, and the ids of the chains that were changed.

        Raises:
            WrongState: Another number of runs fits than `expected_count`.
            BadInput: A filter cannot be right, or the verb does not fit the status.

        Example:
            dry = await app.runs.apply("retry", dry_run=True, name="ingest", error="TimeoutError")
        """
        refuse_in_workflow(f"runs.apply({verb!r})")
        check_options(filters, RunSelection, self.apply)
        checked_key(reason, "reason")
        grace_us = checked_grace(grace)
        found = await self._matching(verb, filters)
        matched, has_more = found[:BULK_MAX], len(found) > BULK_MAX
        if expected_count is not None and len(matched) != expected_count:
            raise WrongState(
                f"{len(matched):,} runs fit now, not {shown(expected_count)}; nothing was changed",
                hint="Look again with a dry run, and confirm its count.",
                expected=expected_count, matched=len(matched),
            )  # fmt: skip
        if dry_run:
            return BulkResult(len(matched), has_more, [run.root_id for run in matched], {}, True)
        changed, refused = await self._apply(verb, matched, reason, grace_us)
        return BulkResult(len(matched), has_more, changed, refused, False)

    async def _matching(self, verb: BulkVerb, filters: RunSelection) -> list[Run]:
        """The runs to change, each the last attempt of its chain, one more than a call takes."""
        if verb not in _TAKES:
            raise BadInput(f"{shown(verb)} is not a verb", hint="Give retry or cancel.")
        status = filters.get("status")
        if status and status not in _APPLIES_TO[verb]:
            raise BadInput(
                f"{status} runs cannot be {_DONE[verb]}",
                hint=f"Give one of: {', '.join(_APPLIES_TO[verb])}.",
            )
        found: list[Run] = []
        for taken in [status] if status else _TAKES[verb]:
            asked = RunFilters(**filters)  # type: ignore[typeddict-item]
            asked["status"], asked["limit"] = taken, BULK_MAX + 1
            found += await self._last_attempts(asked)
        return sorted(found, key=lambda run: run.id, reverse=True)[: BULK_MAX + 1]

    async def _last_attempts(self, asked: RunFilters) -> list[Run]:
        """Runs of workflows and pipelines that fit and are the last attempts of their chains. Pages
        are read until there are as many as the limit."""
        found: list[Run] = []
        while len(found) < asked["limit"]:
            page = await self.list(**asked)
            roots = [run.root_id for run in page]
            last_ids = await self._database.read(history.last_ids, roots)
            found += [run for run in page if run.kind != "automation" and run.id in last_ids]
            if len(page) < asked["limit"]:
                break
            asked["before"] = page[-1].id
        return found[: asked["limit"]]

    async def _cancel(self, roots: Sequence[str], reason: str, grace_us: int) -> list[str]:
        # `ready` as well: the slot that a run held in a limited queue is free.
        topics, now = (CANCEL, DONE, READY), self._now()
        if not grace_us:
            return await self._wakeups.write(topics, cancel_chains, roots, reason=reason, now=now)
        request = EndRequest(reason, grace_us)
        return await self._wakeups.write(topics, cancel_gracefully, roots, request=request, now=now)

    async def _apply(
        self, verb: BulkVerb, matched: Sequence[Run], reason: str, grace_us: int
    ) -> tuple[list[str], dict[str, str]]:
        roots = list(dict.fromkeys(run.root_id for run in matched))
        if verb == "cancel":
            await self._cancel(roots, reason, grace_us)
            return roots, {}
        changed, refused = [], {}
        for root_id in roots:
            now = self._now()
            try:
                retried = await self._database.write(
                    retry_chain, root_id, self._client.ids.make(now), now=now
                )
            except WrongState as error:
                refused[root_id] = error.message
                continue
            if retried is None:
                refused[root_id] = "it has changed in the meantime"
            else:
                changed.append(root_id)
        await self._wakeups.announce(READY)
        return changed, refused


def checked_grace(grace: Duration | None) -> int:
    """A grace in microseconds; 0 for none."""
    return 0 if grace is None else timeout_micros(grace, "grace")
