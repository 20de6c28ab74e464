"""Which live workers have the deployed code of automations, and which deploys were refused."""

from __future__ import annotations

from collections.abc import Sequence

from rota.client.doctor import absence, worker_name
from rota.core.automations.model import CodeState, DeployedAutomation, WorkerCode
from rota.settings import Settings
from rota.store.automations import refused, state
from rota.store.backend.database import Tx
from rota.store.runs import workers


async def code_states(
    tx: Tx, found: Sequence[DeployedAutomation], settings: Settings, *, now: int
) -> dict[str, CodeState]:
    """The state of each automation's code, with a few questions for all of them together."""
    namespace = settings.namespace
    rows = await workers.listing(tx, namespace=namespace)
    live = {row.id: row for row in rows if absence(row, settings, now) is None}
    names = [one.name for one in found]
    code = await state.code_of_workers(tx, namespace=namespace, names=names) if live else {}
    refusals = await refused.listing(tx, namespace=namespace)
    states = {}
    for one in found:
        has = [each for each in code.get(one.name, ()) if each.worker_id in live]
        others = tuple(
            WorkerCode(worker_name(live[each.worker_id]), each.version)
            for each in has
            if each.digest != one.digest
        )
        states[one.name] = CodeState(
            len(live), len(has) - len(others), others, refusals.get(one.name)
        )
    return states
