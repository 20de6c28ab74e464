"""Values to JSON and back, by type hints. Pure.

msgspec does the work; pydantic models pass through their own validators. Errors name the path
to the bad field. Nothing is ever pickled.
"""

from __future__ import annotations

import inspect
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap
from typing import Any, NamedTuple, Union, get_type_hints

import msgspec
from msgspec.structs import astuple

from rota.core.hint_mismatch import first_mismatch, may_mismatch, parts_of
from rota.core.json_round_trip import difference, equal
from rota.errors import BadInput, NotSerialisable, PayloadTooBig


def _encode_other(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True)
    raise NotImplementedError(f"{type(value).__name__} is not a type that JSON has")


def _decode_other(kind: type, value: Any) -> Any:
    if kind is object:
        return value  # says as much as Any
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        try:
            return validate(value)
        except ValueError as error:  # pydantic's ValidationError is one
            raise ValueError(_pydantic_text(error)) from error
    raise NotImplementedError(f"type {kind!r} cannot be read from JSON")


def _pydantic_text(error: ValueError) -> str:
    details = getattr(error, "errors", None)
    if not callable(details):
        return str(error)
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in details()
    )


# Errors of arguments that JSON or a type hint does not take.
_NOT_ALL = (NotSerialisable, BadInput, msgspec.MsgspecError, ValueError, TypeError,
    NotImplementedError, OverflowError, RecursionError)  # fmt: skip
_ENCODER = msgspec.json.Encoder(enc_hook=_encode_other, decimal_format="string")


def json_text(value: object) -> str:
    """A value of our own as JSON; what users give goes through `encode`."""
    return msgspec.json.encode(value).decode()


def encode(value: Any, *, what: str, bytes_max: int) -> str:
    """`value` as JSON text, or an error that says what could not be written."""
    try:
        raw = _ENCODER.encode(value)
        text = raw.decode()
        if type(value) is not str:  # a text holds no numbers and no dicts
            if "null" in text:
                _refuse_non_finite(value, what)
            if _has_dict(value, text) and not _reads_whole(raw):
                _refuse_equal_keys(text, what)
    except RecursionError:
        raise NotSerialisable(
            f"{what} is nested too deeply, or refers to itself, and cannot be written as JSON"
        ) from None
    except (TypeError, ValueError, NotImplementedError, OverflowError) as error:
        raise NotSerialisable(f"{what} cannot be written as JSON: {error}") from error
    if len(raw) > bytes_max:
        raise PayloadTooBig(
            f"{what} has {len(raw):,} bytes as JSON; the limit is {bytes_max:,}",
            bytes=len(raw),
            bytes_max=bytes_max,
        )
    return text


def _refuse_non_finite(value: Any, what: str) -> None:
    """JSON has no NaN and no infinity, and msgspec writes them as null."""
    plain = msgspec.to_builtins(value, enc_hook=_encode_other, str_keys=True)
    if where := _non_finite(plain, "$"):
        raise NotSerialisable(
            f"{what} holds {where}, which JSON cannot hold",
            hint="Use None, or a text such as 'NaN', and say so in the type hint.",
        )


