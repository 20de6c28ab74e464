"""The rules about source text. Each takes one module and yields its complaints."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from tests.tidy.tree import Module

Rule = Callable[[Module], Iterator[str]]

SRC_LINES_MAX = 500  # Aim at 400.
TEST_LINES_MAX = 500
# A list of classes without code, which readers want on one page.
LINES_MAX = {"src/rota/errors.py": 700}
FUNCTION_LINES_MAX = 70
NESTING_MAX = 4

BANNED_WORDS = {
    *("manager", "service", "helper", "util", "managers", "services", "helpers", "utils"),
}

# The field has a name for each of these: see docs/glossary.md. No name of the package, of a test
# or of a query may hold one: classes, functions, parameters, fields and attributes.
RETIRED_NAMES = {
    *("anew", "aside", "bill", "birth", "births", "board", "born", "desk", "door", "doubtful"),
    *("ear", "hear", "heard", "hears", "heir", "heirs", "house", "hungry", "lone", "mend"),
    *("mends", "mouth", "newborn", "notebook", "purse", "room", "rooms", "roster", "seat"),
    *("seated", "seats", "shelf", "shelves", "silence", "standing", "standings", "stands"),
    *("stood", "story", "stretch", "tell", "telling", "tells", "told", "turn", "turns"),
    *("untold", "upkeep", "vacate", "whoever", "yard"),
}
# Stored by name: `tells` is a parameter of the workflow rota.notify, `turn` the reason of a queued
# occurrence, `key_turns` a table.
RETIRED_BUT_STORED = {
    *(("src/rota/notifications/workflow.py", "tells"), ("src/rota/store/invariants.py", "turn")),
}

# A Protocol needs two implementations in the package, or a reason. The value says which.
PROTOCOLS = {
    "Backend": "SQLite and PostgreSQL of the SQL tool",
    "Clock": "real and virtual time",
    "Database": "SQLite and PostgreSQL",
    "Executor": "workflows, automations, pipelines",
    "Invoker": "every provider",
    "Keeper": "this process and a row of the database",
    "Receiver": "a future and a durable call",
    "Span": "of OpenTelemetry, an optional package, and none",
    "StepCode": "a step; the client lies below workflows",
    "Ticking": "real and virtual time; the engine lies beside ai",
    "Timer": "a handle of asyncio and one of virtual time",
    "Times": "cron, interval, dates",
    "ToolTx": "SQLite and PostgreSQL of the SQL tool",
    "Tracer": "of OpenTelemetry, an optional package, which the core may not import",
    "Tx": "SQLite and PostgreSQL",
    "WorkflowDecorator": "overloads of one callable, which a function type cannot express",
}

CLOCKS = {
    "time.sleep",
    "time.time",
    "time.time_ns",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
}
# Where the real clock may be read, and which part of it.
CLOCKS_ALLOWED = {
    "src/rota/engine/clock.py": CLOCKS,
    "src/rota/store/backend/sqlite_threads.py": {
        "time.sleep"
    },  # SQLite asks its busy handler to wait in place.
    "tests/kit/postgres.py": {"time.sleep"},  # Waits for a server that cannot call back.
}

CORE_MAY_IMPORT_OF_ROTA = ("rota.core", "rota.errors")
CORE_MUST_NOT_IMPORT = {
    *("apsw", "asyncpg", "sqlite3", "asyncio", "threading", "multiprocessing", "subprocess"),
    *("logging", "time", "random", "secrets", "socket", "ssl", "os", "io", "pathlib", "shutil"),
    *("tempfile", "urllib", "http", "click"),
}

# At the start of a line, so that prose such as "select one from the list" is left alone.
SQL = re.compile(
    r"^\s*(select\b.+?\bfrom\b|insert\s+(or\s+\w+\s+)?into\b|update\s+\S+\s+set\b|delete\s+from\b)",
    re.IGNORECASE | re.DOTALL | re.MULTILINE,
)


def small_files(module: Module) -> Iterator[str]:
    """A file that long owns two things: split it."""
    lines = module.text.count("\n")
    lines_max = SRC_LINES_MAX if _in_src(module) else TEST_LINES_MAX
    lines_max = LINES_MAX.get(module.path, lines_max)
    if lines > lines_max:
        yield f"{module.path}: {lines} lines, at most {lines_max}"


def small_functions(module: Module) -> Iterator[str]:
    """A function fits on a screen."""
    if not _in_src(module):
        return
    for function in module.functions:
        if length(function) > FUNCTION_LINES_MAX:
            yield module.at(function, f"{function.name} has {length(function)} lines")


def shallow_nesting(module: Module) -> Iterator[str]:
    """Deep nesting is two functions in one."""
    for function in module.functions:
        depth = max((_depth(statement, 1) for statement in function.body), default=0)
        if _in_src(module) and depth > NESTING_MAX:
            yield module.at(function, f"{function.name} nests {depth} deep")


def module_docstrings(module: Module) -> Iterator[str]:
    """A module opens with what it owns."""
    if _in_src(module) and not ast.get_docstring(module.tree):
        yield f"{module.path}:1: say what this module owns"


def plain_names(module: Module) -> Iterator[str]:
    """A name says what a thing is; these words fit everything and say nothing."""
    if not _in_src(module):
        return
    names = [(module.tree, part.removesuffix(".py")) for part in module.path.split("/")]
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node, name in names + [(n, n.name) for n in module.nodes if isinstance(n, kinds)]:
        found = BANNED_WORDS & _words(name)
        if found:
            yield module.at(node, f"{name}: find a better word than {', '.join(sorted(found))}")


def no_retired_names(module: Module) -> Iterator[str]:
    """A class, a function, a parameter, a field or an attribute has a name of the field."""
    for node in module.nodes:
        for name in _names_given(node):
            found = RETIRED_NAMES & _words(name)
            if found and (module.path, name) not in RETIRED_BUT_STORED:
                yield module.at(node, f"{name}: {', '.join(sorted(found))} is a retired word")


def _names_given(node: ast.AST) -> Iterator[str]:
    """The names that others read: those of local variables are left alone."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    if isinstance(node, ast.ClassDef):
        yield from (each.target.id for each in node.body if _is_field(each))  # type: ignore[attr-defined]
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def _is_field(node: ast.stmt) -> bool:
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)


