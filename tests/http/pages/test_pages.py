"""Every page and form over HTTP, on both databases, in a shop with a little history."""

from __future__ import annotations

import html
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from rota import Rota, gather, sleep, wait_for
from rota.automations import Change, Prepared
from rota.http.pages import PAGES, automation_tables, overview, schedule_ledger, schedules
from rota.http.pages.attention import FAILED_LOOK
from rota.store.runs import lists
from rota.testing import virtual
from rota.tools import tool
from tests.http.kit import BASE, browsing
from tests.kit.builders import sql

NAME = "näh/../<b>&?#"  # what a person may call a schedule
ASKS = {"sec-fetch-site": "same-origin", "accept": "text/html"}


def shop() -> Rota:
    """A workflow that fails, and an automation that asks."""
    app = Rota(keep_days=0)

    @app.workflow(name="work")
    async def work(fails: bool = False) -> str:
        if fails:
            raise ValueError("<i>no</i>")
        return "done"

    @tool(safety="idempotent")
    async def pay(amount: str) -> str:
        return amount

    payments = app.automation("payments", timezone="UTC", approval=True)
    due = payments.topic("due", external=True)

    @payments.consumer("payer", subscribes=[due])
    class Payer:
        async def prepare(self, ctx: Any, state: Any) -> Prepared:
            events = await ctx.peek(due, limit=1)
            return Prepared(events, [one.payload for one in events], "Pay 5 EUR")

        async def mutate(self, ctx: Any, prepared: Any) -> Change:
            return pay.change(amount=prepared.data[0])

    return app


@asynccontextmanager
async def browsed(url: str) -> AsyncIterator[tuple[Rota, httpx2.AsyncClient, dict[str, str]]]:
    """The shop, a client of its site, and the parameters of its pages."""
    app = shop()
    async with virtual(app, url=url) as world:
        await app.schedules.create(NAME, "work", "every 1h", timezone="UTC", input={"fails": False})
        run = await app.start("work", True)
        await app.automations.publish("payments", "due", "bill-1", "5 EUR")
        await world.advance("3h")
        async with browsing(app) as http:
            http.headers.update(ASKS)
            yield app, http, {"run_id": run.id, "name": NAME}


def address(path: str, parameters: dict[str, str]) -> str:
    """The path with its parameters, percent-encoded."""
    name = "payments" if path.startswith("/automations") else parameters["name"]
    values = parameters | {
        "name": httpx2.QueryParams({"n": name}).__str__()[2:].replace("+", "%20")
    }
    return path.format(**values)


async def test_every_page_answers(database_url: str) -> None:
    async with browsed(database_url) as (_, http, parameters):
        for entry in PAGES:
            if entry.method != "GET" or "pipeline-runs" in entry.path:
                continue
            answer = await http.get(address(entry.path, parameters))
            assert answer.status_code in (200, 303), (entry.path, answer.status_code)
            assert "<i>no</i>" not in answer.text, entry.path
            assert "<b>&?#" not in answer.text, entry.path


async def test_why_names_the_zone_of_the_schedule(database_url: str) -> None:
    async with browsed(database_url) as (_, http, parameters):
        page = (await http.get(address("/schedules/{name}", parameters))).text
        assert "the time exists once in UTC" in page


async def test_a_failed_step_is_shown_by_its_own_error(database_url: str) -> None:
    app = Rota(keep_days=0)

    @app.step(retries=0)
    async def charge() -> None:
        raise ValueError("the card is expired")

    @app.workflow(name="order")
    async def order() -> None:
        await charge()

    async with virtual(app, url=database_url) as world, browsing(app) as http:
        run = await app.start("order")
        await world.settle()
        for path in ("/", "/runs"):
            answer = await http.get(path, headers=ASKS)
            assert ">ValueError: the card is expired<" in answer.text, path
        answer = await http.get(f"/runs/{run.id}", headers=ASKS)
    assert "<mark>    raise ValueError(&quot;the card is expired&quot;)</mark>" in answer.text
    assert "Hint:" not in answer.text


