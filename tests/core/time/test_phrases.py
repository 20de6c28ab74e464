"""Schedules in words: what is understood, and what is refused rather than guessed."""

from __future__ import annotations

import pytest

from rota.core.time.cron import read_cron
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.phrases import EXAMPLES, understand
from rota.errors import BadSchedule

UNDERSTOOD: list[tuple[str, str | int | tuple[str, ...]]] = [
    ("every friday at 5pm", "0 17 * * FRI"),
    ("Every Friday at 5 PM.", "0 17 * * FRI"),
    ("fridays at 17:00", "0 17 * * FRI"),
    ("every 15 minutes", 15 * MINUTE),
    ("every fifteen mins", 15 * MINUTE),
    ("5 minutes", 5 * MINUTE),
    ("every second", SECOND),
    ("every 10 seconds", 10 * SECOND),
    ("every minute", "* * * * *"),
    ("every hour", "0 * * * *"),
    ("hourly", "0 * * * *"),
    ("every hour on the hour", "0 * * * *"),
    ("15 minutes past every hour", "15 * * * *"),
    ("at quarter past the hour", "15 * * * *"),
    ("every 2 hours", 2 * HOUR),
    ("every other hour", 2 * HOUR),
    ("every half hour", 30 * MINUTE),
    ("every half an hour", 30 * MINUTE),
    ("every 2 days", 2 * DAY),
    ("every other day", 2 * DAY),
    ("every third day", 3 * DAY),
    ("every 2 weeks", 14 * DAY),
    ("daily", "0 0 * * *"),
    ("every day", "0 0 * * *"),
    ("daily at noon", "0 12 * * *"),
    ("at noon", "0 12 * * *"),
    ("9am", "0 9 * * *"),
    ("at 9", "0 9 * * *"),
    ("at midnight", "0 0 * * *"),
    ("12am", "0 0 * * *"),
    ("12:30pm", "30 12 * * *"),
    ("every day at 9am and 5pm", "0 9,17 * * *"),
    ("every day at 9, 12 and 17", "0 9,12,17 * * *"),
    ("at 9:00, 9:30, 17:00 and 17:30", "0,30 9,17 * * *"),
    ("daily at 9:30am and 5pm", ("30 9 * * *", "0 17 * * *")),
    ("weekdays at 9:30", "30 9 * * MON-FRI"),
    ("every weekday at 9.30", "30 9 * * MON-FRI"),
    ("business days at 8", "0 8 * * MON-FRI"),
    ("weekends at 10", "0 10 * * SAT,SUN"),
    ("mon-fri at 8:15", "15 8 * * MON-FRI"),
    ("monday through friday at 8:15", "15 8 * * MON-FRI"),
    ("mon, wed and fri at 7", "0 7 * * MON,WED,FRI"),
    ("tuesdays and thursdays at 14:30", "30 14 * * TUE,THU"),
    ("at noon on sundays", "0 12 * * SUN"),
    ("each monday", "0 0 * * MON"),
    ("weekly", "0 0 * * SUN"),
    ("weekly on monday at 9", "0 9 * * MON"),
    ("first monday of the month at noon", "0 12 * * MON#1"),
    ("the first and third monday of every month at 10", "0 10 * * MON#1,MON#3"),
    ("every second tuesday of the month at 3pm", "0 15 * * TUE#2"),
    ("last friday of every month at 4pm", "0 16 * * FRIL"),
    ("first monday of january at 9", "0 9 * JAN MON#1"),
    ("first day of the month", "0 0 1 * *"),
    ("last day of the month at 18:00", "0 18 L * *"),
    ("first weekday of the month at 9", "0 9 1W * *"),
    ("last weekday of the month at 17:00", "0 17 LW * *"),
    ("on the 1st and 15th at 6:00", "0 6 1,15 * *"),
    ("every month on the 15th at noon", "0 12 15 * *"),
    ("monthly", "0 0 1 * *"),
    ("every 3 months", "0 0 1 */3 *"),
    ("quarterly at 9am", "0 9 1 */3 *"),
    ("yearly", "0 0 1 JAN *"),
    ("25 december at 8am", "0 8 25 DEC *"),
    ("december 25th at 8am", "0 8 25 DEC *"),
    ("every year on march 3rd at 7am", "0 7 3 MAR *"),
    ("the 15th of june and july at 7am", "0 7 15 JUN,JUL *"),
    ("every day in january at 9am", "0 9 * JAN *"),
    ("mondays from june to august at 6am", "0 6 * JUN-AUG MON"),
    ("every hour between 9 and 17", "0 9-17 * * *"),
    ("every 2 hours from 9am to 5pm on weekdays", "0 9-17/2 * * MON-FRI"),
    ("every 30 minutes between 9am and 5pm on weekdays",
     ("*/30 9-16 * * MON-FRI", "0 17 * * MON-FRI")),
    ("every 5 minutes on weekdays", "*/5 * * * MON-FRI"),
    ("every 6 hours on weekdays", "0 */6 * * MON-FRI"),
    ("every 20 seconds on sundays", "*/20 * * * * SUN"),
]  # fmt: skip


