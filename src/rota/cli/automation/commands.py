"""`rota automation …`: deploy automations, show and manage them, publish to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import click

from rota.app import Rota
from rota.cli import complete, connect, render
from rota.cli.automation import answers, dry_run, lists, page, publish
from rota.cli.base import AFTER, SEARCH, CommandGroup, CommonOptions
from rota.client.automation_views import AutomationView
from rota.client.automations import Automations
from rota.client.client import Client
from rota.core.automations.model import CodeState, RefusedDeploy
from rota.core.plurals import some
from rota.core.suggest import suggestion
from rota.errors import BadAutomation, BadInput, UnknownAutomation, UsageError

P = ParamSpec("P")
T = TypeVar("T")
STALE_SHOWN = 3
PAGE_SIZE = 1000  # the most that `client.automations.list` returns


@click.group(cls=CommandGroup)
def automation() -> None:
    """Deploy, inspect and manage automations."""


# -- looking -----------------------------------------------------------------------------------


@automation.command("list")
@click.option("--archived", is_flag=True, help="Include archived automations.")
@SEARCH
@AFTER
@click.pass_obj
def list_(call: CommonOptions, archived: bool, search: str, after: str) -> None:
    """List automations by name, each with its state."""

    async def query(client: Client) -> tuple[Sequence[AutomationView], Iterable[RefusedDeploy]]:
        views = await client.automations.list(archived=archived, search=search, after=after)
        return views, (await client.automations.refused_deploys()).values()

    views, refused = connect.ask(call, query)
    if call.json:
        render.document([page.document(view) for view in views])
        return
    rows = [
        {"name": view.automation.name, "status": view.status,
         "pending": sum(view.pending.values()), "now": view.sentence}
        for view in views
    ]  # fmt: skip
    empty = "no automations yet; `rota up` and `rota automation deploy` deploy what the code has"
    render.table(rows, render.not_found("automation", search) or empty)
    blocked = [view.automation.name for view in views if view.status == "Needs attention"]
    if blocked:
        click.echo(f"to see what is needed: rota automation show {blocked[0]}", err=True)
    shown = {view.automation.name for view in views}
    for refusal in refused:
        fits = search.lower() in refusal.automation.lower() and not after and len(views) < PAGE_SIZE
        if refusal.automation not in shown and fits:
            problems = "; ".join(refusal.problems)
            render.say(f"{refusal.automation} is not deployed; refused: {problems}", err=True)
    next_page = render.NextPage[AutomationView](
        PAGE_SIZE, "--after", lambda view: view.automation.name, search
    )
    render.more(views, next_page)


@automation.command("show")
@complete.AUTOMATION
@click.pass_obj
def show(call: CommonOptions, name: str) -> None:
    """Show an automation: state, what blocks it, what to do.

    A change that waits for approval is shown with exactly the parameters it will be made with.
    """
    content = connect.ask(call, lambda client: page.read(client, name))
    render.page(call.json, content, page.page_document, page.print_page)


for command in (
    lists.inputs,
    lists.outputs,
    lists.events,
    lists.activity,
    lists.versions,
    answers.resolve,
    publish.publish,
    publish.publish_many,
    dry_run.dry_run,
):
    automation.add_command(command)


# -- deploying ---------------------------------------------------------------------------------


class Deployed(NamedTuple):
    """The effect of a deploy on one automation, and which workers have other code of it."""

    name: str
    version: int
    before: int | None
    lost: tuple[str, ...]  # handlers that are gone with their state
    code: CodeState


@automation.command("deploy")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.pass_obj
def deploy(call: CommonOptions, names: tuple[str, ...]) -> None:
    """Deploy automations of the project, by default all.

    New and changed handlers run at once; the others keep their times and their state. A running
    worker does not reload code: it runs an automation only if it has the deployed version. The
    command names the workers that need a restart. `rota up` deploys, too, when it starts.
    """
    project = connect.project_of(call)
    if project is None or project.app is None:
        raise UsageError(
            "there is no project here, so there is no code to deploy",
            hint="Name one with --project, or go to a folder with a rota.toml.",
        )
    app = connect.app_of(call, project)
    chosen = names or tuple(sorted(app.automations.declared))
    if not chosen:
        raise UnknownAutomation(
            f"{project.app} declares no automation",
            hint="Declare one with app.automation(name), and import its module there.",
        )
    for name in chosen:
        _must_be_declared(app, name)
    done, broken = connect.run(app, lambda _: _deploy(app, chosen))
    if call.json and not broken:
        render.document([_deployed_document(deployed) for deployed in done])
    elif not call.json:
        for deployed in done:
            render.say(_deployed_words(deployed))
            _report_lost(deployed.name, deployed.lost)
        _report_restarts(done)
    if broken:
        raise broken[0] if len(broken) == 1 else _joined(broken)


def _must_be_declared(app: Rota, name: str) -> None:
    known = sorted(app.automations.declared)
    if name not in known:
        hint = suggestion(name, known, f"It has: {', '.join(known)}.")
        raise UnknownAutomation(
            f"the code declares no automation {name!r}; nothing was deployed",
            hint=hint if known else None, name=name,
        )  # fmt: skip


async def _deploy(app: Rota, names: Sequence[str]) -> tuple[list[Deployed], list[BadAutomation]]:
    done, broken = [], []
    for name in names:
        try:
            deployed = await app.automations.deploy(name)
        except BadAutomation as error:
            broken.append(error)
            continue
        code = (await app.automations.show(name)).code
        done.append(Deployed(name, deployed.version, deployed.before, deployed.lost, code))
    return done, broken


def _deployed_words(deployed: Deployed) -> str:
    if deployed.before is None:
        return f"{deployed.name} is deployed, version {deployed.version}"
    if deployed.before == deployed.version:
        return f"{deployed.name} is unchanged, version {deployed.version}"
    return f"{deployed.name} is deployed, version {deployed.version} after {deployed.before}"


def _deployed_document(deployed: Deployed) -> dict[str, Any]:
    return {
        "name": deployed.name, "version": deployed.version, "before": deployed.before,
        "lost_state_of": list(deployed.lost), "code": page.code_document(deployed.code),
    }  # fmt: skip


def _report_lost(name: str, lost: Sequence[str]) -> None:
    for handler in lost:
        render.say(
            f"the state of {name}'s handler {handler} is lost, because the handler is gone; "
            f"a handler that is only renamed keeps it with renamed_from={handler!r}", err=True,
        )  # fmt: skip


def _report_restarts(done: Sequence[Deployed]) -> None:
    """Name the workers that run none of this until they are started again."""
    stale: dict[str, list[str]] = {}
    for deployed in done:
        for other in deployed.code.others:
            has = "other code" if other.version is None else f"version {other.version}"
            stale.setdefault(other.worker, []).append(f"{deployed.name} ({has})")
    for worker, names in stale.items():
        listed = some(names, STALE_SHOWN)
        render.say(f"restart worker {worker}: it has other code of {listed}", err=True)


@automation.command("rollback")
@complete.AUTOMATION
@click.argument("version", type=int)
@click.pass_obj
def rollback(call: CommonOptions, name: str, version: int) -> None:
    """Deploy an earlier version again.

    Workers that still have its code run it at once; others have to be started with it. A worker
    that starts with code that was deployed before does not deploy it. New code is deployed at the
    start, and `rota automation deploy` deploys any code.
    """
    done, view = _command(call, Automations.rollback, name, version)
    if done.version == done.before:
        words = f"{name} is at version {done.version} already"
    else:
        words = f"{name} is back at the code of version {version}, as version {done.version}"
    page.report(call, view, words, restores=version, lost_state_of=list(done.lost))
    if not call.json:
        _report_lost(name, done.lost)
        _report_restarts([Deployed(name, done.version, done.before, done.lost, view.code)])


@automation.command("prune")
@complete.AUTOMATION
@click.option("--keep", default=10, show_default=True, type=click.IntRange(min=1),
              help="How many of the newest to keep.")  # fmt: skip
@click.pass_obj
def prune(call: CommonOptions, name: str, keep: int) -> None:
    """Delete old versions of an automation.

    The version in force stays, and so does the newest one that was deployed. Runs keep the number
    of their version.
    """
    pruned, view = _command(call, Automations.prune_versions, name, keep=keep)
    words = f"{render.count(len(pruned), 'version')} of {name} deleted"
    page.report(call, view, words, pruned=list(pruned))


def _joined(broken: Sequence[BadAutomation]) -> BadAutomation:
    listed = "".join(f"\n{error.message}" for error in broken)
    return BadAutomation(f"{len(broken)} automations cannot be deployed:{listed}")


# -- commands ----------------------------------------------------------------------------------


def _command(
    call: CommonOptions,
    verb: Callable[Concatenate[Automations, str, P], Awaitable[T]],
    name: str,
    *args: P.args,
    **options: P.kwargs,
) -> tuple[T, AutomationView]:
    """Run the command; returns its answer, and the state of the automation afterwards."""

    async def work(client: Client) -> tuple[T, AutomationView]:
        answer = await verb(client.automations, name, *args, **options)
        return answer, await client.automations.show(name)

    return connect.ask(call, work)


@automation.command("run-now")
@complete.AUTOMATION
@click.pass_obj
def run_now(call: CommonOptions, name: str) -> None:
    """Run every producer now. Schedules stay unchanged.

    Rota refuses it while a run is active, or while something has to be resolved first.
    """
    queued, view = _command(call, Automations.run_now, name)
    words = f"{name} runs now: {', '.join(queued)}" if queued else f"{name} has no producers"
    page.report(call, view, words, queued=list(queued))


@automation.command("pause")
@complete.AUTOMATION
@click.pass_obj
def pause(call: CommonOptions, name: str) -> None:
    """Pause an automation. A handler run in progress ends."""
    _, view = _command(call, Automations.pause, name)
    page.report(call, view, f"{name} is paused")


@automation.command("resume")
@complete.AUTOMATION
@click.pass_obj
def resume(call: CommonOptions, name: str) -> None:
    """Resume a paused or archived automation.

    Handler runs that wait for an operator keep waiting: see `rota run resolve`.
    """
    _, view = _command(call, Automations.resume, name)
    page.report(call, view, f"{name} is resumed")


@automation.command("archive")
@complete.AUTOMATION
@click.pass_obj
def archive(call: CommonOptions, name: str) -> None:
    """Archive an automation: pause it and hide it from lists."""
    _, view = _command(call, Automations.archive, name)
    page.report(call, view, f"{name} is archived; `rota automation resume {name}` brings it back")


@automation.command("requeue")
@complete.AUTOMATION
@click.argument("topic")
@click.argument("event_id", required=False, metavar="[ID]")
@click.option("--all", "everything", is_flag=True, help="All of the topic.")
@answers.PERSON
@click.pass_obj
def requeue(
    call: CommonOptions,
    name: str,
    topic: str,
    event_id: str | None,
    everything: bool,
    by: str | None,
    note: str | None,
) -> None:
    """Requeue skipped events or dead letters.

    TOPIC and ID name a skipped event or a dead letter. For a dead letter, Rota requeues the skipped
    event behind it and consumes the letter.
    """
    if (event_id is None) != everything:
        raise BadInput(
            "name one event, or give --all", hint=f"See `rota automation events {name}`."
        )
    requeued, view = _command(call, Automations.requeue, name, topic, event_id, by=by, note=note)
    words = f"{render.count(len(requeued), 'event')} requeued"
    if len(requeued) == 1:
        words = f"event {requeued[0].message_id} of topic {requeued[0].topic} is requeued"
    listed = [{"topic": event.topic, "id": event.message_id} for event in requeued]
    page.report(call, view, words, requeued=listed)


@automation.command("skip")
@complete.AUTOMATION
@click.argument("topic", required=False)
@click.argument("event_id", required=False, metavar="[ID]")
@click.option("--input", "input_id", metavar="ID", help="Skip an input and all its events.")
@answers.PERSON
@click.pass_obj
def skip(
    call: CommonOptions,
    name: str,
    topic: str | None,
    event_id: str | None,
    input_id: str | None,
    by: str | None,
    note: str | None,
) -> None:
    """Skip a pending event, or an input and its events.

    A run finishes the events that it has reserved. To skip the events of a blocked run, see `rota
    run resolve`.
    """
    if input_id is not None and topic is None:
        count, view = _command(call, Automations.skip_input, name, input_id, by=by, note=note)
        words = f"input {input_id} is skipped, with {render.count(count, 'event')}"
        page.report(call, view, words, skipped={"input_id": input_id, "event_count": count})
    elif topic is not None and event_id is not None and input_id is None:
        _, view = _command(call, Automations.skip_event, name, topic, event_id, by=by, note=note)
        words = f"event {event_id} of topic {topic} is skipped"
        page.report(call, view, words, skipped={"topic": topic, "id": event_id})
    else:
        raise BadInput(
            "name one thing to skip: TOPIC and ID, or --input ID",
            hint=f"See `rota automation events {name}` and `rota automation inputs {name}`.",
        )
