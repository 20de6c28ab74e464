"""Fingerprints of code: the same for unchanged code in every process. Pure.

One function for two scopes. `Scope.OWN` is the compiled code of the functions themselves: the
version of a workflow. `Scope.REACHABLE` adds what the functions reach in the user's code: the
digest of an automation's handlers.

Covered: compiled code, and by reference from there
  - helper functions, also by `module.helper`, decorators and `functools.partial`;
  - closures, default values, class attributes, methods and base classes, by value;
  - tools: their class, and the arguments they were made with;
  - other module-level values: by the text of their assignment, not by value. A host name or a
    start time differs between processes that run the same code; its text does not.
Not covered: the standard library, site-packages and Rota (by name only), files and environment
variables that the code reads, imports inside of functions, attributes of other objects, names that
are looked up as strings, and module-level values of modules without source.

User code is everything else, and the packages of the functions themselves wherever they are
installed. Python's bytecode differs between minor versions, and so do fingerprints.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import dis
import enum
import fractions
import functools
import hashlib
import re
import sys
import sysconfig
import types
import uuid
import zoneinfo
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from rota.core.module_statements import Path, read_statements

# Bounds: paths beyond them do not count.
OBJECTS_MAX = 10_000
DEPTH_MAX = 50
ITEMS_MAX = 10_000

ModuleText = Callable[[ModuleType], str | None]


class Scope(enum.Enum):
    """How much of the code a fingerprint covers."""

    OWN = "the functions themselves"
    REACHABLE = "the functions, and the user's code that they reach"


class MadeFrom:
    """Base of objects that count by their class and the arguments they were made with."""

    made_from: tuple[object, ...]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        made = super().__new__(cls)
        made.made_from = (args, options)
        return made


def fingerprint(
    roots: Iterable[object], scope: Scope, *, module_text: ModuleText = lambda _: None
) -> str:
    """The fingerprint of functions and classes, as 64 hexadecimal digits."""
    if scope is Scope.OWN:
        texts = [code_text(getattr(one, "__code__", None)) for one in roots]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()
    return hashlib.sha256(_CodeWalk(list(roots), module_text).text().encode()).hexdigest()


@lru_cache(4096)
def code_text(code: CodeType | None) -> str:
    """Changes when the compiled code does; comments and line numbers do not count."""
    return repr(_essence(code))


def _essence(code: CodeType | None) -> tuple[object, ...]:
    if code is None:
        return ()
    constants = [_constant(one) for one in code.co_consts]
    return (code.co_code, constants, code.co_names, code.co_varnames)


def _constant(value: object) -> object:
    """`x in {"a", "b"}` compiles to a frozenset; its order follows the process's hash seed."""
    if isinstance(value, CodeType):
        return _essence(value)
    if isinstance(value, frozenset):
        return sorted((_constant(one) for one in value), key=repr)
    if isinstance(value, tuple):
        return tuple(_constant(one) for one in value)
    return value


_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


@lru_cache(4096)
def _global_paths(code: CodeType) -> tuple[Path, ...]:
    """The module-level names that code uses, each with the attributes taken of it."""
    paths: dict[Path, None] = {}
    path: Path = ()
    for one in dis.get_instructions(code):
        if path and one.opname in _ATTRIBUTES:
            path = (*path, str(one.argval))
            continue
        if path:
            paths[path] = None
        path = (str(one.argval),) if one.opname in _GLOBALS else ()
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            paths |= dict.fromkeys(_global_paths(inner))
    return tuple(paths)


_COMMON = frozenset({type(None), bool, int, float, str, bytes})
# Their `repr` is their value.
_PLAIN = (
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, decimal.Decimal,
    fractions.Fraction, uuid.UUID, datetime.date, datetime.time,
    datetime.timedelta, datetime.timezone, zoneinfo.ZoneInfo,
)  # fmt: skip


