"""Random cron expressions: everything the grammar has, the odd forms often."""

from __future__ import annotations

from hypothesis import strategies as st

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


def _plain(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str)
    value = number | st.sampled_from(names) if names else number
    step = st.integers(1, max(2, min(high - low, 30))).map(str)
    return st.one_of(
        value,
        st.builds("{}-{}".format, value, value),
        st.builds("*/{}".format, step),
        st.builds("{}-{}/{}".format, value, value, step),
        st.builds("{}/{}".format, value, step),
    )


def _field(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.just("*") | st.lists(items, min_size=1, max_size=3).map(",".join)


seconds = _field(_plain(0, 59))
minutes = _field(_plain(0, 59))
hours = _field(_plain(0, 23))
months = _field(_plain(1, 12, MONTHS))
days = st.just("?") | _field(
    _plain(1, 31)
    | st.sampled_from(["L", "LW", "L-1", "L-3", "L-27", "L-2W", "L-30W"])
    | st.integers(1, 31).map("{}W".format)
)
_weekday = st.integers(0, 7).map(str) | st.sampled_from(DAYS)
weekdays = st.just("?") | _field(
    # A step beyond 7 is refused, so the steps here are small.
    st.one_of(
        _weekday,
        st.builds("{}-{}".format, _weekday, _weekday),
        st.builds("{}-{}/{}".format, _weekday, _weekday, st.integers(1, 7)),
        st.builds("*/{}".format, st.integers(1, 7)),
        st.builds("{}/{}".format, _weekday, st.integers(1, 7)),
        st.builds("{}L".format, _weekday),
        st.builds("{}#{}".format, _weekday, st.integers(1, 5)),
    )
)

# Mostly every day, so that a window of two days has something in it.
often = st.sampled_from(["*", "*", "*", "?"])
some_days = st.tuples(often | days, st.just("*") | months, often | weekdays)
day_fields = st.tuples(days, months, weekdays).map(" ".join)
five_fields = st.tuples(minutes, hours, some_days.map(" ".join)).map(" ".join)
# With seconds, "?" beside a numbered day of the week is refused.
six_fields = st.tuples(seconds, five_fields.map(lambda text: text.replace("?", "*"))).map(" ".join)
named_times = st.tuples(
    st.lists(st.integers(0, 59).map(str), min_size=1, max_size=3).map(",".join),
    st.lists(st.integers(0, 23).map(str), min_size=1, max_size=4).map(",".join),
    some_days.map(" ".join),
).map(" ".join)
expressions = five_fields | named_times
