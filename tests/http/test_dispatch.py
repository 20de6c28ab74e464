"""Pages, static files, headers and problems, up to the adapter."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.client.client import Client
from rota.errors import UnknownRun
from rota.http import files
from rota.http.dispatch import CSP
from rota.http.request import Answer, Html, Redirect, WebRequest
from rota.http.router import Page
from tests.http.kit import BASE, browsing


async def greet(request: WebRequest) -> Html:
    """A page that shows what it was given."""
    name, looks = request.parameters["name"], request.query.all("look")
    return Html(f"<p>{name} {looks} {request.identity.name} {request.zone}</p>")


async def rename(request: WebRequest) -> Redirect:
    """A form's target."""
    return Redirect(f"/greet/{request.form().get('name')}")


async def missing(request: WebRequest) -> Answer:
    """A page about a run that is not there."""
    raise UnknownRun("there is no run 7")


async def broken(request: WebRequest) -> Answer:
    """A page with a defect."""
    raise RuntimeError("the password is hunter2")


TABLE = (
    Page("GET", "/greet/{name}", "read", greet),
    Page("POST", "/greet/{name}", "operate", rename),
    Page("GET", "/missing", "read", missing),
    Page("GET", "/broken", "read", broken),
)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(f"sqlite:///{tmp_path}/rota.db")


async def test_a_page_gets_its_parameters_and_every_answer_the_strict_headers(
    client: Client,
) -> None:
    async with client, browsing(client, TABLE) as http:
        http.cookies.set("rota_zone", "Asia%2FTokyo")
        seen = await http.get("/greet/a%20b?look=1&look=2")
        refused = await http.get("/nothing")
    assert seen.text == "<p>a b ['1', '2'] local Asia/Tokyo</p>"
    for answer in (seen, refused):
        assert answer.headers["content-security-policy"] == CSP
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers
        assert "server" not in answer.headers
        assert len(answer.headers["x-request-id"]) == 16


async def test_a_form_is_answered_with_a_redirect(client: Client) -> None:
    async with client, browsing(client, TABLE) as http:
        sent = await http.post("/greet/x", data={"name": "eve"}, headers={"origin": BASE})
    assert (sent.status_code, sent.headers["location"]) == (303, "/greet/eve")


async def test_people_get_a_page_about_a_problem_and_programs_a_document(client: Client) -> None:
    async with client, browsing(client, TABLE) as http:
        page = await http.get("/missing", headers={"accept": "text/html"})
        document = await http.get("/missing", headers={"accept": "*/*"})
        wrong = await http.put("/greet/x", headers={"origin": BASE})
    assert page.status_code == document.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert document.headers["content-type"] == "application/problem+json"
    assert document.json()["code"] == "unknown_run"
    assert document.json()["request_id"] == document.headers["x-request-id"]
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD, POST")


async def test_an_unexpected_error_shows_nothing_of_itself(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async with client, browsing(client, TABLE) as http:
        answer = await http.get("/broken")
    assert answer.status_code == 500
    assert answer.json()["code"] == "error"
    assert "hunter2" not in answer.text
    assert answer.json()["request_id"] in caplog.text


async def test_static_files_are_kept_for_ever_under_their_content(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.js").write_text("export {}")
    (tmp_path / "secret.pem").write_text("no")
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    files._known.cache_clear()
    async with client, browsing(client) as http:
        found = await http.get(files.static_url("app.js"))
        again = await http.get("/static/app.js", headers={"if-none-match": found.headers["etag"]})
        other = [
            (await http.get(path)).status_code
            for path in ("/static/secret.pem", "/static/..%2fapp.js", "/static/none.js")
        ]
    files._known.cache_clear()
    assert (found.status_code, found.text) == (200, "export {}")
    assert found.headers["cache-control"] == files.FOR_EVER
    assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")
    assert other == [404, 404, 404]
