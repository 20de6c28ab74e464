"""Sends to the receivers of a schedule: webhooks, commands, dead-man's switches.

The transaction that ends or skips an execution records the notification, and the notification loop
makes it a run of `rota.notify`. So a crash loses no message. Each receiver is a step of its own.
One that has taken its message is not notified again, one that has not is tried for hours, and
neither delays the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from rota.client.client import Client
from rota.core.notifications.model import NOTIFY
from rota.core.runs.failures import names_of
from rota.core.runs.model import Claim
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import SECOND
from rota.engine.context import EngineContext
from rota.engine.wakeups import READY
from rota.errors import Fatal, Rejected, StepFailed, Transient, UnknownRun
from rota.notifications import command, messages, webhook
from rota.notifications.messages import Delivery, Facts
from rota.notifications.receivers import Recipients
from rota.store.backend.database import Tx
from rota.store.notifications import recipients as stored_recipients
from rota.store.notifications import record
from rota.store.runs import history
from rota.store.schedules import attempts as executions
from rota.store.schedules.outcomes import read_range

log = logging.getLogger("rota.notify")

# 5 s, 20 s, 80 s … an hour: about four hours in all.
RETRIES = RetryPolicy(attempts=10, delay_s=5.0, factor=4.0, delay_s_max=3600.0, jitter=0.2,
    never=(Rejected.__name__,))  # fmt: skip


async def began(base: EngineContext, claim: Claim) -> None:
    """Record for a dead-man's switch that an execution has begun; only once for all attempts."""
    if claim.schedule_id is None:
        return
    body = await base.database.read(stored_recipients.of, claim.schedule_id)
    if body is None or msgspec.json.decode(body, type=Recipients).notify.ping is None:
        return
    if await base.database.write_brief(record.began, claim, now=base.clock.now()):
        base.wakeups.notify_soon(READY)


def install(client: Client, step: Callable[..., Any], workflow: Callable[..., Any]) -> None:
    """Register the notifying workflow, by the decorators of an app. A worker that executes
    pipelines executes it too."""
    sender = NotificationSender(client)
    look = step(name="look")(sender.look)
    send = step(name="send", retries=RETRIES)(sender.send)

    async def notify(run_id: str, what: str, tells: Recipients) -> list[str]:
        """Notify every receiver; when it fails, it names those it could not reach. `what` is the
        kind, with an id of its own where one run may cause several."""
        event_id = what.partition(":")[2] or run_id

        async def deliver_one(number: int, delivery: Delivery) -> str | None:
            key = f"{delivery.event}-{number}"
            try:
                await send.keyed(key)(delivery, f"{event_id}-{key}", tells)
            except StepFailed as error:
                return f"{delivery.way} ({delivery.event}): {error}"
            return None

        found: list[Delivery] = await look(run_id, what, tells)
        failed = await asyncio.gather(
            *(deliver_one(number, one) for number, one in enumerate(found))
        )
        problems = [problem for problem in failed if problem is not None]
        if problems:
            raise Fatal("; ".join(problems))
        return [f"{one.way}: {one.event}" for one in found]

    workflow(name=NOTIFY)(notify)


class NotificationSender:
    """The steps of a notification run."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def look(self, run_id: str, what: str, recipients: Recipients) -> list[Delivery]:
        """The messages to send."""
        namespace = self._client.settings.namespace
        facts = await self._client.connection.database.read(_facts, run_id, namespace=namespace)
        if facts is None:
            return []
        if what == "began":
            # The monitor would take a late report for an execution that never ended.
            over = facts.last.is_final
            url = recipients.notify.ping
            return [] if over or url is None else [messages.ping(url, "start", run_id)]
        return messages.deliveries(recipients, facts, what)

    async def send(self, delivery: Delivery, message_id: str, recipients: Recipients) -> str:
        """Send one message; returns once the receiver has taken it."""
        try:
            match delivery.way:
                case "webhook":
                    await webhook.post(
                        delivery.target, delivery.secret_env, message_id=message_id,
                        timestamp=self._client.clock.now() // SECOND, body=delivery.body.encode(),
                    )  # fmt: skip
                case "command":
                    await self._run(delivery, message_id, recipients)
                case "ping":
                    assert delivery.ping is not None
                    await webhook.call_ping(delivery.target, delivery.ping, run_id=delivery.run_id)
        except Exception as error:
            log.warning(
                "%s for pipeline %s failed (event %s): %s",
                delivery.way, recipients.pipeline_id, delivery.event, names_of(error)[0],
            )  # fmt: skip
            raise
        return "sent"

    async def _run(self, delivery: Delivery, message_id: str, recipients: Recipients) -> None:
        env = {
            "ROTA_EVENT": delivery.event,
            "ROTA_PIPELINE": recipients.pipeline_id,
            "ROTA_MESSAGE_ID": message_id,
        }
        ended = await command.run(
            delivery.target, Path(recipients.folder), stdin=delivery.body, env=env,
            pass_env=delivery.pass_env,
        )  # fmt: skip
        if ended.code != 0:
            raise Transient(ended.end_text(f"`{delivery.target}`"))


async def _facts(tx: Tx, run_id: str, *, namespace: str) -> Facts | None:
    """An execution as it is remembered; None when it is not any more."""
    try:
        run = await history.get(tx, namespace=namespace, run_id=run_id)
    except UnknownRun:
        return None
    chains = await executions.chains(tx, [run.root_id])
    attempts = chains[run.root_id]
    index = next(at for at, attempt in enumerate(attempts) if attempt.id == run.id)
    attempts = attempts[: index + 1]
    schedule = await _schedule_name(tx, run.schedule_id, namespace)
    count = read_range(run)[2] if run.status == "skipped" else 1
    return Facts(attempts=attempts, schedule=schedule, skipped_count=count)


async def _schedule_name(tx: Tx, schedule_id: str | None, namespace: str) -> str | None:
    if schedule_id is None:
        return None
    try:
        return (await history.get(tx, namespace=namespace, run_id=schedule_id)).name
    except UnknownRun:
        return None