def _non_finite(value: Any, path: str) -> str | None:
    """The first number that is not finite, with the path to it."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} at `{path}`"
    if isinstance(value, dict):
        inner = ((each, f"{path}.{key}") for key, each in value.items())
    elif isinstance(value, list | tuple):
        inner = ((each, f"{path}[{index}]") for index, each in enumerate(value))
    else:
        return None
    return next((found for each, at in inner if (found := _non_finite(each, at))), None)


def _has_dict(value: Any, text: str) -> bool:
    """Whether a dict may be part of the value. A struct has no equal keys of its own."""
    return "{" in text if isinstance(value, dict) else text.find("{", 1) > 0


def _reads_whole(raw: bytes) -> bool:
    """Whether a reader gets as much as was written: of equal keys it gets the last."""
    return len(_ENCODER.encode(msgspec.json.decode(raw))) == len(raw)


def _refuse_equal_keys(text: str, what: str) -> None:
    """A dict may have keys that are equal as JSON only, such as 1 and "1"."""

    def checked(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise NotSerialisable(
                    f"{what} holds a dict with two keys that JSON writes as {json_text(key)}",
                    hint="Use keys of one type.",
                )
            seen.add(key)

    json.loads(text, object_pairs_hook=checked)


class JsonReader:
    """Reads one type from JSON; unknown and unannotated types are taken as plain JSON."""

    def __init__(self, kind: Any) -> None:
        self._hint = _Hint(kind)
        self._is_checked = self._hint.is_checked
        self._decoder = msgspec.json.Decoder(self._hint.kind, dec_hook=_decode_other)

    def read_back(self, value: Any, text: str, *, what: str) -> Any:
        """Read what was just written; NotSerialisable if it comes back as another value."""
        try:
            back = self.read(text, what=what, hint="Correct the value or the type hint.")
        except BadInput:
            self._hint.refuse_mismatch(value, what)
            raise
        if self._is_checked and not equal(value, back):
            self._hint.check(value, back, what)
        return back

    def read(self, text: str | None, *, what: str, hint: str | None = None) -> Any:
        """The value, or BadInput naming the path to the field that does not fit. `hint` is what to
        do about that, where it is not the input of a run."""
        if text is None:
            return None
        try:
            return self._decoder.decode(text)
        except msgspec.ValidationError as error:
            raise BadInput(f"{what}: {error}", hint=hint) from error
        except NotImplementedError as error:
            raise BadInput(
                f"{what}: {error}",
                hint="Use plain types, dataclasses, msgspec structs or pydantic models as hints.",
            ) from error
        except (msgspec.DecodeError, UnicodeError) as error:
            raise BadInput(f"{what} is not JSON: {error}", hint=hint) from error
        except RecursionError:
            raise BadInput(
                f"{what} is nested too deeply", hint="Nest lists and objects at most 500 deep."
            ) from None


class Signature:
    """The arguments of a function ⇄ one JSON object by parameter name, with type checks.

    The parameter `without` does not count: the host fills it in."""

    def __init__(self, function: Callable[..., Any], *, without: str = "") -> None:
        signature = inspect.signature(function)
        kept = [one for name, one in signature.parameters.items() if name != without]
        self._signature = signature.replace(parameters=kept)
        hints = _hints(function)
        fields: list[Any] = []
        self._hints = {one.name: _Hint(hints.get(one.name, Any)) for one in kept}
        # The parameters that JSON may change.
        self._checked = [name for name, hint in self._hints.items() if hint.is_checked]
        for parameter in self._signature.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise BadInput(
                    f"{function.__name__} takes {parameter}, which has no name a caller could use",
                    hint="Name each parameter: inputs are stored as JSON by name.",
                )
            kind = self._hints[parameter.name].kind
            if parameter.default is parameter.empty:
                fields.append((parameter.name, kind))
            else:
                # Omit defaults, so that the value at execution time applies.
                fields.append((parameter.name, Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
        self._names = tuple(self._signature.parameters)
        self._has_defaults = any(len(field) > 2 for field in fields)
        self._positional = sum(
            parameter.kind is not parameter.KEYWORD_ONLY
            for parameter in self._signature.parameters.values()
        )
        self.returns = JsonReader(hints.get("return", Any))
        # A stored argument that the code does not know is an error, not to be skipped silently.
        arguments = self.arguments = msgspec.defstruct(
            function.__name__, fields, kw_only=True, forbid_unknown_fields=True, gc=False
        )
        # The same without types: quicker to make than a dict by name, and written the same way.
        self._shape = msgspec.defstruct(
            function.__name__, [(name, Any) for name in self._names], gc=False
        )
        self._object = JsonReader(dict[str, Any])
        self._reader = JsonReader(arguments)
        self._lines_reader = msgspec.json.Decoder(arguments, dec_hook=_decode_other)

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters, in order."""
        return self._names

    def write(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        what: str,
        bytes_max: int,
        is_json: bool = False,
    ) -> str | None:
        """Arguments as JSON text, checked against the type hints. None when there are none. In
        JSON from outside (`is_json`) bytes are text."""
        arguments: Any
        if args and not kwargs and len(args) == self._positional == len(self._names):
            arguments = self._shape(*args)
        else:
            arguments = self._bind(args, kwargs, what)
            if not arguments:
                return None
        try:
            text = encode(arguments, what=what, bytes_max=bytes_max)
        except NotSerialisable as error:
            self._name_the_argument(args, kwargs, what)
            raise error
        try:
            back = self._reader.read(text, what=what)
        except BadInput as error:
            for name, value in self._bind(args, kwargs, what).items():
                self._hints[name].refuse_mismatch(value, f"argument {name} of {what}", is_json)
            error.advice = self._usage(what)
            raise
        try:
            is_same = not self._checked or args == astuple(back)
        except Exception:  # an `__eq__` of the user's
            is_same = False
        if not is_same:
            named = (
                arguments
                if isinstance(arguments, dict)
                else dict(zip(self._names, args, strict=True))
            )
            self._check(named, back, what, is_json)
        return text

    def _check(
        self, arguments: Mapping[str, Any], back: Any, what: str, is_json: bool = False
    ) -> None:
        for name in self._checked:
            if name in arguments:
                value, read = arguments[name], getattr(back, name)
                if not equal(value, read):
                    self._hints[name].check(value, read, f"argument {name} of {what}", is_json)

    def described(self, name: str) -> str:
        """The function with its parameters, as one would write it."""
        words = []
        for one in self._signature.parameters.values():
            kind = getattr(one.annotation, "__name__", str(one.annotation))
            typed = one.name if one.annotation is one.empty else f"{one.name}: {kind}"
            words.append(typed if one.default is one.empty else f"{typed} = {one.default!r}")
        return f"{name}({', '.join(words)})"

    def _usage(self, name: str) -> str:
        return f"Call it as {self.described(name)}; nothing was started."

    def _name_the_argument(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str
    ) -> None:
        for name, value in self._bind(args, kwargs, what).items():
            encode(value, what=f"argument {name} of {what}", bytes_max=1 << 62)

    def write_all(
        self, items: Sequence[tuple[Any, ...]], *, what: str, bytes_max: int
    ) -> list[str | None]:
        """The same for many calls by position; the types of all are checked in one go."""
        names = self._names
        if names and self._positional == len(names) and set(map(len, items)) == {len(names)}:
            try:
                raw = _ENCODER.encode_lines([*starmap(self._shape, items)])
                read = self._lines_reader.decode_lines(raw)
                texts = raw.decode().split("\n")[:-1]
                if b"null" in raw:
                    _refuse_non_finite(items, what)
                has_dicts = raw.count(b"{") > len(items)
                if has_dicts and not all(map(_reads_whole, raw.splitlines())):
                    raise ValueError("equal keys")
                if self._checked and not equal(list(map(astuple, read)), items):
                    for args, back in zip(items, read, strict=True):
                        self._check(dict(zip(names, args, strict=True)), back, what)
                if len(texts) == len(items) and _each_within(bytes_max, raw):
                    return list(texts)
            except _NOT_ALL:  # `write` says which one, and why
                pass
        return [self.write(args, {}, what=what, bytes_max=bytes_max) for args in items]

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str) -> dict[str, Any]:
        try:
            return self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise BadInput(f"{what}: {error}", hint=self._usage(what)) from error

    def check(self, text: str, *, what: str, bytes_max: int) -> str | None:
        """Raw JSON from outside (CLI, HTTP): the same checks, then its canonical form."""
        value = self._object.read(text, what=what)
        unknown = sorted(set(value) - set(self._names))
        if unknown:
            raise BadInput(
                f"{what} has no parameter {', '.join(unknown)}",
                hint=f"Its parameters are: {', '.join(self._names) or 'none'}.",
            )
        missing = [
            name
            for name, parameter in self._signature.parameters.items()
            if parameter.default is parameter.empty and name not in value
        ]
        if missing:
            raise BadInput(
                f"{what} needs {', '.join(missing)}",
                hint=self._usage(what),
            )
        return self.write((), value, what=what, bytes_max=bytes_max, is_json=True)

    def read(self, text: str | None, *, what: str) -> dict[str, Any]:
        """Keyword arguments for the function, typed."""
        if text is None:
            return {}
        value = self._reader.read(text, what=what)
        if not self._has_defaults:
            return msgspec.structs.asdict(value)
        return {
            name: item
            for name in self._names
            if (item := getattr(value, name)) is not msgspec.UNSET
        }


