"""A provider that is down, throttles, or wants money: said at once, and ended by the policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.errors import RunFailed
from rota.explain.run import RunExplainer
from tests.ai.kit.model_server import Model, Say
from tests.kit import until
from tests.pipelines.kit.live_app import World, ai_settings, waits_for_person, world

CLOSED = "http://127.0.0.1:9"  # no server listens there
MANY = f"""
name: Many
settings: {{retry: {{maxRetries: 1, retryDelayMs: 1}}}}
input: {{items: [{", ".join(f"{{w: {number}}}" for number in range(30))}]}}
map: {{prompt: "Say {{{{w}}}}", parallel: 5}}
reduce: {{type: json}}
"""
FILTERED = MANY.replace("map:", 'filter: {type: ai, ai: {prompt: "Keep {{w}}?"}}\nmap:')
BROKEN = Say(status=500, raw=b"{}")


def waits(it: World) -> list[str | None]:
    """Events about waits, each change once."""
    reported = [progress.waiting for progress in it.reported]
    return [
        each for number, each in enumerate(reported) if not number or reported[number - 1] != each
    ]


@pytest.mark.slow
@pytest.mark.parametrize("text", [MANY, FILTERED], ids=["map", "filter"])
async def test_a_provider_that_is_down_ends_the_run_when_the_retries_are_used_up(
    database_url: str, tmp_path: Path, text: str
) -> None:
    async with world(database_url, tmp_path) as it:
        limits = {"failures_max": 3, "open_s": 1.1}
        it.app.pipelines.use(ai_settings(CLOSED, limits=limits))
        ref = await it.app.pipelines.start(it.pipeline(text))
        # Five calls wait for the breaker once; the other items do not wait again.
        with pytest.raises(RunFailed, match="all 30 items failed"):
            await ref.result(timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert (result.failed, result.calls) == (30, 0)
        assert result.failed_by == {"Transient": 30}
        said = [each for each in waits(it) if each is not None]
        assert "cannot be reached" in said[0] or "circuit breaker" in said[0]
        assert "next try in" in said[0]


async def test_why_says_that_a_run_waits_for_its_provider(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        it.app.pipelines.use(ai_settings(CLOSED, limits={"failures_max": 3, "open_s": 60}))
        ref = await it.app.pipelines.start(it.pipeline(MANY))

        async def why() -> Any:
            found = await RunExplainer(it.app, "UTC").of(await it.app.runs.get(ref.id))
            return found if found.verdict == "waits_provider" else None

        found = await until(why)
        assert "has been waiting for its AI provider since" in found.clause
        assert "local" in found.facts["provider_said"]
        await it.app.runs.cancel(ref.id)


async def test_a_run_goes_on_when_its_provider_is_back(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(*[BROKEN] * 5)) as it:
        it.app.pipelines.use(ai_settings(it.model.url, limits={"failures_max": 1, "open_s": 1.1}))
        result = await it.run(MANY)
        assert (result.outcome, result.processed) == ("completed", 30)
        reported = waits(it)
        assert reported[0] is None
        assert reported[-1] is None
        assert any(each is not None for each in reported)
        [run] = await it.app.runs.list()
        found = await RunExplainer(it.app, "UTC").of(run)
        assert found.verdict == "completed"


async def test_no_retries_mean_no_wait_for_a_provider_that_is_down(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        it.app.pipelines.use(ai_settings(CLOSED, limits={"failures_max": 3, "open_s": 600}))
        result = await it.run(MANY.replace("maxRetries: 1", "maxRetries: 0"))
        assert (result.outcome, result.failed) == ("failed", 30)


async def test_a_wait_that_is_longer_than_allowed_fails_the_item(
    database_url: str, tmp_path: Path
) -> None:
    slow = Say(status=429, raw=b"{}", headers={"retry-after": "3600"})
    async with world(database_url, tmp_path, Model(answer=lambda asked: slow)) as it:
        result = await it.run(MANY)
        assert (result.outcome, result.failed, result.calls) == ("failed", 30, 0)
        assert len(it.prompts) <= 5


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    """Whether the log has a text; a run is logged after its result is there."""
    return text in caplog.text


async def test_the_timeout_of_a_run_ends_its_waits(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with world(database_url, tmp_path) as it:
        it.app.pipelines.use(ai_settings(CLOSED, limits={"failures_max": 3, "open_s": 300}))
        text = MANY.replace("settings: {", "settings: {runTimeoutMs: 1500, ")
        text = text.replace("maxRetries: 1", "maxRetries: 9")
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match=r"took longer than 1\.5 s"):
            await ref.result(timeout=60)
        await until(lambda: logged(caplog, "settings.runTimeoutMs"))


NO_CREDIT = {
    "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}
}
BAD_KEY = [{"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}}]


@pytest.mark.parametrize(
    ("body", "error"),
    [pytest.param(NO_CREDIT, "NeedsPermission", id="no credit"),
     pytest.param(BAD_KEY, "NeedsLogin", id="a bad key")],
)  # fmt: skip
async def test_an_account_that_cannot_be_used_stops_the_run(
    database_url: str, tmp_path: Path, body: Any, error: str
) -> None:
    refuse = Say(status=400, raw=json.dumps(body).encode())
    async with world(database_url, tmp_path, Model(answer=lambda asked: refuse)) as it:
        ref = await it.app.pipelines.start(it.pipeline(MANY))
        kind = {"NeedsLogin": "auth", "NeedsPermission": "permission"}[error]
        await until(lambda: waits_for_person(it.app, ref.id, kind))
        assert error in ((await ref.run()).error or "")
        result = await it.app.pipelines.result(ref.id)
        assert (result.processed, result.failed, result.skipped) == (0, 0, 30)
        assert len(it.prompts) <= 5
