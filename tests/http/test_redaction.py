"""Declared secret fields appear on no surface: API, pages, live events, MCP, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rota import Rota
from rota.automations import Context, Prepared
from rota.http.routes import ROUTES
from tests.http.kit import API, BASE, browsing
from tests.kit import until

SECRETS = ("hunter2-in", "hunter2-out", "hunter2-step", "hunter2-event", "hunter2-plan")
FIELDS = ("password", "access_token")


def app_on(url: str) -> Rota:
    """An app of which each payload has a secret, and failures that quote it."""
    app = Rota(url, secret_fields=FIELDS)

    @app.workflow
    async def log_in(user: str, password: str) -> dict[str, str]:
        token = await sign(user)
        if user == "eve":
            raise RuntimeError(f"{user}:{password} with {token['access_token']} was refused")
        return {"user": user, "password": "hunter2-out"}

    @app.step
    async def sign(user: str) -> dict[str, str]:
        return {"access_token": "hunter2-step"}

    inbox = app.automation("inbox")
    inbox.topic("letters", external=True)
    inbox.consumer("read", subscribes=["letters"], prepare=_refuse)
    return app


async def _refuse(ctx: Context, state: object) -> Prepared:
    [event] = await ctx.peek("letters")
    raise RuntimeError(f"cannot use {event.payload}")


async def lived(app: Rota) -> dict[str, str]:
    """Runs that ended well and badly, a schedule and an event; the ids by name."""
    await app.automations.deploy_all()
    await app.schedules.create(
        "nightly", "log_in", "daily at 3:00", timezone="UTC",
        input={"user": "ann", "password": "hunter2-plan"},
    )  # fmt: skip
    await app.automations.publish("inbox", "letters", "m-1", {"password": "hunter2-event"})
    good = await app.start("log_in", "ann", password="hunter2-in")
    bad = await app.start("log_in", "eve", password="hunter2-in")
    await app.start_worker()
    for one in (good, bad):
        await app.runs.wait(one.id, timeout="30s")

    async def failed() -> bool:
        return (await app.automations.show("inbox")).error is not None

    await until(failed)
    return {"good": good.id, "bad": bad.id}


def addresses(ids: dict[str, str]) -> Iterator[str]:
    """Every address that only reads, for each of the things there are."""
    for route in ROUTES:
        if route.method != "GET" or route.name == "stream_hints":
            continue
        name = "inbox" if "/automations" in route.path else "nightly"
        for run_id in ids.values():
            path = route.path.replace("{run_id}", run_id).replace("{name}", name)
            if "{" not in path:
                yield f"{route.prefix}{path}"
    for page in ("", "runs", "schedules", "schedules/nightly", "schedules/nightly/edit",
            "automations", "automations/inbox", "workers",
            *(f"runs/{one}" for one in ids.values())):  # fmt: skip
        yield f"/{page}"


async def test_no_surface_shows_a_declared_secret(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app, mcp="read") as http:
        ids = await lived(app)
        seen = {path: await http.get(path) for path in dict.fromkeys(addresses(ids))}
        for name, run in (("show_run", "bad"), ("show_run", "good"), ("run_steps", "good")):
            asked = {"name": name, "arguments": {"run_id": ids[run]}}
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
            seen[f"mcp {name} {run}"] = await http.post("/mcp", json=call)
        stored = await app.runs.get(ids["good"])
    leaks = {
        (path, secret)
        for path, answer in seen.items()
        for secret in SECRETS
        if secret in answer.text
    }
    assert not leaks
    shown = seen[f"{API}/runs/{ids['good']}"].json()
    assert shown["input"] == {"user": "ann", "password": "[redacted]"}
    assert shown["output"] == {"user": "ann", "password": "[redacted]"}
    error = seen[f"{API}/runs/{ids['bad']}"].json()["error"]
    assert error["message"] == "eve:[redacted] with [redacted] was refused"
    assert seen[f"{API}/automations/inbox"].json()["error"]["message"].startswith("cannot use")
    assert "hunter2-in" in (stored.input or ""), "programs need the value"


async def test_a_form_that_sends_a_placeholder_back_keeps_the_value(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await app.schedules.create(
            "nightly", "log_in", "daily at 3:00", timezone="UTC",
            input={"user": "ann", "password": "hunter2-plan"},
        )  # fmt: skip
        given = {"input": {"user": "bob", "password": "[redacted]"}}
        edited = await http.patch(f"{API}/schedules/nightly", json=given)
        ran = await http.post(f"{API}/schedules/nightly/trigger", json=given)
        form = {"input": json.dumps(given["input"])}
        sent = await http.post("/schedules/nightly/trigger", data=form, headers={
            "origin": BASE, "content-type": "application/x-www-form-urlencoded"})  # fmt: skip
        refused = await http.post(f"{API}/runs", json={"workflow": "log_in", **given})
        view = await app.schedules.get("nightly")
        runs = await app.runs.list(name="log_in")
    assert (edited.status_code, ran.status_code, sent.status_code) == (200, 201, 303)
    kept = [json.loads(one or "") for one in (view.schedule.input, *[run.input for run in runs])]
    assert kept == [{"user": "bob", "password": "hunter2-plan"}] * 3
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
