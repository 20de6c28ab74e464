"""The decision of firing, pure: which occurrences owed run, which are skipped, and why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.schedules.firing_plan import (
    Before,
    Fire,
    FiringPlan,
    Skip,
    decide,
    jitter_us,
)
from rota.core.schedules.intent import (
    Intent,
    Missed,
    Overlap,
    Policies,
)
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.recurrence import Spec, between, count_between, next_after, parse
from rota.errors import BadSchedule
from tests.kit.sampling import examples

NOW = 1_893_456_000 * SECOND  # 2030-01-01T00:00Z
HOURLY = parse("0 * * * *", zone="UTC", now=NOW)
IDLE = Before()


def intent(spec: Spec = HOURLY, fired_count: int = 0, **policies: Any) -> Intent:
    return Intent("w", spec, "text", Policies(**policies), fired_count=fired_count)


def owed(count: int, late: int = 10 * MINUTE, before: Before = IDLE, **policies: Any) -> FiringPlan:
    """The plan of an hourly schedule with `count` owed, the last of them `late`."""
    now = NOW + count * HOUR + late
    fired_count = policies.pop("fired_count", 0)
    return decide(
        intent(fired_count=fired_count, **policies), due_at=NOW + HOUR, now=now, before=before
    )


def hour(number: int) -> int:
    return NOW + number * HOUR


# -- one is due ------------------------------------------------------------------------------


def test_exactly_one_is_due_the_common_case() -> None:
    plan = owed(1, late=0)
    assert plan == FiringPlan([Fire(hour(1), False)], [], hour(2), False, None)


@pytest.mark.parametrize("missed", list(Missed))
def test_on_time_fires_whatever_the_policy_about_missed_ones(missed: Missed) -> None:
    assert owed(1, late=SECOND, missed=missed, missed_max=0).fires == [Fire(hour(1), False)]


def test_exactly_at_the_tolerance_is_on_time_and_beyond_it_is_late() -> None:
    assert owed(1, late=30 * SECOND, missed=Missed.SKIP).fires
    plan = owed(1, late=30 * SECOND + 1, missed=Missed.SKIP)
    assert (plan.fires, plan.skips) == ([], [Skip(hour(1), "missed", hour(1), 1)])


# -- missed ----------------------------------------------------------------------------------


def test_missed_run_takes_the_latest() -> None:
    plan = owed(3)
    assert plan.fires == [Fire(hour(3), False)]
    assert plan.skips == [Skip(hour(n), "missed", hour(n), 1) for n in (1, 2)]
    assert plan.next_due_at == hour(4)


def test_a_long_row_of_skips_is_one_entry_with_from_to_and_count() -> None:
    assert owed(30).skips == [Skip(hour(29), "missed", hour(1), 29)]


def test_missed_skip_takes_none() -> None:
    assert owed(5, missed=Missed.SKIP).fires == []


@pytest.mark.parametrize(("limit", "fired"), [(0, []), (2, [4, 5]), (9, [1, 2, 3, 4, 5])])
def test_missed_all_takes_the_latest_up_to_n(limit: int, fired: list[int]) -> None:
    plan = owed(5, missed=Missed.ALL, missed_max=limit, overlap=Overlap.ALLOW)
    assert [fire.due_at for fire in plan.fires] == [hour(n) for n in fired]


def test_missed_all_takes_more_than_a_thousand_when_asked_to() -> None:
    plan = owed(2500, missed=Missed.ALL, missed_max=2000, overlap=Overlap.ALLOW)
    assert len(plan.fires) == 2000
    assert sum(skip.occurrences for skip in plan.skips) == 500


def test_catching_up_goes_on_where_a_bounded_plan_stopped() -> None:
    rules: dict[str, Any] = {"missed": Missed.ALL, "missed_max": 70, "overlap": Overlap.ALLOW}
    now, due_at, dues, skipped = hour(100) + 10 * MINUTE, hour(1), [], 0
    for _ in range(4):
        plan = decide(intent(**rules), due_at=due_at, now=now, before=IDLE, most=20)
        dues += [fire.due_at for fire in plan.fires]
        skipped += sum(skip.occurrences for skip in plan.skips)
        assert plan.next_due_at is not None
        due_at = plan.next_due_at
    assert dues == [hour(n) for n in range(31, 101)]
    assert (skipped, due_at) == (30, hour(101))


def test_a_bounded_plan_leaves_max_runs_to_the_last_part() -> None:
    rules: dict[str, Any] = {"missed": Missed.ALL, "overlap": Overlap.ALLOW, "runs_max": 25}
    now = hour(40) + 10 * MINUTE
    first = decide(intent(**rules), due_at=hour(1), now=now, before=IDLE, most=20)
    assert (len(first.fires), first.skips, first.next_due_at) == (20, [], hour(21))
    rest = decide(intent(fired_count=20, **rules), due_at=hour(21), now=now, before=IDLE, most=20)
    assert [fire.due_at for fire in rest.fires] == [hour(n) for n in range(21, 26)]
    assert rest.skips == [Skip(hour(40), "max runs", hour(26), 15)]
    assert rest.pause == "all its runs are done"


def test_a_hundred_million_owed_are_counted_and_not_listed() -> None:
    secondly = parse("* * * * * *", zone="UTC", now=NOW)
    now = NOW + 1200 * DAY
    rules: dict[str, Any] = {"missed": Missed.ALL, "missed_max": 50_000_000}
    plan = decide(
        intent(secondly, overlap=Overlap.ALLOW, **rules), due_at=NOW + SECOND, now=now,
        before=IDLE, most=10,
    )  # fmt: skip
    assert len(plan.fires) == 10
    assert plan.skips[0].occurrences == 1200 * 86_400 - 50_000_000 - 31


def test_too_late_is_not_run_at_all() -> None:
    plan = owed(5, delay_us_max=90 * MINUTE, missed=Missed.ALL, overlap=Overlap.ALLOW)
    assert [fire.due_at for fire in plan.fires] == [hour(4), hour(5)]
    assert {skip.reason for skip in plan.skips} == {"too late"}
    assert owed(5, late=31 * MINUTE, delay_us_max=30 * MINUTE).fires == []


def test_exactly_the_longest_delay_is_not_too_late() -> None:
    assert owed(1, late=30 * MINUTE, delay_us_max=30 * MINUTE).fires
    assert not owed(1, late=30 * MINUTE + 1, delay_us_max=30 * MINUTE).fires


# -- overlap ---------------------------------------------------------------------------------

NONE, BUSY, QUEUED = Before(), Before(running=1), Before(running=1, waiting=1)


@pytest.mark.parametrize(
    ("overlap", "before", "fires", "cancels"),
    [
        (Overlap.QUEUE, NONE, [Fire(hour(1), False)], False),
        (Overlap.QUEUE, BUSY, [Fire(hour(1), True)], False),
        (Overlap.QUEUE, QUEUED, [], False),
        (Overlap.SKIP, NONE, [Fire(hour(1), False)], False),
        (Overlap.SKIP, BUSY, [], False),
        (Overlap.ALLOW, NONE, [Fire(hour(1), False)], False),
        (Overlap.ALLOW, BUSY, [Fire(hour(1), False)], False),
        (Overlap.CANCEL, NONE, [Fire(hour(1), False)], False),
        (Overlap.CANCEL, BUSY, [Fire(hour(1), False)], True),
    ],
)
def test_overlap_by_what_is_open(
    overlap: Overlap, before: Before, fires: list[Fire], cancels: bool
) -> None:
    plan = owed(1, late=0, before=before, overlap=overlap)
    assert (plan.fires, plan.cancels) == (fires, cancels)
    assert len(plan.fires) + len(plan.skips) == 1


def test_missed_all_queues_every_one_oldest_first() -> None:
    plan = owed(4, missed=Missed.ALL)
    assert plan.fires == [Fire(hour(n), n > 1) for n in (1, 2, 3, 4)]
    assert plan.skips == []
    for before in (BUSY, QUEUED):
        assert owed(4, before=before, missed=Missed.ALL).fires == [
            Fire(hour(n), True) for n in (1, 2, 3, 4)
        ]


def test_missed_all_queues_the_latest_up_to_its_bound() -> None:
    plan = owed(5, missed=Missed.ALL, missed_max=2)
    assert plan.fires == [Fire(hour(4), False), Fire(hour(5), True)]
    assert [skip.reason for skip in plan.skips] == ["missed"] * 3


def test_missed_all_still_merges_an_occurrence_that_is_on_time() -> None:
    plan = owed(1, late=SECOND, before=QUEUED, missed=Missed.ALL)
    assert plan.fires == []
    assert [skip.reason for skip in plan.skips] == ["merged"]


@pytest.mark.parametrize("late", [0, 10 * MINUTE])
def test_queue_all_merges_none(late: int) -> None:
    for before in (BUSY, QUEUED):
        plan = owed(1, late=late, before=before, overlap=Overlap.QUEUE_ALL)
        assert (plan.fires, plan.skips) == ([Fire(hour(1), True)], [])
    assert owed(1, late=late, overlap=Overlap.QUEUE_ALL).fires == [Fire(hour(1), False)]


def test_queue_all_leaves_what_is_missed_to_that_policy() -> None:
    plan = owed(3, before=BUSY, overlap=Overlap.QUEUE_ALL)
    assert plan.fires == [Fire(hour(3), True)]
    assert [skip.reason for skip in plan.skips] == ["missed"] * 2


def test_a_long_queue_is_caught_up_on_in_bounded_parts() -> None:
    rules = intent(missed=Missed.ALL)
    first = decide(rules, due_at=hour(1), now=hour(5), before=IDLE, most=3)
    assert first.fires == [Fire(hour(1), False), Fire(hour(2), True), Fire(hour(3), True)]
    assert first.next_due_at == hour(4)
    rest = decide(rules, due_at=hour(4), now=hour(5), before=Before(1, 2), most=3)
    assert rest.fires == [Fire(hour(4), True), Fire(hour(5), True)]


@pytest.mark.parametrize("before", [BUSY, QUEUED])
def test_skip_leaves_all_of_several_out_while_one_is_open(before: Before) -> None:
    plan = owed(3, before=before, overlap=Overlap.SKIP, missed=Missed.ALL)
    assert plan.fires == []
    assert [skip.reason for skip in plan.skips] == ["overlap"] * 3


def test_nothing_is_cancelled_for_an_occurrence_that_does_not_run() -> None:
    plan = owed(3, before=BUSY, overlap=Overlap.CANCEL, missed=Missed.SKIP)
    assert (plan.fires, plan.cancels) == ([], False)


def test_of_several_at_once_cancel_running_keeps_the_newest() -> None:
    plan = owed(3, overlap=Overlap.CANCEL, missed=Missed.ALL)
    assert plan.fires == [Fire(hour(3), False)]


# -- ends ------------------------------------------------------------------------------------


def test_max_runs_ends_the_schedule_with_its_last_run() -> None:
    assert owed(1, late=0, runs_max=3, fired_count=1).pause is None
    plan = owed(1, late=0, runs_max=3, fired_count=2)
    assert len(plan.fires) == 1
    assert (plan.next_due_at, plan.pause) == (None, "all its runs are done")


def test_max_runs_is_never_exceeded_by_catching_up() -> None:
    plan = owed(9, runs_max=4, fired_count=1, missed=Missed.ALL, overlap=Overlap.ALLOW)
    assert len(plan.fires) == 3
    assert sum(skip.occurrences for skip in plan.skips) == 6


def test_the_end_of_the_spec_ends_the_schedule() -> None:
    spec = parse("0 * * * *", zone="UTC", now=NOW, end_at=hour(2))
    plan = decide(intent(spec), due_at=hour(2), now=hour(2), before=Before())
    assert (plan.next_due_at, plan.pause) == (None, "no further occurrence")
    assert plan.fires == [Fire(hour(2), False)]


def test_too_many_failures_rest_the_schedule_and_account_for_nothing_yet() -> None:
    plan = owed(3, failures_max=2, before=Before(failures=2))
    assert (plan.fires, plan.skips, plan.next_due_at) == ([], [], hour(1))
    assert plan.pause == "failed 2 times in a row"
    assert owed(1, failures_max=2, before=Before(failures=1)).pause is None


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"missed_max": -1}, "missed_max"),
        ({"jitter_us": -1}, "jitter"),
        ({"on_time_us": -1}, "grace"),
        ({"delay_us_max": -1}, "max_delay"),
        ({"runs_max": 0}, "max_runs"),
        ({"failures_max": 0}, "pause_after_failures"),
    ],
)
def test_policies_out_of_range_are_refused_by_the_name_of_their_option(
    wrong: dict[str, Any], option: str
) -> None:
    with pytest.raises(BadSchedule, match=f"^{option}: out of range"):
        Policies(**wrong)


# -- jitter ----------------------------------------------------------------------------------


@given(st.text(min_size=1), st.integers(1, DAY))
def test_jitter_is_stable_and_within_its_bound(name: str, jitter: int) -> None:
    policies = Policies(jitter_us=jitter)
    assert 0 <= jitter_us(name, policies) < jitter
    assert jitter_us(name, policies) == jitter_us(name, Policies(jitter_us=jitter))


def test_jitter_is_the_same_in_every_process_and_version() -> None:
    assert jitter_us("nightly", Policies(jitter_us=HOUR)) == 2_344_689_572
    assert jitter_us("nightly", Policies(jitter_us=7 * DAY)) == 297_544_689_572


@pytest.mark.parametrize("jitter", [MINUTE, 2 * HOUR, DAY, 30 * DAY])
def test_jitter_spreads_over_its_whole_range(jitter: int) -> None:
    offsets = [jitter_us(f"schedule-{n}", Policies(jitter_us=jitter)) for n in range(2000)]
    tenths = [sum(offset * 10 // jitter == part for offset in offsets) for part in range(10)]
    assert min(tenths) > 140
    assert max(tenths) < 260


def test_no_jitter_is_none() -> None:
    assert jitter_us("s", Policies()) == 0


# -- properties ------------------------------------------------------------------------------


def _spec(text: Any, zone: str, **bounds: Any) -> Spec:
    return parse(text, zone=zone, now=NOW, **bounds)


SPECS = [
    _spec("0 * * * *", "UTC"),
    _spec("* * * * * *", "UTC"),
    _spec("*/7 * * * *", "Australia/Lord_Howe"),
    _spec("30 2 * * *", "Europe/Berlin"),
    _spec("0 9 * * MON-FRI", "America/New_York"),
    _spec("0 0 29 2 *", "UTC"),
    _spec("17m", "UTC"),
    _spec("1s", "UTC"),
    _spec(["0 * * * *", "*/45 * * * *"], "Asia/Tokyo"),
    _spec("*/10 * * * *", "UTC", end_at=NOW + 3 * DAY),
]

policies = st.builds(
    Policies,
    overlap=st.sampled_from(Overlap),
    missed=st.sampled_from(Missed),
    missed_max=st.integers(0, 50),
    delay_us_max=st.none() | st.integers(0, DAY),
    runs_max=st.none() | st.integers(1, 20),
    on_time_us=st.integers(0, HOUR),
)
befores = st.builds(Before, running=st.integers(0, 3), waiting=st.integers(0, 2))
lags = st.one_of(
    st.integers(0, MINUTE), st.integers(0, DAY), st.integers(0, 40 * DAY), st.integers(0, 400 * DAY)
)


@settings(max_examples=examples(300))
@given(st.sampled_from(SPECS), policies, befores, lags, st.integers(0, 2 * DAY), st.integers(0, 30))
def test_every_occurrence_owed_is_fired_or_skipped_exactly_once(
    spec: Spec, rules: Policies, before: Before, lag: int, into: int, fired_count: int
) -> None:
    due_at = next_after(spec, NOW + into)
    if due_at is None:
        return
    now = due_at + lag
    what = Intent("w", spec, "text", rules, fired_count=fired_count)
    plan = decide(what, due_at=due_at, now=now, before=before)
    assert plan == decide(what, due_at=due_at, now=now, before=before), "not deterministic"
    spans = [(fire.due_at, fire.due_at, 1) for fire in plan.fires]
    spans += [(skip.first_at, skip.due_at, skip.occurrences) for skip in plan.skips]
    assert sum(count for _, _, count in spans) == count_between(spec, due_at - 1, now)
    at = due_at - 1
    for first_at, last_at, count in sorted(spans):
        assert first_at == next_after(spec, at), "a gap, an overlap, or no occurrence"
        assert count_between(spec, first_at - 1, last_at) == count
        at = last_at
    assert plan.next_due_at in (None, next_after(spec, now))
    assert (plan.next_due_at is None) == (plan.pause is not None)


@settings(max_examples=examples(200))
@given(st.sampled_from(SPECS), policies, befores, st.integers(0, 3 * DAY))
def test_no_policy_is_ever_exceeded(spec: Spec, rules: Policies, before: Before, lag: int) -> None:
    due_at = next_after(spec, NOW)
    assert due_at is not None
    now = due_at + lag
    plan = decide(Intent("w", spec, "text", rules), due_at=due_at, now=now, before=before)
    on_time = count_between(spec, now - rules.on_time_us - 1, now)
    late = {Missed.RUN: 1, Missed.SKIP: 0, Missed.ALL: rules.missed_max}[rules.missed]
    assert len(plan.fires) <= on_time + late
    if rules.runs_max is not None:
        assert len(plan.fires) <= rules.runs_max
    if rules.delay_us_max is not None:
        assert all(now - fire.due_at <= rules.delay_us_max for fire in plan.fires)
    if rules.overlap is not Overlap.ALLOW:
        assert sum(not fire.waits for fire in plan.fires) <= 1
        is_late = due_at < now - rules.on_time_us
        catches_up = rules.overlap is Overlap.QUEUE and rules.missed is Missed.ALL and is_late
        if rules.overlap is not Overlap.QUEUE_ALL and not catches_up:
            assert len(plan.fires) + before.waiting <= 2 or not plan.fires or plan.cancels
    assert plan.cancels <= (rules.overlap is Overlap.CANCEL and bool(plan.fires))


@settings(max_examples=examples(100))
@given(
    st.sampled_from(SPECS[:8]), policies, st.lists(st.integers(0, 2 * HOUR), min_size=1, max_size=8)
)
def test_however_often_the_scheduler_looks_no_occurrence_is_lost_or_doubled(
    spec: Spec, rules: Policies, rests: list[int]
) -> None:
    """Fire, rest, fire, rest: the union of all plans is every occurrence, once."""
    seen = Intent("w", spec, "text", rules)
    due_at = start = next_after(spec, NOW) or 0
    now, total = start, 0
    for rest in rests:
        now = max(now, due_at) + rest
        plan = decide(seen, due_at=due_at, now=now, before=Before())
        total += len(plan.fires) + sum(skip.occurrences for skip in plan.skips)
        seen = Intent("w", spec, "text", rules, fired_count=seen.fired_count + len(plan.fires))
        if plan.next_due_at is None:
            break
        due_at = plan.next_due_at
    assert total == count_between(spec, start - 1, now)


def test_between_agrees_with_what_decide_fires() -> None:
    plan = owed(20, missed=Missed.ALL, overlap=Overlap.ALLOW)
    assert [fire.due_at for fire in plan.fires] == between(HOURLY, NOW, hour(20), limit=99)