async def test_forms_act_and_redirect(database_url: str) -> None:
    async with browsed(database_url) as (app, http, parameters):
        schedule = address("/schedules/{name}", parameters)

        async def post(path: str, **form: str) -> httpx2.Response:
            return await http.post(path, data=form)

        assert (await post(f"{schedule}/pause", note="holiday")).status_code == 303
        assert (await app.schedules.get(NAME)).schedule.reason == "holiday"
        assert (await post(f"{schedule}/resume")).headers["location"].endswith("done=resumed")
        triggered = await post(f"{schedule}/trigger", input='{"fails": true}')
        assert triggered.headers["location"].startswith("/runs/")
        counted = await post(
            f"{schedule}/backfill", **{"from": "2030-01-01", "to": "2030-01-01 02:00"}
        )
        assert "without a run" in counted.text
        seen = (await app.schedules.get(NAME)).etag
        saved = await post(
            schedule, when="every 2h", zone="UTC", overlap="skip", missed="run", seen=seen
        )
        assert saved.headers["location"].endswith("done=saved")
        assert (await app.schedules.get(NAME)).intent.text == "every 2h"
        assert (await post(f"/runs/{parameters['run_id']}/retry")).status_code == 303
        waits = (await app.automations.show("payments")).mutation
        assert waits is not None
        wrong = await post("/automations/payments/answer", answer="approve", expected="other")
        assert wrong.status_code == 409
        answered = await post("/automations/payments/answer", answer="approve", expected=waits.id)
        assert answered.headers["location"].endswith("done=approved")


async def test_a_refused_form_keeps_what_was_typed(database_url: str) -> None:
    async with browsed(database_url) as (_, http, parameters):
        schedule = address("/schedules/{name}", parameters)
        refused = await http.post(f"{schedule}/trigger", data={"input": '{"fails": oops'})
        assert refused.status_code == 422
        assert "{&quot;fails&quot;: oops" in refused.text
        assert '<details class="fold" id="fold-trigger" open>' in refused.text
        refused = await http.post(f"{schedule}/pause", data={"note": "holiday", "until": "never"})
        assert 'value="holiday"' in refused.text
        assert 'value="never"' in refused.text


async def test_a_refused_form_shows_the_advice_of_the_error(database_url: str) -> None:
    async with browsed(database_url) as (app, http, parameters):
        schedule, seen = address("/schedules/{name}", parameters), await app.schedules.get(NAME)
        typed = {"when": "daily", "zone": "Europe/Berln", "seen": seen.etag}
        refused = await http.post(schedule, data=typed)
        assert refused.status_code == 422
        assert '<p class="small muted">Did you mean Europe/Berlin' in html.unescape(refused.text)


async def test_a_large_input_can_be_edited_and_used_again(database_url: str) -> None:
    app = Rota(keep_days=0)

    @app.workflow(name="copy")
    async def copy(text: str) -> int:
        return len(text)

    async with virtual(app, url=database_url) as world:
        text = "long " * 2_000
        run = await app.start("copy", text)
        await app.schedules.create(
            "copies", "copy", "every 1h", timezone="UTC", input={"text": text}
        )
        await world.settle()
        async with browsing(app) as http:
            http.headers.update(ASKS)
            for path in (f"/runs/new?like={run.id}", "/schedules/copies/edit", "/schedules/copies"):
                assert text in (await http.get(path)).text, path


async def test_an_untouched_trigger_form_keeps_the_secrets_that_it_does_not_show(
    database_url: str,
) -> None:
    app = Rota(keep_days=0, secret_fields=("pin",))

    @app.workflow(name="pay")
    async def pay(pin: str, amount: int = 1) -> str:
        return f"{len(pin)} digits"

    async with virtual(app, url=database_url) as world:
        await app.schedules.create("pays", "pay", "every 1h", timezone="UTC", input={"pin": "4711"})
        async with browsing(app) as http:
            http.headers.update(ASKS)
            text = (await http.get("/schedules/pays")).text
            assert "4711" not in text
            shown = html.unescape(re.findall(r'id="t-input"[^>]*>([^<]*)<', text)[0])
            done = await http.post("/schedules/pays/trigger", data={"input": shown})
            await world.settle()
            run = await app.runs.get(done.headers["location"].split("/")[2].partition("?")[0])
            assert run.output == '"4 digits"'
            changed = shown.replace("{", '{"amount": 2,', 1)
            other = await http.post("/schedules/pays/trigger", data={"input": changed})
            run = await app.runs.get(other.headers["location"].split("/")[2].partition("?")[0])
            assert json.loads(run.input or "") == {"amount": 2, "pin": "4711"}
            new = {"workflow": "pay", "input": changed}
            refused = await http.post("/runs", data=new)
            assert refused.status_code == 422
            assert "Give the real value" in refused.text


async def test_what_did_not_run_is_found_beyond_the_first_page(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_ledger, "LOOK", 10)
    app = shop()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("often", "work", "every 1m", timezone="UTC", overlap="skip")
        world.clock.jump("5m")  # one row for what was missed
        await world.advance("15m")
        async with browsing(app) as http:
            http.headers.update(ASKS)
            found = (await http.get("/schedules/often?only=not-run")).text
            assert "Missed" in found
            day = (await http.get("/schedules/often?day=nonsense")).status_code
            assert day == 422


