"""The version of the code that a worker has, and what it does with runs of another version."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from rota.core.fingerprint import Scope, fingerprint
from rota.core.runs import code_versions
from rota.core.runs.code_versions import NEWER_CODE, ONLINE_LEASES, WAITED
from rota.core.runs.model import Claim, Outcome
from rota.core.time.instants import micros
from rota.engine.journal import Journal
from rota.errors import Stranded
from rota.settings import Settings
from rota.store.runs import workers
from rota.workflows.definition import Workflow

log = logging.getLogger("rota.workflows")


def version_of(workflows: Mapping[str, Workflow[..., Any]], given: str = "") -> str:
    """The version of a worker: the given one (`code_version`), or a digest of its workflows."""
    if given:
        return given
    text = ",".join(f"{name}={_digest(workflows[name])}" for name in sorted(workflows))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _digest(workflow: Workflow[..., Any]) -> str:
    """The digest of a workflow and of the user's code that it reaches: helpers make calls, too."""
    function = workflow.function
    is_own = function.__module__.partition(".")[0] == "rota"
    if workflow.has_given_version or is_own or not hasattr(function, "__code__"):
        return workflow.version
    return fingerprint([function], Scope.REACHABLE)


class HandBack:
    """Hands runs back that this version of the code cannot execute, while a worker of another
    version is online."""

    def __init__(self, journal: Journal, settings: Settings, version: str) -> None:
        self._journal = journal
        self._settings = settings
        self._version = version

    async def outcome(self, claim: Claim, problem: Stranded) -> Outcome | None:
        """The outcome that hands the run back; None if no other worker would take it."""
        if claim.pinned_version is not None or claim.refused_versions == WAITED:
            return None
        refused = code_versions.with_version(claim.refused_versions, self._version)
        rows = await self._journal.read(
            workers.listing, "looking for newer code", namespace=claim.namespace
        )
        since = self._journal.clock.now() - ONLINE_LEASES * micros(self._settings.lease_s)
        able = code_versions.online(rows, since=since)
        if not any(code_versions.takes(one, claim.name, claim.queue, refused) for one in able):
            return None
        log.info(
            "run %s (%s) waits for a worker with newer code: %s", claim.id, claim.name, problem
        )
        return Outcome(claim, "release", NEWER_CODE, refused=refused)
