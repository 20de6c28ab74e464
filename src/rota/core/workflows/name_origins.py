"""The scopes of a module, and where a name in it comes from. Pure: the code is never imported."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import TypeAlias

from rota.core.workflows.replay_rules import PATH, SET, same_kind

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
# An import (its dotted path), a value, or a statement that gives the name a value unknown here.
Binding: TypeAlias = str | ast.AST

SET_OPERATORS = ast.BitOr | ast.BitAnd | ast.BitXor | ast.Sub
TASK_MAKERS = ("create_task", "ensure_future")


class NameScope:
    """The names that a module, a function, a class or a comprehension binds."""

    def __init__(self, node: ast.AST, parent: NameScope | None) -> None:
        self.node = node
        self.parent = parent
        self.bindings: dict[str, list[Binding]] = {}
        self.declared: dict[str, NameScope] = {}  # by `global` and `nonlocal`
        self.added: dict[str, list[ast.expr]] = {}  # by `name.add(value)`

    def bind(self, name: str, binding: Binding) -> None:
        """Note what a name is bound to. A walrus in a comprehension binds outside of it."""
        scope = self
        while isinstance(binding, ast.NamedExpr) and isinstance(scope.node, Comprehension):
            assert scope.parent is not None
            scope = scope.parent
        scope.declared.get(name, scope).bindings.setdefault(name, []).append(binding)

    def owner_of(self, name: str) -> NameScope | None:
        """The scope that binds the name as seen from here, or None: a builtin."""
        scope: NameScope | None = self
        while scope is not None:
            if name in scope.declared:
                return scope.declared[name]
            is_seen = scope is self or not isinstance(scope.node, ast.ClassDef)
            if is_seen and name in scope.bindings:
                return scope
            scope = scope.parent
        return None


class ModuleScopes:
    """All scopes of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: dict[ast.AST, NameScope] = {}
        self._origins: dict[tuple[NameScope, str], str | None] = {}
        self.module = NameScope(tree, None)
        self.nodes = list(self.walk(tree, self.module))
        simple: set[ast.AST] = set()  # targets that are bound to the value beside them
        for node, scope in self.nodes:
            simple.update(_bind(node, scope))
            if isinstance(node, ast.Name) and node not in simple:
                if not isinstance(node.ctx, ast.Load):
                    scope.bind(node.id, ast.Pass())
            elif isinstance(node, Function):
                _bind_parameters(node.args, self._scopes[node])

    def walk(
        self, node: ast.AST, scope: NameScope, skipped: Collection[ast.AST] = ()
    ) -> Iterator[tuple[ast.AST, NameScope]]:
        """A node and all nodes below it, in the order of the text, each with its scope.

        Annotations are not among them: they do not run."""
        waiting = [(node, scope)]
        while waiting:
            node, scope = waiting.pop()
            if node not in skipped:
                yield node, scope
                waiting += reversed(list(self._children(node, scope)))

    def inside(self, function: Function) -> Iterator[tuple[ast.AST, NameScope]]:
        """The roots of what a function runs: its defaults and its body."""
        scope = self._scopes[function]
        assert scope.parent is not None
        yield from ((each, scope.parent) for each in _defaults(function.args))
        body = [function.body] if isinstance(function, ast.Lambda) else function.body
        yield from ((each, scope) for each in body)

    def _scope(self, node: ast.AST, parent: NameScope) -> NameScope:
        return self._scopes.setdefault(node, NameScope(node, parent))

    def _children(self, node: ast.AST, scope: NameScope) -> Iterator[tuple[ast.AST, NameScope]]:
        if isinstance(node, Function):
            self._scope(node, scope)
            yield from ((each, scope) for each in getattr(node, "decorator_list", []))
            yield from self.inside(node)
        elif isinstance(node, ast.ClassDef):
            inner = self._scope(node, scope)
            outside = [*node.decorator_list, *node.bases, *node.keywords]
            yield from ((each, scope) for each in outside)
            yield from ((each, inner) for each in node.body)
        elif isinstance(node, Comprehension):
            inner = self._scope(node, scope)
            first = node.generators[0].iter  # runs outside, before the names of the others exist
            yield first, scope
            for each in ast.iter_child_nodes(node):
                yield from _without(each, first, inner)
        elif isinstance(node, ast.AnnAssign):
            yield from ((each, scope) for each in (node.value, node.target) if each is not None)
        else:
            yield from ((each, scope) for each in ast.iter_child_nodes(node))

    def function_named(self, name: str, scope: NameScope) -> Function | None:
        """The function of this module that a name is bound to."""
        values = reversed(self.values_of(name, scope))
        return next((each for each in values if isinstance(each, Function)), None)

    def values_of(self, name: str, scope: NameScope) -> list[Binding | None]:
        """The values that a name is given: expressions, functions, imports."""
        owner = scope.owner_of(name)
        bindings = owner.bindings.get(name, []) if owner is not None else []
        return [_value(each) for each in bindings]

    def origin(self, node: ast.AST, scope: NameScope) -> str | None:
        """The dotted path of an expression, with `()` for the result of a call; None: unknown."""
        path = self._origin(node, scope)
        return path and same_kind(path)

    def _origin(self, node: ast.AST, scope: NameScope) -> str | None:
        match node:
            case ast.Name(id=name):
                return self._origin_of_name(name, scope)
            case ast.Attribute(value=value, attr=attribute):
                owner = self.origin(value, scope)
                return owner and f"{owner}.{attribute}"
            case ast.Call(func=function):
                made = self.origin(function, scope)
                return made and f"{made}()"
            case ast.Set() | ast.SetComp():
                return None if self._has_tasks(node, scope) else SET
            case ast.BinOp():
                return self._operation(node, scope)
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                kind = self.origin(one, scope)
                return kind if kind == self.origin(other, scope) else None
            case ast.NamedExpr(value=value):
                return self.origin(value, scope)
        return None

    def _operation(self, node: ast.BinOp, scope: NameScope) -> str | None:
        if isinstance(node.op, ast.Div):
            return PATH if self.origin(node.left, scope) == PATH else None
        is_set = isinstance(node.op, SET_OPERATORS) and any(
            self.origin(side, scope) == SET or _is_method_call(side, ("keys",))
            for side in (node.left, node.right)
        )
        return SET if is_set else None

    def _has_tasks(self, node: ast.Set | ast.SetComp, scope: NameScope) -> bool:
        """Tasks of a workflow have a fixed order in a set."""
        elements = node.elts if isinstance(node, ast.Set) else [node.elt]
        inner = self._scopes[node] if isinstance(node, ast.SetComp) else scope
        return bool(elements) and all(self._is_task(each, inner) for each in elements)

    def _is_task(self, node: ast.expr, scope: NameScope) -> bool:
        if isinstance(node, ast.Name):
            values = self.values_of(node.id, scope)
            return bool(values) and all(_is_method_call(each, TASK_MAKERS) for each in values)
        return _is_method_call(node, TASK_MAKERS)

    def _origin_of_name(self, name: str, scope: NameScope) -> str | None:
        owner = scope.owner_of(name)
        if owner is None:
            return f"builtins.{name}"
        if (owner, name) not in self._origins:
            self._origins[owner, name] = None  # a name that is made of itself
            self._origins[owner, name] = self._origin_of_bindings(name, owner)
        return self._origins[owner, name]

    def _origin_of_bindings(self, name: str, owner: NameScope) -> str | None:
        """The last import wins (`except ImportError` binds the name too). Values must agree."""
        bindings = owner.bindings.get(name, [])
        imported = [each for each in bindings if isinstance(each, str)]
        if imported:
            return imported[-1]
        origins = {self._origin_of_binding(each, owner) for each in bindings}
        origin = origins.pop() if len(origins) == 1 else None
        added = owner.added.get(name, [])
        if origin == SET and added and all(self._is_task(each, owner) for each in added):
            return None
        return origin

    def _origin_of_binding(self, binding: Binding, owner: NameScope) -> str | None:
        outer = owner.parent or owner
        if isinstance(binding, ast.arg):
            return self._annotated(binding.annotation, outer)
        if isinstance(binding, ast.AnnAssign):
            stated = self._annotated(binding.annotation, owner)
            return stated if stated in (SET, PATH) else self._value_origin(binding, owner)
        return self._value_origin(binding, owner)

    def _value_origin(self, binding: Binding, owner: NameScope) -> str | None:
        value = _value(binding)
        return self.origin(value, owner) if isinstance(value, ast.expr) else None

    def _annotated(self, node: ast.expr | None, scope: NameScope) -> str | None:
        """The origin of an object with this annotation: `set[str]`, `Path | None`."""
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            node = node.left
        if isinstance(node, ast.Subscript):
            node = node.value
        kind = None if node is None else self.origin(node, scope)
        return kind and same_kind(f"{kind}()")


