"""Deploys that were refused: kept until a deploy of the automation succeeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.core.automations.model import RefusedDeploy
from rota.core.typed import json_text
from rota.store.backend.database import Tx


async def put(
    tx: Tx, namespace: str, problems: Mapping[str, Sequence[str]], *, host: str, now: int
) -> None:
    """Record what is wrong with each automation that could not be deployed."""
    items = [(name, json_text(found)) for name, found in problems.items()]
    await tx.change("put_refused", items, namespace=namespace, host=host, now=now)


async def forget(tx: Tx, namespace: str, names: Sequence[str]) -> None:
    """Forget refusals: the code that was refused is no longer the last that was tried."""
    await tx.rows("forget_refused", namespace=namespace, names=list(names))


async def listing(tx: Tx, *, namespace: str) -> dict[str, RefusedDeploy]:
    """The automations of which the last deploy was refused."""
    rows = await tx.rows("refused_deploys", namespace=namespace)
    return {
        row[0]: RefusedDeploy(row[0], tuple(msgspec.json.decode(row[1])), row[2], row[3])
        for row in rows
    }
