"""Puts the segments of a phrase together into clauses; each clause becomes timings of its own.

"monday at 9am and friday at 5pm" is two clauses. "monday and friday at 9am and 5pm" is one: a day
alone joins the days beside it, a time alone the times beside it. If a segment could go either way,
the choice stays open. Pure.
"""

from __future__ import annotations

from rota.core.time.phrase_choices import Choices, refuse
from rota.core.time.phrase_model import DAILY, DAYS, MONTHS, PAST, RATE, TIMES, WINDOWS, Clause


def clauses_of(segments: list[Clause], choices: Choices) -> list[Clause]:
    """The clauses of a phrase, by the choices taken."""
    queue = _lists_joined(segments)
    done: list[Clause] = []
    for index, segment in enumerate(queue):
        following = queue[index + 1] if index + 1 < len(queue) else None
        before = done[-1] if done else None
        options = _options(before, segment, following)
        option = options[choices.choose(_reason(segment), len(options)) if len(options) > 1 else 0]
        if option == "back" and before is not None:
            done[-1] = before.joined(segment)
        elif option == "following" and following is not None:
            queue[index + 1] = segment.joined(following)
        elif option == "borrow":
            timed = next(one for one in (following, before) if one is not None and one.times)
            done.append(segment.joined(Clause(times=list(timed.times))))
        else:
            done.append(segment)
    return _scoped(done, choices)


def _lists_joined(segments: list[Clause]) -> list[Clause]:
    """Segments that are items of one list: days, times, months, windows or minutes."""
    joined: list[Clause] = []
    for segment in segments:
        if joined and segment.before != ";" and _same_list(joined[-1], segment):
            joined[-1] = joined[-1].joined(segment)
        else:
            joined.append(segment)
    return joined


def _same_list(left: Clause, right: Clause) -> bool:
    if left.single in (DAYS, TIMES):
        return right.single == left.single
    # Such as "in june | and july at 9" and "every hour at :15 | and :45 on weekdays".
    shared = left.last == right.first and left.last in (MONTHS, WINDOWS, PAST)
    return shared and left.slots & right.slots == {left.last}


def _options(before: Clause | None, segment: Clause, following: Clause | None) -> list[str]:
    """The clauses that a segment may belong to: the one before it, the next one, or its own."""
    options = []
    if before is not None and segment.before != ";" and _goes_back(before, segment):
        options.append("back")
    if following is not None and following.before != ";" and _goes_ahead(segment, following):
        options.append("following")
        if _narrowed_by(segment, following):
            options.append("alone")
    if options or (before is None and following is None):
        return options or ["alone"]
    if before is not None and segment.single == DAYS and (before.times or before.within_day):
        return ["back", "alone"]
    if before is not None and segment.single == TIMES and before.days:
        return ["back", "alone"]
    timed = any(clause.times for clause in (before, following) if clause is not None)
    if timed and not segment.times and not segment.within_day:
        return ["borrow", "alone"]  # "every day | and every monday at 9"
    if not segment.times and not segment.within_day and _beside_rate(before, following):
        refuse("incomplete", "a day in it has no time; say at which time")
    return ["alone"]


def _beside_rate(before: Clause | None, following: Clause | None) -> bool:
    return any(clause.within_day for clause in (before, following) if clause is not None)


def _goes_back(before: Clause, segment: Clause) -> bool:
    return segment.single in (DAYS, TIMES) and before.last == segment.single and before.single == ""


def _goes_ahead(segment: Clause, following: Clause) -> bool:
    if segment.single in (DAYS, TIMES) and following.first == segment.single:
        return True
    if segment.last == following.first == DAYS and not segment.times and not segment.within_day:
        return segment.slots & following.slots == {DAYS}  # "weekly on monday | and thursday at 9"
    return _narrowed_by(segment, following) or (
        following.before == "," and _agree(segment, following)
    )


def _narrowed_by(segment: Clause, following: Clause) -> bool:
    """ "every day at 9am | and 5pm on weekdays": the weekdays may be meant for both times."""
    daily = segment.rate == DAILY and not segment.days and segment.last == TIMES
    return daily and following.first == TIMES and DAYS in following.slots and following.rate is None


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
    start = max((index for index, clause in enumerate(clauses) if clause.before == ";"), default=0)
    if start:  # A semicolon ends what was said before it.
        return [*_scoped(clauses[:start], choices), *_scoped_run(clauses[start:], choices)]
    return _scoped_run(clauses, choices)


def _scoped_run(clauses: list[Clause], choices: Choices) -> list[Clause]:
    if len(clauses) < 2:
        return clauses
    first, last = clauses[0], clauses[-1]
    for edge, slot, edge_slot in (
        (last, MONTHS, last.last), (last, DAYS, last.last), (first, MONTHS, first.first),
    ):  # fmt: skip
        lacking = [clause for clause in clauses if clause is not edge and _lacks(clause, slot)]
        if edge_slot != slot or edge.single or not lacking:
            continue
        if choices.choose("a day or a month in it may be meant for each of its parts", 2) == 1:
            extra = Clause(days=edge.days, order=[DAYS])
            if slot == MONTHS:
                extra = Clause(months=edge.months, order=[MONTHS])
            clauses = [clause.joined(extra) if clause in lacking else clause for clause in clauses]
    return clauses


def _lacks(clause: Clause, slot: str) -> bool:
    if slot == MONTHS:
        return not clause.months and not any(day.months for day in clause.days)
    return not clause.days and clause.rate != DAILY


def _reason(segment: Clause) -> str:
    what = {DAYS: "a day", TIMES: "a time"}.get(segment.single, "a part")
    return f"{what} in it may belong to more than one other part"
