"""Stored errors and ends of runs, to JSON and back to exceptions. Pure."""

from __future__ import annotations

import json
from typing import Any

from rota.errors import RunCancelled, RunCrashed, RunFailed

PACKAGE = __file__.removesuffix("core/runs/stored_errors.py")


class RecordedError(Exception):
    """An error as it was recorded: the cause of a failed step, at every execution of the code.

    `error_type` is the name of its class; the traceback is a note.
    """

    def __init__(self, text: str | None) -> None:
        detail = read_error(text)
        super().__init__(f"{detail['type']}: {detail['message']}")
        self.error_type = detail["type"]
        if detail["trace"]:
            self.add_note(detail["trace"].rstrip())


def read_error(text: str | None) -> dict[str, str]:
    """A stored error, with every field present."""
    blank = {"type": "Error", "message": "no details were stored", "kind": "logic", "trace": ""}
    return blank | (json.loads(text) if text else {})


def error_line(text: str | None) -> str:
    """A stored error in one line."""
    detail = read_error(text)
    return f"{detail['type']}: {detail['message']}".splitlines()[0]


def cause_line(text: str | None) -> str:
    """Like `error_line`, but a failed step is shown by its own error: `LedgerMismatch: …`."""
    line, cause = error_line(text), read_error(text).get("error_type", "")
    _, found, message = line.partition(f": {cause}: ")
    return f"{cause}: {message}" if cause and found else line


def end_of(status: str, reason: str | None, error: str | None) -> str:
    """How a chain ended, as JSON to store beside a parent's step."""
    detail: dict[str, Any] = {"status": status, "reason": reason}
    return json.dumps(detail | (json.loads(error) if error else {}))


def run_failed(run_id: str, text: str | None) -> RunFailed:
    """The error for the caller of a run that ended without a result."""
    detail: dict[str, Any] = json.loads(text) if text else {}
    status = str(detail.get("status", "failed"))
    cls = {"cancelled": RunCancelled, "crashed": RunCrashed}.get(status, RunFailed)
    what = f": {detail['type']}: {detail['message']}" if "type" in detail else ""
    reason = f" ({detail['reason']})" if detail.get("reason") and not what else ""
    # The advice of the error itself comes first: it knows more than "look at the run".
    advice = " ".join(str(detail.get("notes", "")).removeprefix("Hint: ").split("\n"))
    hint = advice if "`rota run show" in advice else f"{advice} {cls.hint}".strip()
    return cls(f"run {run_id} {status}{reason}{what}", hint=hint, run_id=run_id, detail=detail)


def own_frames(trace: str) -> list[str]:
    """A stored traceback without the frames of Rota itself: they are never what is wrong."""
    kept: list[str] = []
    ours = False
    for line in trace.splitlines():
        if line.startswith('  File "'):
            ours = line.startswith(f'  File "{PACKAGE}')
        elif not line.startswith("    "):
            ours = False
        if not ours:
            kept.append(line)
    return kept
