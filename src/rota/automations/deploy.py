"""Brings what the code declares into force. The app's part of `app.automations`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rota.automations.definition import Automation
from rota.automations.executor import AutomationExecutor
from rota.client.automations import Automations
from rota.engine.wakeups import READY, TIMER
from rota.errors import BadAutomation, UnknownAutomation
from rota.store.automations import deploy as deploys
from rota.store.automations import state as store
from rota.store.automations.deploy import NewVersion

if TYPE_CHECKING:
    from rota.client.client import Client

log = logging.getLogger("rota.automations")
# Deploys that share a commit; between two of these, others have the event loop.
AT_ONCE = 500


class AppAutomations(Automations):
    """The automations of an app: declared here, seen and steered like any others."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.declared: dict[str, Automation] = {}
        self.executor: AutomationExecutor | None = None

    async def deploy(self, name: str) -> int:
        """Put the declared version in force, or BadAutomation with all that is wrong; returns
        its number. The same code again changes nothing."""
        if name not in self.declared:
            known = ", ".join(sorted(self.declared)) or "none"
            raise UnknownAutomation(
                f"the code declares no automation {name!r}", hint=f"Declared: {known}."
            )
        number = await self._put(self.declared[name].version(now=self._now()))
        await self._client.wakeups.announce(READY, TIMER)
        return number

    async def deploy_all(self) -> None:
        """Deploy everything declared, as a worker does when it starts. One that cannot be
        deployed is left as it was, with its problems in the log; the others go on."""
        if not self.declared:
            return
        found = await self._client.database.read(store.digests, namespace=self._namespace)
        names = sorted(self.declared)
        for begin in range(0, len(names), AT_ONCE):
            await self._deploy_some(names[begin : begin + AT_ONCE], found)
        await self._client.wakeups.announce(READY, TIMER)

    async def _deploy_some(self, names: Sequence[str], found: Mapping[str, str]) -> None:
        fresh: list[NewVersion] = []
        changed: list[NewVersion] = []
        for name in names:
            if found.get(name) == self.declared[name].digest():
                self._in_force(name, found[name])
                continue
            try:
                version = self.declared[name].version(now=self._now())
            except BadAutomation as error:
                log.error("%s %s", error, error.advice)
                continue
            (changed if name in found else fresh).append(version)
        born = await self._put_new(fresh) if fresh else frozenset()
        changed += [one for one in fresh if one.name not in born]  # somebody was faster
        await asyncio.gather(*map(self._put, changed))

    async def _put_new(self, fresh: Sequence[NewVersion]) -> frozenset[str]:
        now = self._now()
        born = await self._client.database.write(
            deploys.deploy_new, self._namespace, fresh, now=now,
            new_ids=self._client.ids.endless(now),
        )  # fmt: skip
        for one in fresh:
            if one.name in born:
                self._in_force(one.name, one.digest)
        return born

    async def _put(self, version: NewVersion) -> int:
        now = self._now()
        number = await self._client.database.write(
            deploys.deploy, self._namespace, version, now=now,
            new_ids=self._client.ids.endless(now),
        )  # fmt: skip
        self._in_force(version.name, version.digest)
        return number

    def _in_force(self, name: str, digest: str) -> None:
        if self.executor is not None:
            self.executor.deployed(name, digest)

    def _encoded(self, name: str, topic: str, payload: Any) -> str:
        declared = self.declared.get(name)
        if declared is not None and topic in declared.topics:
            limit = self._client.settings.payload_bytes_max
            return declared.topics[topic].encode(payload, bytes_max=limit)
        return super()._encoded(name, topic, payload)
