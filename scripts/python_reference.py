"""The reference of the Python API, made from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import rota
from rota import blocking, testing
from rota.automations.deploy import AppAutomations
from rota.client.audit import Audit
from rota.client.handle import RunHandle
from rota.client.operations import Operations
from rota.client.overview import Overview
from rota.client.runs import Runs
from rota.client.schedules import Schedules
from rota.client.start import StartOptions
from rota.client.tokens import Sessions, Tokens
from rota.core.runs.progress import StepProgress
from rota.core.runs.queue_options import QueueOptions
from rota.notifications.registry import AppNotifications
from rota.pipelines.client import PipelineClient
from rota.schedules.definition import ScheduleOptions
from rota.workflows.definition import Workflow, WorkflowOptions
from rota.workflows.primitives import ThisRun
from rota.workflows.step_attempt import ThisStep
from rota.workflows.steps import Step, StepOptions

HEAD = """# Python API

`make docs` makes this page from signatures and docstrings. Names that begin with an underscore, and
names that are not listed here, are internal and may change in any release.

A run id is whole, or a part of one that fits no other run; an external id works as well.
Durations are seconds, a `timedelta`, or text such as `90s`, `5m`, `1h 30m`, `2d`.
"""

CLASSES: tuple[tuple[str, str, type], ...] = (
    ("`Rota`", "app", rota.Rota),
    ("`app.runs`", "app.runs", Runs),
    ("`app.schedules`", "app.schedules", Schedules),
    ("`app.automations`", "app.automations", AppAutomations),
    ("`app.pipelines`", "app.pipelines", PipelineClient),
    ("`app.notifications`", "app.notifications", AppNotifications),
    ("`app.overview`", "app.overview", Overview),
    ("`app.operations`", "app.operations", Operations),
    ("`app.tokens`", "app.tokens", Tokens),
    ("`app.sessions`", "app.sessions", Sessions),
    ("`app.audit`", "app.audit", Audit),
    ("A registered workflow", "workflow", Workflow),
    ("A step", "step", Step),
    ("`rota.this_step()`", "this_step()", ThisStep),
    ("`RunHandle`", "run", RunHandle),
    ("`rota.blocking.BlockingClient`", "client", blocking.BlockingClient),
    ("`client.runs` of a blocking client", "client.runs", blocking.BlockingRuns),
    ("`rota.blocking.BlockingRun`", "run", blocking.BlockingRun),
    ("`rota.testing.World`", "world", testing.World),
)
FUNCTIONS: tuple[tuple[str, str, tuple[Callable[..., Any], ...]], ...] = (
    (
        "In workflows", "rota",
        (rota.sleep, rota.sleep_until, rota.wait_for, rota.gather, rota.as_completed,
         rota.continue_as_new, rota.now, rota.random, rota.uuid, rota.patched, rota.this_run,
         rota.in_workflow, rota.run_step),
    ),
    ("In steps, and for them", "rota", (rota.this_step, rota.step)),
    (
        "In sync workflows", "rota.blocking",
        (blocking.sleep, blocking.wait_for, blocking.now, blocking.patched, blocking.block_on,
         blocking.run_step),
    ),
    ("In tests", "rota.testing", (testing.virtual,)),
)  # fmt: skip
RECORDS: tuple[type, ...] = (
    StartOptions, WorkflowOptions, StepOptions, ScheduleOptions, QueueOptions, rota.RetryPolicy,
    rota.Start, ThisRun, StepProgress,
)  # fmt: skip


def python_page() -> str:
    """`python.md`."""
    parts = [HEAD]
    for title, owner, kind in CLASSES:
        parts.append(f"\n## {title}\n\n{_text(inspect.getdoc(kind) or '')}")
        parts += [_entry(owner, name, member) for name, member in members(kind)]
    for title, owner, functions in FUNCTIONS:
        parts.append(f"\n## {title}\n")
        parts += [_entry(owner, function.__name__, function) for function in functions]
    parts.append("\n## Options and records\n")
    parts += [_record(kind) for kind in RECORDS]
    parts.append(
        "\nErrors are in [errors.md](errors.md), settings in [settings.md](settings.md).\n"
    )
    return "".join(parts)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties, in the order of the source, bases last."""
    seen: set[str] = set()
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            public = not name.startswith("_") and name not in seen
            if public and (inspect.isfunction(member) or isinstance(member, property)):
                seen.add(name)
                yield name, member


def _entry(owner: str, name: str, member: Any) -> str:
    text = _text(inspect.getdoc(member) or "")
    if isinstance(member, property):
        return f"\n### `{owner}.{name}`\n\n{text}"
    function = inspect.unwrap(member)
    signature, awaited = re.subn(
        r" -> Coroutine\[Any, Any, (.*)\]$", r" -> \1", _signature(function)
    )
    call = "await " if awaited or inspect.iscoroutinefunction(function) else ""
    return f"\n### `{owner}.{name}`\n\n    {call}{owner}.{name}{signature}\n\n{text}"


def _signature(function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    shown = [str(one).replace("'", "") for one in found.parameters.values() if one.name != "self"]
    kinds = [one.kind for one in found.parameters.values() if one.name != "self"]
    only = inspect.Parameter.KEYWORD_ONLY
    if only in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(only), "*")
    returns = str(found.return_annotation).replace("'", "")
    back = "" if found.return_annotation is inspect.Signature.empty else f" -> {returns}"
    return f"({', '.join(shown)}){back}"


def _text(doc: str) -> str:
    """A docstring as Markdown: its sections become lists and a block of code."""
    parts = re.split(r"^(Args|Returns|Raises|Example):\n", doc, flags=re.MULTILINE)
    lines = [parts[0].strip(), ""]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        cleaned = inspect.cleandoc(body)
        if title == "Example":
            lines += ["Example:", "", *(f"    {line}".rstrip() for line in cleaned.split("\n")), ""]
        elif title == "Returns":
            lines += [f"Returns: {' '.join(cleaned.split())}", ""]
        else:
            items = re.split(r"\n(?=[\w*]+(?:, [\w*]+)*: )", cleaned)
            lines += [f"{title}:", "", *(f"- {_item(item)}" for item in items), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _item(item: str) -> str:
    names, _, means = " ".join(item.split()).partition(": ")
    return f"{', '.join(f'`{name}`' for name in names.split(', '))}: {means}"


def _record(kind: type) -> str:
    fields = [
        f"| `{name}` | `{_type(value)}` |"
        for base in reversed(kind.__mro__[:-1])
        for name, value in getattr(base, "__annotations__", {}).items()
    ]
    doc = _text(inspect.getdoc(kind) or "")
    table = "\n".join(["| field | type |", "|---|---|", *fields])
    return f"\n### `{kind.__name__}`\n\n{doc}\n{table}\n"


def _type(annotation: Any) -> str:
    """An annotation as it is written in the code; a TypedDict holds a `ForwardRef`."""
    return str(getattr(annotation, "__forward_arg__", annotation)).replace("|", "\\|")
