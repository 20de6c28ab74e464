"""Compares plain values with the types of a definition, and reports every difference.

msgspec would stop at the first difference. Only its types are used (`msgspec.inspect`), so that the
structs stay the one definition of what a file may hold.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import inspect

from rota.core.suggest import did_you_mean, nearest
from rota.pipelines.definition.problems import Path, ProblemReport, path_text

_OLD_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false",
                 "n": "false"}  # fmt: skip
_FILE_TAGS = ("csv", "json", "jsonl", "xlsx", "parquet")
# Keys that people put one level too high, and where they belong.
_MISPLACED = {
    ("input", "type"): 'put type and path under "from:"',
    ("input", "path"): 'put type and path under "from:"',
    ("input", "prompt"): 'put it under "generate:"',
    ("filter", "rules"): 'put it under "rule:"',
    ("filter", "prompt"): 'put it under "ai:"',
}


class Shape:
    """One comparison of a document with a type."""

    def __init__(self, report: ProblemReport) -> None:
        self._report = report

    def check(self, value: Any, kind: inspect.Type, path: Path) -> None:
        """Report every difference between a value and a type."""
        kind = _bare(kind)
        match kind:
            case inspect.UnionType():
                self._union(value, kind, path)
            case inspect.StructType():
                self._struct(value, kind, path)
            case inspect.ListType():
                self._list(value, kind, path)
            case inspect.DictType():
                self._dict(value, kind, path)
            case inspect.AnyType():
                pass
            case _:
                self._scalar(value, kind, path)

    def say(self, path: Path, message: str, *, at_key: bool = False) -> None:
        """Note a problem of the value, or of its key."""
        self._report.wrong.add(path)
        self._report.error(path, message, at_key=at_key)

    # -- mappings --------------------------------------------------------------------------

    def _struct(self, value: Any, kind: inspect.StructType, path: Path) -> None:
        if not isinstance(value, dict):
            self.say(path, f"{path_text(path)} must be a mapping (key: value); {_is(value)}")
            return
        known = {field.encode_name: field for field in kind.fields}
        names = list(known) + ([kind.tag_field] if kind.tag_field else [])
        for key, inner in value.items():
            if key in known:
                self.check(inner, known[key].type, (*path, key))
            elif key != kind.tag_field:
                self._unknown(path, key, names)
        meant = {nearest(key, names) for key in value if key not in names}
        for key, field in known.items():
            if field.required and key not in value and key not in meant:
                self.say(path, f'{path_text(path)}: "{key}" is missing', at_key=True)

    def _unknown(self, path: Path, key: str, names: list[str]) -> None:
        meant = did_you_mean(key, names)
        belongs = _MISPLACED.get((str(path[-1]) if path else "", key))
        advice = f"; {belongs}" if belongs else meant or f"; it takes {', '.join(names)}"
        self.say((*path, key), f'{path_text(path)}: unknown key "{key}"{advice}', at_key=True)

    def _dict(self, value: Any, kind: inspect.DictType, path: Path) -> None:
        if not isinstance(value, dict):
            self.say(path, f"{path_text(path)} must be a mapping (key: value); {_is(value)}")
            return
        for key, inner in value.items():
            self.check(inner, kind.value_type, (*path, key))

    # -- lists and choices -----------------------------------------------------------------

    def _list(self, value: Any, kind: inspect.ListType, path: Path) -> None:
        if not isinstance(value, list):
            self.say(path, f"{path_text(path)} must be a list; {_is(value)}")
            return
        if kind.min_length and len(value) < kind.min_length:
            self.say(path, f"{path_text(path)} must not be empty")
        for index, inner in enumerate(value):
            self.check(inner, kind.item_type, (*path, index))

    def _union(self, value: Any, kind: inspect.UnionType, path: Path) -> None:
        kinds = [_bare(each) for each in kind.types]
        if value is None and any(isinstance(each, inspect.NoneType) for each in kinds):
            return
        structs = [each for each in kinds if isinstance(each, inspect.StructType)]
        if isinstance(value, dict) and structs:
            self._one_of(value, structs, path)
            return
        near = [each for each in kinds if _near(value, each)]
        if len(near) == 1:
            self.check(value, near[0], path)
        elif not any(_fits(value, each) for each in near):
            words = [_wanted(each) for each in kinds if not isinstance(each, inspect.NoneType)]
            wanted = " or ".join(dict.fromkeys(words))
            form = _source_form(value, structs) if isinstance(value, str) else ""
            self.say(path, f"{path_text(path)} must be {wanted}; {_is(value)}{form}")

    def _one_of(self, value: dict[str, Any], kinds: list[inspect.StructType], path: Path) -> None:
        """A mapping of one of several kinds; one of its keys names the kind."""
        tag_field = kinds[0].tag_field
        if tag_field is None:
            self._struct(value, kinds[0], path)
            return
        by_tag = {str(each.tag): each for each in kinds}
        tags = ", ".join(by_tag)
        if tag_field not in value:
            self.say(path, f'{path_text(path)}: "{tag_field}" is missing; one of {tags}')
        elif str(value[tag_field]) in by_tag:
            self._struct(value, by_tag[str(value[tag_field])], path)
        else:
            detail = str(value[tag_field])
            self.say(
                (*path, tag_field),
                f'{path_text((*path, tag_field))}: "{detail}" is not one of {tags}'
                f"{did_you_mean(detail, by_tag)}",
            )

    # -- single values ---------------------------------------------------------------------

    def _scalar(self, value: Any, kind: inspect.Type, path: Path) -> None:
        if _fits(value, kind):
            return
        where = path_text(path)
        if isinstance(value, str) and (options := _options(kind)):
            listed = ", ".join(options)
            self.say(
                path, f'{where}: "{value}" is not one of {listed}{did_you_mean(value, options)}'
            )
        elif isinstance(kind, inspect.BoolType) and str(value).lower() in _OLD_BOOLEANS:
            meant = _OLD_BOOLEANS[str(value).lower()]
            self.say(path, f'{where} must be true or false; "{value}" is text, write {meant}')
        elif isinstance(kind, inspect.StrType) and isinstance(value, int | float):
            self.say(path, f"{where} must be text; put quotes around {_plain(value)}")
        elif isinstance(kind, inspect.StrType) and isinstance(value, str) and not value.strip():
            self.say(path, f"{where} must not be empty")
        else:
            self.say(path, f"{where} must be {_wanted(kind)}; {_is(value)}")


def _source_form(value: str, kinds: list[inspect.StructType]) -> str:
    """How to write a source of items of which only the file is given."""
    tags = {kind.tag for kind in kinds}
    if "csv" not in tags or not value.strip():
        return ""
    suffix = value.rpartition(".")[2].lower()
    if "*" in value:
        fields = {"type": "glob", "pattern": value}
    elif suffix in ("sqlite", "db"):
        fields = {"type": "sqlite", "path": value, "query": "select …"}
    else:
        fields = {"type": suffix if suffix in _FILE_TAGS else "csv", "path": value}
    written = ", ".join(f"{name}: {_yaml(text)}" for name, text in fields.items())
    return f"; write {{{written}}}"


def _yaml(text: str) -> str:
    """A text as a value in a mapping in braces."""
    plain = re.fullmatch(r"[A-Za-z./][\w./ …-]*", text)
    return text if plain else json.dumps(text, ensure_ascii=False)


def _bare(kind: inspect.Type) -> inspect.Type:
    """A type without its description."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    return kind


