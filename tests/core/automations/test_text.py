"""Sentences about automations: what a handler run did."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.core.automations.model import HandlerRun, LedgerRow
from rota.core.automations.text import WAITS, deed
from rota.core.runs.failures import Kind


def run(
    kind: str = "consumer", phase: str = "committed", *, published: int = 0, **taken: int
) -> Any:
    """A handler run that took so many events of each topic."""
    plan = {"reservations": {name: ["x"] * count for name, count in taken.items()}}
    prepared = msgspec.json.encode(plan).decode() if taken else None
    blank: dict[str, Any] = dict.fromkeys(HandlerRun.__struct_fields__)
    return HandlerRun(
        **blank | {"kind": kind, "phase": phase, "prepared": prepared, "published_count": published}
    )


def change(status: str, title: str | None = "added to spreadsheet") -> LedgerRow:
    blank: dict[str, Any] = dict.fromkeys(LedgerRow.__struct_fields__)
    return LedgerRow(**blank | {"status": status, "title": title, "tool": "append"})


@pytest.mark.parametrize(
    ("what", "effect", "sentence"),
    [
        (run(emails=3), change("applied"), "Processed 3 emails → added to spreadsheet"),
        (run(mail=3), change("applied", None), "Processed 3 events of mail → append"),
        (run(emails=1), None, "Processed 1 event of emails"),
        (run(emails=2, orders=2, published=1), None,
            "Processed 2 emails and 2 orders → published 1 event"),
        (run(emails=2), change("skipped"), "Processed 2 emails → added to spreadsheet (skipped)"),
        (run(phase="mutating", emails=2), change("needs_reconcile"),
            "Took 2 emails → added to spreadsheet (outcome unknown)"),
        (run(phase="mutating", emails=2), change("failed"), "Took 2 emails"),
        (run(), None, "Took no events"),
        (run(phase="preparing"), None, "Preparing"),
        (run("producer", published=3), None, "Published 3 events"),
        (run("producer"), None, "Checked"),
        (run("producer", "executing"), None, "Checking"),
    ],
)  # fmt: skip
def test_what_a_handler_run_did_in_one_sentence(
    what: HandlerRun, effect: LedgerRow | None, sentence: str
) -> None:
    assert deed(what, effect) == sentence


def test_every_failure_class_that_a_handler_can_have_says_what_it_waits_for() -> None:
    """`judge_handler` of engine/outcome.py turns the two final classes into `logic`."""
    missing = set(Kind) - {Kind.FATAL, Kind.STRANDED} - WAITS.keys()
    assert not missing, f"add a row to WAITS in core/automations/text.py: {sorted(missing)}"