class _ModuleName:
    """A module-level name that counts by the text of its assignment."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name


class _CodeWalk:
    """One walk over what the roots reach. Each object is described once; later it is a number."""

    def __init__(self, roots: Sequence[object], module_text: ModuleText) -> None:
        self._roots = roots
        self._module_text = module_text
        self._packages = frozenset(map(_package_of, roots))
        self._numbers: dict[int, int] = {}
        self._objects: list[object] = []  # alive until the end, so that no id is used twice
        self._waiting: deque[object] = deque()
        self._names: dict[tuple[str, str], _ModuleName] = {}
        self._depth = 0

    def text(self) -> str:
        """Everything, one line for each object."""
        lines = [self._value(one) for one in self._roots]
        while self._waiting:
            lines.append(self._described(self._waiting.popleft()))
        return "\n".join(lines)

    # -- values ----------------------------------------------------------------------------

    def _value(self, value: object) -> str:
        """A value as text: data in full, code as a reference to its own line."""
        kind = type(value)
        if kind in _COMMON:  # ten thousand automations are fingerprinted at a start
            return f"{kind.__name__}:{value!r}"
        if kind is FunctionType:
            return self._function_or_class(value)
        if self._depth >= DEPTH_MAX:
            return "deeper"
        self._depth += 1
        try:
            return self._plain(value) or self._code(value) or self._instance(value)
        finally:
            self._depth -= 1

    def _plain(self, value: object) -> str | None:
        kind = type(value).__qualname__
        if isinstance(value, enum.Enum):
            return f"{self._value(type(value))}.{value.name}"
        if isinstance(value, _PLAIN):
            return f"{kind}:{value!r}"
        if hasattr(value, "__fspath__") and not isinstance(value, type):
            return f"{kind}:{value.__fspath__()!r}"
        if isinstance(value, re.Pattern):
            return f"{kind}:{value.pattern!r}:{value.flags}"
        if isinstance(value, tuple | list):
            return f"{kind}[{','.join(map(self._value, value[:ITEMS_MAX]))}]{len(value)}"
        if isinstance(value, set | frozenset):
            return f"{kind}[{','.join(sorted(map(_label, value)))}]"
        if isinstance(value, dict | types.MappingProxyType):
            pairs = list(value.items())[:ITEMS_MAX]
            parts = (f"{self._value(key)}={self._value(one)}" for key, one in pairs)
            return f"{kind}[{','.join(parts)}]{len(value)}"
        return None

    def _code(self, value: object) -> str | None:
        if isinstance(value, ModuleType):
            return f"module:{value.__name__}"
        if isinstance(value, FunctionType | type):
            return self._function_or_class(value)
        parts = _parts_of_callable(value)
        if parts is not None:
            return f"{_label(type(value))}:{self._value(parts)}"
        is_compiled = callable(value) and hasattr(value, "__qualname__")  # such as `str.title`
        return _label(value) if is_compiled else None

    def _function_or_class(self, value: object) -> str:
        return self._reference(value) if self._is_users(_module_of(value)) else _label(value)

    def _instance(self, value: object) -> str:
        if isinstance(getattr(value, "made_from", None), tuple):
            return self._reference(value)
        kind = self._value(type(value))
        names: Iterable[str] = getattr(type(value), "__struct_fields__", ())
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
        fields = (f"{name}={self._value(getattr(value, name, None))}" for name in names)
        return f"object:{kind}({','.join(fields)})"

    def _reference(self, value: object) -> str:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
            if number < OBJECTS_MAX:
                self._waiting.append(value)
        return f"#{number}"

    # -- code ------------------------------------------------------------------------------

    def _described(self, value: object) -> str:
        if isinstance(value, FunctionType):
            return "\0".join(self._function(value))
        if isinstance(value, type):
            return "\0".join(self._class(value))
        if isinstance(value, _ModuleName):
            return "\0".join(self._assigned(value))
        return f"{self._value(type(value))}{self._value(getattr(value, 'made_from', ()))}"

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield code_text(function.__code__)
        yield self._value(function.__defaults__)
        yield self._value(function.__kwdefaults__)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            yield f"{name}={_opened(cell, self._value)}"
        for path in _global_paths(function.__code__):
            yield self._global(function.__globals__, path)

    def _class(self, kind: type) -> Iterator[str]:
        yield kind.__qualname__
        yield self._value(kind.__bases__)
        yield repr(sorted(vars(kind).get("__annotations__", ())))
        for name, value in sorted(vars(kind).items()):
            special = name.startswith("__") and name.endswith("__")
            if not special or isinstance(value, FunctionType):
                yield f"{name}={self._value(value)}"

    # -- module-level names ----------------------------------------------------------------

    def _global(self, names: Mapping[str, object], path: Path) -> str:
        """A module-level name as a function uses it; `module.helper` is the helper."""
        first, *attributes = path
        if first not in names:
            return f"builtin:{first}"
        return self._named_value(str(names.get("__name__", "")), first, names[first], attributes)

    def _named_value(self, module: str, name: str, value: object, attributes: Sequence[str]) -> str:
        while isinstance(value, ModuleType) and attributes:
            if not self._is_users(value.__name__):
                return f"module:{value.__name__}.{attributes[0]}"
            module, name = value.__name__, attributes[0]
            value, attributes = getattr(value, name, None), attributes[1:]
        if isinstance(getattr(value, "made_from", None), tuple):
            return f"{name}={self._reference(value)}"
        parts = self._code(value) or self._assigned_once(module, name, type(value))
        return f"{name}={parts}"

    def _assigned_once(self, module: str, name: str, kind: type) -> str:
        """A reference to the text that a module-level name is assigned."""
        if _package_of(kind) == "rota" and not issubclass(kind, tuple):
            return _label(kind)  # an app, an automation, a topic: their parts count elsewhere
        if not self._is_users(module):
            return f"{module}:{name}"
        if (module, name) not in self._names:
            self._names[module, name] = _ModuleName(module, name)
        return self._reference(self._names[module, name])

    def _assigned(self, one: _ModuleName) -> Iterator[str]:
        module = sys.modules.get(one.module)
        if module is None:
            return
        statements = read_statements(self._module_text(module) or "")
        if one.name in statements.imports:
            source, original = statements.imports[one.name]
            origin = _absolute(source, module)
            value = getattr(sys.modules.get(origin), original, None)
            yield self._named_value(origin, original, value, ())
        for assignment in statements.assignments.get(one.name, ()):
            yield assignment.text
            for path in assignment.paths:
                yield self._global(vars(module), path)

    def _is_users(self, module: str) -> bool:
        package = module.partition(".")[0]
        return package != "rota" and (package in self._packages or not _is_installed(package))


def _parts_of_callable(value: object) -> tuple[object, ...] | None:
    """The functions and values that a callable, or a descriptor, is made of."""
    match value:
        case functools.partial():
            return (value.func, value.args, value.keywords)
        case MethodType():
            return (value.__func__, type(value.__self__))
        case staticmethod() | classmethod():
            return (value.__func__,)
        case property():
            return (value.fget, value.fset, value.fdel)
        case functools.cached_property():
            return (value.func,)
    wrapped = getattr(value, "__wrapped__", None)  # functools.lru_cache and the like
    return (wrapped,) if isinstance(wrapped, FunctionType) else None


def _opened(cell: types.CellType, describe: Callable[[object], str]) -> str:
    try:
        return describe(cell.cell_contents)
    except ValueError:  # it is filled later
        return "empty"


def _module_of(value: object) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _package_of(value: object) -> str:
    return _module_of(value).partition(".")[0]


def _label(value: object) -> str:
    """A name for what is not looked into; data by its value."""
    if isinstance(value, _PLAIN):
        return f"{type(value).__qualname__}:{value!r}"
    if isinstance(value, tuple | frozenset):
        parts = map(_label, value)
        return f"[{','.join(parts if isinstance(value, tuple) else sorted(parts))}]"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{_module_of(named)}:{getattr(named, '__qualname__', '')}"


def _absolute(source: str, module: ModuleType | None) -> str:
    """The full name of a module as `from source import …` names it."""
    dots = len(source) - len(source.lstrip("."))
    if not dots:
        return source
    package = str(getattr(module, "__package__", "") or "")
    parent = package.split(".")[: package.count(".") + 2 - dots]
    return ".".join([*parent, *filter(None, [source[dots:]])])


def _is_installed(package: str) -> bool:
    """Whether a top-level package is of the standard library or of site-packages."""
    if package in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is not None and _is_in_installed_folder(file)


@lru_cache(4096)
def _is_in_installed_folder(file: str) -> bool:
    return any(folder in file for folder in _installed_folders())


@lru_cache(1)
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*sorted(own), "site-packages", "dist-packages")