def _near(value: Any, kind: inspect.Type) -> bool:
    """Whether a value is of the sort that a type describes, right or wrong in detail."""
    if isinstance(value, dict):
        return isinstance(kind, inspect.DictType | inspect.StructType | inspect.AnyType)
    if isinstance(value, list):
        return isinstance(kind, inspect.ListType | inspect.AnyType)
    return not isinstance(
        kind, inspect.DictType | inspect.StructType | inspect.ListType | inspect.NoneType
    )


def _fits(value: Any, kind: inspect.Type) -> bool:
    """Whether a single value is what a type asks for."""
    match kind:
        case inspect.AnyType():
            return True
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool) and _within(value, kind)
        case inspect.FloatType():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number and _within(value, kind)
        case inspect.StrType():
            return isinstance(value, str) and _text_fits(value, kind)
        case inspect.LiteralType() | inspect.EnumType():
            return isinstance(value, str) and value in _options(kind)
        case _:
            return False


def _within(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    return (kind.ge is None or value >= kind.ge) and (kind.le is None or value <= kind.le)


def _text_fits(value: str, kind: inspect.StrType) -> bool:
    detail = value if kind.max_length == 1 else value.strip()  # a tab may well divide columns
    if kind.min_length is not None and len(detail) < kind.min_length:
        return False
    if kind.max_length is not None and len(value) > kind.max_length:
        return False
    return kind.pattern is None or re.search(kind.pattern, value) is not None


def _options(kind: inspect.Type) -> list[str]:
    if isinstance(kind, inspect.LiteralType):
        return [str(each) for each in kind.values]
    return [str(each.value) for each in kind.cls] if isinstance(kind, inspect.EnumType) else []


def _wanted(kind: inspect.Type) -> str:
    """The expected type, as text."""
    match kind:
        case inspect.IntType(ge=low) | inspect.FloatType(ge=low):
            number = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
            limits = [] if low is None else [f"at least {low:g}"]
            limits += [] if kind.le is None else [f"at most {kind.le:g}"]
            return ", ".join([number, " and ".join(limits)] if limits else [number])
        case inspect.StrType(pattern=str()):
            return 'a share such as "10%"'
        case inspect.StrType(max_length=1):
            return "one character"
        case inspect.LiteralType() | inspect.EnumType():
            return f"one of {', '.join(_options(kind))}"
        case inspect.StructType() | inspect.DictType():
            return "a mapping (key: value)"
    words: tuple[tuple[type, str], ...] = (
        (inspect.BoolType, "true or false"),
        (inspect.StrType, "text"),
        (inspect.ListType, "a list"),
    )
    return next((text for each, text in words if isinstance(kind, each)), "something else")


def _is(value: Any) -> str:
    """The type of a value, as text."""
    if value is None:
        return "there is no value here"
    if isinstance(value, dict | list):
        return "it is a mapping" if isinstance(value, dict) else "it is a list"
    shown = _plain(value)
    return f"it is {shown if len(shown) <= 40 else shown[:37] + '...'}"


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
