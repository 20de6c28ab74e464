"""The reference pages, made from the code they describe; a test finds pages that are behind.

`make docs` writes them all; `python -m scripts.reference lifecycle errors` writes only those.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rota import errors
from rota.core.runs import failures, lifecycle
from rota.core.runs.lifecycle import FINAL, INITIAL, OPEN, RULES, Status
from rota.http.routes import ROUTES
from rota.pipelines.starters import SCHEMA_FILE
from scripts import cli_reference, http_reference, pipeline_reference
from scripts.python_reference import python_page

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"

LIFECYCLE_HEAD = """# The life of a run

Made from `src/rota/core/runs/lifecycle.py` and `src/rota/core/runs/failures.py` by `make docs`.

A run is one try at executing something. A retry or a recovery is a new run that follows the old
one, so history is never overwritten. Every change names the status and the claim it expects:
a worker that lost its lease changes nothing.

```mermaid
"""

STATUS_MEANS = {
    Status.PENDING: "may be claimed now",
    Status.RUNNING: "a worker holds its lease",
    Status.SLEEPING: "it waits for a time or an event, without a slot",
    Status.WAITING: "it waits for an operator, or for a reconciliation",
    Status.COMPLETED: "it returned a result",
    Status.FAILED: "it raised an error; the reason is the class of the failure",
    Status.CANCELLED: "it was cancelled",
    Status.CRASHED: "its worker died or stopped its heartbeat",
    Status.SCHEDULED: "a schedule (template) that creates runs",
    Status.PAUSED: "a paused schedule, which creates no runs",
    Status.SKIPPED: "an occurrence that did not run; the reason says why",
}

LEASES = {
    "none": "no worker holds it",
    "held": "the caller holds it",
    "lapsed": "it has lapsed, or its worker is gone",
    "any": "any",
}

ERRORS_HEAD = """# Errors

Made from `src/rota/errors.py` by `make docs`.

Every error Rota raises on purpose is a `RotaError`: a sentence, a stable `code`, `advice` (the hint
below, or a better one for the case) and `facts`. Catch the class, or compare the code.

`exit` is the exit code of a command that ends with the error, `HTTP` the status of the API.

| code | class | exit | HTTP | means | hint |
|---|---|---|---|---|---|
"""


def lifecycle_page() -> str:
    """`lifecycle.md`."""
    return "".join([
        LIFECYCLE_HEAD, lifecycle.diagram(), "\n```\n\n",
        _table("## Statuses", ("status", "kind", "means"), _statuses()),
        _table("## Verbs", ("verb", "from", "to", "lease", "means"), _verbs()),
        _table(
            "## Failures\n\nEvery error inside a run has a class: the `reason` of the run.",
            ("class", "status", "tried again", "next"), _failures(),
        ),
    ]).rstrip("\n") + "\n"  # fmt: skip


def _statuses() -> Iterator[tuple[str, ...]]:
    for status in Status:
        kind = "final" if status in FINAL else "open" if status in OPEN else "template"
        initial = ", may be the first status" if status in INITIAL else ""
        yield f"`{status}`", kind + initial, STATUS_MEANS[status]


def _verbs() -> Iterator[tuple[str, ...]]:
    for verb, rule in RULES.items():
        sources = ", ".join(f"`{source}`" for source in sorted(rule.sources))
        yield f"`{verb}`", sources, f"`{rule.target}`", LEASES[rule.lease], rule.means


def _failures() -> Iterator[tuple[str, ...]]:
    for kind, row in failures.TABLE.items():
        retried = "while its policy has attempts left" if row.retried else "no"
        yield f"`{kind}`", f"`{row.status}`", retried, row.action


def errors_page() -> str:
    """`errors.md`."""
    rows = []
    for kind in _error_classes(errors.RotaError):
        means = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
        names = f"`{kind.code}` | `{kind.__name__}` | {kind.exit_code} | {kind.http_status}"
        rows.append(f"| {names} | {means} | {kind.hint} |\n")
    return ERRORS_HEAD + "".join(rows)


def _error_classes(kind: type[errors.RotaError]) -> Iterator[type[errors.RotaError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _error_classes(below)


def _table(title: str, head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return f"{title}\n\n" + "\n".join(lines) + "\n\n"


PAGES: dict[str, Callable[[], str]] = {
    "lifecycle": lifecycle_page,
    "errors": errors_page,
    "pipeline": pipeline_reference.reference_page,
    "python": python_page,
    "http": lambda: http_reference.page(ROUTES),
    "cli": cli_reference.commands_page,
    "settings": cli_reference.settings_page,
}


def main(names: list[str]) -> None:
    """Write the named pages, or all."""
    for name in names or PAGES:
        if name not in PAGES:
            sys.exit(f"no page {name!r}; there are {', '.join(PAGES)}")
        (FOLDER / f"{name}.md").write_text(PAGES[name](), encoding="utf-8")
        if name == "pipeline":  # Editors read the same from the package.
            text = pipeline_reference.schema_text()
            SCHEMA_FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
