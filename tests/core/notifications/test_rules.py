"""Notifications that become a message, and those that wait for the digest: pure decisions."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.notifications.model import Details, Notification, NotificationKind
from rota.core.notifications.rules import (
    HELD_MAX,
    NotificationFilters,
    NotificationMessage,
    NotificationRule,
    RuleProgress,
    dispatch,
)
from rota.core.runs.rate_limit import SKEW_US
from rota.core.time.instants import MINUTE
from tests.kit.sampling import examples

RULE = NotificationRule(limit=3, every_us=10 * MINUTE)


def note(name: str = "order", *, at: int = MINUTE, **fields: Any) -> Notification:
    kind = fields.pop("kind", NotificationKind.FAILED)
    return Notification(
        id=f"{name}-{at}", kind=kind, source="workflow", name=name, run_id="r", at=at, **fields
    )


def send(
    state: RuleProgress, *fresh: Notification, now: int, rule: NotificationRule = RULE
) -> tuple[list[NotificationMessage], RuleProgress, int | None]:
    plan = dispatch(rule, state, fresh, now=now, digest_id=f"digest-{now}")
    return plan.messages, plan.state, plan.due_at


def test_each_name_is_sent_once_at_once_and_the_rest_is_one_digest() -> None:
    fresh = [note("a"), note("b"), note("a"), note("a")]
    messages, state, due_at = send(RuleProgress(), *fresh, now=MINUTE)
    assert [one.text for one in messages] == ["workflow a failed.", "workflow b failed."]
    assert due_at == 11 * MINUTE
    early, state, _ = send(state, now=10 * MINUTE)
    assert early == []
    [digest], state, due_at = send(state, now=11 * MINUTE)
    assert (digest.kind, digest.count, digest.id) == ("digest", 2, f"digest-{11 * MINUTE}")
    assert due_at is None
    assert send(state, now=21 * MINUTE) == ([], RuleProgress(), None)


def test_a_rule_sends_no_more_than_its_limit_whatever_the_names() -> None:
    fresh = [note(f"w{number}") for number in range(1000)]
    messages, state, _ = send(RuleProgress(), *fresh, now=MINUTE)
    assert len(messages) == 3
    assert len(state.held) == HELD_MAX
    [digest], _, _ = send(state, now=11 * MINUTE)
    assert digest.count == 997
    assert digest.others == 997 - HELD_MAX


def test_after_the_clock_was_set_back_the_digest_comes_at_once() -> None:
    ahead = 60 * 24 * 365 * MINUTE
    _, state, _ = send(RuleProgress(), note("a"), note("a"), now=ahead)
    messages, state, due_at = send(state, note("b"), note("b"), now=5 * MINUTE)
    assert [one.text for one in messages] == ["workflow a failed.", "workflow b failed."]
    assert (state.began_at, due_at) == (5 * MINUTE, 15 * MINUTE)


def test_clocks_of_workers_that_differ_a_little_do_not_end_the_window() -> None:
    _, state, due_at = send(RuleProgress(), note("a"), note("a"), now=5 * MINUTE)
    assert send(state, now=5 * MINUTE - SKEW_US) == ([], state, due_at)


def test_a_digest_of_one_is_that_notification() -> None:
    _, state, _ = send(RuleProgress(), note(at=1), note(at=2), now=MINUTE)
    [message], _, _ = send(state, now=11 * MINUTE)
    assert message.kind == "failed"
    assert message.single == note(at=2)


def test_kinds_of_one_name_are_different_news() -> None:
    recovered = note(kind=NotificationKind.RECOVERED)
    messages, _, _ = send(RuleProgress(), note(), recovered, now=MINUTE)
    assert [one.kind for one in messages] == ["failed", "recovered"]


def test_without_a_limit_each_is_a_message() -> None:
    rule = NotificationRule(limit=None)
    messages, state, due_at = send(RuleProgress(), *[note()] * 5, now=MINUTE, rule=rule)
    assert (len(messages), state, due_at) == (5, RuleProgress(), None)


@given(
    batches=st.lists(
        st.tuples(st.lists(st.sampled_from("abcdefgh"), max_size=8), st.integers(0, 15 * MINUTE)),
        max_size=12,
    ),
    limit=st.integers(1, 4),
)
@settings(max_examples=examples(200))
def test_no_notification_is_lost_or_sent_twice_and_the_limit_holds(
    batches: list[tuple[list[str], int]], limit: int
) -> None:
    rule = NotificationRule(limit=limit, every_us=10 * MINUTE)
    state, now, count, times = RuleProgress(), MINUTE, 0, []
    for names, wait in [*batches, ([], 10 * MINUTE), ([], 10 * MINUTE)]:
        now += wait
        fresh = [note(name, at=now) for name in names]
        messages, state, _ = send(state, *fresh, now=now, rule=rule)
        count += sum(message.count for message in messages)
        times += [now] * len(messages)
    assert count == sum(len(names) for names, _ in batches)
    for begin in times:
        within = [at for at in times if begin <= at < begin + 10 * MINUTE]
        assert len(within) <= 2 * limit + 1  # the end of one span, and all of the next


def test_hostile_values_stay_on_one_line_of_bounded_length() -> None:
    text = note("a\r\nBcc: eve", details=Details(error="x\x00\u2028\n" * 5000)).text
    assert text.splitlines() == [text]
    assert len(text) <= 600


def test_filters() -> None:
    one = note("billing-eu", schedule="nightly", queue="slow", tags={"team": "shop", "x": "1"})
    wanted = [
        NotificationFilters(),
        NotificationFilters(names=("billing*",)),
        NotificationFilters(names=("other", "night*")),
        NotificationFilters(queues=("slow",), tags={"team": "shop"}),
        NotificationFilters(kinds=(NotificationKind.FAILED,), sources=("workflow",)),
    ]
    refused = [
        NotificationFilters(names=("Billing*",)),
        NotificationFilters(queues=("fast",)),
        NotificationFilters(tags={"team": "ops"}),
        NotificationFilters(kinds=(NotificationKind.MISSED,)),
        NotificationFilters(sources=("automation",)),
    ]
    assert all(filters.wants(one) for filters in wanted)
    assert not any(filters.wants(one) for filters in refused)


def test_approvals_are_limited_neither_by_name_nor_by_number() -> None:
    fresh = [note("pay", at=at, kind=NotificationKind.APPROVAL_WANTED) for at in range(1, 51)]
    messages, state, due_at = send(RuleProgress(), *fresh, now=MINUTE)
    assert [one.count for one in messages] == [1] * 50
    assert (state, due_at) == (RuleProgress(), None)
