"""Deploys what the code declares. The app's part of `app.automations`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rota.automations.definition import Automation, Handler
from rota.automations.dry_run import DryRun, DryRuns
from rota.automations.environment import AutomationEnvironment
from rota.automations.executor import AutomationExecutor
from rota.automations.journal import HandlerJournal
from rota.automations.threads import HandlerThreads
from rota.client.automations import Automations
from rota.client.client import Client
from rota.core.runs.worker_code import code_set
from rota.engine import process_identity
from rota.engine.wakeups import READY, TIMER
from rota.errors import BadAutomation, BadInput, UnknownAutomation
from rota.store.automations import deploy as deploys
from rota.store.automations import events, refused
from rota.store.automations import state as store
from rota.store.automations.deploy import Deployment, NewVersion
from rota.store.automations.events import AutomationKey
from rota.store.runs import workers

log = logging.getLogger("rota.automations")
# Deploys that share a commit.
AT_ONCE = 500
# Versions that are computed before other tasks get the event loop.
IN_A_ROW = 20


class _Prepared(NamedTuple):
    """Declared automations that differ from what is deployed."""

    fresh: Sequence[NewVersion] = ()  # not deployed before
    changed: Sequence[NewVersion] = ()
    problems: Mapping[str, Sequence[str]] = {}  # by the name of one that cannot be deployed


class AppAutomations(Automations):
    """The automations of an app: declared here, listed and managed like any others."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self.declared: dict[str, Automation] = {}
        self.executor: AutomationExecutor | None = None

    async def deploy(self, name: str) -> Deployment:
        """Put the declared version in force. The same code again changes nothing.

        Args:
            name: The automation.

        Returns:
            The version, and the one before.

        Raises:
            BadAutomation: It has problems; they are recorded.
        """
        declared = self._declared(name)
        try:
            version = declared.version(now=self._now())
        except BadAutomation as error:
            await self._refuse({name: _problems(error)})
            raise
        done = await self._put(version)
        if done.version == done.before:
            await self._database.write(refused.forget, self._namespace, [name])
        await self._have_code(version)
        await self._wakeups.announce(READY, TIMER)
        return done

    async def dry_run(
        self, name: str, topic: str, ids: Sequence[str], *, with_reads: bool = False
    ) -> list[DryRun]:
        """Show what the consumers of this code would do with recorded events, used ones too.

        Each consumer of the topic gets each event alone, with the state that it has now. `prepare`
        and `mutate` are called. Nothing is reserved, written or sent.

        Args:
            name: The automation.
            topic: The topic of the events.
            ids: Their message ids.
            with_reads: Call the tools that `prepare` reads with. Otherwise such a call is an error.

        Returns:
            For each event and consumer: the tool and the parameters that would be called, or that
            nothing would be called, or the error. Parameters have their secret fields.

        Raises:
            BadInput: An event does not exist, or no consumer of this code takes the topic.
        """
        declared = self._declared(name)
        takers = [one for one in declared.handlers.values() if topic in one.node.subscribes]
        if topic not in declared.topics or not takers:
            raise BadInput(
                f"no consumer of automation {name} takes topic {topic!r}",
                hint=f"The code has the topics {', '.join(sorted(declared.topics)) or 'none'}.",
            )
        found = {one.message_id: one for one in await self._rows(events.named, name, topic, ids)}
        for message_id in ids:
            if message_id not in found:
                raise BadInput(
                    f"there is no event {topic}/{message_id} in automation {name}",
                    hint=f"See `rota automation events {name}`.",
                )
        key = AutomationKey(self._namespace, name)
        states = {one.name: one.state for one in await self._database.read(store.handlers, key)}
        runs = DryRuns(self._environment(), key, declared, with_reads)
        return [
            await runs.of(taker, found[message_id], _state_of(taker, states))
            for message_id in ids
            for taker in takers
        ]

    def _environment(self) -> AutomationEnvironment:
        client, clock = self._client, self._client.clock
        journal = HandlerJournal(self._database, clock, client.settings, client.ids)
        threads = HandlerThreads(client.settings.threads)
        return AutomationEnvironment(
            self._database, clock, client.settings, client.ids, threads, journal
        )

    def _declared(self, name: str) -> Automation:
        if name not in self.declared:
            known = ", ".join(sorted(self.declared)) or "none"
            raise UnknownAutomation(
                f"the code declares no automation {name!r}", hint=f"Declared: {known}."
            )
        return self.declared[name]

    async def deploy_all(self) -> None:
        """Deploy everything declared, as a worker does when it starts. One that cannot be deployed
        is left as it was, with its problems recorded and in the log; the others continue."""
        if not self.declared:
            return
        database, namespace = self._database, self._namespace
        found = await database.read(store.digests, namespace=namespace)
        before = await database.read(refused.listing, namespace=namespace)
        names = sorted(self.declared)
        prepared = _Prepared()
        for begin in range(0, len(names), AT_ONCE):
            # The database stores one group while the next is computed.
            _, prepared = await asyncio.gather(
                self._store(prepared), self._prepare(names[begin : begin + AT_ONCE], found)
            )
        await self._store(prepared)
        unchanged = [name for name in before if found.get(name) == self._digest(name)]
        if unchanged:
            await database.write(refused.forget, namespace, unchanged)
        await self._wakeups.announce(READY, TIMER)

    def _digest(self, name: str) -> str | None:
        return self.declared[name].digest() if name in self.declared else None

    async def _prepare(self, names: Sequence[str], found: Mapping[str, str]) -> _Prepared:
        fresh: list[NewVersion] = []
        changed: list[NewVersion] = []
        problems: dict[str, Sequence[str]] = {}
        for number, name in enumerate(names):
            if number % IN_A_ROW == 0:
                await asyncio.sleep(0)
            if name in found and found[name] == self._digest(name):
                continue
            try:
                version = self.declared[name].version(now=self._now())
            except BadAutomation as error:
                log.error("%s %s", error, error.advice)
                problems[name] = _problems(error)
                continue
            (changed if name in found else fresh).append(version)
        return _Prepared(fresh, changed, problems)

    async def _store(self, prepared: _Prepared) -> None:
        fresh, changed, problems = prepared
        if problems:
            await self._refuse(problems)
        new = await self._put_new(fresh) if fresh else frozenset()
        left = [one for one in fresh if one.name not in new]  # another worker was faster
        await asyncio.gather(*(self._put(one, at_start=True) for one in (*changed, *left)))

    async def _refuse(self, problems: Mapping[str, Sequence[str]]) -> None:
        await self._database.write(
            refused.put, self._namespace, problems, host=process_identity.host(), now=self._now()
        )

    async def _put_new(self, fresh: Sequence[NewVersion]) -> frozenset[str]:
        now = self._now()
        return await self._database.write(
            deploys.deploy_new, self._namespace, fresh, now=now,
            new_ids=self._client.ids.endless(now),
        )  # fmt: skip

    async def _put(self, version: NewVersion, *, at_start: bool = False) -> Deployment:
        now = self._now()
        done = await self._database.write(
            deploys.deploy, self._namespace, version, now=now,
            new_ids=self._client.ids.endless(now), at_start=at_start,
        )  # fmt: skip
        for handler in done.lost:
            log.warning(
                "automation %s: handler %s is gone, and its state is lost. A handler that is only "
                "renamed keeps it with renamed_from=%r.", version.name, handler, handler,
            )  # fmt: skip
        if done.held_back:
            log.warning(
                "automation %s stays at version %d, which a rollback put in force. To use this "
                "code: `rota automation deploy %s`.", version.name, done.version, version.name,
            )  # fmt: skip
        return done

    async def _have_code(self, version: NewVersion) -> None:
        """Let this process's worker claim what was declared, or changed, after its start."""
        executor = self.executor
        if executor is None or executor.code.digests.get(version.name) == version.digest:
            return
        code = code_set(self._namespace, {**executor.code.digests, version.name: version.digest})
        await self._database.write(workers.put_code, self._namespace, code, now=self._now())
        executor.code = code

    def _encoded(self, name: str, topic: str, payload: Any) -> str:
        declared = self.declared.get(name)
        if declared is not None and topic in declared.topics:
            limit = self._client.settings.payload_bytes_max
            return declared.topics[topic].encode(payload, bytes_max=limit)
        return super()._encoded(name, topic, payload)


def _state_of(handler: Handler, states: Mapping[str, str | None]) -> str | None:
    """The state that a deploy would leave the handler."""
    before = handler.renamed_from
    return states.get(handler.node.name, None if before is None else states.get(before))


def _problems(error: BadAutomation) -> list[str]:
    found = error.facts["problems"]
    assert isinstance(found, list)
    return [str(one) for one in found]
