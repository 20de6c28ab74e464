"""The grammar of cron: what is read, and how what is wrong is pointed at."""

from __future__ import annotations

import pytest

from rota.core.time.cron import read_cron
from rota.errors import BadSchedule

QUARTZ = (
    "beside ? a number may be that of Quartz (1 is Sunday) or of cron (1 is Monday); name the day"
)
READ = [
    # expression, field, values
    ("*/15 * * * *", "minute", [0, 15, 30, 45]),
    ("5/20 * * * *", "minute", [5, 25, 45]),
    ("10-20/5 * * * *", "minute", [10, 15, 20]),
    ("1,2,3-5 * * * *", "minute", [1, 2, 3, 4, 5]),
    ("05 09 * * *", "minute", [5]),
    ("7-7 * * * *", "minute", [7]),
    ("*/60 * * * *", "minute", [0]),
    ("55-5 * * * *", "minute", [0, 1, 2, 3, 4, 5, 55, 56, 57, 58, 59]),
    ("0 22-2 * * *", "hour", [0, 1, 2, 22, 23]),
    ("0 22-2/2 * * *", "hour", [0, 2, 22]),
    ("0 0 28-3 * *", "day", [1, 2, 3, 28, 29, 30, 31]),
    ("0 0 * nov-FEB *", "month", [1, 2, 11, 12]),
    ("0 0 * January,mar *", "month", [1, 3]),
    ("0 0 * * 0", "weekday", [0]),
    ("0 0 * * 7", "weekday", [0]),
    ("0 0 * * 5-7", "weekday", [0, 5, 6]),
    ("0 0 * * 0-7", "weekday", [0, 1, 2, 3, 4, 5, 6]),
    ("0 0 * * fri-mon", "weekday", [0, 1, 5, 6]),
    ("0 0 * * SUN-TUE", "weekday", [0, 1, 2]),
    ("0 0 * * FRI-SUN", "weekday", [0, 5, 6]),
    ("0 0 * * 7-2", "weekday", [0, 1, 2]),
    ("0 0 * * 7-7", "weekday", [0]),
    ("0 0 * * 7-0", "weekday", [0]),
    ("0 0 * * monday,Wednesday", "weekday", [1, 3]),
    ("0 0 ? * MON", "day", list(range(1, 32))),
    ("*/20 * * * * *", "second", [0, 20, 40]),
    ("0 0 9 * * *", "second", [0]),
]


@pytest.mark.parametrize(("text", "field", "values"), READ)
def test_a_field_is_read(text: str, field: str, values: list[int]) -> None:
    assert getattr(read_cron(text), field).values == values


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("  0   9 * * mon-fri ", "0 9 * * MON-FRI"),
        ("00 09 01 jan ?", "0 9 1 JAN *"),
        ("0 0 9 * * *", "0 9 * * *"),
        ("30 0 9 * * *", "30 0 9 * * *"),
        ("0 0 l-3,15w,lw * friL,5#2", "0 0 L-3,15W,LW * FRIL,5#2"),
        ("*/05 * * * *", "*/5 * * * *"),
        ("0\t9\n* * *", "0 9 * * *"),
        ("0 0 * December thursdaY", "0 0 * DEC THU"),
    ],
)
def test_an_expression_has_one_normal_form(text: str, normal: str) -> None:
    assert read_cron(text).text == normal


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("0 9 * * *", True),
        ("0,30 9,17 * * *", True),
        ("0 9-9 * * *", True),
        ("0 */24 * * *", True),
        ("0 * * * *", False),
        ("* 9 * * *", False),
        ("*/30 2 * * *", False),
        ("0 9-17 * * *", False),
        ("0 9,12-14 * * *", False),
        ("*/10 30 2 * * *", True),  # Seconds do not count: the time of day is named.
    ],
)
def test_times_are_named_or_stepped_through(text: str, fixed: bool) -> None:
    assert read_cron(text).fixed is fixed


