"""The errors of a run that no longer fits its code (a non-deterministic change)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rota.core.json_round_trip import short
from rota.core.runs.model import Claim, StoredStep
from rota.errors import BadInput, Stranded


def not_asked_for(claim: Claim, keys: Collection[str]) -> Stranded:
    """The error for recorded steps that the code no longer calls."""
    lost = ", ".join(sorted(keys)[:5])
    return Stranded(
        f"run {claim.id} ({claim.name}) has finished steps that the code no longer asks for: "
        f"{lost}; nothing new was executed",
        steps=sorted(keys),
    )


def other_arguments(
    claim: Claim, key: str, call: str, args: Any, kwargs: Any, twin: str | None
) -> Stranded:
    """The error for a call with other arguments than recorded, perhaps those of `twin`."""
    return Stranded(
        f"run {claim.id} ({claim.name}) recorded {key} with other arguments than the code gives it "
        f"now: {shown(call, args, kwargs)}"
        + (f", which were recorded for {twin}" if twin else "")
        + "; nothing new was executed",
        steps=[key],
    )


def other_type(claim: Claim, step: StoredStep, error: BadInput) -> Stranded:
    """The error when a recorded result does not fit the type in the code now."""
    return Stranded(
        f"run {claim.id} ({claim.name}) recorded a value for {step.key} that does not fit the type "
        f"in the code now: {error.message}",
        hint="Let the type accept the recorded value too. Then `rota run retry` it.",
    )


def not_cancelled(claim: Claim, key: str) -> Stranded:
    """The error when the code does not cancel a call that it cancelled before."""
    return Stranded(
        f"run {claim.id} ({claim.name}) recorded that the code cancelled {key}, and the code does "
        "not cancel it now",
        steps=[key],
    )


def shown(name: str, args: Any, kwargs: Any) -> str:
    """A call as its author wrote it, long values cut."""
    values = [short(value) for value in args]
    values += [f"{key}={short(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(values)})"
