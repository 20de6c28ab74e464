"""Why an automation does not run although workers are running: none of them has its deployed
code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rota.core.automations.text import missing_code, refusal

if TYPE_CHECKING:
    from rota.client.automation_views import AutomationView


class CodeReason(NamedTuple):
    """A clause for people, what it rests on, and what to do."""

    clause: str
    facts: dict[str, Any]
    hint: str


def code_reason(view: AutomationView) -> CodeReason | None:
    """None while a live worker has the deployed code, or no worker is running at all."""
    one, code = view.automation, view.code
    if not code.is_missing:
        return None
    said = missing_code(one.version, code)
    clause = f"waits: {said[:1].lower()}{said[1:]}"
    if code.refused is not None:
        clause += f"; {refusal(code.refused)}"
    known = [worker.version for worker in code.others if worker.version is not None]
    hint = f"Restart the workers (`rota up`) with the code of version {one.version}"
    if known:
        hint += f", or use theirs: `rota automation rollback {one.name} {max(known)}`"
    facts = {
        "version": one.version,
        "workers": [{"worker": each.worker, "version": each.version} for each in code.others],
        "refused": list(code.refused.problems) if code.refused else [],
    }
    return CodeReason(clause, facts, f"{hint}.")