async def test_a_schedule_is_found_among_many_and_counted_over_all(database_url: str) -> None:
    app = shop()
    async with virtual(app, url=database_url):
        for number in range(70):
            await app.schedules.create(f"tenant-{number:02}", "work", "every 1h", timezone="UTC")
        await app.schedules.pause("tenant-69", note="moved")
        async with browsing(app) as http:
            http.headers.update(ASKS)
            first = (await http.get("/schedules")).text
            assert "69 of 70 are active." in first
            assert "tenant-69</a>" not in first  # it is on the second page
            assert "tenant-69</a>" in (await http.get("/schedules?show=paused")).text
            found = (await http.get("/schedules?q=NANT-4")).text
            assert found.count('</a><span class="sub">') == 10
            second = (await http.get("/schedules?after=tenant-49")).text
            assert "20 of 70 schedules shown" in second


async def test_the_overview_counts_all_schedules(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "SCHEDULES_MAX", 2)
    app = shop()
    async with virtual(app, url=database_url):
        for number in range(4):
            await app.schedules.create(f"s{number}", "work", "every 1h", timezone="UTC")
        await app.schedules.pause("s0")
        async with browsing(app) as http:
            http.headers.update(ASKS)
            page = (await http.get("/")).text
            assert "3 schedules on" in page
            assert "Only the first 2 schedules by name are read" in page


async def test_schedules_that_failed_lately_are_found_beyond_a_look(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "LOOK_MAX", 5)
    monkeypatch.setattr(schedules, "PAGE_SIZE", 2)
    app = shop()
    async with virtual(app, url=database_url) as world:
        for number in range(12):
            fails = number in (3, 4, 11)
            await app.schedules.create(
                f"s{number:02}", "work", "every 1h", timezone="UTC", input={"fails": fails}
            )
        await world.advance("2h")
        async with browsing(app) as http:
            found: list[str] = []
            path = "/schedules?show=bad"
            for _ in range(5):
                text = html.unescape((await http.get(path)).text)
                found += re.findall(r'<tr data-key="(s\d\d)"', text)
                later = re.findall(r'href="([^"]+)" rel="next"', text)
                if not later:
                    break
                path = later[0]
            assert found == ["s03", "s04", "s11"]


async def test_lists_search_a_part_of_the_name(database_url: str) -> None:
    async with browsed(database_url) as (_, http, _parameters):
        for path, wanted in (
            ("/automations?q=AYM", "payments</a>"),
            ("/automations?q=none", "No automation is called like that"),
            ("/workers?q=no-such-machine", "No worker is on such a machine"),
            ("/pipelines?q=none", "No run of a pipeline fits"),
            ("/schedules?q=none", "No schedule is like that"),
            ("/runs?q=OR", "work</a>"),
            ("/runs?q=none", "No run fits these filters"),
            ("/runs?name=wor", "No run fits these filters"),
        ):
            text = (await http.get(path)).text
            assert wanted in text, path


async def test_every_page_counts_what_waits(database_url: str) -> None:
    async with browsed(database_url) as (app, http, _):
        badge = 'class="count hot" title="'
        for path in ("/", "/runs", "/workers"):
            text = (await http.get(path)).text
            assert f"{badge}2 need attention" in text, path
        waits = (await app.automations.show("payments")).mutation
        assert waits is not None
        form = {"answer": "approve", "expected": waits.id}
        await http.post("/automations/payments/answer", data=form)
        assert f"{badge}1 need attention" in (await http.get("/runs")).text


async def test_failed_children_do_not_hide_other_failures(database_url: str) -> None:
    async with browsed(database_url) as (app, http, parameters):
        parent_id = parameters["run_id"]
        below = await app.options(delay="1d").start_many("work", [(True,)] * FAILED_LOOK)
        listed = ", ".join(f"'{run.id}'" for run in below)
        await sql(app.connection.database, "update runs set status = 'failed',"
            f" available_at = null, finished_at = created_at, parent_id = '{parent_id}'"
            f" where id in ({listed})")  # fmt: skip
        text = html.unescape((await http.get("/")).text)
        assert f"/runs/{parent_id}/retry" in text
        assert f"/runs/{below[0].id}/retry" not in text


