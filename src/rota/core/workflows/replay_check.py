"""Workflow functions of a module, and the places in them that would differ at a replay.

It reads text and imports nothing. It follows calls of plain functions within the module, and stops
at steps and at other workflows. Pure.
"""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rota.core.workflows.name_origins import (
    Comprehension,
    Definition,
    Function,
    ModuleScopes,
    NameScope,
)
from rota.core.workflows.replay_rules import DIFFERS, IN_A_STEP, REFUSED, SET, called, named
from rota.errors import UsageError

TEXT_MAX = 40  # columns of an expression in a sentence
OK_COMMENT = re.compile(r"#\s*rota:\s*ok\b[\s:–—-]*(.*)")
# Calls that take a set and leak its order, and calls that do not.
ORDERED = {
    *("builtins.list", "builtins.tuple", "builtins.enumerate", "builtins.iter", "builtins.map"),
    *("builtins.filter", "builtins.zip", "builtins.dict.fromkeys", "itertools.chain"),
}
UNORDERED = {
    *("builtins.sorted", "builtins.sum", "builtins.min", "builtins.max", "builtins.any"),
    *("builtins.all", "builtins.len", "builtins.set", "builtins.frozenset", "collections.Counter"),
}


class ReplayFinding(NamedTuple):
    """A place in workflow code that would differ at a replay."""

    file: str
    line: int
    column: int
    workflows: tuple[str, ...]  # the workflows that run this code
    function: str
    found: str
    problem: str
    advice: str

    @property
    def text(self) -> str:
        """The finding in one line."""
        name = ", ".join(self.workflows[:2]) + (", …" if len(self.workflows) > 2 else "")
        return f"{self.file}:{self.line}  {name}  {self.found} {self.problem}: {self.advice}"


class Unread(NamedTuple):
    """A workflow that is registered here and is not a function of this file."""

    file: str
    line: int
    name: str


class SourceReport(NamedTuple):
    """The result of a module."""

    workflows: tuple[str, ...] = ()
    findings: tuple[ReplayFinding, ...] = ()
    unread: tuple[Unread, ...] = ()
    silenced_count: int = 0  # findings with `# rota: ok` and a reason


class _Problem(NamedTuple):
    node: ast.expr
    found: str
    problem: str
    advice: str


class _Workflow(NamedTuple):
    name: str
    function: Function


def check_source(text: str, file: str) -> SourceReport:
    """Check the text of a module; the file is named in findings and errors.

    Raises:
        UsageError: The text is not Python; the message names file and line.
    """
    try:
        with warnings.catch_warnings():  # of the user's code: an invalid escape, for example
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        return _ModuleCheck(tree, text, file).report()
    except SyntaxError as error:
        raise unreadable(f"{file}:{error.lineno or 1}", error.msg) from error
    except (ValueError, tokenize.TokenError) as error:  # a null byte, on Python 3.11
        raise unreadable(file, str(error)) from error
    except (RecursionError, MemoryError) as error:
        raise unreadable(file, "its code is nested too deeply") from error


