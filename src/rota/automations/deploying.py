"""Brings what the code declares into force. The app's part of `app.automations`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from rota.automation_client import Automations
from rota.automations.definition import Automation
from rota.automations.executor import AutomationExecutor
from rota.engine.wakeups import READY, TIMER
from rota.errors import BadAutomation, UnknownAutomation
from rota.store import automations as store
from rota.store.automations import NewVersion

if TYPE_CHECKING:
    from rota.client import Client

log = logging.getLogger("rota.automations")
# Deploys that share commits; more at once would only wait in memory.
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
        declared = self.declared[name]
        return await self._put(declared, declared.version(now=self._now()))

    async def deploy_all(self) -> None:
        """Deploy everything declared, as a worker does when it starts. One that cannot be
        deployed is left as it was, with its problems in the log; the others go on."""
        if not self.declared:
            return
        found = await self._client.database.read(store.digests, namespace=self._namespace)
        names = sorted(self.declared)
        for begin in range(0, len(names), AT_ONCE):
            some = names[begin : begin + AT_ONCE]
            await asyncio.gather(*(self._deploy_known(name, found.get(name)) for name in some))

    async def _deploy_known(self, name: str, digest: str | None) -> None:
        try:
            version = self.declared[name].version(now=self._now())
            if digest == version.digest and self.executor is not None:
                self.executor.deployed(name, digest)
            else:
                await self._put(self.declared[name], version)
        except BadAutomation as error:
            log.error("%s %s", error, error.advice)

    async def _put(self, declared: Automation, version: NewVersion) -> int:
        now = self._now()
        number = await self._client.database.write(
            store.deploy, self._namespace, version, source=declared.source(), now=now,
            new_ids=self._client.ids.endless(now),
        )  # fmt: skip
        if self.executor is not None:
            self.executor.deployed(declared.name, version.digest)
        self._client.wakeups.tell(READY)
        self._client.wakeups.tell(TIMER)
        return number

    def _encoded(self, name: str, topic: str, payload: Any) -> str:
        declared = self.declared.get(name)
        if declared is not None and topic in declared.topics:
            limit = self._client.settings.payload_bytes_max
            return declared.topics[topic].encode(payload, bytes_max=limit)
        return super()._encoded(name, topic, payload)
