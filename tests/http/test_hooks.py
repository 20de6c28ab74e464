"""Inbound webhooks on both databases: secrets, signatures, repeated deliveries, declarations."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
from pathlib import Path

import pytest

from rota import Rota, project
from rota.errors import BadSetting
from tests.http.kit import API, app_on, browsing, seed

SECRET = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_SECRET", SECRET)


def hooked(url: str) -> Rota:
    """An app with a signed webhook for a topic, and one with a secret for a workflow."""
    app = app_on(url)
    app.webhook(
        "shop", topic="inbox.letters", secret_env="SHOP_SECRET",
        signature_header="X-Hub-Signature-256", id_header="X-Delivery",
    )  # fmt: skip
    app.webhook("add", workflow="add", secret_env="SHOP_SECRET")
    app.webhook("unset", workflow="add", secret_env="NO_SUCH_SECRET")
    return app


def signed(body: bytes, delivery_id: str = "") -> dict[str, str]:
    made = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={made}", "x-delivery": delivery_id}


async def test_a_repeated_delivery_is_one_event(database_url: str) -> None:
    app = hooked(database_url)
    body = b'{"order": 7}'
    async with app.connected(), browsing(app, require_login=True) as http:
        await seed(app)
        sent = [
            (await http.post("/hooks/shop", content=body, headers=signed(body, "d-1"))).status_code
            for _ in range(2)
        ]
        plain = base64.b64encode(hmac.new(SECRET.encode(), body, hashlib.sha256).digest()).decode()
        other = await http.post(
            "/hooks/shop", content=body,
            headers={"x-hub-signature-256": plain, "x-delivery": "d-2"},
        )  # fmt: skip
        events = await app.automations.events("inbox", topic="letters")
        audit = [(one.who, one.verb) for one in await app.audit.list()]
    assert [*sent, other.status_code] == [202, 200, 202]
    assert sorted(one.message_id for one in events) == ["m-1", "shop:d-1", "shop:d-2"]
    assert ("webhook shop", "webhook") in audit


async def test_a_delivery_starts_a_run(database_url: str) -> None:
    app = hooked(database_url)
    bearer = {"authorization": f"Bearer {SECRET}"}
    async with app.connected(), browsing(app) as http:
        sent = [
            await http.post("/hooks/add", content=body, headers=bearer)
            for body in (b'{"a": 1}', b'{"a": 2}')
        ]
        bad = await http.post("/hooks/add", content=b'{"b": 1}', headers=bearer)
        deep = await http.post("/hooks/add", content=b"[" * 50_000, headers=bearer)
        runs = (await http.get(f"{API}/runs")).json()["runs"]
    assert [one.status_code for one in sent] == [202, 202]
    assert (bad.status_code, bad.json()["code"]) == (422, "bad_input")
    assert (deep.status_code, deep.json()["code"]) == (422, "bad_input")
    assert len(runs) == 2


async def test_a_wrong_secret_and_an_unknown_name_look_alike(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = hooked(database_url)
    body = b'{"a": 1}'
    async with app.connected(), browsing(app) as http:
        answers = [
            await http.post("/hooks/add", content=body),
            await http.post("/hooks/add", content=body, headers={"authorization": "Bearer no"}),
            await http.post("/hooks/none", content=body, headers={"authorization": "Bearer no"}),
            await http.post("/hooks/unset", content=body, headers={"authorization": "Bearer "}),
            await http.post("/hooks/shop", content=body + b" ", headers=signed(body)),
        ]
        runs = (await http.get(f"{API}/runs")).json()["runs"]
    assert {(one.status_code, one.json()["code"]) for one in answers} == {(401, "bad_signature")}
    assert runs == []
    assert SECRET not in caplog.text


def configured(folder: Path, table: str) -> Rota:
    """The app of a project with these lines in its file."""
    (folder / "jobs.py").write_text("from rota import Rota\napp = Rota()\n")
    text = f'[project]\napp = "jobs.py"\n[webhooks.x]\nsecret_env = "S"\n{table}\n'
    (folder / "rota.toml").write_text(text)
    found = project.find(None, folder)
    assert found is not None
    return project.configure(project.load(found), found, project.given({}))


def test_a_project_file_declares_webhooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The module of the project must not be found by later tests.
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    assert configured(tmp_path, 'workflow = "add"').webhooks["x"].workflow == "add"
    for wrong in ('topic = "a.b"\nworkflow = "c"', "", 'topic = "a"'):
        with pytest.raises(BadSetting, match="webhook x"):
            configured(tmp_path, wrong)
