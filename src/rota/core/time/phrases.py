"""Schedules in words: "every friday at 5pm" → cron texts and intervals. Pure.

A phrase is cut into tokens (`phrase_tokens`), read into segments (`phrase_reader`), put together
into clauses (`phrase_clauses`), and each clause becomes timings (`phrase_builder`). If the grammar
leaves a choice open, every choice is tried. One reading is the meaning; with several, the phrase is
refused and the readings are offered.
"""

from __future__ import annotations

from rota.core.time.cron import read_cron
from rota.core.time.describe import describe_timings
from rota.core.time.phrase_builder import build
from rota.core.time.phrase_choices import Choices, PhraseRefusal, refuse
from rota.core.time.phrase_clauses import clauses_of
from rota.core.time.phrase_reader import Reader
from rota.core.time.phrase_tokens import LENGTH_MAX, tokens_of
from rota.core.time.zones import place_of
from rota.errors import BadSchedule

EXAMPLES = (
    "every 15 minutes",
    "every friday at 5pm",
    "weekdays at 9:30",
    "first monday of the month at noon",
    "every day at 9am and 5pm",
    "monday at 9am and friday at 5pm",
    "last day of the month at 18:00",
    "every 30 minutes between 9am and 5pm on weekdays",
)
TRIED_MAX = 24  # combinations of choices
OFFERED_MAX = 4
TIMINGS_MAX = 100
_SHOWN_MAX = 120

Reading = tuple[str | int, ...]  # cron texts, and intervals in microseconds


def understand(phrase: str) -> Reading:
    """The one reading of a phrase, or BadSchedule with the reason and what to write instead."""
    try:
        return _read(phrase)
    except PhraseRefusal as refusal:
        raise _refused(phrase, refusal) from None


def _read(phrase: str) -> Reading:
    if len(phrase) > LENGTH_MAX:
        refuse("unknown", f"it has {len(phrase)} characters; a phrase has at most {LENGTH_MAX}")
    readings, beyond, reason = _readings(phrase)
    if len(readings) == 1 and beyond is None:
        return readings[0]
    offered = [text for reading in readings if (text := _written(reading)) is not None]
    instead = () if beyond is None else beyond.instead
    raise PhraseRefusal("ambiguous", reason, [*offered, *instead][:OFFERED_MAX])


def _readings(phrase: str) -> tuple[list[Reading], PhraseRefusal | None, str]:
    """All readings by all choices, one more that cannot be expressed, and why there was a choice.

    A choice that leads to a contradiction is not a reading. One that is clear but that cron cannot
    express is: it may be what was meant.
    """
    readings: list[Reading] = []
    refusals: list[PhraseRefusal] = []
    reasons: list[str] = []
    taken: list[int] | None = []
    for _ in range(TRIED_MAX):
        if taken is None or len(readings) > OFFERED_MAX:
            break
        choices = Choices(taken)
        try:
            reading = _by_choices(phrase, choices)
            if reading not in readings:
                readings.append(reading)
        except PhraseRefusal as refusal:
            refusals.append(refusal)
        reasons += [reason for reason, _ in choices.made]
        taken = _next_choices(choices)
    if not readings:
        raise refusals[0]
    if len(readings) == 1 and taken is not None:
        refuse("ambiguous", reasons[0])  # not every combination was tried
    beyond = next((one for one in refusals if one.kind == "inexpressible"), None)
    return readings, beyond, reasons[0] if reasons else ""


def _by_choices(phrase: str, choices: Choices) -> Reading:
    segments = Reader(tokens_of(phrase), choices).read()
    if not segments:
        refuse("incomplete", "it names neither a time nor a day")
    timings: dict[str | int, None] = {}
    for clause in clauses_of(segments, choices):
        timings.update(dict.fromkeys(build(clause, choices)))
    if len(timings) > TIMINGS_MAX:
        refuse("inexpressible", f"it needs {len(timings)} timings; a schedule has {TIMINGS_MAX}")
    return tuple(timings)


def _next_choices(choices: Choices) -> list[int] | None:
    """The next combination: the last choice that has an option left takes it."""
    taken = choices.taken
    for index in reversed(range(len(taken))):
        if taken[index] + 1 < choices.made[index][1]:
            return [*taken[:index], taken[index] + 1]
    return None


def _written(reading: Reading) -> str | None:
    """A reading as a phrase, or as cron, that is accepted and means just that."""
    text = describe_timings(reading)
    try:
        readings, beyond, _ = _readings(text)
        if len(readings) == 1 and beyond is None and same_times(readings[0], reading):
            return text
    except PhraseRefusal:
        pass
    return str(reading[0]) if len(reading) == 1 else None


def same_times(one: Reading, other: Reading) -> bool:
    """Whether two readings fire at the same times, in whatever order they are listed."""
    return {_meaning(timing) for timing in one} == {_meaning(timing) for timing in other}


def _meaning(timing: str | int) -> object:
    return timing if isinstance(timing, int) else read_cron(timing).meaning


def _refused(phrase: str, refusal: PhraseRefusal) -> BadSchedule:
    shown = _printable(phrase if len(phrase) <= _SHOWN_MAX else f"{phrase[:_SHOWN_MAX]}…")
    verb = "is ambiguous" if refusal.kind == "ambiguous" else "is not understood"
    instead = refusal.instead
    if refusal.kind == "zone":
        zone, instead = place_of(instead[0]) or instead[0].title(), ()
        hint = f'Give the zone on its own: --timezone {zone}, or timezone = "{zone}" in code.'
    elif refusal.instead:
        hint = f"Write one of: {_quoted(refusal.instead)}."
    else:
        hint = f"Examples: {_quoted(EXAMPLES)}."
    return BadSchedule(
        f'"{shown}" {verb}: {_printable(refusal.reason)}', hint=_printable(hint),
        phrase=shown, refusal=refusal.kind, readings=list(instead),
    )  # fmt: skip


def _printable(text: str) -> str:
    """Text that any terminal and any log can take."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _quoted(texts: tuple[str, ...]) -> str:
    return "; ".join(f'"{text}"' for text in texts)
