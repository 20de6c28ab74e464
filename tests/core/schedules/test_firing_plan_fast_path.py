"""The short way of the decision of firing, against the long way that every other case takes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from rota.core.schedules import firing_plan
from rota.core.schedules.firing_plan import Before, Fire, FiringPlan, decide
from rota.core.schedules.intent import Intent, Missed, Overlap, Policies
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.recurrence import next_after, parse
from tests.kit.sampling import examples

NOW = 1_893_456_000 * SECOND  # 2030-01-01T00:00Z
TEXTS = ("* * * * * *", "* * * * *", "30 2 * * 1", "0 9 L * *", "1s", "7m", "1h")
ON_TIME_US = (0, SECOND, 30 * SECOND)

policies = st.builds(
    Policies,
    overlap=st.sampled_from(Overlap),
    missed=st.sampled_from(Missed),
    missed_max=st.sampled_from((0, 1, 100)),
    delay_us_max=st.sampled_from((None, 0, SECOND, MINUTE)),
    runs_max=st.sampled_from((None, None, 1, 5)),
    failures_max=st.sampled_from((None, 2)),
    on_time_us=st.sampled_from(ON_TIME_US),
)
befores = st.builds(Before, st.integers(0, 1), st.integers(0, 1), st.integers(0, 2))
# Around every edge there is, and anywhere.
lateness = st.sampled_from(ON_TIME_US) | st.sampled_from((MINUTE, HOUR)) | st.integers(0, DAY)
edges = st.integers(-1, 1)


def both_ways(intent: Intent, due_at: int, now: int, before: Before, most: int) -> list[FiringPlan]:
    """The decisions with the short way, and without it."""
    plans = [decide(intent, due_at=due_at, now=now, before=before, most=most)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(firing_plan, "_is_plain", lambda *_: False)
        plans.append(decide(intent, due_at=due_at, now=now, before=before, most=most))
    return plans


@given(
    st.sampled_from(TEXTS), policies, befores, lateness, edges, st.sampled_from((1, 5000)),
    st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(600))
@example("1h", Policies(missed=Missed.ALL, missed_max=0), Before(), MINUTE, 0, 5000, False)
@example("1h", Policies(missed=Missed.ALL, missed_max=0), Before(), 30 * SECOND, 1, 5000, False)
@example("1h", Policies(missed=Missed.RUN), Before(), MINUTE, 0, 5000, False)
@example("1h", Policies(overlap=Overlap.ALLOW), Before(1, 1), 0, 0, 1, True)
def test_the_short_way_decides_what_the_long_way_does(
    text: str, policies: Policies, before: Before, late: int, edge: int, most: int, ends: bool
) -> None:
    spec = parse(text, zone="Europe/Berlin", now=NOW)
    due_at = next_after(spec, NOW)
    assert due_at is not None
    if ends:
        spec = msgspec.structs.replace(spec, end_at=due_at + MINUTE)
    intent = Intent("w", spec, text, policies, fired_count=1)
    short, long = both_ways(intent, due_at, due_at + max(0, late + edge), before, most)
    event(f"fires {len(short.fires)}")
    assert short == long


def test_the_short_way_is_taken_by_a_plain_schedule_that_is_on_time() -> None:
    """Or the test above would prove nothing."""
    spec = parse("0 * * * *", zone="UTC", now=NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(firing_plan, "_choose", None)
        plan = decide(
            Intent("w", spec, "text"), due_at=NOW + HOUR, now=NOW + HOUR + SECOND, before=Before()
        )
    assert plan == FiringPlan([Fire(NOW + HOUR, False)], [], NOW + 2 * HOUR, False, None)
