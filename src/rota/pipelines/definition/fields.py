"""Fields of a reply: the instructions to the model, the parser, and the correction of a wrong
reply.

A plain name takes any value as it is; a field with a type is checked, and only then converted.
Nothing is guessed: `007` stays text and `no` stays "no" unless the field says otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rota.core.pipelines.filter_rules import equal, number_of
from rota.core.pipelines.replies import NoJson, extract
from rota.errors import BadReply
from rota.pipelines.definition.sections import OutputField

Fields = Sequence[OutputField]
_YES = {"yes", "true", "include", "included", "pass", "keep", "y"}
_NO = {"no", "false", "exclude", "excluded", "fail", "reject", "drop", "n"}
_TRUE, _FALSE = {"true", "yes"}, {"false", "no"}
_PAIRS = (("field", "value"), ("key", "value"), ("name", "value"))
_MISSING = object()
_TYPES = {
    "string": "text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "list": "a list", "object": "an object",
}  # fmt: skip


class BatchMismatch(BadReply):
    """A reply to a batch with another number of results than items: the batch is to be split."""


def fields_of(output: Sequence[str | OutputField]) -> list[OutputField]:
    """Fields from names and fields; a plain name may be missing in a reply."""
    return [
        OutputField(name=each, required=False) if isinstance(each, str) else each for each in output
    ]


# -- instructions to the model ---------------------------------------------------------------


def instruction(fields: Fields, batch: int | None = None) -> str:
    """The text appended to a prompt so that the reply can be read; nothing in text mode."""
    if batch is not None:
        each = f"one object {_shape(fields)}" if fields else "one text"
        length = f"exactly {batch} elements"
        return _reply_with(
            f"a JSON array of {length}, {each} for each item, in the order of ITEMS", fields
        )
    return _reply_with(f"one JSON object {_shape(fields)}", fields) if fields else ""


def schema_of(fields: Fields) -> dict[str, Any] | None:
    """The JSON Schema of a reply with these fields, in the part of it that all vendors take; None
    where a field takes any value. A field that may be missing may be null."""
    if not fields or any(field.type in ("any", "list", "object") for field in fields):
        return None
    return {
        "type": "object",
        "properties": {field.name: _schema(field) for field in fields},
        "required": [field.name for field in fields],
        "additionalProperties": False,
    }


def _schema(field: OutputField) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": field.type if field.required else [field.type, "null"]}
    if field.enum is not None:
        schema["enum"] = [*field.enum, *([] if field.required else [None])]
    if field.description:
        schema["description"] = field.description
    return schema


def list_instruction(fields: Fields) -> str:
    """The same for a list of items, of any length."""
    return _reply_with(f"a JSON array of one object {_shape(fields)} for each item", fields)


def _reply_with(form: str, fields: Fields) -> str:
    rules = [f"- {field.name}: {_rule(field)}" for field in fields if _rule(field)]
    return "\n".join(["", "", f"Reply with {form}. No other text.", *rules])


def _shape(fields: Fields) -> str:
    return "{" + ", ".join(f"{json.dumps(field.name)}: …" for field in fields) + "}"


def _rule(field: OutputField) -> str:
    words: list[str] = [] if field.type == "any" else [field.type]
    if field.enum is not None:
        words.append("one of " + ", ".join(json.dumps(each) for each in field.enum))
    if not field.required and (words or field.description):
        words.append("may be null")
    if field.description:
        words.append(field.description)
    return "; ".join(words)


def re_ask(prompt: str, reply: str, problem: str) -> str:
    """The prompt once more, with the reply and what was wrong with it."""
    return (
        f"{prompt}\n\n[Your last reply]\n{reply}\n\n[What was wrong with it]\n{problem}\n\n"
        "Reply again, completely, and correct this."
    )


# -- how a reply is read -------------------------------------------------------------------


def read_reply(text: str, fields: Fields) -> dict[str, Any]:
    """The fields of a reply, or BadReply with all its problems."""
    names = [field.name for field in fields]
    try:
        value = _object(extract(text, lambda value: _object(value, names) is not None), names)
    except NoJson as error:
        value = _from_lines(text, names)
        if value is None:
            raise BadReply(f"The reply cannot be read: {error}.") from error
    return _checked(value or {}, fields)


def read_batch(text: str, fields: Fields, count: int) -> list[dict[str, Any] | str | BadReply]:
    """The results of a batch, one for each item; a bad one among them is an error of its own."""
    names = [field.name for field in fields]
    try:
        reply = extract(text, lambda value: _listed(value) is not None)
    except NoJson as error:
        raise BatchMismatch(f"The reply cannot be read: {error}.", expected=count) from error
    listed = _listed(reply) or []
    if len(listed) != count:
        raise BatchMismatch(
            f"The reply holds {len(listed)} results for {count} items.",
            expected=count, got=len(listed),
        )  # fmt: skip
    return [_of_batch(each, fields, names) for each in listed]


def _of_batch(value: Any, fields: Fields, names: list[str]) -> dict[str, Any] | str | BadReply:
    if not fields:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    result = _object(value, names)
    if result is None:
        return BadReply(f"The result is not an object with {', '.join(names)}.")
    try:
        return _checked(result, fields)
    except BadReply as error:
        return error


def read_decision(text: str, fields: Fields) -> tuple[bool, str]:
    """Whether an AI filter keeps an item, and the reason it gave."""
    if fields:
        answer = read_reply(text, fields)
        include = answer.get("include")
        if not isinstance(include, bool):
            raise BadReply(f'"include" must be true or false; it is {_shown(include)}.')
        return include, str(answer.get("reason") or "")
    try:  # first: `{"include": false}` begins with a word that means yes
        value = extract(text, lambda value: _object(value, ["include"]) is not None)
    except NoJson as error:
        return _yes_or_no(text, error), text.strip()
    return read_decision(json.dumps(value), [OutputField(name="include")])


def _yes_or_no(text: str, error: NoJson) -> bool:
    """Whether the first word of a reply means yes.

    Refused: a reply with the opposite among the next two words, and a single letter before more
    words.
    """
    words = re.findall(r"[a-z]+", text.lower())
    first = words[0] if words else ""
    opposite = {"yes": "no", "no": "yes"}.get(first)
    is_letter = len(first) == 1 and len(words) > 1
    if first not in _YES | _NO or is_letter or opposite in words[1:3]:
        raise BadReply("The reply begins with neither yes nor no.") from error
    return first in _YES


def _object(value: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """The object meant by a value: itself, the only one of a list, pairs, or one inside it."""
    if isinstance(value, list):
        if len(value) == 1:
            return _object(value[0], names)
        return _folded(value, names)
    if not isinstance(value, dict):
        return None
    if any(_get(value, name) is not _MISSING for name in names):
        return value
    inner = [each for each in value.values() if isinstance(each, dict)]
    return _object(inner[0], names) if len(value) == 1 and inner else None


def _folded(value: list[Any], names: Sequence[str]) -> dict[str, Any] | None:
    for key, content in _PAIRS:
        if value and all(isinstance(e, dict) and key in e and content in e for e in value):
            return _object({str(each[key]): each[content] for each in value}, names)
    return None


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        lists = [each for each in value.values() if isinstance(each, list)]
        return lists[0] if len(value) == 1 and lists else None
    return None


def _from_lines(text: str, names: Sequence[str]) -> dict[str, Any] | None:
    """`name: value` lines, when every field has one."""
    values: dict[str, Any] = {}
    for name in names:
        pattern = rf"^[\s>*_#-]*{re.escape(name)}[*_`\"]*\s*[:=]\s*[*_`]*\s*(.+?)\s*$"
        match = re.search(pattern, text, re.I | re.M)
        if match is None:
            return None
        values[name] = match.group(1)
    return values or None


def _get(value: Mapping[str, Any], name: str) -> Any:
    """A field by its name; otherwise by its letters, whatever their case and what joins them."""
    if name in value:
        return value[name]
    wanted = _letters(name)
    return next((each for key, each in value.items() if _letters(str(key)) == wanted), _MISSING)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).lower() or name


# -- types ---------------------------------------------------------------------------------


def _checked(value: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    problems: list[str] = []
    checked: dict[str, Any] = {}
    for field in fields:
        got = _get(value, field.name)
        if got is _MISSING or got is None:
            if field.required:
                problems.append(f'"{field.name}" is missing.')
            checked[field.name] = None
            continue
        got = _converted(got, field.type)
        if got is _MISSING:
            shown = _shown(_get(value, field.name))
            problems.append(f'"{field.name}" must be {_TYPES[field.type]}; it is {shown}.')
        elif field.enum is not None:
            got = _listed_value(got, field, problems)
        checked[field.name] = got
    if problems:
        raise BadReply(" ".join(problems), problems=problems)
    return checked


def _listed_value(got: Any, field: OutputField, problems: list[str]) -> Any:
    allowed = field.enum or []
    for each in allowed:
        if equal(each, got) or (isinstance(each, str) and each.lower() == str(got).lower().strip()):
            return each
    listed = ", ".join(json.dumps(each) for each in allowed)
    problems.append(f'"{field.name}" must be one of {listed}; it is {_shown(got)}.')
    return None


def _converted(value: Any, kind: str) -> Any:
    """A value as the type asks, if nothing is lost by it; otherwise _MISSING."""
    if kind == "any":
        return value
    if kind == "string":
        if isinstance(value, dict | list):
            return _MISSING
        return value if isinstance(value, str) else json.dumps(value)
    if kind == "boolean":
        word = value.strip().lower() if isinstance(value, str) else ""
        known = word in _TRUE if word in _TRUE | _FALSE else _MISSING
        return value if isinstance(value, bool) else known
    if kind in ("integer", "number"):
        number = None if isinstance(value, bool) else number_of(value)
        if number is None or (kind == "integer" and number != int(number)):
            return _MISSING
        return int(number) if number == int(number) and kind == "integer" else _plain(value, number)
    wanted = list if kind == "list" else dict
    return value if isinstance(value, wanted) else _MISSING


def _plain(value: Any, number: Any) -> Any:
    if not isinstance(value, str):
        return value
    return int(number) if number == int(number) and "." not in value else float(number)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
