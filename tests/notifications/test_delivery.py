"""Messages of rules on their way: real loopback servers, virtual time, both databases."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota import Fatal, Rota, this_run
from rota.core.notifications.model import Notification
from rota.core.time.instants import SECOND
from rota.engine.notification_loop import DELIVERY
from rota.errors import MissingExtra, Transient, UsageError
from rota.notifications import Mail, command, webhook
from rota.testing import World, virtual
from tests.kit import select
from tests.pipelines.kit.receiver import Answer, Receiver
from tests.tools.kit.mail_server import Postbox

NASTY = "bad\r\nBcc: eve@example.org\x00\x1b[31m \u2028 'quoted' \"and\" {braces} é ☕"


class Shop(Rota):
    """An app with the workflows `order`, which fails, and `ok`, which completes."""

    def __init__(self) -> None:
        super().__init__(keep_days=0)
        self.message = "sold out"
        self.workflow(name="order")(self._order)
        self.workflow(name="ok")(self._ok)

    async def _order(self) -> None:
        raise Fatal(self.message)

    async def _ok(self) -> str:
        return this_run().id


@contextlib.asynccontextmanager
async def shop(url: str, *answers: Answer, **rule: Any) -> AsyncIterator[tuple[World, Receiver]]:
    """The app with one rule, `hook`, that sends to a receiver."""
    app = Shop()
    async with Receiver(*answers).up() as receiver:
        app.notify("hook", **{"webhook": f"{receiver.url}/T0/secret-path"} | rule)
        async with virtual(app, url=url) as world:
            yield world, receiver


async def pass_until(world: World, holds: Callable[[], bool]) -> None:
    """Let time pass in steps, slowly enough for what is sent on the way."""
    for _ in range(500):
        await world.settle()
        if holds():
            return
        await world.advance("1m")
    raise AssertionError("it did not come to pass within 500 minutes")


async def stored(url: str) -> str:
    """Everything in the database that could show an address."""
    texts = ("select input, output, error, options from runs", "select output, error from steps",
             "select kinds, body, progress from notification_rules",
             "select name, details, sent_to from notifications")  # fmt: skip
    return repr([await select(url, text) for text in texts])


async def test_a_message_is_tried_until_it_is_taken_with_one_id(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    later = Answer(429, headers=(("retry-after", "1200"),))
    async with shop(database_url, Answer(hang_up=True), Answer(500), later) as (world, receiver):
        await world.app.start("order")
        await pass_until(world, lambda: len(receiver.calls) == 3)
        asked_at = world.clock.now()
        await pass_until(world, lambda: len(receiver.calls) == 4)
        assert world.clock.now() - asked_at >= 1100 * SECOND  # it waits as long as it was asked to
        assert len({call.headers["webhook-id"] for call in receiver.calls}) == 1
        message = receiver.calls[-1].message
        assert message["id"] == receiver.calls[0].headers["webhook-id"]
        assert message["kind"] == "failed"
        assert message["text"] == "workflow order failed: Fatal: sold out"
        await world.settle()
        assert [run.label for run in await world.app.runs.list(name=DELIVERY)] == ["completed"]
    assert "secret-path" not in await stored(database_url)
    assert "secret-path" not in caplog.text


async def test_a_receiver_that_asks_for_a_year_gets_its_message_within_the_hour(
    database_url: str,
) -> None:
    later = Answer(429, headers=(("retry-after", "31536000"),))
    async with shop(database_url, later) as (world, receiver):
        await world.app.start("order")
        await pass_until(world, lambda: len(receiver.calls) == 1)
        asked_at = world.clock.now()
        await pass_until(world, lambda: len(receiver.calls) == 2)
        assert 3500 * SECOND <= world.clock.now() - asked_at <= 3700 * SECOND


async def test_a_channel_that_is_down_ends_after_ten_tries_and_can_be_retried(
    database_url: str,
) -> None:
    async with shop(database_url, *[Answer(503)] * 10) as (world, receiver):
        await world.app.start("order")
        await pass_until(world, lambda: len(receiver.calls) == 10)
        await world.advance("1h")
        [run] = await world.app.runs.list(name=DELIVERY)
        assert run.status == "failed"
        await world.app.runs.retry(run.id)
        await pass_until(world, lambda: len(receiver.calls) == 11)
        kinds = [one.notification.kind for one in await world.app.notifications.list()]
        assert kinds == ["failed"]  # a message that is not delivered causes no notification


async def test_a_channel_that_hangs_keeps_no_run_waiting(database_url: str) -> None:
    async with shop(database_url, *[Answer(503)] * 100, limit="50/1h") as (world, _):
        world.app.settings = msgspec.structs.replace(world.app.settings, slots=1)
        for _ in range(30):
            await world.app.start("order")
        run = await world.app.start("ok")
        await world.advance("1m")
        assert await run.result() == run.id


async def test_an_outage_is_one_message_and_one_digest(database_url: str) -> None:
    async with shop(database_url) as (world, receiver):
        await world.app.start_many("order", [()] * 40)
        await world.settle()
        assert [call.message["kind"] for call in receiver.calls] == ["failed"]
        await world.app.start_many("order", [()] * 60)
        began_at = world.clock.now()
        await pass_until(world, lambda: len(receiver.calls) == 2)
        assert world.clock.now() - began_at >= 9 * 60 * SECOND
        digest = receiver.calls[1].message
        assert digest["kind"] == "digest"
        assert digest["count"] == 99
        assert digest["entries"][0]["count"] == 99
        assert "99 × workflow order failed: Fatal: sold out" in digest["text"]
        await world.app.start("order")  # within ten minutes of the digest
        await world.settle()
        assert len(receiver.calls) == 2
        await pass_until(world, lambda: len(receiver.calls) == 3)
        assert receiver.calls[2].message["kind"] == "failed"
        assert receiver.calls[2].message["count"] == 1
        await world.advance("1h")
        await world.app.start("order")
        await pass_until(world, lambda: len(receiver.calls) == 4)
        assert len(await world.app.notifications.list(limit=1000)) == 102


async def test_a_command_gets_the_message(database_url: str, tmp_path: Path) -> None:
    app = Shop()
    app.message = NASTY
    out = tmp_path / "out"
    app.notify("shell", command=f'cat > "{out}"; echo "$ROTA_KIND $ROTA_NAME" >> "{out}.names"')
    async with virtual(app, url=database_url) as world:
        await app.start("order")
        await world.settle()
    message = msgspec.json.decode(out.read_bytes())
    assert message["error"].startswith("Fatal: bad")
    assert "\n" not in message["text"]
    assert (tmp_path / "out.names").read_text() == "failed order\n"


async def test_a_command_gets_a_small_environment_and_the_variables_of_pass_env(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.delenv("CHAT_TOKEN", raising=False)
    app = Shop()
    out = tmp_path / "out"
    app.notify("shell", command=f'env > "{out}"', pass_env=["CHAT_TOKEN"])
    async with virtual(app, url=database_url) as world:
        await app.start("order")
        await pass_until(world, lambda: "the environment has no CHAT_TOKEN" in caplog.text)
        assert not out.exists()
        monkeypatch.setenv("CHAT_TOKEN", "secret-value")
        await pass_until(world, out.exists)
        await world.settle()
    given = out.read_text().splitlines()
    assert "CHAT_TOKEN=secret-value" in given
    assert "ROTA_KIND=failed" in given
    assert f"PATH={os.environ['PATH']}" in given
    assert "OPENAI_API_KEY" not in out.read_text()
    assert "secret-value" not in await stored(database_url)


@pytest.mark.parametrize(
    "line", ["exit 1 # secret-path", "exit 3 # secret-path", "sleep 60 # secret-path"]
)
async def test_a_command_that_fails_or_hangs_is_tried_again_and_not_shown(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    monkeypatch.setattr(command, "COMMAND_S", 0.05)
    caplog.set_level("DEBUG")
    app = Shop()
    app.notify("shell", command=line)
    async with virtual(app, url=database_url) as world:
        await app.start("order")
        await pass_until(world, lambda: "attempt 3" in caplog.text)
    assert "the command" in await stored(database_url)
    assert "secret-path" not in await stored(database_url)
    assert "secret-path" not in caplog.text


async def test_a_ping_says_what_it_is_about(database_url: str) -> None:
    app = Shop()
    async with Receiver().up() as receiver:
        app.notify("switch", ping=f"{receiver.url}/ping")
        async with virtual(app, url=database_url) as world:
            await app.start("order")
            await world.settle()
    assert receiver.paths == ["/ping/fail"]


async def test_a_mail_arrives_once_and_no_header_can_be_forged(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Shop()
    app.message = NASTY
    async with Postbox().up() as box:
        box.faults = ["mail-451", "applied-drop"]
        mail = Mail(host="127.0.0.1", sender="Rota <rota@example.org>", to=["ops@example.org"],
                    tls="none", port=box.port)  # fmt: skip
        app.notify("mail", mail=mail)
        async with virtual(app, url=database_url) as world:
            await app.start("order")
            await pass_until(world, lambda: len(box.mails) == 2)
            await world.settle()
            assert [run.label for run in await app.runs.list(name=DELIVERY)] == ["completed"]
        first, second = box.mails  # the answer to the first was lost
        assert box.recipients == [["ops@example.org"]] * 2
        assert first["Message-ID"] == second["Message-ID"]
        assert first["Bcc"] is None
        assert str(first["Subject"]).startswith("[rota] workflow order failed: Fatal: bad Bcc")


async def test_a_password_is_read_from_the_environment_and_kept_nowhere(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("MAIL_PASSWORD", "correct-horse")
    app = Shop()
    async with Postbox().up() as box:  # it offers no TLS, so nothing is sent
        mail = Mail(host="127.0.0.1", sender="rota@example.org", to=["ops@example.org"],
                    port=box.port, user="rota", password_env="MAIL_PASSWORD")  # fmt: skip
        app.notify("mail", mail=mail)
        async with virtual(app, url=database_url) as world:
            await app.start("order")
            await world.advance("1h")
        assert box.mails == []
    assert "correct-horse" not in await stored(database_url)
    assert "correct-horse" not in caplog.text


async def test_a_function_that_raises_is_called_again_and_a_sync_one_runs_in_a_thread(
    database_url: str,
) -> None:
    app = Shop()
    seen: list[str] = []

    @app.on_notification("failed")
    def noted(notification: Notification) -> None:
        seen.append(notification.id)
        if len(seen) < 3:
            raise RuntimeError("not yet")

    async with virtual(app, url=database_url) as world:
        await app.start("order")
        await pass_until(world, lambda: len(seen) == 3)
    assert len(set(seen)) == 1


async def test_a_rule_is_tested_from_any_folder() -> None:
    app = Shop()
    async with Receiver(Answer(204), Answer(404)).up() as receiver:
        app.notify("hook", webhook=receiver.url, kinds=["missed"])
        message_id = await app.notifications.test("hook")
        [call] = receiver.calls
        assert call.message["id"] == message_id
        assert call.message["kind"] == "missed"
        with pytest.raises(UsageError, match="hoop") as refused:
            await app.notifications.test("hoop")
        assert "hook" in refused.value.advice


async def test_a_test_message_that_cannot_be_sent_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def missing(*_: object, **__: object) -> int:
        raise MissingExtra("HTTP needs the httpx2 package", hint="pip install 'rota[http]'")

    app = Shop()
    app.notify("hook", webhook="http://127.0.0.1:9", kinds=["missed"])
    with pytest.raises(Transient, match=r"127\.0\.0\.1") as unreachable:
        await app.notifications.test("hook")
    assert "test again" in unreachable.value.advice
    monkeypatch.setattr(webhook, "call", missing)
    with pytest.raises(Transient, match="httpx2") as refused:
        await app.notifications.test("hook")
    assert refused.value.advice == "pip install 'rota[http]'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "has no channel"),
        ({"webhook": "https://a.example", "command": "true"}, "webhook and command"),
        ({"webhook": "a.example"}, "webhook is not an address"),
        ({"webhook": "env:A B"}, "webhook is not an address"),
        ({"webhook": "https://a.example", "secret_env": "the key!"}, "secret_env"),
        ({"command": "true", "secret_env": "KEY"}, "secret_env signs a webhook"),
        ({"command": " "}, "command is empty"),
        ({"command": "true", "pass_env": ["A B"]}, "pass_env is not the name"),
        ({"webhook": "https://a.example", "pass_env": ["A"]}, "pass_env is for a command"),
        ({"command": "true", "kinds": ["faild"]}, "no kind 'faild'"),
        ({"command": "true", "sources": ["job"]}, "no source 'job'"),
        ({"command": "true", "limit": "many"}, "is not a rate"),
        ({"command": "true", "limit": "0/1m"}, "is not a rate"),
        ({"mail": Mail(host="h", sender="nobody", to=["a@b.example"])}, "not a mail address"),
        ({"mail": Mail(host="h", sender="a@b.example", to=[])}, "recipients"),
    ],
)  # fmt: skip
def test_a_rule_that_could_never_send_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        Rota().notify("ops", **words)
    assert said in str(refused.value)


def test_two_rules_of_one_name_are_refused() -> None:
    app = Rota()
    app.notify("ops", command="true")
    with pytest.raises(UsageError, match="declared twice"):
        app.notify("ops", command="false")
