"""The rules about the tree. Each takes all modules at once and yields its complaints."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from tests.tidy.tree import Module

LayoutRule = Callable[[Iterable[Module]], Iterator[str]]

PACKAGE = "src/rota/"
ROOT_MODULES = {
    *("__init__", "__main__", "app", "blocking", "errors", "faults", "project", "settings"),
    "testing",
}

# Words of the first edition. The field has a name for each: see docs/glossary.md.
RETIRED_WORDS = {
    *("afters", "bill", "board", "checkup", "desk", "drafts", "ear", "exam", "heir", "house"),
    *("hungry", "line", "lines", "logroom", "mirror", "moments", "mouth", "notebook", "part"),
    *("parts", "place", "places", "programs", "purse", "remarks", "room", "roster", "runref"),
    *("seat", "seats", "shelf", "sightings", "silence", "standing", "steering", "story"),
    *("stretch", "told", "turn", "turns", "upkeep", "verbs", "walls", "word", "words", "yard"),
}
# A participle names an activity; a module is a thing. These are the field's nouns.
PARTICIPLE = re.compile(r"\w{2,}ing$")
PARTICIPLES_ALLOWED = {"batching", "blocking", "ping", "sampling", "sharding", "testing"}

# Folders of tests that cut across the package.
CROSS_CUTTING = {
    *("browser", "crash", "docs", "examples", "faults", "golden", "kit", "properties"),
    *("simulation", "tidy", "typing"),
}
# Programs people run by hand, and the rules themselves.
NOT_IN_A_KIT = {
    *("tests/crash/load.py", "tests/crash/schedulers.py"),
    *("tests/tidy/layout.py", "tests/tidy/prose.py", "tests/tidy/rules.py", "tests/tidy/tree.py"),
}


def few_root_modules(modules: Iterable[Module]) -> Iterator[str]:
    """The root of the package holds what everybody imports; the rest has a layer and a noun."""
    for module in _of_package(modules):
        name = module.path.removeprefix(PACKAGE).removesuffix(".py")
        if "/" not in name and name not in ROOT_MODULES:
            yield f"{module.path}: move it into the folder of its layer and noun"


def unique_class_names(modules: Iterable[Module]) -> Iterator[str]:
    """A class name exists once in the package, so that a search finds one thing."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in _of_package(modules):
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.path)
    for name, paths in sorted(found.items()):
        if len(paths) > 1:
            yield f"class {name} is defined in {', '.join(paths)}: rename all but one"


def plain_module_names(modules: Iterable[Module]) -> Iterator[str]:
    """A module is named by a noun of the field, not by a retired word or a participle."""
    for module in modules:
        path = module.path.removesuffix(".py").removesuffix("/__init__")
        for part in path.split("/")[1:]:
            retired = RETIRED_WORDS.intersection(part.split("_"))
            if part.startswith("test_"):
                continue  # A test may be named by the activity it is about.
            if retired:
                yield f"{module.path}: {sorted(retired)[0]!r} is a retired word"
            elif PARTICIPLE.match(part) and part not in PARTICIPLES_ALLOWED:
                yield f"{module.path}: {part!r} is a participle, write a noun"


def mirrored_tests(modules: Iterable[Module]) -> Iterator[str]:
    """Tests lie in the folders of what they test; what they share lies in one kit per folder."""
    modules = list(modules)
    folders = {module.path.rpartition("/")[0] for module in _of_package(modules)}
    for module in (each for each in modules if each.path.startswith("tests/")):
        folder, _, file = module.path.rpartition("/")
        parts = folder.split("/")[1:]
        is_kit = file == "kit.py" or "kit" in parts
        is_test = file.startswith("test_") or file in ("__init__.py", "conftest.py")
        if not is_kit and not is_test and module.path not in NOT_IN_A_KIT:
            yield f"{module.path}: what tests share belongs into the kit of their folder"
        mirrored = "/".join(["src/rota", *parts])
        if not is_kit and not CROSS_CUTTING.intersection(parts[:1]) and mirrored not in folders:
            yield f"{module.path}: there is no folder {mirrored}"


def no_test_imports_a_test(modules: Iterable[Module]) -> Iterator[str]:
    """A test module is never imported: move what is shared into a kit."""
    for module in modules:
        for node in module.nodes:
            for name in _imported(node):
                last = name.split(".")
                if last[0] == "tests" and any(
                    part.startswith("test_") or part == "conftest" for part in last
                ):
                    yield module.at(node, f"imports {name}")


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _of_package(modules: Iterable[Module]) -> Iterator[Module]:
    return (module for module in modules if module.path.startswith(PACKAGE))


LAYOUT_RULES: dict[str, LayoutRule] = {
    rule.__name__: rule
    for rule in (
        few_root_modules,
        unique_class_names,
        plain_module_names,
        mirrored_tests,
        no_test_imports_a_test,
    )
}
