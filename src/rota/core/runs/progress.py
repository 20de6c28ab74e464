"""The progress that a running step reports: kept with its record until the step has ended. Pure."""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from rota.core.runs.model import StoredStep
from rota.errors import UsageError

NOTE_CHARS = 500


class StepProgress(msgspec.Struct, frozen=True):
    """The last report of a step: `done` of `of`, a `note`, and its instant (`at`, in UTC)."""

    done: float
    of: float | None
    note: str | None
    at: datetime


def checked(done: object, of: object, note: object, at: datetime) -> StepProgress:
    """StepProgress as a step reports it."""
    for name, value in (("done", done), ("of", of)):
        if value is None and name == "of":
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
            raise UsageError(
                f"progress({name}={value!r}) is not a number",
                hint='Write this_step().progress(done=3, of=10, note="pages").',
            )
    if note is not None and not isinstance(note, str):
        raise UsageError(
            f"the note of progress is a {type(note).__name__}, not text", hint="Pass a text."
        )
    text = note and note[:NOTE_CHARS].encode(errors="replace").decode().replace("\0", "")
    return StepProgress(done, of, text, at)  # type: ignore[arg-type]


def stored(progress: StepProgress | None) -> str | None:
    """StepProgress as the record of an open step holds it, in place of a result."""
    return None if progress is None else msgspec.json.encode(progress).decode()


def progress_of(step: StoredStep) -> StepProgress | None:
    """The last report of a step without a result."""
    if step.kind != "step" or step.status == "completed" or not step.output:
        return None
    try:
        return msgspec.json.decode(step.output, type=StepProgress)
    except msgspec.MsgspecError:
        return None


def result_of(step: StoredStep) -> str | None:
    """The stored result; None while there is only progress."""
    return None if progress_of(step) else step.output


def described(progress: StepProgress) -> str:
    """`3 of 10, pages`."""
    parts = [f"{progress.done:,.15g}"]
    if progress.of is not None:
        parts.append(f"of {progress.of:,.15g}")
    return " ".join(parts) + (f", {progress.note}" if progress.note else "")
