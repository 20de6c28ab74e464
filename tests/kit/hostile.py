"""Hypothesis strategies of hostile values: what a broken or malicious counterpart may send.

Feed these to every parser and every store function. The rule: the right answer or a `RotaError`.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

INT64_MAX = 2**63 - 1

# Around every bound that a database, a codec or a calendar has, and far beyond.
EDGE_INTEGERS = [
    0, -1, 1, 2**31, 2**53, INT64_MAX, INT64_MAX + 1, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64,
    10**400, -(10**400), 253_402_300_800_000_000,
]  # fmt: skip
ODD_FLOATS = [math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, -0.0, 1e13, 9.3e12]
CHARSETS = [
    "utf-8", "latin-1", "utf-16", "utf-7", "shift_jis", "big5", "euc-jp", "idna", "punycode",
    "undefined", "base64", "rot13", "hex", "no-such-charset", "", "\0", "a b",
]  # fmt: skip
DEPTH = 1_000
DEEP_JSON = ["[" * DEPTH + "]" * DEPTH, '{"a":' * DEPTH + "1" + "}" * DEPTH, "[" * DEPTH]
ODD_TEXTS = [
    "", " ", "\0", "a\0b", "\ud800", "a\udfffb", "\ufeff", "\u202e", "\r\n", "٣", "1𝟗", "²", "\\",
    "{{", "}}", "{{a}}", "nan", "inf", "-inf", "1e400", "0x10", "-0", "null", "NaN", "Infinity",
    "é" * 2_000, "9" * 400, "9" * 5_000, "9" * 400 + "d", "99999999999d", "1d" * 100,
    "a" * 3_000,
    "0001-01-01T00:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00+14:00", "99999-01-01",
    "Sun, 06 Nov 99999 08:49:37 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "@every 9e999s",
    "every 99999999999999999999 days", "*/0 * * * *", "0-99999999999999999999 * * * *",
]  # fmt: skip

# Each of these makes a backtracking search quadratic, or a reader begin again and again.
LONG = 60_000
LONG_TEXTS = [
    piece * (LONG // len(piece))
    for piece in (
        "1",
        "\\",
        " ",
        "a",
        "{{",
        "{{a ",
        "* ",
        "1h",
        "1.",
        "[",
        "{",
        "`",
        '"',
        "\n",
        "/*",
    )
]


def integers() -> st.SearchStrategy[int]:
    """Integers at and beyond every edge."""
    unprintable = st.just(5_000).map(lambda digits: 10**digits)  # more digits than Python prints
    return st.sampled_from(EDGE_INTEGERS) | st.integers() | unprintable


def numbers() -> st.SearchStrategy[float]:
    """Integers and floats, NaN and infinity included."""
    return integers() | st.sampled_from(ODD_FLOATS) | st.floats()


def texts() -> st.SearchStrategy[str]:
    """Text with NUL, lone surrogates, odd digits; empty and huge."""
    any_character = st.characters(exclude_categories=())
    return (
        st.sampled_from(ODD_TEXTS)
        | st.sampled_from(DEEP_JSON)
        | st.text(any_character, max_size=40)
        | st.text("0123456789hmsd.-:+TZ*/,{}[]\"'\\ ", max_size=40)
    )


def json_values() -> st.SearchStrategy[object]:
    """Values that JSON may decode to, and values that only Python can hold."""
    leaves = st.none() | st.booleans() | numbers() | texts()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=6,
    ) | st.builds(_nested, st.sampled_from([50, DEPTH]))


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def bodies() -> st.SearchStrategy[bytes]:
    """Bytes of a message: text in any encoding, or none."""
    return st.binary(max_size=60) | texts().map(lambda text: text.encode("utf-8", "surrogatepass"))
