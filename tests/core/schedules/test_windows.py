"""Which occurrence the next one follows after some have expired."""

from __future__ import annotations

from rota.core.schedules.windows import Occurrence, before_expired


def test_an_expired_occurrence_is_followed_by_what_came_before_it() -> None:
    assert before_expired({("s", 3): 2}) == {("s", 3): 2}


def test_several_expired_in_a_row_lead_to_the_last_that_has_not() -> None:
    expired: dict[Occurrence, int | None] = {("s", 5): 4, ("s", 3): 2, ("s", 4): 3}
    assert before_expired(expired) == {("s", 3): 2, ("s", 4): 2, ("s", 5): 2}


def test_without_any_before_them_there_is_none() -> None:
    assert before_expired({("s", 2): 1, ("s", 1): None}) == {("s", 1): None, ("s", 2): None}


def test_schedules_do_not_mix() -> None:
    assert before_expired({("a", 3): 2, ("b", 4): 3}) == {("a", 3): 2, ("b", 4): 3}