def _each_within(bytes_max: int, lines: bytes) -> bool:
    return len(lines) <= bytes_max or max(map(len, lines.split(b"\n"))) <= bytes_max


def returns_of(function: Callable[..., Any]) -> JsonReader:
    """Reads what a function returns, by its hint."""
    return JsonReader(_hints(function).get("return", Any))


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The type hints; one that only checkers can resolve leaves the others typed."""
    code = getattr(function, "__code__", None)
    cells = (
        zip(getattr(code, "co_freevars", ()), function.__closure__ or (), strict=False)
        if code
        else ()
    )
    local = {name: cell.cell_contents for name, cell in cells if _is_full(cell)}
    names = getattr(function, "__globals__", {})
    return {
        name: _resolved(hint, names, local)
        for name, hint in getattr(function, "__annotations__", {}).items()
    }


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # assigned below the function
        return False


class _Unresolved(NamedTuple):
    """A hint that cannot be evaluated here."""

    text: str
    problem: str


def _resolved(hint: Any, names: dict[str, Any], local: dict[str, Any]) -> Any:
    """The hint with the names in its texts resolved, as `list["Order"]`."""
    holder = types.SimpleNamespace(__annotations__={"hint": hint})
    try:
        return get_type_hints(holder, names, local, include_extras=True)["hint"]
    except Exception as error:
        return _Unresolved(str(hint), str(error))


class _Hint:
    """A type hint: the type to read, and whether a value may come back as another one."""

    def __init__(self, hint: Any) -> None:
        self._text = ""
        self._problem = ""
        self.kind = hint
        if isinstance(hint, _Unresolved):
            self._text, self._problem = hint
            self.kind = Any
        else:
            try:
                msgspec.json.Decoder(hint, dec_hook=_decode_other)
            except TypeError as error:  # msgspec cannot express it
                self._text, self._problem = str(hint), str(error).splitlines()[0]
                self.kind = Any
        self._info = msgspec.inspect.type_info(self.kind)
        parts = list(parts_of(self._info))
        self._has_objects = any(map(_is_object, parts))
        self.is_checked = bool(self._problem) or self._has_objects or any(map(may_mismatch, parts))

    def refuse_mismatch(self, value: Any, what: str, is_json: bool = False) -> None:
        """Refuse a value of another type than the hint that would be read as another value."""
        found = first_mismatch(self._info, value, is_json=is_json)
        if found is not None:
            raise BadInput(
                f"{what}: {found}",
                hint="Give a value of that type, or correct the type hint.",
            )

    def check(self, value: Any, back: Any, what: str, is_json: bool = False) -> None:
        """Refuse a value that comes back from JSON as another one."""
        self.refuse_mismatch(value, what, is_json)
        is_kept = self._has_objects or self._problem
        lost = difference(value, back, strict=bool(self._problem)) if is_kept else None
        if lost is None:
            return
        hint = "Name the class itself in the type hint, and let JSON hold all of its fields."
        if self._problem:
            hint = (
                f"Rota cannot read the type hint {self._text}: {self._problem.rstrip('.')}. Use a "
                "class at the top of a module, one class instead of a union, or tagged structs."
            )
        raise NotSerialisable(f"JSON cannot hold {what}: {lost}", hint=hint)


def _is_object(part: msgspec.inspect.Type) -> bool:
    """Whether values of the type may be objects, which are written field by field."""
    return hasattr(part, "fields") or isinstance(part, msgspec.inspect.CustomType)