def few_protocols(module: Module) -> Iterator[str]:
    """A Protocol is for several implementations: say which in `PROTOCOLS`, or use the class."""
    for node in module.nodes:
        if isinstance(node, ast.ClassDef) and _in_src(module) and node.name not in PROTOCOLS:
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in bases):
                yield module.at(node, f"{node.name} is a Protocol that is not listed")


# It writes results to SQLite files of users, which are not the store.
USERS_SQL = "src/rota/pipelines/run/row_files.py"


def sql_in_store_only(module: Module) -> Iterator[str]:
    """All SQL is in the store."""
    if not _in_src(module) or module.path.startswith(("src/rota/store/", USERS_SQL)):
        return
    docstrings = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
    for node in module.nodes:
        is_text = isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docstrings
        if is_text and SQL.search(_string(node)):
            yield module.at(node, "SQL outside the store")


def injected_clock(module: Module) -> Iterator[str]:
    """Time is an argument: only the clock reads it. In tests, only sleeping is forbidden."""
    banned = CLOCKS if _in_src(module) else {"time.sleep"}
    banned = banned - CLOCKS_ALLOWED.get(module.path, set())
    origins = _origins(module)
    for node in module.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and _dotted(node, origins) in banned:
            yield module.at(node, f"{_dotted(node, origins)} outside the clock")


def pure_core(module: Module) -> Iterator[str]:
    """The core decides; it does not read, write, wait, log or roll dice."""
    if not module.path.startswith("src/rota/core/"):
        return
    for node in module.nodes:
        for name in _imported(node):
            first = name.partition(".")[0]
            if first == "rota" and not name.startswith(CORE_MAY_IMPORT_OF_ROTA):
                yield module.at(node, f"core imports {name}")
            if first in CORE_MUST_NOT_IMPORT:
                yield module.at(node, f"core imports {name}, so it is not pure")


def print_in_cli_only(module: Module) -> Iterator[str]:
    """A library does not write to its host's terminal."""
    if not _in_src(module) or module.path.startswith("src/rota/cli/"):
        return
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id == "print":
            yield module.at(node, "print outside the command line")


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        small_files,
        small_functions,
        shallow_nesting,
        module_docstrings,
        plain_names,
        no_retired_names,
        few_protocols,
        sql_in_store_only,
        injected_clock,
        pure_core,
        print_in_cli_only,
    )
}


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end; decorators are not counted."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _in_src(module: Module) -> bool:
    return module.path.startswith("src/")


BLOCKS = (
    ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.Match
)


def _depth(node: ast.AST, level: int) -> int:
    """How deep blocks lie within each other below `node`; an elif is no deeper than its if."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return 0  # Measured on its own.
    inside = level + 1 if isinstance(node, BLOCKS) else level
    deepest = level if isinstance(node, BLOCKS) else 0
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, _depth(child, level if is_elif else inside))
    return deepest


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def _string(node: ast.AST) -> str:
    """The text of a literal; what an f-string fills in counts as one word."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_string(p) if isinstance(p, ast.Constant) else "x" for p in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _imported(node: ast.AST) -> Iterator[str]:
    """The dotted names that an import statement reaches for."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _origins(module: Module) -> dict[str, str]:
    """Local name → what it was imported as, wherever in the file."""
    origins: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                origins[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return origins


def _dotted(node: ast.expr, origins: dict[str, str]) -> str | None:
    """`dt.now` as "datetime.datetime.now", if `dt` was imported as such."""
    if isinstance(node, ast.Name):
        return origins.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value, origins)):
        return f"{owner}.{node.attr}"
    return None