async def test_the_overview_says_if_it_did_not_read_all_failures(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsed(database_url) as (app, http, _):
        said = "more runs failed than the overview reads"
        assert said not in (await http.get("/")).text
        monkeypatch.setattr(lists, "WINDOW", 2)
        many = await app.options(delay="1d").start_many("work", [(True,)] * 3)
        listed = ", ".join(f"'{run.id}'" for run in many)
        await sql(app.connection.database, "update runs set status = 'failed',"
            f" available_at = null, finished_at = created_at where id in ({listed})")  # fmt: skip
        assert said in (await http.get("/")).text


async def test_all_children_can_be_reached(database_url: str) -> None:
    app = Rota(keep_days=0)

    @app.workflow(name="leaf")
    async def leaf(number: int) -> int:
        return number

    @app.workflow(name="tree")
    async def tree() -> int:
        return sum(await gather(*[leaf(number) for number in range(25)]))

    async with virtual(app, url=database_url) as world:
        run = await app.start("tree")
        await world.settle()
        async with browsing(app) as http:
            http.headers.update(ASKS)
            first = (await http.get(f"/runs/{run.id}")).text
            children = await app.runs.children(run.id, limit=100)
            card = first.partition('id="children"')[2]
            assert card.count("<tr data-key") == 20
            further = (await http.get(f"/runs/{run.id}?children={children[19].id}")).text
            assert further.partition('id="children"')[2].count("<tr data-key") == 5


async def test_older_events_keep_the_filter_of_the_page(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automation_tables, "PAGE_SIZE", 1)
    async with browsed(database_url) as (app, http, _parameters):
        for number in (2, 3):
            await app.automations.publish("payments", "due", f"bill-{number}", "5 EUR")
        text = (await http.get("/automations/payments?tab=events&status=pending")).text
        older = re.findall(r'href="([^"]+)" rel="next"', text)
        assert "status=pending" in html.unescape(older[0])


async def test_outputs_and_events_of_an_automation_are_filtered_by_status(
    database_url: str,
) -> None:
    async with browsed(database_url) as (_, http, _parameters):
        outputs = "/automations/payments?tab=outputs"
        assert "No outputs yet" not in (await http.get(f"{outputs}&status=proposed")).text
        assert "No outputs yet" in (await http.get(f"{outputs}&status=failed")).text
        odd = await http.get("/automations/payments?tab=events&status=none")
        assert (odd.status_code, "There is no status" in odd.text) == (422, True)


async def test_a_time_that_is_none_of_the_choices_is_refused_and_selects_no_run(
    database_url: str,
) -> None:
    async with browsed(database_url) as (app, http, _parameters):
        listed = (await http.get("/runs?name=work&since=2h")).text
        assert "since=2h is none of the choices" in html.unescape(listed)
        form = {"name": "work", "since": "2h", "verb": "retry", "expected": "1"}
        refused = await http.post("/runs/bulk", data=form)
        assert refused.status_code == 409
        assert len(await app.runs.list(name="work", status="failed")) == 1


async def test_a_stale_form_is_refused(database_url: str) -> None:
    async with browsed(database_url) as (_, http, parameters):
        schedule = address("/schedules/{name}", parameters)
        form = {"when": "every 3h", "zone": "UTC", "seen": "0123456789abcdef"}
        refused = await http.post(schedule, data=form)
        assert refused.status_code == 422
        assert "someone changed this schedule" in refused.text
        blind = await http.post(schedule, data={"when": "every 3h", "zone": "UTC"})
        assert blind.status_code == 428


async def test_a_page_of_another_site_cannot_post(database_url: str) -> None:
    async with browsed(database_url) as (_, http, parameters):
        path = f"/runs/{parameters['run_id']}/retry"
        refused = await http.post(path, headers={"sec-fetch-site": "cross-site"})
        assert refused.status_code == 403
        assert BASE.startswith("http://127.0.0.1")


async def test_a_fragment_is_the_page_without_its_icons(database_url: str) -> None:
    async with browsed(database_url) as (_, http, _parameters):
        whole, part = [
            (await http.get("/runs", headers=extra)).text
            for extra in ({}, {"x-rota-fragment": "1"})
        ]
        assert 'id="main"' in part
        assert "<symbol" in whole
        assert "<symbol" not in part


async def test_a_run_is_cancelled_with_time_to_clean_up(database_url: str) -> None:
    app, cleaned = Rota(), []

    @app.workflow(name="careful")
    async def careful() -> None:
        try:
            await wait_for("go")
        finally:
            await sleep("1m")
            cleaned.append(1)

    async with virtual(app, url=database_url) as world, browsing(app) as http:
        http.headers.update(ASKS)
        run = await app.start("careful")
        await world.settle()
        refused = await http.post(f"/runs/{run.id}/cancel", data={"reason": "a", "grace": "soon"})
        assert refused.status_code == 409
        assert 'id="fold-cancel" open' in refused.text
        assert 'name="grace" value="soon"' in refused.text
        asked = await http.post(f"/runs/{run.id}/cancel", data={"reason": "a", "grace": "5m"})
        assert asked.headers["location"].endswith("done=asked_to_end")
        assert "asked to clean up and end" in (await http.get(asked.headers["location"])).text
        await world.drain()
        assert await run.status() == "cancelled:a"
        assert cleaned == [1]
