"""The table of failures is total: whatever is raised has a class, a status and a next action."""

from __future__ import annotations

import asyncio
import builtins
import inspect
import json
from collections.abc import Iterator

import pytest

from rota import errors
from rota.core.runs.failures import TABLE, TRACE_CHARS_MAX, Kind, describe, kind_of, names_of
from rota.core.runs.lifecycle import RULES, Status
from tests.kit.tables import for_each

MESSAGE_BYTES_MAX = 200_000  # far above any sentence, far below what a database row should hold


def _made(kind: type[BaseException]) -> BaseException:
    """An instance, however picky its constructor is."""
    special: dict[type[BaseException], tuple[object, ...]] = {
        UnicodeDecodeError: ("utf-8", b"x", 0, 1, "bad"),
        UnicodeEncodeError: ("utf-8", "x", 0, 1, "bad"),
        UnicodeTranslateError: ("x", 0, 1, "bad"),
        BaseExceptionGroup: ("several", [KeyboardInterrupt()]),
        ExceptionGroup: ("several", [ValueError("one")]),
    }
    return kind(*special.get(kind, ("it broke",)))


def _classes() -> Iterator[type[BaseException]]:
    picky = {asyncio.IncompleteReadError, asyncio.LimitOverrunError}
    for module in (builtins, errors, asyncio):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            if issubclass(cls, BaseException) and cls not in picky:
                yield cls


CLASSES = sorted(set(_classes()), key=lambda cls: cls.__name__)

EXPECTED = {
    errors.Transient: Kind.TRANSIENT,
    errors.NeedsLogin: Kind.AUTH,
    errors.NeedsPermission: Kind.PERMISSION,
    errors.Fatal: Kind.FATAL,
    errors.Failure: Kind.LOGIC,
    errors.Stranded: Kind.STRANDED,
    errors.StepTimeout: Kind.TIMEOUT,
    errors.RunTimeout: Kind.TIMEOUT,
    errors.StoreBusy: Kind.TRANSIENT,
    errors.StoreUnreachable: Kind.TRANSIENT,
    errors.RunFailed: Kind.LOGIC,
    errors.RunCrashed: Kind.LOGIC,
    errors.BadInput: Kind.LOGIC,
    errors.LeaseLost: Kind.INTERNAL,
    errors.RotaError: Kind.INTERNAL,
    TimeoutError: Kind.TIMEOUT,
    asyncio.TimeoutError: Kind.TIMEOUT,
    ConnectionResetError: Kind.TRANSIENT,
    OSError: Kind.TRANSIENT,
    MemoryError: Kind.INTERNAL,
    SystemError: Kind.INTERNAL,
    ValueError: Kind.LOGIC,
    AssertionError: Kind.LOGIC,
    RecursionError: Kind.LOGIC,
    KeyboardInterrupt: Kind.INTERNAL,
    SystemExit: Kind.INTERNAL,
    GeneratorExit: Kind.INTERNAL,
    asyncio.CancelledError: Kind.INTERNAL,
}


@pytest.mark.parametrize(("cls", "kind"), EXPECTED.items(), ids=str)
def test_an_exception_has_its_class(cls: type[BaseException], kind: Kind) -> None:
    assert kind_of(_made(cls)) is kind


@for_each(CLASSES)
def test_every_exception_has_some_class(cls: type[BaseException]) -> None:
    error = _made(cls)
    assert TABLE[kind_of(error)].action
    stored = json.loads(describe(error))
    assert stored["type"] == cls.__name__
    assert stored["kind"] == kind_of(error)


def test_the_most_special_row_wins() -> None:
    class Mine(errors.Fatal, ConnectionError):
        """Both fatal and a connection error."""

    assert kind_of(Mine("no")) is Kind.FATAL


def test_the_table_has_a_row_for_every_class() -> None:
    assert set(TABLE) == set(Kind)


def test_every_consequence_can_be_reached_from_running() -> None:
    reachable = {rule.target for rule in RULES.values() if Status.RUNNING in rule.sources}
    assert {consequence.status for consequence in TABLE.values()} <= reachable


def test_only_what_fails_is_retried_by_itself() -> None:
    assert not [k for k, row in TABLE.items() if row.retried and row.status is not Status.FAILED]


@pytest.mark.parametrize("kind", Kind)
def test_a_failed_step_read_back_keeps_its_class(kind: Kind) -> None:
    assert kind_of(errors.StepFailed("step charge failed", kind=kind.value)) is kind


def test_a_failed_step_of_a_class_nobody_knows_is_a_matter_of_logic() -> None:
    assert kind_of(errors.StepFailed("written by a newer Rota", kind="novel")) is Kind.LOGIC


def test_names_list_the_class_and_its_bases() -> None:
    assert names_of(KeyError()) == ("KeyError", "LookupError", "Exception", "BaseException")


def test_a_description_says_where_it_happened() -> None:
    try:
        raise ValueError("no such order")
    except ValueError as error:
        stored = json.loads(describe(error))
    assert stored["message"] == "no such order"
    assert "test_failures.py" in stored["trace"]
    assert "raise ValueError" in stored["trace"]


def test_a_long_trace_keeps_both_ends() -> None:
    def dive(depth: int) -> None:
        if not depth:
            raise ValueError("bottom")
        dive_deeper(depth)

    def dive_deeper(depth: int) -> None:
        dive(depth - 1)

    with pytest.raises(ValueError, match="bottom") as caught:
        dive(100)
    trace = json.loads(describe(caught.value))["trace"]
    assert len(trace) <= TRACE_CHARS_MAX + 20
    assert trace.startswith("Traceback")
    assert trace.rstrip().endswith("ValueError: bottom")


def test_a_description_stays_small_whatever_the_message() -> None:
    assert len(describe(ValueError("x" * 5_000_000))) <= MESSAGE_BYTES_MAX


@pytest.mark.parametrize("text", ["\udcff", "file \udc80.txt", "\x00", "ünïcode", "🧨"])
def test_a_description_can_be_stored_whatever_the_characters(text: str) -> None:
    stored = describe(OSError(text))
    assert json.loads(stored.encode())["type"] == "OSError"
    assert "\x00" not in stored, "PostgreSQL stores no NUL"


def test_an_error_that_cannot_be_printed_is_described_all_the_same() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert json.loads(describe(Broken()))["type"] == "Broken"
