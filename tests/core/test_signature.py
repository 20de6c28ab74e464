"""The signature of a workflow: which calls fit, and what raw JSON from outside must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rota.core.typed import Signature
from rota.errors import BadInput, PayloadTooBig

if TYPE_CHECKING:
    from decimal import Decimal as OnlyCheckersKnow

LIMIT = 10_000
WHEN = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass
class Cat:
    name: str


@dataclass
class Dog:
    name: str


def ship(order_id: str, count: int = 1, *, express: bool = False, note: str | None = None) -> str:
    return order_id


def nothing() -> None: ...


def untyped(a, b=2): ...  # type: ignore[no-untyped-def]


def mixed(when: datetime, pet: Cat | Dog) -> None: ...


def unknown(when: datetime, amount: OnlyCheckersKnow) -> None: ...


def write(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    return Signature(function).write(args, kwargs, what="the input", bytes_max=LIMIT)


def check(function: Callable[..., Any], text: str) -> str | None:
    return Signature(function).check(text, what="the input", bytes_max=LIMIT)


def read(function: Callable[..., Any], text: str | None) -> dict[str, Any]:
    return Signature(function).read(text, what="the input")


def test_arguments_are_stored_by_name() -> None:
    assert write(ship, "o-7", 2) == '{"order_id":"o-7","count":2}'
    assert write(ship, "o-7", express=True) == '{"order_id":"o-7","express":true}'


def test_a_default_is_the_codes_of_the_day_it_runs() -> None:
    assert write(ship, "o-7") == '{"order_id":"o-7"}'
    assert read(ship, '{"order_id":"o-7"}') == {"order_id": "o-7"}
    assert ship(**read(ship, '{"order_id":"o-7"}')) == "o-7"


def test_a_default_given_explicitly_is_kept() -> None:
    assert read(ship, write(ship, "o-7", note=None)) == {"order_id": "o-7", "note": None}


def test_no_arguments_are_stored_as_nothing() -> None:
    assert write(nothing) is None
    assert read(nothing, None) == {}
    assert check(nothing, "{}") is None


def test_unannotated_parameters_take_plain_json() -> None:
    assert read(untyped, write(untyped, [1, {"x": None}])) == {"a": [1, {"x": None}]}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        (("o-7", 1, True), {}),
        (("o-7",), {"order_id": "o-8"}),
        (("o-7",), {"size": 3}),
    ],
)
def test_a_call_that_does_not_fit_is_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the input"):
        write(ship, *args, **kwargs)


@pytest.mark.parametrize(
    "function",
    [lambda *args: None, lambda **kwargs: None, lambda a, *rest: None],
    ids=["positional", "keyword", "rest"],
)
def test_a_signature_with_nameless_parameters_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(BadInput) as caught:
        Signature(function)
    assert "Name each parameter" in caught.value.advice


def test_a_positional_only_parameter_is_refused_or_reaches_the_function() -> None:
    def workflow(a: int, /) -> int:
        return a

    try:
        signature = Signature(workflow)
    except BadInput:
        return
    # The executor calls by name, as every stored input is by name.
    by_name: Callable[..., int] = workflow
    assert (
        by_name(**signature.read(signature.write((7,), {}, what="it", bytes_max=LIMIT), what="it"))
        == 7
    )


def test_one_hint_that_json_cannot_distinguish_leaves_the_others_typed() -> None:
    assert read(mixed, write(mixed, WHEN, {"name": "Tom"}))["when"] == WHEN


def test_one_hint_that_only_checkers_know_leaves_the_others_typed() -> None:
    assert read(unknown, write(unknown, WHEN, "1.5"))["when"] == WHEN


def test_raw_json_is_checked_and_made_canonical() -> None:
    assert check(ship, ' {"count": 2, "order_id": "o-7"} ') == '{"order_id":"o-7","count":2}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"order_id": "o-7", "size": 3, "color": 1}', "color, size"),
        ("{}", "needs order_id"),
        ('{"order_id": 7}', "$.order_id"),
        ('{"order_id": "o-7", "count": "two"}', "$.count"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1]", "the input"),
        ("null", "the input"),
        ('"o-7"', "the input"),
    ],
)
def test_raw_json_that_does_not_fit_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        check(ship, text)
    assert says in str(caught.value)


def test_an_unknown_field_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BadInput) as caught:
        check(ship, '{"order": "o-7"}')
    assert "order_id, count, express, note" in caught.value.advice


def test_raw_json_over_the_limit_is_refused() -> None:
    with pytest.raises(PayloadTooBig):
        check(ship, f'{{"order_id": "{"x" * LIMIT}"}}')


def test_a_stored_input_that_no_longer_fits_is_refused() -> None:
    with pytest.raises(BadInput, match=r"\$\.count"):
        read(ship, '{"order_id":"o-7","count":"two"}')


def test_the_result_is_read_by_its_hint() -> None:
    def when() -> datetime: ...  # type: ignore[empty-body]

    assert Signature(when).returns.read('"2024-01-01T00:00:00Z"', what="it") == WHEN
    assert Signature(when).returns.read(None, what="it") is None
