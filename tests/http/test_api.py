"""The API on both databases: starts, waits, lists, edits, answers and problems."""

from __future__ import annotations

from tests.http.kit import API, app_on, browsing, seed


async def test_a_key_starts_a_run_once_and_refuses_another_input(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        body = {"workflow": "add", "input": {"a": 1}}
        key = {"idempotency-key": "k-1"}
        first = await http.post(f"{API}/runs", json=body, headers=key)
        again = await http.post(f"{API}/runs", json=body, headers=key)
        other = await http.post(
            f"{API}/runs", json={"workflow": "add", "input": {"a": 2}}, headers=key
        )
        shown = await http.get(first.headers["location"])
        bad = await http.post(f"{API}/runs", json={"workflow": "add", "input": {"a": "x"}})
        unknown = await http.post(f"{API}/runs", json={"workflow": "ad", "input": {}})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == {"id": first.json()["id"], "existed": True}
    assert (other.status_code, other.json()["code"]) == (422, "bad_input")
    assert shown.json()["input"] == {"a": 1}
    assert shown.json()["created_at"].endswith("Z")
    assert (bad.status_code, bad.json()["code"]) == (422, "bad_input")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_workflow")
    assert "add" in unknown.json()["hint"]


async def test_a_result_is_awaited_and_202_says_not_yet(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        started = await http.post(f"{API}/runs", json={"workflow": "add", "input": {"a": 41}})
        path = f"{API}/runs/{started.json()['id']}/result"
        early = await http.get(path)
        await app.start_worker()
        ended = await http.get(path, params={"wait": "30s"})
    assert (early.status_code, early.json()["is_over"]) == (202, False)
    assert (ended.status_code, ended.json()["output"]) == (200, 42)


async def test_a_cursor_pages_through_runs_and_fits_its_filters_only(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await http.post(
            f"{API}/runs/batch",
            json={"workflow": "add", "items": [{"input": {"a": n}} for n in range(5)]},
        )
        seen, cursor = [], ""
        for _ in range(3):
            page = (
                await http.get(f"{API}/runs", params={"limit": 2, "cursor": cursor, "name": "add"})
            ).json()
            seen += [run["id"] for run in page["runs"]]
            cursor = page["next"]
        other = (await http.get(f"{API}/runs?limit=2")).json()["next"]
        stale = await http.get(f"{API}/runs", params={"cursor": other, "name": "x"})
        wrong = [
            (await http.get(f"{API}/runs?{query}")).status_code
            for query in ("nam=add", "limit=0", "limit=1&limit=2", "status=odd", "cursor=%00")
        ]
    assert len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)
    assert (stale.status_code, stale.json()["code"]) == (422, "stale_cursor")
    assert wrong == [422] * 5


async def test_a_schedule_is_edited_only_as_it_was_read(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        made = await http.post(
            f"{API}/schedules",
            json={"name": "n", "workflow": "add", "when": "daily at 9:00", "timezone": "UTC",
                "input": {"a": 1}},
        )  # fmt: skip
        path = f"{API}/schedules/n"
        match = {"if-match": made.headers["etag"]}
        paused = await http.post(f"{path}/pause", json={"note": "holiday"})
        stale = await http.patch(path, json={"when": "daily at 10:00"}, headers=match)
        fresh = {"if-match": paused.headers["etag"]}
        edited = await http.patch(path, json={"when": "daily at 10:00"}, headers=fresh)
        run = await http.post(f"{path}/trigger")
        seen = await http.get(f"{path}/why")
        gone = await http.delete(path, headers=fresh)
        deleted = await http.delete(path)
    assert (made.status_code, stale.status_code, stale.json()["code"]) == (
        201, 412, "changed_since",
    )  # fmt: skip
    assert edited.json()["when"] == "daily at 10:00"
    assert paused.json()["reason"] == "holiday"
    assert run.status_code == 201
    assert "paused" in seen.json()["sentence"]
    assert (gone.status_code, deleted.status_code) == (412, 204)


async def test_a_repeated_event_is_one_and_an_answer_names_what_it_expects(
    database_url: str,
) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        path = f"{API}/automations/inbox"
        sent = [
            (await http.post(
                f"{path}/topics/letters/events", json={"payload": {"n": 1}},
                headers={"idempotency-key": "d-1"},
            )).status_code
            for _ in range(2)
        ]  # fmt: skip
        events = await http.get(f"{path}/events")
        blind = await http.post(f"{path}/approve", json={})
        nothing = await http.post(f"{path}/approve", json={"expected": "x"})
    assert sent == [201, 200]
    assert [event["message_id"] for event in events.json()["events"]] == ["d-1", "m-1"]
    assert (blind.status_code, nothing.status_code) == (422, 409)


async def test_every_write_is_in_the_audit_list(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        sent = await http.post(f"{API}/runs", json={"workflow": "add", "input": {"a": 1}})
        await http.post(f"{API}/runs", json={"workflow": "none"})
        audit = (await http.get(f"{API}/audit")).json()["entries"]
    assert [(one["who"], one["verb"], one["target"]) for one in audit] == [
        ("local", "start", f"{API}/runs")
    ]
    assert audit[0]["request_id"] == sent.headers["x-request-id"]


async def test_the_process_says_how_it_is(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        live, ready, metrics = [
            await http.get(path) for path in ("/health/live", "/health/ready", "/metrics")
        ]
        await app.close()
        down = await http.get("/health/ready")
        refused = await http.get(f"{API}/runs")
        await app.connect()
    assert (live.text, ready.json()["is_ready"]) == ("ok\n", True)
    assert "rota_runs" in metrics.text
    assert (down.status_code, down.json()["reasons"][0]["check"]) == (503, "database")
    assert refused.status_code in (422, 503)
