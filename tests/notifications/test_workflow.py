"""Telling others: on real loopback servers, in virtual time, on both databases."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.core.notifications.model import NOTIFY
from rota.core.runs.model import NewRun
from rota.errors import Rejected
from rota.notifications import command, webhook
from rota.notifications.receivers import Notify, Recipients
from rota.store.notifications import recipients
from rota.store.runs.start import start_runs
from rota.testing import World, virtual
from tests.kit import select
from tests.pipelines.kit.receiver import Answer, Receiver
from tests.schedules.kit import Noted, outage, resume_work, sound

HOURLY: dict[str, Any] = {"timezone": "UTC"}


class Scene:
    """An app with an hourly schedule that tells a receiver."""

    def __init__(self, world: World, app: Noted, receiver: Receiver) -> None:
        self.world, self.app, self.receiver = world, app, receiver

    async def recipients(self, folder: Path, schedule: str = "hourly", **notify: Any) -> None:
        """Set whom the schedule tells; the address of the receiver represents URL."""
        text = msgspec.json.encode(notify).decode().replace("URL", self.receiver.url)
        seen = Recipients(
            pipeline_id="shaky", name="The shaky one", folder=str(folder),
            notify=msgspec.json.decode(text, type=Notify),
        )  # fmt: skip
        row = (await self.app.schedules.get(schedule)).schedule
        body = msgspec.json.encode(seen).decode()
        await self.app.connection.database.write(recipients.put, row.id, body)

    async def hours(self, count: int = 1) -> None:
        """Let time pass, slowly enough for what is sent on the way."""
        for _ in range(count * 4):
            await self.world.advance("15m")

    async def notified(self) -> list[str]:
        """How the runs that tell have ended."""
        runs = await self.app.runs.list(name=NOTIFY)
        return [run.label for run in reversed(runs)]


async def _fails() -> None:
    raise ValueError("not this time either")


@contextlib.asynccontextmanager
async def scene(url: str, *answers: Answer, **words: Any) -> AsyncIterator[Scene]:
    app = Noted()
    app.workflow(name="failing", retries=2)(_fails)
    app.pipelines.serve()
    async with Receiver(*answers).up() as receiver, virtual(app, url=url) as world:
        await app.schedules.create("hourly", "shaky", "0 * * * *", **HOURLY | words)
        yield Scene(world, app, receiver)
        await sound(app)


async def test_success_failure_and_recovery_are_reported_once_each(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as at:
        everything = {f"on_{event}": "URL/hook" for event in ("success", "failure", "recovery")}
        await at.recipients(tmp_path, **everything)
        await at.hours()
        at.app.broken = True
        await at.hours(2)
        at.app.broken = False
        await at.hours(2)
        assert at.receiver.events == [
            "success", "failure", "failure", "success", "recovery", "success"
        ]  # fmt: skip
        seen = at.receiver.calls[1].message
        assert seen["text"] == "The shaky one failed: Fatal: told to"
        assert seen["pipeline"] == "shaky"
        assert seen["schedule"] == "hourly"
        assert seen["dueAt"] == "2030-01-01T02:00:00.000Z"
        assert seen["outcome"] == "failed"
        assert seen["attempts"] == 1
        assert set(await at.notified()) == {"completed"}


async def test_a_failure_that_is_tried_again_is_reported_when_no_try_is_left(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url, retries=2) as at:
        await at.app.schedules.create("other", "failing", "0 * * * *", **HOURLY)
        await at.recipients(tmp_path, "other", on_failure="URL/hook")
        await at.hours()
        assert at.receiver.calls == []
        await at.world.advance("1m")
        assert at.receiver.events == ["failure"]
        assert at.receiver.calls[0].message["attempts"] == 3


async def test_what_is_missed_is_reported_with_its_reason_and_number(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url, missed="skip") as at:
        await at.recipients(tmp_path, on_missed="URL/hook")
        outage(at.world, "5h30m")
        await resume_work(at.world)
        await at.hours()
        [call] = at.receiver.calls
        assert call.message["event"] == "missed"
        assert call.message["outcome"] == "skipped"
        assert call.message["occurrences"] == 5
        assert "no worker started it in time" in call.message["text"]


async def test_a_webhook_is_signed_and_the_key_is_nowhere(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("HOOK_KEY", "whsec_" + base64.b64encode(b"a very secret key").decode())
    caplog.set_level("DEBUG")
    refused = Answer(status=503)
    async with scene(database_url, refused) as at:
        hook = {"webhook": "URL/services/T0/token-in-path", "secretEnv": "HOOK_KEY"}
        await at.recipients(tmp_path, on_success=hook)
        await at.hours()
        await at.world.advance("1m")
        first, second = at.receiver.calls
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        stamp = second.headers["webhook-timestamp"]
        signed = f"{second.headers['webhook-id']}.{stamp}.".encode() + second.body
        digest = hmac.new(b"a very secret key", signed, hashlib.sha256).digest()
        assert second.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
        assert second.headers["content-type"] == "application/json"
    stored = [
        *await select(database_url, "select input, output, error from runs"),
        *await select(database_url, "select output, error from steps"),
        *await select(database_url, "select body from notices"),
    ]
    assert "secret key" not in repr(stored)
    assert "whsec" not in repr(stored)
    assert "token-in-path" not in repr([row[1] for row in stored if len(row) == 2 and row[1]])
    assert "token-in-path" not in caplog.text
    assert "whsec" not in caplog.text


async def test_nothing_goes_out_unsigned_when_the_key_is_missing(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOOK_KEY", raising=False)
    async with scene(database_url) as at:
        await at.recipients(tmp_path, on_success={"webhook": "URL/hook", "secretEnv": "HOOK_KEY"})
        await at.world.advance("1h")
        assert at.receiver.calls == []
        monkeypatch.setenv("HOOK_KEY", "plain text")
        await at.world.advance("30m")
        assert at.receiver.events == ["success"]


async def test_a_receiver_that_is_down_is_tried_until_it_is_up(
    database_url: str, tmp_path: Path
) -> None:
    later = Answer(429, headers=(("retry-after", "1200"),))
    async with scene(database_url, Answer(hang_up=True), Answer(500), later) as at:
        await at.recipients(tmp_path, on_success="URL/hook")
        await at.world.advance("1h")
        await at.world.advance("10m")
        assert len(at.receiver.calls) == 3  # and now it waits as long as it was asked to
        await at.world.advance("20m")
        assert at.receiver.events == ["success"] * 4
        assert await at.notified() == ["completed"]


async def test_a_redirect_is_not_followed_and_a_refusal_not_repeated(
    database_url: str, tmp_path: Path
) -> None:
    moved = Answer(302, headers=(("location", "http://127.0.0.1:9/elsewhere?token=x"),))
    async with scene(database_url, moved, Answer(404)) as at:
        await at.recipients(tmp_path, on_success="URL/hook")
        await at.hours(2)
        assert at.receiver.paths == ["/hook", "/hook"]
        assert await at.notified() == ["failed:fatal", "failed:fatal"]
        [first, *_] = reversed(await at.app.runs.list(name=NOTIFY))
        assert "moved to http://127.0.0.1:9" in (first.error or "")
        assert "token" not in (first.error or "")


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ((("location", "/elsewhere?token=x"),), "URL"),
        ((), "another address"),
        ((("location", "http://[x"),), "another address"),
        ((("location", "http://h:99999/"),), "another address"),
    ],
)
async def test_a_redirect_without_a_host_names_the_site_that_was_called(
    headers: tuple[tuple[str, str], ...], target: str
) -> None:
    async with Receiver(Answer(302, headers=headers)).up() as receiver:
        with pytest.raises(Rejected) as refused:
            await webhook.call("POST", f"{receiver.url}/hook", headers={})
        said = f"{receiver.url} answered 302: moved to {target.replace('URL', receiver.url)}"
        assert refused.value.message == said


async def test_one_receiver_that_refuses_keeps_no_other_from_being_reported(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as at:
        at.receiver.answers = [Answer(404)]
        out = tmp_path / "told"
        both = ["URL/first", {"webhook": "URL/second", "command": f"cat > '{out}'"}]
        await at.recipients(tmp_path, on_success=both)
        await at.hours()
        assert sorted(at.receiver.paths) == ["/first", "/second"]
        assert msgspec.json.decode(out.read_bytes())["event"] == "success"
        [run] = await at.app.runs.list(name=NOTIFY)
        assert run.label == "failed:fatal"
        # A person fixes the receiver and tries again: only what was not taken is sent again.
        out.unlink()
        await at.app.runs.retry(run.id)
        await at.world.settle()
        assert len(at.receiver.calls) == 3
        assert not out.exists()


async def test_a_command_gets_the_message_and_its_folder_and_is_killed_in_time(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "COMMAND_S", 0.2)
    async with scene(database_url) as at:
        line = 'cat > told; echo "$ROTA_EVENT $ROTA_PIPELINE" > names; test -e ready || sleep 60'
        await at.recipients(tmp_path, on_success={"command": line})
        await at.world.advance("1h")
        await at.world.advance("1s")
        (tmp_path / "ready").touch()
        await at.hours()
        assert (tmp_path / "names").read_text() == "success shaky\n"
        message = msgspec.json.decode((tmp_path / "told").read_bytes())
        assert message["pipeline"] == "shaky"
        first = (await at.app.runs.list(name=NOTIFY))[-1]
        assert first.status == "completed"
        [step] = [one for one in await at.app.runs.steps(first.id) if "send" in one.key]
        assert step.attempt > 1  # the first try was killed


async def test_a_command_that_ends_with_1_has_not_taken_its_message(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as at:
        line = "echo x >> calls; test -e ready || { touch ready; exit 1; }"
        await at.recipients(tmp_path, on_success={"command": line})
        await at.world.advance("1h")
        await at.hours()
        first = (await at.app.runs.list(name=NOTIFY))[-1]
        [step] = [one for one in await at.app.runs.steps(first.id) if "send" in one.key]
        assert (first.status, step.attempt) == ("completed", 2)


async def test_a_command_gets_a_small_environment_and_the_variables_of_pass_env(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.delenv("CHAT_TOKEN", raising=False)
    async with scene(database_url) as at:
        await at.recipients(
            tmp_path, on_success={"command": "env > given", "passEnv": ["CHAT_TOKEN"]}
        )
        await at.world.advance("1h")
        assert not (tmp_path / "given").exists()  # without its variable it is tried again
        monkeypatch.setenv("CHAT_TOKEN", "secret-value")
        await at.world.advance("30m")
        given = (tmp_path / "given").read_text()
        assert "CHAT_TOKEN=secret-value\n" in given
        assert "ROTA_EVENT=success\n" in given
        assert f"PATH={os.environ['PATH']}\n" in given
        assert "OPENAI_API_KEY" not in given
        assert await at.notified() == ["completed"]
    stored = [
        *await select(database_url, "select input, output, error from runs"),
        *await select(database_url, "select output, error from steps"),
        *await select(database_url, "select body from notices"),
    ]
    assert "CHAT_TOKEN" in repr(stored)
    assert "secret-value" not in repr(stored)


async def test_an_execution_that_was_called_off_is_nobodys_news(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as at:
        await at.app.schedules.create("slow", "long", "0 * * * *", **HOURLY)
        seen = {"on_success": "URL/hook", "on_failure": "URL/hook", "ping": "URL/ping"}
        await at.recipients(tmp_path, "slow", **seen)
        await at.world.advance("1h")
        [run] = await at.app.runs.list(name="long")
        await at.app.runs.cancel(run.id)
        await at.world.settle()
        assert at.receiver.calls == []


async def test_a_chain_that_a_person_tries_again_recovers(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as at:
        await at.recipients(tmp_path, on_failure="URL/hook", on_recovery="URL/hook")
        at.app.broken = True
        await at.hours()
        at.app.broken = False
        [run] = await at.app.runs.list(name="shaky")
        await at.app.runs.retry(run.id)
        await at.world.settle()
        assert at.receiver.events == ["failure", "recovery"]


async def test_a_failure_by_hand_recovers_with_the_next_success(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url) as at:
        await at.recipients(tmp_path, on_failure="URL/hook", on_recovery="URL/hook")
        await at.hours()
        at.app.broken = True
        await at.world.advance("1m")
        await at.app.schedules.trigger("hourly")
        await at.world.settle()
        at.app.broken = False
        await at.hours(2)
        assert at.receiver.events == ["failure", "recovery"]
        at.app.broken = True
        await at.world.advance("1m")
        await at.app.schedules.trigger("hourly")
        await at.world.settle()
        at.app.broken = False
        await at.world.advance("1m")
        await at.app.schedules.trigger("hourly")
        await at.hours(2)
        assert at.receiver.events == ["failure", "recovery"] * 2


async def test_a_recovery_by_hand_is_reported_once(database_url: str, tmp_path: Path) -> None:
    async with scene(database_url) as at:
        await at.recipients(tmp_path, on_failure="URL/hook", on_recovery="URL/hook")
        at.app.broken = True
        await at.hours()
        at.app.broken = False
        await at.world.advance("1m")
        await at.app.schedules.trigger("hourly")
        await at.hours(2)
        assert at.receiver.events == ["failure", "recovery"]


async def test_a_schedule_that_is_gone_still_reports_what_has_ended(
    database_url: str, tmp_path: Path
) -> None:
    async with scene(database_url, Answer(503)) as at:
        await at.recipients(tmp_path, on_success="URL/hook")
        await at.world.advance("1h")
        await at.app.schedules.delete("hourly")
        await at.hours()
        assert at.receiver.events == ["success", "success"]


async def test_an_address_may_stand_in_the_environment_alone(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(database_url) as at:
        monkeypatch.delenv("CHAT_HOOK", raising=False)
        monkeypatch.setenv("SWITCH", f"{at.receiver.url}/ping/secret-part")
        await at.recipients(tmp_path, on_success="env:CHAT_HOOK", ping="env:SWITCH")
        await at.world.advance("1h")
        assert at.receiver.paths == ["/ping/secret-part"]
        monkeypatch.setenv("CHAT_HOOK", f"{at.receiver.url}/hook/secret-part")
        await at.world.advance("5m")
        assert at.receiver.paths == ["/ping/secret-part", "/hook/secret-part"]
    stored = [
        *await select(database_url, "select input, output, error from runs"),
        *await select(database_url, "select key, output, error from steps"),
    ]
    assert "secret-part" not in repr(stored)


async def test_messages_that_the_version_before_had_begun_are_sent(
    database_url: str, tmp_path: Path
) -> None:
    """That version inserted the run in the settling transaction, and wrote no kind into it."""
    async with scene(database_url) as at:
        await at.hours()
        [done] = await at.app.runs.list(name="shaky")
        tells = {
            "pipeline_id": "shaky", "name": "The shaky one", "folder": str(tmp_path),
            "notify": {"on_success": f"{at.receiver.url}/hook", "ping": f"{at.receiver.url}/ping"},
        }  # fmt: skip
        now = at.world.clock.now()
        for what, key in (("ended", done.id), ("began", f"{done.id}:began")):
            body = msgspec.json.encode({"run_id": done.id, "what": what, "tells": tells}).decode()
            run = NewRun(
                id=at.app.ids.make(now), namespace=at.app.settings.namespace, name=NOTIFY,
                available_at=now, input=body, external_id=key, trigger="event",
            )  # fmt: skip
            await at.app.connection.database.write(start_runs, [run], now=now)
        await at.world.settle()
        assert at.receiver.events[:1] == ["success"]
        assert sorted(at.receiver.paths) == ["/hook", "/ping"]
        [hook] = [call for call in at.receiver.calls if call.path == "/hook"]
        assert hook.headers["webhook-id"] == f"{done.id}-success-0"
        assert await at.notified() == ["completed", "completed"]
