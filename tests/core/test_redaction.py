"""Secret fields by name, and their values in texts."""

from __future__ import annotations

import base64
import json
from contextvars import copy_context

import pytest

from rota.core import redaction
from rota.core.redaction import REDACTED, Redactor
from rota.errors import BadInput, BadSetting
from rota.settings import from_environment, load

BY_NAME = Redactor(("password", "api_key"))


@pytest.mark.parametrize("name", ["password", "Password", "api_key", "apiKey", "API-KEY"])
def test_a_field_is_secret_however_its_name_is_written(name: str) -> None:
    value = {"a": [{name: {"deep": "x"}, "other": "x"}], "passwords": 1, "none": None}
    hidden = {"a": [{name: REDACTED, "other": "x"}], "passwords": 1, "none": None}
    assert BY_NAME.value(value) == hidden
    assert json.loads(BY_NAME.text(json.dumps(value))) == hidden
    assert Redactor().value(value) is value


def test_an_empty_secret_stays_empty_and_other_text_is_unchanged() -> None:
    assert BY_NAME.value({"password": None}) == {"password": None}
    assert BY_NAME.text("not JSON: password") == "not JSON: password"


def test_a_value_too_deep_to_look_through_is_hidden_whole() -> None:
    deep: object = "x"
    for _ in range(5_000):
        deep = [deep]
    assert BY_NAME.value(deep) == REDACTED


def test_texts_about_a_run_hide_the_values_it_knows() -> None:
    def lived() -> str:
        redaction.begin_run(BY_NAME, ['{"password": "hunter2/x", "pin": "7", "user": "ann"}', None])
        redaction.learn('{"api_key": ["k-12345678", 42]}')
        coded = base64.b64encode(b"ann:k-12345678").decode()
        said = f"ann hunter2/x hunter2%2Fx {coded} 42 142"
        return redaction.without_secrets(said)

    said = copy_context().run(lived)
    assert said.startswith(f"ann {REDACTED} {REDACTED} ")
    assert said.endswith(f" {REDACTED} 142")
    assert base64.b64encode(b"12345678").decode()[:8] not in said
    assert redaction.without_secrets("hunter2/x") == "hunter2/x", (
        "outside of a run nothing is known"
    )


def test_a_placeholder_that_comes_back_represents_the_stored_value() -> None:
    stored = {"user": "ann", "login": [{"password": "p"}]}
    given = {"user": "bob", "login": [{"password": REDACTED}]}
    assert BY_NAME.restored(given, stored) == {"user": "bob", "login": [{"password": "p"}]}
    with pytest.raises(BadInput, match="no value is stored for it"):
        BY_NAME.restored(given)
    assert BY_NAME.restored({"note": REDACTED}) == {"note": REDACTED}


def test_a_placeholder_in_a_list_represents_the_item_that_it_came_from() -> None:
    a, b = {"user": "ann", "password": "pa"}, {"user": "bob", "password": "pb"}
    hidden_a, hidden_b = BY_NAME.value(a), BY_NAME.value(b)
    assert BY_NAME.restored([hidden_b], [a, b]) == [b]
    assert BY_NAME.restored([hidden_b, hidden_a], [a, b]) == [b, a]
    renamed = {"user": "eve", "password": REDACTED}
    assert BY_NAME.restored([hidden_a, renamed], [a, b]) == [a, {"user": "eve", "password": "pb"}]
    with pytest.raises(BadInput, match="no value is stored for it"):
        BY_NAME.restored([renamed], [a, b])  # of which of them?
    twins = [{"password": "1"}, {"password": "2"}]
    assert BY_NAME.restored(BY_NAME.value(twins), twins) == twins
    with pytest.raises(BadInput, match="no value is stored for it"):
        BY_NAME.restored([{"password": REDACTED}], twins)


def test_a_text_too_deep_to_look_through_is_hidden_whole() -> None:
    depth = 3_000
    text = '{"a":' * depth + '{"password": "hunter2"}' + "}" * depth
    assert "hunter2" not in BY_NAME.text(text)


def test_the_setting_takes_a_list_or_a_text_with_commas() -> None:
    assert load({"secret_fields": ["a", "b"]}, source="test").secret_fields == ("a", "b")
    given = from_environment({"ROTA_SECRET_FIELDS": "password, api_key,"})
    assert load(given, source="test").secret_fields == ("password", "api_key")
    with pytest.raises(BadSetting, match="ROTA_SECRET_FIELDS"):
        from_environment({"ROTA_SECRET_FIELDS": "two words"})