def _without(
    node: ast.AST, first: ast.expr, scope: NameScope
) -> Iterator[tuple[ast.AST, NameScope]]:
    """A part of a comprehension; its first iterator is elsewhere."""
    if not isinstance(node, ast.comprehension):
        yield node, scope
        return
    for each in (node.target, node.iter, *node.ifs):
        if each is not first:
            yield each, scope


def _value(binding: Binding) -> Binding | None:
    if isinstance(binding, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        return binding.value
    return binding


def _is_method_call(node: Binding | None, names: tuple[str, ...]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in names
    return False


def _defaults(arguments: ast.arguments) -> Iterator[ast.expr]:
    yield from arguments.defaults
    yield from (each for each in arguments.kw_defaults if each is not None)


def _bind_parameters(arguments: ast.arguments, scope: NameScope) -> None:
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        scope.bind(each.arg, each)
    for star in (arguments.vararg, arguments.kwarg):
        if star is not None:
            scope.bind(star.arg, ast.Pass())


def _bind(node: ast.AST, scope: NameScope) -> list[ast.AST]:
    """Bind the names of a statement; returns the targets that need no more care."""
    match node:
        case ast.Assign(targets=targets):
            return _bind_targets(targets, node, scope)
        case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
            return _bind_targets([target], node, scope)
        case ast.AugAssign(target=ast.Name(id=name) as target):
            # `names |= {…}` leaves a set a set.
            scope.declared.get(name, scope).bindings.setdefault(name, [])
            return [target]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="add"), args=[value]):
            owner = scope.owner_of(name) or scope
            owner.added.setdefault(name, []).append(value)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            _declare(names, scope, is_global=isinstance(node, ast.Global))
        case _:
            _bind_names(node, scope)
    return []


