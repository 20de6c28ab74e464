"""Puts the segments of a phrase together into clauses; each clause becomes timings of its own.

"monday at 9am and friday at 5pm" is two clauses. "monday and friday at 9am and 5pm" is one: a day
alone joins the days beside it, a time alone the times beside it. If a segment could go either way,
the choice stays open. Pure.
"""

from __future__ import annotations

from rota.core.time.phrase_choices import Choices, refuse
from rota.core.time.phrase_model import DAILY, DAYS, MONTHS, PAST, RATE, TIMES, WINDOW, Clause


def clauses_of(segments: list[Clause], choices: Choices) -> list[Clause]:
    """The clauses of a phrase, by the choices taken."""
    queue = _lists_joined(segments)
    done: list[Clause] = []
    for place, one in enumerate(queue):
        ahead = queue[place + 1] if place + 1 < len(queue) else None
        before = done[-1] if done else None
        options = _options(before, one, ahead)
        option = options[choices.choose(_reason(one), len(options)) if len(options) > 1 else 0]
        if option == "back" and before is not None:
            done[-1] = before.joined(one)
        elif option == "ahead" and ahead is not None:
            queue[place + 1] = one.joined(ahead)
        elif option == "borrow" and (ahead or before) is not None:
            done.append(one.joined(Clause(times=list((ahead or before or one).times))))
        else:
            done.append(one)
    return _scoped(done, choices)


def _lists_joined(segments: list[Clause]) -> list[Clause]:
    """Segments that are items of one list: days, times, months, windows or minutes."""
    joined: list[Clause] = []
    for one in segments:
        if joined and one.before != ";" and _same_list(joined[-1], one):
            joined[-1] = joined[-1].joined(one)
        else:
            joined.append(one)
    return joined


def _same_list(left: Clause, right: Clause) -> bool:
    if left.single in (DAYS, TIMES):
        return right.single == left.single
    # Such as "in june | and july at 9" and "every hour at :15 | and :45 on weekdays".
    shared = left.last == right.first and left.last in (MONTHS, WINDOW, PAST)
    return shared and left.slots & right.slots == {left.last}


def _options(before: Clause | None, one: Clause, ahead: Clause | None) -> list[str]:
    """The clauses that a segment may belong to: the one before it, the next one, or its own."""
    options = []
    if before is not None and one.before != ";" and _goes_back(before, one):
        options.append("back")
    if ahead is not None and ahead.before != ";" and _goes_ahead(one, ahead):
        options.append("ahead")
        if _narrowed_by(one, ahead):
            options.append("alone")
    if options or (before is None and ahead is None):
        return options or ["alone"]
    if before is not None and one.single == DAYS and (before.times or before.within_day):
        return ["back", "alone"]
    if before is not None and one.single == TIMES and before.days:
        return ["back", "alone"]
    timed = any(clause.times for clause in (before, ahead) if clause is not None)
    if timed and not one.times and not one.within_day:
        return ["borrow", "alone"]  # "every day | and every monday at 9"
    if not one.times and not one.within_day and _beside_rate(before, ahead):
        refuse("incomplete", "a day in it has no time; say at which time")
    return ["alone"]


def _beside_rate(before: Clause | None, ahead: Clause | None) -> bool:
    return any(clause.within_day for clause in (before, ahead) if clause is not None)


def _goes_back(before: Clause, one: Clause) -> bool:
    return one.single in (DAYS, TIMES) and before.last == one.single and before.single == ""


def _goes_ahead(one: Clause, ahead: Clause) -> bool:
    if one.single in (DAYS, TIMES) and ahead.first == one.single:
        return True
    if one.last == ahead.first == DAYS and not one.times and not one.within_day:
        return one.slots & ahead.slots == {DAYS}  # "weekly on monday | and thursday at 9"
    return _narrowed_by(one, ahead) or (ahead.before == "," and _agree(one, ahead))


def _narrowed_by(one: Clause, ahead: Clause) -> bool:
    """ "every day at 9am | and 5pm on weekdays": the weekdays may be meant for both times."""
    daily = one.rate == DAILY and not one.days and one.last == TIMES
    return daily and ahead.first == TIMES and DAYS in ahead.slots and ahead.rate is None


def _agree(left: Clause, right: Clause) -> bool:
    """Whether two segments with a comma between them say different things about one clause."""
    shared = left.slots & right.slots
    if shared == {RATE} and DAILY in (left.rate, right.rate):
        shared = set() if left.within_day or right.within_day else shared
    if shared:
        return False
    for one, other in ((left, right), (right, left)):
        if one.rate == DAILY and other.days and not other.within_day:
            return False
        if one.within_day and other.times:
            return False
    return True


def _scoped(clauses: list[Clause], choices: Choices) -> list[Clause]:
    """A month or a day at the end (a month at the front) may be meant for all clauses."""
    start = max((at for at, one in enumerate(clauses) if one.before == ";"), default=0)
    if start:  # A semicolon ends what was said before it.
        return [*_scoped(clauses[:start], choices), *_scoped_run(clauses[start:], choices)]
    return _scoped_run(clauses, choices)


def _scoped_run(clauses: list[Clause], choices: Choices) -> list[Clause]:
    if len(clauses) < 2:
        return clauses
    first, last = clauses[0], clauses[-1]
    for edge, slot, said in (
        (last, MONTHS, last.last), (last, DAYS, last.last), (first, MONTHS, first.first),
    ):  # fmt: skip
        lacking = [one for one in clauses if one is not edge and _lacks(one, slot)]
        if said != slot or edge.single or not lacking:
            continue
        if choices.choose("a day or a month in it may be meant for each of its parts", 2) == 1:
            extra = Clause(days=edge.days, order=[DAYS])
            if slot == MONTHS:
                extra = Clause(months=edge.months, order=[MONTHS])
            clauses = [one.joined(extra) if one in lacking else one for one in clauses]
    return clauses


def _lacks(one: Clause, slot: str) -> bool:
    if slot == MONTHS:
        return not one.months and not any(day.months for day in one.days)
    return not one.days and one.rate != DAILY


def _reason(one: Clause) -> str:
    what = {DAYS: "a day", TIMES: "a time"}.get(one.single, "a part")
    return f"{what} in it may belong to more than one other part"
