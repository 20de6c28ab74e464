"""The kit of the client tests: an app with a few workflows."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota import NeedsLogin, Rota, sleep
from tests.workflows.kit import Parcel, Receipt


def shop(**settings: Any) -> tuple[Rota, Any]:
    """An app and its workflow `fulfil`; others fail, ask or sleep."""
    app = Rota(**settings)

    @app.workflow
    async def fulfil(order: str, amount: int = 1) -> str:
        return f"{order} x{amount}"

    @app.workflow
    async def typed(receipt: Receipt, parcel: Parcel, when: datetime) -> str:
        return f"{receipt.total} {parcel.label} {when.isoformat()}"

    @app.workflow
    async def fail() -> None:
        raise ValueError("no")

    @app.workflow
    async def ask() -> None:
        raise NeedsLogin("log in")

    @app.workflow
    async def nap() -> None:
        await sleep("1h")

    return app, fulfil
