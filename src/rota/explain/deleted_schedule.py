"""A name that nothing has: a schedule that was deleted, or is in another namespace."""

from __future__ import annotations

from rota.client.client import Client
from rota.core.time.instants import iso, iso_if_known
from rota.errors import UnknownSchedule
from rota.explain.run import RunState
from rota.schedules.host_zone import host_zone_name
from rota.schedules.preview import wall
from rota.store.schedules import templates as store


async def explain_deleted(client: Client, name: str, unknown: UnknownSchedule) -> RunState:
    """The record of a deleted schedule; otherwise `unknown`, with the namespace of the name."""
    namespace = client.settings.namespace
    gone = await client.connection.database.read(store.deleted, namespace=namespace, name=name)
    if gone is not None:
        zone = host_zone_name()
        fired = "it never fired"
        if gone.fired_at is not None:
            fired = f"the last occurrence it fired was {wall(gone.fired_at, zone)}"
        text = f"schedule {name} ({gone.workflow}, {gone.written}) was deleted at"
        facts = {
            "schedule": name, "workflow": gone.workflow, "when": gone.written,
            "deleted_at": iso(gone.deleted_at),
            "last_due_at": iso_if_known(gone.fired_at),
        }  # fmt: skip
        hint = f"Its runs stay: `rota run list --name {gone.workflow}`."
        return RunState("deleted", f"{text} {wall(gone.deleted_at, zone)}; {fired}.", facts, hint)
    unknown.message = f"there is no schedule, no automation and no run {name!r}"
    others = await client.connection.database.read(
        store.namespaces_with, namespace=namespace, name=name
    )
    if unknown.advice == UnknownSchedule.hint:
        unknown.advice = (
            "See `rota schedule list`, `rota automation list`, `rota run list --name WORKFLOW`."
        )
    if others:
        unknown.message += f" in namespace {namespace}"
        unknown.advice = (
            f"Namespace {others[0]} has a schedule of that name: "
            f"`rota why {name} --namespace {others[0]}`."
        )
    raise unknown
