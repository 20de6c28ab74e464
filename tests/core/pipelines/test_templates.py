"""Templates: one pass, literal values, an escape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pipelines.templates import Template
from rota.errors import BadInput
from tests.kit.escaped_text import escaped


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("{{a}} and {{ a }}", "1 and 1"),
        ("{{n.x}} {{n.l.0}} {{n}}", '2 z {"x": 2, "l": ["z"]}'),
        ("{{First Name}} {{a-b}}", "Jo 3"),
        ("{{none}}|{{yes}}|{{pi}}", "|true|3.5"),
        (r"\{{a}} \\{{a}} \\\{{a}}", r"{{a}} \1 \{{a}}"),
        ('{{ "a": 1 }} {a} {{}} {{{a}}}', '{{ "a": 1 }} {a} {{}} {1}'),
        ("{{#if a}} {{a|b}}", "{{#if a}} {{a|b}}"),
        ("", ""),
    ],
)
def test_a_template_renders(text: str, out: str) -> None:
    values = {
        "a": 1, "n": {"x": 2, "l": ["z"]}, "First Name": "Jo", "a-b": 3, "none": None,
        "yes": True, "pi": 3.5,
    }  # fmt: skip
    assert Template(text).render(values) == out


def test_values_are_never_looked_at_again() -> None:
    values = {"a": "{{b}} $1 \\1 \\{{b}} {{ITEMS}}", "b": "no"}
    assert Template("<{{a}}>").render(values) == "<{{b}} $1 \\1 \\{{b}} {{ITEMS}}>"


def test_a_missing_name_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(BadInput) as caught:
        Template("one\ntwo {{titel}}").render({"title": 1, "size": 2})
    assert str(caught.value) == (
        '{{titel}} in line 2 of the prompt has no value; did you mean "title"?'
    )
    assert caught.value.advice == (
        "Known here: title, size. To keep the braces as text write \\{{titel}}."
    )


def test_a_missing_name_may_be_kept() -> None:
    assert Template("a {{x}} b").render({}, keeps_missing=True) == "a {{x}} b"


def test_names_are_reported_once_in_order() -> None:
    template = Template("{{b}} {{a.x}} {{b}} \\{{c}}")
    assert template.names == ["b", "a.x"]
    assert [each.name for each in template.missing(["a"])] == ["b"]


@settings(deadline=None)
@given(st.text(alphabet="ab{} \\$"), st.text(alphabet="ab{}\\$ "))
def test_a_value_comes_out_as_it_went_in(before: str, value: str) -> None:
    assert Template(escaped(before) + "|{{x}}|").render({"x": value}) == f"{before}|{value}|"


@settings(deadline=None)
@given(st.text(alphabet="ab{} \\$.\n"))
def test_escaped_text_renders_to_itself(text: str) -> None:
    template = Template(escaped(text))
    assert template.names == []
    assert template.render({}) == text
