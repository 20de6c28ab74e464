"""The text that Python prints of an error of Rota: the sentence and the hint, each once."""

from __future__ import annotations

import traceback

import pytest

from rota import Rota, errors
from rota.core.runs.failures import describe
from rota.errors import RotaError, Transient, UsageError


def printed(error: BaseException) -> str:
    """The text on stderr when nothing catches it."""
    return "".join(traceback.format_exception(error))


def test_a_traceback_shows_the_hint() -> None:
    with pytest.raises(UsageError, match="not connected") as caught:
        _ = Rota("sqlite:///nowhere.db").connection.database

    assert printed(caught.value).endswith(
        "rota.errors.UsageError: the app is not connected to its database\n"
        "Hint: Use `async with app:` or `await app.connect()`.\n"
    )


def test_a_traceback_shows_the_hint_of_the_class_where_the_call_gives_none() -> None:
    assert printed(errors.SchemaMissing("the database lacks migration 0001 (engine)")).endswith(
        f"\nHint: {errors.SchemaMissing.hint}\n"
    )


def test_every_error_class_prints_its_hint_once() -> None:
    for kind in every_error():
        assert printed(kind("something failed")).count(f"Hint: {kind.hint}") == 1, kind


def every_error(of: type[RotaError] = RotaError) -> list[type[RotaError]]:
    """All error classes of `rota.errors`."""
    below = [found for kind in of.__subclasses__() for found in every_error(kind)]
    return [of, *below] if of.__module__ == errors.__name__ else below


def test_a_hint_that_is_changed_later_is_the_one_printed() -> None:
    error = UsageError("cron was cut by the shell")
    error.advice = "Put cron in quotes."

    assert printed(error).endswith("cron was cut by the shell\nHint: Put cron in quotes.\n")


def test_the_sentence_itself_stays_without_the_hint() -> None:
    assert str(UsageError("a sentence", hint="Do this.")) == "a sentence"


def test_the_stored_traceback_of_a_failed_run_shows_the_hint() -> None:
    assert "Hint: Nothing to do: Rota retries it" in describe(Transient("the bank is closed"))