WRONG = [
    # expression, field, what is said, the column and width of the pointer
    ("61 9 * * *", "minute", "61 is outside 0-59", 0, 2),
    ("0 24 * * *", "hour", "24 is outside 0-23; midnight is 0", 2, 2),
    ("0 25 * * *", "hour", "25 is outside 0-23", 2, 2),
    ("0 0 0 * *", "day of month", "0 is outside 1-31", 4, 1),
    ("0 0 32 * *", "day of month", "32 is outside 1-31", 4, 2),
    ("0 0 * 13 *", "month", "13 is outside 1-12", 6, 2),
    ("0 0 * * 8", "day of week", "8 is outside 0-7", 8, 1),
    ("0 0 * FOO *", "month", "FOO is neither a number nor a name such as FEB", 6, 3),
    ("0 0 * * MO", "day of week", "MO is neither a number nor a name such as MON", 8, 2),
    ("x 0 * * *", "minute", "x is not a number", 0, 1),
    ("0 JAN * * *", "hour", "JAN is not a number", 2, 3),
    ("*/0 * * * *", "minute", "a step of 0 goes nowhere", 2, 1),
    ("*/61 * * * *", "minute", "a step of 61 is longer than the field, which has 60", 2, 2),
    ("0 */25 * * *", "hour", "a step of 25 is longer than the field, which has 24", 4, 2),
    ("0 0 * * */8", "day of week", "a step of 8 is longer than the field, which has 7", 10, 1),
    ("*/ * * * *", "minute", "the step after / is missing", 2, 1),
    ("*/x * * * *", "minute", "x is not a step; write a number after the /", 2, 1),
    ("0 9,,17 * * *", "hour", "an item of the list is empty", 4, 1),
    ("0 9, * * *", "hour", "an item of the list is empty", 4, 1),
    ("0 9- * * *", "hour", "a value is missing", 4, 1),
    ("0 -9 * * *", "hour", "a value is missing", 2, 1),
    ("0 9-99 * * *", "hour", "99 is outside 0-23", 4, 2),
    ("0,15,75 * * * *", "minute", "75 is outside 0-59", 5, 2),
    ("? * * * *", "minute", "? is for the two day fields; write * here", 0, 1),
    ("L * * * *", "minute", "L is for the two day fields", 0, 1),
    ("0 0 W * *", "day of month", "W needs a day to be near to: 15W, or LW for the last weekday",
     4, 1),
    ("0 0 1-5W * *", "day of month", "W goes with one day, as in 15W", 4, 4),
    ("0 0 32W * *", "day of month", "32 is outside 1-31", 4, 2),
    ("0 0 L-31 * *", "day of month", "L-n counts back from the last day; n is 0 to 30", 6, 2),
    ("0 0 L-x * *", "day of month", "L-n counts back from the last day; n is 0 to 30", 6, 1),
    ("0 0 5L * *", "day of month", "5L is not a day of the month", 4, 2),
    ("0 0 * * L", "day of week",
     "L alone could mean Saturday or Sunday; name the day, as in FRIL or 5L", 8, 1),
    ("0 0 * * FRI#6", "day of week", "the number after # is 1 to 5", 12, 1),
    ("0 0 * * FRI#", "day of week", "the number after # is 1 to 5", 12, 1),
    *[(f"0 0 9 ? * {days}", "day of week", QUARTZ, 10, len(days))
      for days in ("2", "2-6", "MON,6L", "6#3")],
    ("0 0 * * 9#1", "day of week", "9 is outside 0-7", 8, 1),
    ("0 0 * * 15W", "day of week", "W is for the day of month; MON-FRI are the weekdays", 8, 3),
    ("70 0 0 * * *", "second", "70 is outside 0-59", 0, 2),
    ("٣ * * * *", "minute", "٣ is not a number", 0, 1),
    ("99999999999999 * * * *", "minute", "99999999999999 is not a number", 0, 14),
]  # fmt: skip


@pytest.mark.parametrize(("text", "field", "said", "column", "width"), WRONG)
def test_what_is_wrong_is_named_and_pointed_at(
    text: str, field: str, said: str, column: int, width: int
) -> None:
    with pytest.raises(BadSchedule) as caught:
        read_cron(text)
    error = caught.value
    pointer = "    " + " " * column + "^" * width
    assert str(error) == f"{field}: {said}\n    {text}\n{pointer}"
    assert error.advice.startswith(f"The {field} takes ")
    assert error.facts == {"field": field, "column": column, "expression": text}


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("*", 1), ("0 9 * *", 4), ("0 0 9 * * * *", 7)]
)
def test_the_number_of_fields_is_reported(text: str, count: int) -> None:
    with pytest.raises(BadSchedule, match=f"has {count} field") as caught:
        read_cron(text)
    assert "minute hour day-of-month month day-of-week" in caught.value.advice
    assert ("years" in caught.value.advice) == (count == 7)
