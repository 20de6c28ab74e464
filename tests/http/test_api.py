"""The API on both databases: starts, waits, lists, edits, answers and problems."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from rota.core.time.instants import moment
from tests.http.kit import API, app_on, browsing, seed
from tests.http.kit.office import PIPELINE, Office


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


async def test_arguments_by_position_are_those_by_name(database_url: str) -> None:
    app = app_on(database_url)
    key = {"idempotency-key": "k"}
    async with app.connected(), browsing(app) as http:
        body = {"workflow": "add", "args": [1], "input": {"b": 2}}
        first = await http.post(f"{API}/runs", json=body, headers=key)
        again = await http.post(f"{API}/runs", json=body, headers=key)
        named = {"workflow": "add", "input": {"a": 1, "b": 2}}
        same = await http.post(f"{API}/runs", json=named, headers=key)
        other = await http.post(f"{API}/runs", json={**body, "args": [5]}, headers=key)
        shown = await http.get(f"{API}/runs/{first.json()['id']}")
    assert [one.status_code for one in (first, again, same, other)] == [201, 200, 200, 422]
    assert shown.json()["input"] == {"a": 1, "b": 2}


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
        two = await http.post(
            f"{path}/topics/letters/events", json={"message_id": "d-2"},
            headers={"idempotency-key": "d-3"},
        )  # fmt: skip
        assert (two.status_code, two.json()["code"]) == (422, "bad_input")
        many = {"events": [{"message_id": one, "payload": {"n": 1}} for one in ("d-1", "d-4")]}
        batch = await http.post(f"{path}/topics/letters/events/batch", json=many)
        assert (batch.status_code, batch.json()) == (201, {"published": 1})
        empty = await http.post(f"{path}/topics/letters/events/batch", json={"events": []})
        assert empty.status_code == 422
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
        await http.post(f"{API}/schedules/preview", json={"when": "daily at 9:00"})
        many = {"verb": "cancel", "filter": {"name": "add"}}
        await http.post(f"{API}/runs/actions", json=many)
        audit = (await http.get(f"{API}/audit")).json()["entries"]
    assert [(one["who"], one["verb"], one["target"], one["detail"]) for one in audit] == [
        ("local", "runs.apply", f"{API}/runs/actions", many),
        ("local", "start", sent.headers["location"], None),
    ]
    assert audit[1]["request_id"] == sent.headers["x-request-id"]


async def test_a_key_makes_every_creating_verb_happen_once(database_url: str) -> None:
    app = app_on(database_url)

    @app.step
    async def one() -> int:
        return 1

    @app.workflow
    async def stepped() -> int:
        return await one()

    async with app.connected(), browsing(app) as http:
        await seed(app)
        run = await app.start("stepped")
        await app.start_worker()
        await app.runs.wait(run.id, timeout="30s")
        bodies = {
            "/schedules/daily/trigger": {"input": {"a": 5}},
            "/runs/batch": {"workflow": "add", "items": [{"input": {"a": 1}}, {"input": {"a": 2}}]},
            f"/runs/{run.id}/fork": {"from_step": (await app.runs.steps(run.id))[0].key},
        }
        for path, body in bodies.items():
            key = {"idempotency-key": f"k {path}".replace(" ", "")}
            first = await http.post(f"{API}{path}", json=body, headers=key)
            again = await http.post(f"{API}{path}", json=body, headers=key)
            assert (first.status_code, again.status_code) == (201, 200), path
            ids = [
                [each["id"] for each in (found if isinstance(found, list) else [found])]
                for found in (first.json(), again.json())
            ]
            assert ids[0] == ids[1], path
        changed = [
            await http.post(f"{API}{path}", json=body, headers={"idempotency-key": f"k{path}"})
            for path, body in (
                ("/schedules/daily/trigger", {"input": {"a": 6}}),
                ("/runs/batch", {"workflow": "add", "items": [{"input": {"a": 9}}]}),
            )
        ]
    assert {(one.status_code, one.json()["code"]) for one in changed} == {(422, "bad_input")}


async def test_a_cancel_may_have_a_grace(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        run = await app.start("add", 1)
        path = f"{API}/runs/{run.id}/cancel"
        wrong = await http.post(path, json={"grace": "soon"})
        done = await http.post(path, json={"grace": "5m", "reason": "why"})
        assert await run.status() == "cancelled:why"  # it has not begun
    assert (wrong.status_code, done.status_code) == (422, 200)


async def test_a_second_retry_of_the_same_attempt_answers_with_the_first(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        run = await app.start("add", 1)
        await app.runs.cancel(run.id)
        path = f"{API}/runs/{run.id}/retry"
        first = await http.post(path, json={"expected": run.id})
        again = await http.post(path, json={"expected": run.id})
        open_one = await http.post(path)
        other = await http.post(path, json={"expected": "0" * 32})
    assert other.status_code == 422
    assert "is not an attempt of run" in other.json()["detail"]
    assert (first.status_code, again.status_code, open_one.status_code) == (201, 200, 409)
    assert again.json() == {"id": first.json()["id"], "existed": True}
    assert first.headers["location"] == f"{API}/runs/{first.json()['id']}"


async def test_names_that_are_not_there_are_404(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        answers = [
            await http.post(f"{API}/queues/none/pause"),
            await http.delete(f"{API}/tokens/none"),
            await http.get(f"{API}/pipelines/none"),
            await http.post(f"{API}/pipelines/none/runs"),
            await http.post(f"{API}/automations/none/deploy"),
            await http.patch(f"{API}/schedules/none", json={}, headers={"if-match": '"x"'}),
        ]
    assert [(one.status_code, one.json()["code"]) for one in answers] == [
        (404, "unknown_queue"), (404, "unknown_token"), (404, "unknown_pipeline"),
        (404, "unknown_pipeline"), (404, "unknown_automation"), (404, "unknown_schedule"),
    ]  # fmt: skip


async def test_an_edit_from_a_page_must_say_which_definition_it_showed(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        path, edit = f"{API}/schedules/daily", {"when": "daily at 7:00"}
        page = {"sec-fetch-site": "same-origin"}
        blind = await http.patch(path, json=edit, headers=page)
        seen = (await http.get(path)).headers["etag"]
        reported = await http.patch(path, json=edit, headers={**page, "if-match": seen})
    assert (blind.status_code, blind.json()["code"]) == (428, "precondition_required")
    assert "If-Match" in blind.json()["hint"]
    assert reported.json()["when"] == "daily at 7:00"


async def test_occurrences_are_filtered_by_outcome(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        run_id = await app.schedules.trigger("daily")
        await app.runs.cancel(run_id)
        path = f"{API}/schedules/daily/occurrences"
        found = [
            [one["id"] for one in (await http.get(f"{path}?outcome={name}")).json()["occurrences"]]
            for name in ("cancelled", "skipped:paused")
        ]
        odd = await http.get(f"{path}?outcome=fired")
    assert found == [[run_id], []]
    assert (odd.status_code, odd.json()["code"]) == (422, "bad_input")


async def test_a_diff_shows_what_the_end_of_a_bound_adds(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        end = moment(app.clock.now()) + timedelta(days=3)
        await app.schedules.create("daily", "add", "1d", end=end, input={"a": 1})
        path = f"{API}/schedules/daily/diff"
        same = (await http.post(path, json={})).json()
        longer = (await http.post(path, json={"end": None, "count": 5})).json()
    assert same["gained"] == []
    assert len(longer["gained"]) > 0


async def test_null_clears_a_limit_of_a_schedule(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await app.schedules.create("daily", "add", "1d", max_delay="1h", retries=2, input={"a": 1})
        path = f"{API}/schedules/daily"
        kept = (await http.patch(path, json={"priority": 3})).json()
        cleared = (await http.patch(path, json={"max_delay": None, "retries": None})).json()
        for field in ("jitter", "queue", "input", "when", "timezone", "missed", "confirm"):
            refused = await http.patch(path, json={field: None})
            assert (field, refused.status_code) == (field, 422)
            assert f"$.{field}" in refused.text
    assert kept["priority"] == cleared["priority"] == 3
    assert (kept["policies"]["delay_us_max"], kept["policies"]["retry"]["attempts"]) == (3600e6, 3)
    assert not {"delay_us_max", "retry"} & cleared["policies"].keys()


async def test_events_and_outputs_of_an_unknown_status_are_refused(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        for noun in ("events", "outputs"):
            odd = await http.get(f"{API}/automations/inbox/{noun}?status=open")
            assert (odd.status_code, odd.json()["code"]) == (422, "bad_input")
        [event] = (await http.get(f"{API}/automations/inbox/events?status=pending")).json()[
            "events"
        ]
    assert event["message_id"] == "m-1"


async def test_a_dry_run_of_a_pipeline_counts_up_to_its_limit(
    database_url: str, tmp_path: Path
) -> None:
    office = Office(database_url, tmp_path)
    office.folder.mkdir(parents=True)
    (office.folder / "pipeline.yaml").write_text(PIPELINE)
    office.pipelines.know("triage", office.folder)
    async with office.connected(), browsing(office) as http:
        path, dry = f"{API}/pipelines/triage/runs", {"dry_run": True}
        whole = (await http.post(path, json=dry)).json()["forecast"]
        limited = (await http.post(path, json=dry | {"limit": 1})).json()["forecast"]
        refused = await http.post(path, json=dry | {"items": [{"title": "Bill"}]})
    assert (whole["items"], limited["items"]) == (2, 1)
    assert (refused.status_code, "items" in refused.json()["detail"]) == (422, True)


async def test_a_queue_shows_its_order_by_age_and_by_key(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        path = f"{API}/queues/slow"
        aged, turns, plain = [
            (await http.put(path, json=limits)).json()
            for limits in ({"age": "90s"}, {"round_robin": True}, {})
        ]
        listed = (await http.get(f"{API}/queues")).json()
    assert (aged["age_s"], aged["round_robin"]) == (90, False)
    assert (turns["age_s"], turns["round_robin"]) == (None, True)
    assert (plain["age_s"], plain["round_robin"]) == (None, False)
    assert plain in listed


async def test_putting_a_schedule_pauses_it_only_if_asked_to(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        path = f"{API}/schedules/fresh"
        body = {"workflow": "add", "when": "daily at 6:00", "timezone": "UTC", "input": {"a": 1}}
        states = [
            (await http.put(path, json=body | more)).json()["status"]
            for more in ({}, {"paused": False}, {"paused": True}, {})
        ]
        refused = await http.put(path, json=body | {"paused": False, "when": "daily at 7:00"})
        kept = (await http.get(path)).json()
    assert states == ["scheduled", "scheduled", "paused", "paused"]
    assert refused.status_code == 409
    assert "does not resume it" in refused.json()["detail"]
    assert (kept["status"], kept["when"]) == ("paused", "daily at 6:00")


async def test_of_two_edits_of_the_same_definition_one_is_refused(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        await seed(app)
        path = f"{API}/schedules/daily"
        seen = (await http.get(path)).headers["etag"]
        edits = [
            http.patch(path, json={"when": f"daily at {hour}:00"}, headers={"if-match": seen})
            for hour in (7, 8)
        ]
        statuses = sorted(one.status_code for one in await asyncio.gather(*edits))
        body = {"workflow": "add", "when": "daily at 6:00", "timezone": "UTC", "input": {"a": 1}}
        stale = await http.put(path, json=body, headers={"if-match": seen})
        anyone = await http.put(path, json=body, headers={"if-match": "*"})
        new = await http.put(f"{API}/schedules/fresh", json=body)
        end = {"end": "2099-01-01T00:00:00Z"}
        ended = (await http.patch(path, json=end)).json()["text"]
        endless = (await http.patch(path, json={"end": None})).json()["text"]
        gone = await http.delete(path, headers={"if-match": seen})
    assert statuses == [200, 412]
    assert (stale.status_code, anyone.status_code, new.status_code) == (412, 200, 201)
    assert "2099" in ended
    assert "2099" not in endless
    assert (gone.status_code, gone.json()["code"]) == (412, "changed_since")


async def test_the_process_says_how_it_is(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected(), browsing(app) as http:
        live, ready, metrics = [
            await http.get(path) for path in ("/health/live", "/health/ready", "/metrics")
        ]
        await app.close()
        down = await http.get("/health/ready")
        refused = await http.get(f"{API}/runs")
    assert (live.text, ready.json()["is_ready"]) == ("ok\n", True)
    assert "rota_runs" in metrics.text
    assert (down.status_code, down.json()["reasons"][0]["check"]) == (503, "database")
    assert refused.status_code in (422, 503)
