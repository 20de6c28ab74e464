"""The list of runs: filters in the address, chips, pages; and the form that starts one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from http import HTTPStatus
from typing import Any

from rota.client.doctor import known, live_workers
from rota.client.overview import RecentCounts
from rota.client.run_pages import RunList
from rota.client.start import Startable
from rota.core.json_schema import shape_of
from rota.core.runs.filters import RunFilter
from rota.core.runs.lifecycle import OPEN
from rota.core.runs.model import Run
from rota.core.time.instants import DAY, HOUR, instant, moment
from rota.errors import BadInput, RotaError
from rota.http.pages.forms import example_of, parameters_of, read_input
from rota.http.pages.run_row import run_href, run_row
from rota.http.pages.status import STATES, StatusView
from rota.http.pages.text import (
    WallClock,
    automation_href,
    counted,
    form_text,
    number,
    schedule_href,
    sentence,
)
from rota.http.pages.view import clock_of, form_target, link, page
from rota.http.request import Answer, Fields, Redirect, WebRequest

PAGE_SIZE = 50
LIVE = "run"
STATUSES = (
    "running", "pending", "sleeping", "waiting", "failed", "crashed", "cancelled", "completed",
    "skipped",
)  # fmt: skip


@dataclass(frozen=True)
class RunSearch:
    """The filters, as the address has them."""

    q: str = ""
    name: str = ""
    status: str = ""
    kind: str = ""
    queue: str = ""
    schedule: str = ""
    tag: str = ""
    error: str = ""
    since: str = ""
    before: str = ""

    @classmethod
    def of(cls, query: Fields) -> RunSearch:
        """From a query string."""
        return cls(**{field.name: query.get(field.name).strip() for field in fields(cls)})

    def href(self, *, path: str = "/runs", done: str = "", **changes: str) -> str:
        """The address with some filters changed."""
        changed = replace(self, **changes)
        values = {field.name: getattr(changed, field.name) for field in fields(self)}
        return link(path, **values, done=done)

    @property
    def has_rare(self) -> bool:
        """Whether a filter behind "More filters" is on."""
        rare = (self.name, self.queue, self.schedule, self.tag, self.error, self.since)
        return any(rare)

    @property
    def is_on(self) -> bool:
        """Whether anything is filtered."""
        return any(getattr(self, field.name) for field in fields(self) if field.name != "before")


@dataclass(frozen=True)
class Chip:
    """A filter that is on, or can be."""

    label: str
    href: str
    is_on: bool = False
    state: StatusView | None = None
    count: str = ""


SINCE = {
    "": "Any time", "1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days",
    "30d": "Last 30 days",
}  # fmt: skip
_SINCE_US = {"1h": HOUR, "24h": DAY, "7d": 7 * DAY, "30d": 30 * DAY}


async def show(request: WebRequest) -> Answer:
    """The page."""
    query, clock = RunSearch.of(request.query), clock_of(request)
    listed, problem = await _find(request, query, clock)
    rows = [run_row(run, clock) for run in _with_older(listed)]
    counts = await request.client.overview.counts()
    headline, context = sentences(counts)
    return page(
        request, "runs.html", title="Runs", place="runs", live=LIVE, problem=problem,
        problem_status=HTTPStatus.OK, headline=headline, context=context,
        chips=status_chips(query, counts), filters=query,
        queue_names=sorted({queue.name for queue in await request.client.queues()} | {"default"}),
        since_choices=SINCE, active=active_chips(query), rows=rows,
        bulk=query.href(path="/runs/bulk", before="") if query.is_on else "",
        is_first_page=not query.before, shown=_shown(listed, clock),
        older=query.href(before=listed.next) if listed.next else "",
        newest=query.href(before="") if query.before else "", looked=_looked(listed, clock),
        by_end=link("/find", q=query.q) if RunFilter(search=query.q).id_part else "",
    )  # fmt: skip


async def _find(
    request: WebRequest, query: RunSearch, clock: WallClock
) -> tuple[RunList, RotaError | None]:
    try:
        filters = filters_of(query, clock.now)
        after = query.before or None
        return await request.client.runs.page(after=after, limit=PAGE_SIZE, **filters), None
    except RotaError as error:
        return RunList([], None, None), error


def _with_older(listed: RunList) -> list[Run]:
    """The runs of a page, and below them those that a search found by their ids, however old."""
    shown = {run.id for run in listed.runs}
    return [*listed.runs, *(run for run in listed.by_id if run.id not in shown)]


def filters_of(query: RunSearch, now: int) -> dict[str, Any]:
    """The filters of the client that an address means."""
    names = ("name", "status", "kind", "queue", "schedule", "tag", "error")
    filters: dict[str, Any] = {name: getattr(query, name) for name in names if getattr(query, name)}
    if query.since:
        if query.since not in _SINCE_US:
            choices = ", ".join(_SINCE_US)
            raise BadInput(f"since={query.since} is none of the choices", hint=f"Use: {choices}.")
        filters["since"] = moment(now - _SINCE_US[query.since])
    if query.q:
        filters["search"] = query.q
    return filters


def sentences(counts: RecentCounts) -> tuple[str, str]:
    """The state of the list, in two sentences."""
    running = counts.open.get("running", 0)
    head = f"{counted(running, 'run')} in progress." if running else "Nothing runs now."
    names = {"pending": "pending", "sleeping": "sleeping", "waiting": "waiting for you"}
    parts = [
        f"{number(counts.open[key])} {word}" for key, word in names.items() if counts.open.get(key)
    ]
    ended = sum(count for status, count in counts.ended.items() if status != "skipped")
    if ended:
        more = "" if counts.is_whole else "at least "
        failed = counts.ended.get("failed", 0) + counts.ended.get("crashed", 0)
        parts.append(f"{more}{number(ended)} ended in the last 24 hours")
        parts.append(f"{number(failed)} of them failed" if failed else "none of them failed")
    return head, sentence(", ".join(parts)) if parts else ""


def status_chips(query: RunSearch, counts: RecentCounts) -> list[Chip]:
    """A chip for each status: open runs are counted exactly, ended ones over a day."""
    chips = [Chip("All", query.href(status="", before=""), not query.status)]
    for status in STATUSES:
        now, day = counts.open.get(status, 0), counts.ended.get(status, 0)
        on = query.status == status
        plus = "" if counts.is_whole else "+"
        count = number(now) if status in OPEN else f"{number(day)}{plus} in 24 h"
        if now or day or on or status in ("failed", "completed"):
            href = query.href(status="" if on else status, before="")
            chips.append(Chip(STATES[status].word, href, on, STATES[status], count))
    return chips


def active_chips(query: RunSearch) -> list[Chip]:
    """The filters that are on; each takes itself away."""
    names = {"q": "", "name": "name ", "kind": "kind ", "queue": "queue ",
        "schedule": "schedule ", "tag": "tag ", "error": "error ", "since": "last "}  # fmt: skip
    return [
        Chip(f"{label}{getattr(query, name)}", query.href(**{name: "", "before": ""}), is_on=True)
        for name, label in names.items()
        if getattr(query, name)
    ]


def _shown(listed: RunList, clock: WallClock) -> str:
    runs = _with_older(listed)
    if not runs:
        return ""
    first, last = (clock.day(run.created_at) for run in (runs[0], runs[-1]))
    text = f"{counted(len(runs), 'run')} shown, from {first} back to {last}"
    return text if listed.looked_back_to is None else f"{text} · {_looked(listed, clock)}"


def _looked(listed: RunList, clock: WallClock) -> str:
    """How far the search went."""
    if listed.looked_back_to is None:
        return "Looked through all runs that are kept."
    return f"Looked back to {clock.day(instant(listed.looked_back_to))}."


async def find(request: WebRequest) -> Answer:
    """The search field beside every page: a name or an id of anything."""
    asked = request.query.get("q").strip()
    if not asked:
        return Redirect("/runs")
    client = request.client
    for get, href in (
        (client.schedules.get, schedule_href),
        (client.automations.show, automation_href),
    ):
        try:
            await get(asked)
        except RotaError:
            continue
        return Redirect(href(asked))
    try:
        return Redirect(run_href(await client.runs.get(asked)))
    except RotaError:
        return Redirect(link("/runs", q=asked))


# -- starting -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartForm:
    """The typed text."""

    workflow: str = ""
    input: str = ""
    external_id: str = ""
    queue: str = ""


async def known_names(request: WebRequest) -> list[str]:
    """The workflows that live workers have."""
    client = request.client
    live = live_workers(await client.workers(), client.settings, client.clock.now())
    names = {name for worker in live for name in known(worker)}
    return sorted(name for name in names if not name.startswith(("pipeline", "rota.")))


def schema_of(request: WebRequest, name: str) -> dict[str, Any] | None:
    """The JSON Schema of a workflow's input, where this process has its code."""
    known: dict[str, Startable[..., Any]] = getattr(request.client, "workflows", {})
    return shape_of(known[name].signature.arguments) if name in known else None


async def new(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The form that starts a run."""
    if request.method == "POST":
        typed = request.form()
        form = StartForm(**{field.name: typed.get(field.name) for field in fields(StartForm)})
    else:
        name = request.query.get("workflow")
        form = StartForm(workflow=name, input=example_of(schema_of(request, name)))
        like = request.query.get("like")
        if like:
            run = await request.client.runs.get(like)
            form = StartForm(run.name, form_text(run.input), queue=run.queue)
    return page(
        request, "run_new.html", title="Start a run", place="runs", problem=problem,
        form=form, names=await known_names(request),
        parameters=parameters_of(schema_of(request, form.workflow)),
    )  # fmt: skip


@form_target(new)
async def start(request: WebRequest) -> str:
    """Start it."""
    form = request.form()
    given = read_input(form.get("input"))
    options: dict[str, Any] = {
        name: form.get(name).strip() for name in ("external_id", "queue") if form.get(name).strip()
    }
    starter = request.client.options(**options)
    run = await starter.start(form.get("workflow").strip(), **(given or {}))
    return f"/runs/{run.id}?done=started"