def source_text(source: bytes, file: str) -> str:
    """The text of a file, in the encoding that it declares: UTF-8 unless it names another.

    Raises:
        UsageError: The bytes are not in that encoding; the message names file and line.
    """
    try:
        encoding, _ = tokenize.detect_encoding(iter(source.splitlines(keepends=True)).__next__)
        text = source.decode(encoding)
    except SyntaxError as error:
        raise unreadable(file, f"{error.msg}; Python source is UTF-8") from error
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise unreadable(f"{file}:{line}", f"it is not {error.encoding}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def unreadable(where: str, problem: str) -> UsageError:
    """The error for a file that is not Python."""
    return UsageError(
        f"{where} cannot be read: {problem}",
        hint="Correct the file, or name the files and folders to check.",
    )


class _ModuleCheck:
    def __init__(self, tree: ast.Module, text: str, file: str) -> None:
        self.file = file
        self.scopes = ModuleScopes(tree)
        self.ok_comments = _ok_comments(text)
        self.durable = {
            node: verb
            for node, scope in self.scopes.nodes
            if isinstance(node, Definition) and (verb := self._verb_of(node, scope))
        }
        self.problems: dict[Function, list[_Problem]] = {}
        self.helpers: dict[Function, list[Function]] = {}

    def report(self) -> SourceReport:
        workflows, unread = self._registered()
        found: dict[tuple[int, int, str], ReplayFinding] = {}
        silenced: set[tuple[int, int, str]] = set()
        for workflow in workflows:
            for function in self._reached(workflow.function):
                for problem in self.problems[function]:
                    key = (problem.node.lineno, problem.node.col_offset, problem.found)
                    reason = self._reason_to_keep(problem.node)
                    if reason:
                        silenced.add(key)
                        continue
                    known = found.get(key) or self._finding(problem, function, workflow, reason)
                    if workflow.name not in known.workflows:
                        known = known._replace(workflows=(*known.workflows, workflow.name))
                    found[key] = known
        names = tuple(workflow.name for workflow in workflows)
        return SourceReport(
            names, tuple(found[key] for key in sorted(found)), tuple(unread), len(silenced)
        )

    # -- workflows -----------------------------------------------------------------------------

    def _registered(self) -> tuple[list[_Workflow], list[Unread]]:
        """The functions with a decorator, and those of a call: `app.workflow(function)`."""
        found: dict[Function, _Workflow] = {}
        unread: list[Unread] = []
        for node, scope in self.scopes.nodes:
            if isinstance(node, Definition) and self.durable.get(node) == "workflow":
                options = [each for each in node.decorator_list if isinstance(each, ast.Call)]
                found[node] = _Workflow(_name_in(options) or node.name, node)
            elif isinstance(node, ast.Call) and self._verb(node, scope) == "workflow":
                for argument in node.args[:1]:
                    function = self._function(argument, scope)
                    if function is not None:
                        name = _name_in([node, node.func]) or ast.unparse(argument)
                        found[function] = _Workflow(name, function)
                    elif isinstance(argument, ast.Name | ast.Attribute):
                        unread.append(Unread(self.file, node.lineno, ast.unparse(argument)))
        return list(found.values()), unread

    def _verb_of(self, node: Definition, scope: NameScope) -> str | None:
        verbs = (self._verb(each, scope) for each in node.decorator_list)
        return next((verb for verb in verbs if verb), None)

    def _verb(self, node: ast.expr, scope: NameScope) -> str | None:
        """`workflow` or `step` for `app.workflow`, `app.workflow(…)` and another name of it."""
        while isinstance(node, ast.Call):
            node = node.func
        if isinstance(node, ast.Name):
            values = self.scopes.values_of(node.id, scope)
            node = next((each for each in values if isinstance(each, ast.Attribute)), node)
        is_verb = isinstance(node, ast.Attribute) and node.attr in ("workflow", "step")
        return node.attr if is_verb and isinstance(node, ast.Attribute) else None

    def _function(self, node: ast.expr, scope: NameScope) -> Function | None:
        if isinstance(node, ast.Name):
            return self.scopes.function_named(node.id, scope)
        return node if isinstance(node, ast.Lambda) else None

    # -- what they run -------------------------------------------------------------------------

    def _reached(self, function: Function) -> list[Function]:
        """The function and the plain functions of the module that it uses, also through others."""
        reached = {function: None}
        waiting = [function]
        while waiting:
            current = waiting.pop()
            if current not in self.problems:
                self._read(current)
            for helper in self.helpers[current]:
                if helper not in reached:
                    reached[helper] = None
                    waiting.append(helper)
        return list(reached)

    def _read(self, function: Function) -> None:
        problems: dict[tuple[int, int], _Problem] = {}  # a call, and not its function again
        helpers: dict[Function, None] = {}
        reader = _CodeReader(self.scopes, self._is_durable)
        for root, root_scope in self.scopes.inside(function):
            for node, scope in self.scopes.walk(root, root_scope, self.durable):
                for problem in reader.problems(node, scope):
                    place = (problem.node.lineno, problem.node.col_offset)
                    problems.setdefault(place, problem)
                if isinstance(node, ast.Name) and not self._is_durable(node, scope):
                    helper = self._function(node, scope)
                    if helper is not None:
                        helpers[helper] = None
        self.problems[function] = list(problems.values())
        self.helpers[function] = list(helpers)

    def _is_durable(self, node: ast.expr, scope: NameScope) -> bool:
        """Whether a name is that of a step or a workflow."""
        return self._function(node, scope) in self.durable

    # -- what is reported ----------------------------------------------------------------------

    def _finding(
        self, problem: _Problem, function: Function, workflow: _Workflow, reason: str | None
    ) -> ReplayFinding:
        advice = problem.advice
        if not isinstance(workflow.function, ast.AsyncFunctionDef):
            for verb in ("now", "sleep"):
                advice = advice.replace(f"await rota.{verb}", f"rota.blocking.{verb}")
        if reason == "":
            advice += " (a # rota: ok needs a reason behind it)"
        name = getattr(function, "name", "lambda")
        node = problem.node
        return ReplayFinding(
            self.file, node.lineno, node.col_offset + 1, (), name, problem.found,
            problem.problem, advice,
        )  # fmt: skip

    def _reason_to_keep(self, node: ast.expr) -> str | None:
        """The reason of a `# rota: ok` beside the expression; None without such a comment."""
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        reasons = [self.ok_comments[line] for line in lines if line in self.ok_comments]
        return max(reasons, default=None)


class _CodeReader:
    """Finds the problems of single expressions. Parents come before what is inside of them."""

    def __init__(
        self, scopes: ModuleScopes, is_durable: Callable[[ast.expr, NameScope], bool]
    ) -> None:
        self.scopes = scopes
        self.is_durable = is_durable
        self.unordered: set[ast.AST] = set()  # arguments of `sorted` and the like

    def problems(self, node: ast.AST, scope: NameScope) -> Iterator[_Problem]:
        """The problems of a node itself."""
        if isinstance(node, ast.Call):
            yield from self._call(node, scope)
        elif isinstance(node, ast.Name | ast.Attribute):
            yield from self._use(node, scope)
        for each in self._iterated(node, scope):
            if self.scopes.origin(each, scope) == SET:
                text = _text(each)
                yield _Problem(each, f"the order of {text}", DIFFERS, f"write sorted({text})")

    def _call(self, node: ast.Call, scope: NameScope) -> Iterator[_Problem]:
        path = self.scopes.origin(node.func, scope) or ""
        rule = called(path, len(node.args) + len(node.keywords))
        shown = f"{_text(node.func)}({'…' if node.args or node.keywords else ''})"
        if rule is not None:
            yield _Problem(node, shown, rule.problem, rule.advice)
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor":
            yield _Problem(node, shown, REFUSED, IN_A_STEP)
        elif path == f"{SET}.pop" and not node.args:
            assert isinstance(node.func, ast.Attribute)
            owner = _text(node.func.value)
            yield _Problem(node, shown, DIFFERS, f"take one of sorted({owner})")
        if path in UNORDERED:
            self.unordered.update(node.args)

    def _use(self, node: ast.Name | ast.Attribute, scope: NameScope) -> Iterator[_Problem]:
        path = self.scopes.origin(node, scope) if isinstance(node.ctx, ast.Load) else None
        rule = named(path) if path else None
        if rule is not None:
            yield _Problem(node, _text(node), rule.problem, rule.advice)

    def _iterated(self, node: ast.AST, scope: NameScope) -> Iterator[ast.expr]:
        """The expressions that a node takes the items of, in their order."""
        match node:
            case ast.For(iter=items) | ast.YieldFrom(value=items):
                yield items
            case ast.Assign(targets=[ast.Tuple() | ast.List()], value=items):
                yield items
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                yield from _starred(elements)
            case ast.Call(func=function, args=arguments):
                yield from self._arguments(function, arguments, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                if not self._needs_no_order(node, scope):
                    yield from (each.iter for each in node.generators)

    def _arguments(
        self, function: ast.expr, arguments: list[ast.expr], scope: NameScope
    ) -> Iterator[ast.expr]:
        path = self.scopes.origin(function, scope)
        method = function.attr if isinstance(function, ast.Attribute) else ""
        if path not in UNORDERED:
            yield from _starred(arguments)
        if path in ORDERED or (method in ("join", "extend") and len(arguments) == 1):
            yield from arguments

    def _needs_no_order(self, node: Comprehension, scope: NameScope) -> bool:
        """`{… for x in names}` and `sorted(… for x in names)`, if no step is called for each."""
        return (isinstance(node, ast.SetComp) or node in self.unordered) and not any(
            isinstance(each, ast.Await)
            or (isinstance(each, ast.Call) and self.is_durable(each.func, inner))
            for each, inner in self.scopes.walk(node, scope)
        )


def _starred(nodes: list[ast.expr]) -> Iterator[ast.expr]:
    yield from (each.value for each in nodes if isinstance(each, ast.Starred))


def _name_in(calls: list[ast.Call] | list[ast.expr]) -> str | None:
    """The `name=` of `app.workflow(name="fulfil")`."""
    for call in calls:
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            value = keyword.value
            if keyword.arg == "name" and isinstance(value, ast.Constant) and value.value:
                return str(value.value)
    return None


def _text(node: ast.expr) -> str:
    """An expression as the code has it, on one line; a long one is cut."""
    text = " ".join(ast.unparse(node).split())
    if len(text) <= TEXT_MAX:
        return text
    return f"….{node.attr}" if isinstance(node, ast.Attribute) else f"{text[: TEXT_MAX - 1]}…"


def _ok_comments(text: str) -> dict[int, str]:
    """The reasons of `# rota: ok` comments by line; one without a reason is empty."""
    if "rota:" not in text:
        return {}
    lines = (f"{line}\n" for line in text.split("\n"))  # only these ends count for Python
    tokens = tokenize.generate_tokens(lambda: next(lines, ""))
    comments = (each for each in tokens if each.type == tokenize.COMMENT)
    matches = ((each.start[0], OK_COMMENT.match(each.string)) for each in comments)
    return {line: match[1].strip() for line, match in matches if match}
