"""The text of messages, their address and their signature: without a receiver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.core.webhook_signatures import key_bytes, signature
from rota.errors import Rejected
from rota.notifications.messages import Facts, deliveries, events_of
from rota.notifications.receivers import Notice, Notify, Recipients, receivers
from rota.notifications.webhook import Ping, ping_address, shown
from rota.store.schedules.attempts import Attempt
from tests.pipelines.kit import problem_lines
from tests.pipelines.kit.offline_folder import written

RUN = "01a1e2b1103b71a594930f72e9115d21"
RID = "rid=01a1e2b1-103b-71a5-9493-0f72e9115d21"


def attempt(status: str, reason: str | None = None, **fields: Any) -> Attempt:
    blank = Attempt(RUN, RUN, status, reason, "schedule", 0, 1, 0, 1, 2, None, None)
    return blank._replace(**fields)


def facts(*attempts: Attempt, count: int = 1) -> Facts:
    return Facts(attempts=attempts, schedule="daily-1", skipped_count=count)


def test_a_signature_is_that_of_the_published_example() -> None:
    assert (
        signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
            timestamp=1614265330,
            body=b'{"test": 2432232314}',
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_a_key_is_a_text_or_base64_and_a_broken_one_is_not_shown() -> None:
    assert key_bytes("plain") == b"plain"
    with pytest.raises(Rejected) as refused:
        key_bytes("whsec_not base64!")
    assert "not base64!" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "event", "called"),
    [
        ("https://hc.example/ping/3f", "start", f"https://hc.example/ping/3f/start?{RID}"),
        ("https://hc.example/ping/3f/", "success", f"https://hc.example/ping/3f?{RID}"),
        ("https://hc.example/ping/3f", "fail", f"https://hc.example/ping/3f/fail?{RID}"),
        ("https://hc.example/ping/3f", "missed", f"https://hc.example/ping/3f/log?{RID}"),
        ("https://hc.example/p?k=v#x", "fail", f"https://hc.example/p/fail?k=v&{RID}"),
        ("https://own.example/{event}?job=7", "missed", "https://own.example/missed?job=7"),
    ],
)
def test_the_address_of_a_ping(url: str, event: Ping, called: str) -> None:
    assert ping_address(url, event, run_id=RUN) == called


@pytest.mark.parametrize(
    ("what", "status", "reason", "events"),
    [
        ("succeeded", "completed", None, ["success"]),
        ("recovered", "completed", None, ["success", "recovery"]),
        ("failed", "completed", "partial", ["failure"]),
        ("failed", "failed", "logic", ["failure"]),
        ("quarantined:n1", "crashed", None, ["failure"]),
        ("needs_attention:n1", "waiting", "login", ["failure"]),
        ("needs_attention:n1", "running", None, []),
        ("needs_attention:n1", "completed", None, []),
        ("missed", "skipped", "too late", ["missed"]),
        ("failed", "cancelled", "by request", []),
        # As the version before stored it.
        ("ended", "completed", None, ["success"]),
        ("ended", "completed", "partial", ["failure"]),
        ("ended", "failed", "logic", ["failure"]),
        ("waits", "waiting", "login", ["failure"]),
        ("skipped", "skipped", "missed", ["missed"]),
    ],
)
def test_what_a_notification_means(
    what: str, status: str, reason: str | None, events: list[str]
) -> None:
    assert events_of(what, attempt(status, reason)) == events


def test_a_receiver_with_a_webhook_and_a_command_is_two() -> None:
    both = Notice(webhook="https://a.example", command="cat", secret_env="KEY", pass_env=["TOKEN"])
    found = list(receivers(Notify(on_failure=["https://b.example", both]), "failure"))
    assert found == [
        Notice(webhook="https://b.example"),
        Notice(webhook="https://a.example", secret_env="KEY"),
        Notice(command="cat", pass_env=["TOKEN"]),
    ]
    assert list(receivers(Notify(), "failure")) == []


def test_each_event_goes_to_its_own_and_the_switch_learns_of_every_end() -> None:
    notify = Notify(on_success="https://s.example", on_recovery="https://r.example",
        ping="https://p.example")  # fmt: skip
    tells = Recipients(pipeline_id="p", name="P", folder="/", notify=notify)
    found = deliveries(tells, facts(attempt("completed")), "recovered")
    assert [(one.way, one.event) for one in found] == [
        ("webhook", "success"), ("ping", "ping success"), ("webhook", "recovery"),
    ]  # fmt: skip


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    assert shown("https://user:pw@chat.example:8443/T0/secret?token=1") == (
        "https://chat.example:8443"
    )


@pytest.mark.parametrize(
    ("notify", "said"),
    [
        ("on_failure: hooks.example/T0", "schedule.notify.on_failure is not an address"),
        ("on_failure: [https://a.example, 'ftp://b']", "on_failure[2] is not an address"),
        ("on_success: {secretEnv: KEY}", "names no receiver: give webhook or command"),
        ("on_success: {secretEnv: KEY}", "secretEnv signs a webhook, and there is none"),
        ("on_success: {command: ' '}", "on_success.command is empty"),
        ("on_missed: {webhook: 'https://a.example', secretEnv: 'a key!'}", "not the key itself"),
        ("on_missed: {command: 'true', passEnv: ['A B']}", "is not the name of an environment"),
        ("on_missed: {webhook: 'https://a.example', passEnv: [A]}", "passEnv is for a command"),
        ("ping: 'https://'", "schedule.notify.ping is not an address"),
        ("on_recover: https://a.example", "on_recovery"),
        ("ping: 'env:MY HOOK'", "env: is followed by the name of a variable"),
    ],
)
def test_what_could_never_be_sent_is_reported_when_the_file_is_read(
    tmp_path: Path, notify: str, said: str
) -> None:
    problems = problem_lines(
        tmp_path / "p", written("p", f'cron: "0 9 * * *"\nnotify: {{{notify}}}')
    )
    assert any(said in each for each in problems), problems


def test_good_receivers_of_all_kinds_are_taken(tmp_path: Path) -> None:
    notify = """
notify:
  on_failure: https://chat.example/hooks/T0/abc
  on_success: [https://a.example, {command: "cat"}]
  on_recovery: {webhook: "http://localhost:8080/x", secretEnv: OPS_KEY}
  on_missed: env:CHAT_HOOK
  ping: "https://hc.example/{event}"
"""
    assert problem_lines(tmp_path / "p", written("p", f'cron: "0 9 * * *"{notify}')) == []
