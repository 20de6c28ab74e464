"""Answers of people: who, when and why. Each is written in the transaction that acts on it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.automations.model import AnswerRow, LedgerRow, NewAnswer
from rota.core.runs.model import Run
from rota.store.automations.events import AutomationKey
from rota.store.backend.database import Tx


async def put(
    tx: Tx,
    key: AutomationKey,
    act: str,
    answer: NewAnswer,
    *,
    now: int,
    open_run: Run | None = None,
    change: LedgerRow | None = None,
    event_id: str | None = None,
    input_id: str | None = None,
) -> None:
    """Store an answer and its subject."""
    await tx.rows(
        "put_answer", id=answer.id, **key._asdict(),
        act=act, mutation_id=change and change.id, run_id=open_run and open_run.id,
        event_id=event_id, input_id=input_id, person=answer.person, note=answer.note, now=now,
    )  # fmt: skip


async def list_answers(
    tx: Tx, key: AutomationKey, *, change_id: str = "", before: str = "", limit: int = 50
) -> list[AnswerRow]:
    """Answers, newest first; those about one change if it is given."""
    rows = await tx.rows(
        "list_answers", **key._asdict(), change_id=change_id, before=before, limit=limit
    )
    return [AnswerRow(*row) for row in rows]


async def of_runs(tx: Tx, run_ids: Sequence[str]) -> dict[str, tuple[AnswerRow, ...]]:
    """The answers to these runs, oldest first."""
    found: dict[str, tuple[AnswerRow, ...]] = {}
    for row in await tx.rows("answers_of_runs", run_ids=list(run_ids)) if run_ids else []:
        one = AnswerRow(*row)
        found[one.run_id or ""] = (*found.get(one.run_id or "", ()), one)
    return found