def _bind_targets(targets: list[ast.expr], node: ast.AST, scope: NameScope) -> list[ast.AST]:
    found: list[ast.AST] = [each for each in targets if isinstance(each, ast.Name)]
    for each in found:
        assert isinstance(each, ast.Name)
        scope.bind(each.id, node)
    return found


def _bind_names(node: ast.AST, scope: NameScope) -> None:
    match node:
        case ast.Import(names=aliases):
            for alias in aliases:
                first = alias.name.partition(".")[0]
                scope.bind(alias.asname or first, alias.name if alias.asname else first)
        case ast.ImportFrom(module=module, names=aliases, level=level):
            for alias in aliases:
                path = f"{'.' * level}{module or ''}.{alias.name}"
                scope.bind(alias.asname or alias.name, path)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            scope.bind(name, node)
        case ast.ClassDef(name=str(name)) | ast.ExceptHandler(name=str(name)):
            scope.bind(name, ast.Pass())
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            scope.bind(name, ast.Pass())
        case ast.MatchMapping(rest=str(name)):
            scope.bind(name, ast.Pass())


def _declare(names: list[str], scope: NameScope, *, is_global: bool) -> None:
    target = scope
    while is_global and target.parent is not None:
        target = target.parent
    for name in names:
        scope.declared[name] = target if is_global else target.owner_of(name) or target
