"""The graph of an automation: topics, producers, consumers; and everything wrong with it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
NAMES = "letters, digits, _ . -, at most 64 characters, a letter first"


class TopicNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declared topic; `external` ones are fed from outside. `shape` is its payloads' type."""

    name: str
    external: bool = False
    shape: dict[str, Any] | None = None


class HandlerNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A declared handler."""

    name: str
    kind: str
    subscribes: tuple[str, ...] = ()
    publishes: tuple[str, ...] = ()
    schedule: str | None = None  # as it was written
    zone: str | None = None
    has_mutate: bool = False
    has_next: bool = False
    approval: bool = False
    dead_letter: str | None = None  # the topic that receives the events it leaves out


class AutomationGraph(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that an automation declares."""

    topics: tuple[TopicNode, ...]
    handlers: tuple[HandlerNode, ...]

    @property
    def consumers(self) -> list[HandlerNode]:
        """Handlers that read topics."""
        return [one for one in self.handlers if one.kind == "consumer"]

    @property
    def producers(self) -> list[HandlerNode]:
        """Handlers that run on a schedule."""
        return [one for one in self.handlers if one.kind == "producer"]

    def consumer_of(self, topic: str) -> str | None:
        """Who reads a topic."""
        return next((one.name for one in self.consumers if topic in one.subscribes), None)

    @property
    def dead_letters(self) -> frozenset[str]:
        """The topics that receive dead letters; they need no reader."""
        return frozenset(one.dead_letter for one in self.handlers if one.dead_letter)


def problems(name: str, graph: AutomationGraph) -> list[str]:
    """Everything wrong with it, in one go; empty when it may be deployed."""
    return [*_names(name, graph), *_handlers(graph), *_topics(graph), *_cycles(graph)]


def _names(name: str, graph: AutomationGraph) -> Iterator[str]:
    words = [("automation", name)]
    words += [("topic", topic.name) for topic in graph.topics]
    words += [(one.kind, one.name) for one in graph.handlers]
    for kind, word in words:
        if not NAME.fullmatch(word):
            yield f"{kind} {word!r}: a name has {NAMES}"
    for kind, counted in (("topic", graph.topics), ("handler", graph.handlers)):
        names = Counter(one.name for one in counted)
        yield from (f"{kind} {word} is declared twice" for word, n in names.items() if n > 1)


def _handlers(graph: AutomationGraph) -> Iterator[str]:
    if not graph.handlers:
        yield "it has neither a producer nor a consumer"
    known = {topic.name for topic in graph.topics}
    for one in graph.handlers:
        what = f"{one.kind} {one.name}"
        for word, topics in (("subscribes to", one.subscribes), ("publishes to", one.publishes)):
            yield from (
                f"{what} {word} {t}, which is not one of its topics"
                for t in topics
                if t not in known
            )
        if one.dead_letter is not None and one.dead_letter not in known:
            yield (
                f"{what} has the dead-letter topic {one.dead_letter}, "
                "which is not one of its topics"
            )
        if one.dead_letter in one.subscribes:
            yield f"{what} reads its own dead letters from {one.dead_letter}"
        if one.kind == "producer" and not one.publishes:
            yield f"{what} publishes nothing"
        if one.kind == "consumer" and not one.subscribes:
            yield f"{what} subscribes to nothing"
        if one.kind == "consumer" and one.publishes and not one.has_next:
            yield f"{what} publishes, but has no `next` to do it in"
        if one.approval and not one.has_mutate:
            yield f"{what} asks for approval, but has no `mutate`"


def _topics(graph: AutomationGraph) -> Iterator[str]:
    fed = {topic for one in graph.handlers for topic in one.publishes} | graph.dead_letters
    for topic in graph.topics:
        readers = [one.name for one in graph.consumers if topic.name in one.subscribes]
        if not readers and topic.name not in graph.dead_letters:
            yield f"topic {topic.name} has no reader"
        if len(readers) > 1:
            yield f"topic {topic.name} has more than one consumer: {', '.join(readers)}"
        if topic.name not in fed and not topic.external:
            yield f"topic {topic.name} has no producer; say external=True if others publish to it"


def _cycles(graph: AutomationGraph) -> Iterator[str]:
    """A circle of consumers that nothing outside it feeds never begins; one that changes nothing
    and leads nowhere else never drains."""
    for circle in _circles(graph.consumers):
        names = ", ".join(sorted(one.name for one in circle))
        read = {topic for one in circle for topic in one.subscribes}
        if not any(one.has_mutate or set(one.publishes) - read for one in circle):
            yield f"consumers {names} only publish to each other: they would never drain"
        outside = {topic.name for topic in graph.topics if topic.external}
        outside |= {t for one in graph.handlers if one not in circle for t in one.publishes}
        if not read & outside:
            yield f"consumers {names} wait for each other: nothing else feeds them"


def _circles(consumers: Sequence[HandlerNode]) -> list[list[HandlerNode]]:
    """Groups of consumers that can reach each other by topics."""
    after = {
        one.name: {other.name for other in consumers if set(one.publishes) & set(other.subscribes)}
        for one in consumers
    }
    reach = {name: _reach(name, after) for name in after}
    groups: dict[frozenset[str], list[HandlerNode]] = {}
    for one in consumers:
        if one.name in reach[one.name]:
            group = frozenset(n for n in reach[one.name] if one.name in reach[n])
            groups.setdefault(group, []).append(one)
    return list(groups.values())


def _reach(start: str, after: dict[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for name in after[waiting.pop()] - seen:
            seen.add(name)
            waiting.append(name)
    return seen
