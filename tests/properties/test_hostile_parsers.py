"""Every parser gives the right answer or an error of ours, whatever it is given, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.cli import argument_values
from rota.core import typed
from rota.core.pipelines import filter_rules, replies
from rota.core.pipelines.filter_rules import Operator
from rota.core.pipelines.templates import Template
from rota.core.runs.retry import RETRY_DELAY_S_MAX, RetryPolicy, next_try_us, retry_after_s
from rota.core.time import recurrence
from rota.core.time.cron import read_cron
from rota.core.time.instants import DURATION_MAX, FIRST, LAST, after, iso, micros, moment, span
from rota.core.time.phrases import understand
from rota.core.time.zones import zone_named
from rota.errors import BadInput, NotSerialisable, RotaError
from rota.net.http import HttpRequest, HttpResponse, content_of
from rota.tools.feed import parse as parse_feed
from tests.kit import hostile
from tests.kit.builders import NOW
from tests.kit.escaped_text import escaped


@contextmanager
def only_ours(*others: type[Exception]) -> Iterator[None]:
    """Let errors of ours pass, and those that are documented."""
    with suppress(RotaError, *others):
        yield


@given(hostile.texts() | hostile.numbers())
def test_a_duration_is_read_within_its_bounds_or_refused(duration: Any) -> None:
    with only_ours():
        assert abs(micros(duration)) <= DURATION_MAX
        span(micros(duration))


@given(hostile.integers())
def test_every_instant_can_be_shown_and_clamped(at: int) -> None:
    assert FIRST <= after(NOW, at) <= LAST
    iso(at)
    moment(at)


@given(hostile.texts())
def test_a_time_on_the_command_line_is_read_or_refused(text: str) -> None:
    with only_ours():
        argument_values.instant(text)


@pytest.mark.parametrize("read", [read_cron, understand, zone_named])
@given(text=hostile.texts())
def test_cron_phrases_and_zones_are_read_or_refused(read: Callable[[str], Any], text: str) -> None:
    with only_ours():
        read(text)


@given(hostile.texts(), st.sampled_from(["UTC", "Europe/Berlin"]))
def test_a_schedule_is_read_or_refused(text: str, zone: str) -> None:
    with only_ours():
        recurrence.parse(text, zone=zone, now=NOW)


@given(hostile.texts(), hostile.json_values())
def test_templates_render_or_name_what_is_missing(text: str, value: Any) -> None:
    with only_ours():
        Template(text).missing(["a"])
        Template(text).render({"a": value, "b": {"c": value}})
    with only_ours():
        Template("{{a}}").render({"a": value})
    assert Template(escaped(text)).render({}) == text


@given(hostile.texts())
def test_a_reply_holds_json_or_does_not(text: str) -> None:
    with only_ours(replies.NoJson):
        replies.extract(text)


@given(hostile.texts())
def test_a_reply_in_a_fence_holds_json_or_does_not(text: str) -> None:
    with only_ours(replies.NoJson):
        replies.extract(f"Here:\n```json\n{text}\n```\n[{text}]")


@given(hostile.json_values(), st.sampled_from(sorted(set(Operator) - {Operator.MATCHES})))
def test_filter_rules_decide_about_any_item(value: Any, operator: Operator) -> None:
    for operand in (value, 5, "2026-01-01", [value]):
        with only_ours():
            filter_rules.judge(filter_rules.Test("a", operator, operand), {"a": value})


def _typed(number: int, name: str = "", share: float = 0.0, rest: Any = None) -> None:
    """A workflow."""


@given(hostile.texts() | st.sampled_from(hostile.DEEP_JSON), hostile.json_values())
def test_typed_input_is_read_or_refused(text: str, value: Any) -> None:
    signature = typed.Signature(_typed)
    with only_ours():
        signature.check(text, what="input", bytes_max=10**6)
    with only_ours():
        signature.check(f'{{"number": {text}}}', what="input", bytes_max=10**6)
    with only_ours():
        signature.read(text, what="input")
    with only_ours():
        signature.write((value, value, value, value), {}, what="input", bytes_max=10**6)


@given(hostile.json_values())
def test_what_is_written_as_json_reads_back_or_is_refused(value: Any) -> None:
    with only_ours(NotSerialisable):
        text = typed.encode(value, what="value", bytes_max=10**7)
        back = typed.JsonReader(Any).read(text, what="value")
        assert _same(back, value)


def _same(back: Any, value: Any) -> bool:
    if isinstance(value, float) and not isinstance(back, float):
        return bool(back is not None and back == value)
    return bool(back == value)


@given(hostile.texts(), hostile.texts())
def test_values_of_the_command_line_are_read_or_refused(text: str, other: str) -> None:
    for read in (argument_values.loose, argument_values.whole):
        with only_ours():
            read(f"{text} ")  # "-" alone would read standard input
    with only_ours():
        argument_values.arguments([f"a={text}", other], f"@{other}")


@given(hostile.texts(), st.sampled_from(["", "Sun, 06 Nov 1994 08:49:37 GMT"]))
def test_retry_after_is_a_bounded_wait_or_nothing(asked: str, date: str) -> None:
    headers = {"retry-after": asked, "retry-after-ms": asked, "date": date}
    wait_s = retry_after_s(headers)
    assert wait_s is None or 0 <= wait_s <= RETRY_DELAY_S_MAX


@given(hostile.numbers(), st.integers(1, 10**6))
def test_a_retry_waits_at_most_the_documented_maximum(asked: float, attempt: int) -> None:
    policy = RetryPolicy(attempts=2 * 10**6, factor=1e6, delay_s_max=RETRY_DELAY_S_MAX)
    for retry_after in (asked, None):
        wait_us = next_try_us(
            policy, attempt=attempt, error_names=(), retry_after_s=retry_after, chance=0.5
        )
        assert wait_us is not None
        assert 0 <= wait_us <= RETRY_DELAY_S_MAX * 1e6


@given(
    hostile.bodies(),
    st.sampled_from(hostile.CHARSETS),
    st.sampled_from(["auto", "json", "text", "base64"]),
    st.sampled_from(["application/json", "text/plain", "", "x"]),
)
def test_the_body_of_an_answer_is_read_or_rejected(
    body: bytes, charset: str, kind: Any, media: str
) -> None:
    headers = {"content-type": f"{media}; charset={charset}"}
    with only_ours():
        content_of(
            HttpResponse(HttpRequest("GET", "http://h/", {}), 200, headers, body, True), kind
        )


@given(hostile.bodies(), st.sampled_from(hostile.CHARSETS), hostile.texts())
def test_a_feed_is_read_or_rejected(body: bytes, charset: str, text: str) -> None:
    date = text.encode("utf-8", "surrogatepass")
    head = f'<?xml version="1.0" encoding="{charset}"?>'.encode()
    item = (
        b"<rss><channel><item><guid>1</guid><pubDate>" + date + b"</pubDate></item></channel></rss>"
    )
    for raw in (body, head + body, head + item, item):
        with only_ours():
            parse_feed(raw, url="http://h/feed")


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(BadInput, match=r"bad\.json"):
        argument_values.whole(f"@{tmp_path / 'bad.json'}")


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [("120", 120.0), ("10000000000000", RETRY_DELAY_S_MAX), ("9" * 400, RETRY_DELAY_S_MAX)],
    ids=["plain", "1e13", "400 digits"],
)
def test_a_huge_retry_after_is_capped(retry_after: str, expected: float) -> None:
    assert retry_after_s({"retry-after": retry_after}) == expected


READERS: dict[str, Callable[[str], Any]] = {
    "durations": micros,
    "cron": read_cron,
    "phrases": understand,
    "schedules": lambda text: recurrence.parse(text, zone="UTC", now=NOW),
    "templates": lambda text: Template(text).render({"a": 1}),
    "escaped templates": escaped,
    "replies": replies.extract,
    "command line": argument_values.loose,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_long_text_is_read_in_linear_time(name: str) -> None:
    slow = {}
    for text in hostile.LONG_TEXTS:
        began = time.process_time()
        with only_ours(replies.NoJson):
            READERS[name](text)
        took_s = time.process_time() - began
        if took_s > 2:  # a quadratic search takes more than ten seconds
            slow[text[:8]] = took_s
    assert slow == {}