@pytest.mark.parametrize(("phrase", "meaning"), UNDERSTOOD, ids=str)
def test_a_phrase_is_understood(phrase: str, meaning: str | int | tuple[str, ...]) -> None:
    assert understand(phrase) == meaning
    for text in (
        (meaning,) if isinstance(meaning, str) else meaning if isinstance(meaning, tuple) else ()
    ):
        assert read_cron(text).text == text


REFUSED = [
    ("", "it names neither a time nor a day"),
    ("every", "it names neither a time nor a day"),
    ("banana", '"banana" has no meaning here'),
    ("every friday at teatime", '"teatime" has no meaning here'),
    ("every other friday", 'every 2 weeks on "friday" cannot be said in cron'),
    ("every second friday at 3pm", 'every 2 weeks on "friday" cannot be said in cron'),
    ("every 2 fridays", 'every 2 weeks on "fridays" cannot be said in cron'),
    ("every other week on monday", "every 2 weeks at a wall-clock time cannot be said in cron"),
    ("every 2 days at 9am", "every 2 days at a wall-clock time cannot be said in cron"),
    ("every week at 9am", "which day of the week?"),
    ("in january at 9am", "which day of the month?"),
    ("friday the 13th", "a day of the month and one of the week"),
    ("biweekly", "it can mean twice a week or every two weeks"),
    ("fortnightly", "cron knows"),
    ("twice a day", "say at which times"),
    ("every day except sunday", "exceptions cannot be said"),
    ("tomorrow at 9", "for one time, write the date"),
    ("at 25:00", '"25:00" is no time of day'),
    ("at 24:00", '"24:00" is no time of day'),
    ("at 13pm", '"13pm" is no time of day'),
    ("at 9:75", '"9:75" is no time of day'),
    ("every 0 minutes", "every 0 minutes is no interval"),
    ("every 7 minutes on mondays", "cron cannot count every 7 minutes"),
    ("every 5 hours on mondays", "cron cannot count every 5 hours"),
    ("every 5 months", "every 5 months does not fit into a year"),
    ("every 2 years", "cron knows no years"),
    ("every 15 minutes at 9am", "do not go together"),
    ("every hour every day", "two different rates"),
    ("between 9am and 5pm", '"between" needs a rate'),
    ("every hour between 9:30 and 17:00", '"between" takes whole hours'),
    ("every hour between 9 and 9", "begin and end at the same time"),
    ("the 32nd at 9am", "no month has a 32nd"),
    ("sixth monday of the month", "no month has 6 of one weekday"),
    ("second weekday of the month", "only the first and the last"),
    ("70 minutes past the hour", "is another hour"),
]


@pytest.mark.parametrize(("phrase", "reason"), REFUSED)
def test_what_is_not_understood_is_refused_with_examples(phrase: str, reason: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        understand(phrase)
    assert str(caught.value).startswith(f'"{phrase}" is not understood: ')
    assert reason in str(caught.value)
    for example in EXAMPLES:
        assert example in caught.value.advice


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_understood(example: str) -> None:
    assert understand(example)
