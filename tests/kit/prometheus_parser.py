"""Small strict readers of the Prometheus text format (0.0.4) and of OpenMetrics (1.0.0): they take
what the formats say, and nothing else. Written apart from the writer, so that the two cannot be
wrong together."""

from __future__ import annotations

import re
from typing import NamedTuple

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?|NaN|[+-]Inf")
ESCAPES = {"\\": "\\", '"': '"', "n": "\n"}

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric as it was read."""

    help: str
    type: str
    samples: dict[Labels, float]

    def at(self, **labels: str) -> float | None:
        """The number with labels that contain these; there may be only one."""
        found = [v for key, v in self.samples.items() if labels.items() <= dict(key).items()]
        assert len(found) <= 1, f"{labels} fits several"
        return found[0] if found else None


def parse(text: str) -> dict[str, Family]:
    """Every metric by name; AssertionError where the text breaks a rule."""
    assert not text or text.endswith("\n"), "the last line must end"
    found: dict[str, Family] = {}
    lines = text.split("\n")[:-1]  # not splitlines: other ends of lines are plain characters
    while lines:
        name, said = _comment(lines.pop(0), "HELP")
        assert name not in found, f"{name} comes twice"
        typed, kind = _comment(lines.pop(0), "TYPE")
        assert typed == name
        assert kind in ("gauge", "counter", "untyped", "histogram", "summary")
        family = found[name] = Family(_plain(said, '"'), kind, {})
        while lines and not lines[0].startswith("#"):
            own, labels, value = _sample(lines.pop(0))
            if kind == "histogram":
                assert own in (f"{name}_bucket", f"{name}_sum", f"{name}_count"), own
                labels = (*labels, ("__name__", own))
            else:
                assert own == name, f"{own} is under {name}"
            assert labels not in family.samples, f"{labels} comes twice"
            family.samples[labels] = value
        assert family.samples, f"{name} has no number"
    return found


SUFFIXES = {
    "gauge": ("",), "counter": ("_total",), "info": ("_info",),
    "histogram": ("_bucket", "_sum", "_count"),
}  # fmt: skip


def parse_open(text: str) -> dict[str, Family]:
    """Every family of an OpenMetrics document by name; AssertionError where it breaks a rule."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], "the document must end with its mark"
    found: dict[str, Family] = {}
    lines = lines[:-2]
    while lines:
        name, kind = _comment(lines.pop(0), "TYPE")
        assert name not in found, f"{name} comes twice"
        if lines[0].startswith("# UNIT"):
            assert (_comment(lines.pop(0), "UNIT")[0], name.rpartition("_")[1]) == (name, "_")
        seen, said = _comment(lines.pop(0), "HELP")
        assert seen == name
        family = found[name] = Family(_plain(said, ""), kind, {})
        while lines and not lines[0].startswith("#"):
            own, labels, value = _sample(lines.pop(0))
            assert own.removeprefix(name) in SUFFIXES[kind], f"{own} is under {name}"
            for label, bound in labels:
                # 1.0, not 1: the text of a bound is its identity.
                assert label != "le" or bound in ("+Inf", repr(float(bound))), bound
            assert kind == "gauge" or value >= 0, own
            labels = (*labels, ("__name__", own))
            assert labels not in family.samples, f"{labels} comes twice"
            family.samples[labels] = value
    return found


def _comment(line: str, word: str) -> tuple[str, str]:
    assert line.startswith(f"# {word} "), line
    name, _, rest = line.removeprefix(f"# {word} ").partition(" ")
    assert NAME.fullmatch(name), name
    return name, rest


def _plain(text: str, raw: str) -> str:
    """Text without its escapes; `raw` are characters that need none here."""
    out, rest = "", text
    while rest:
        here, rest = rest[0], rest[1:]
        if here == "\\":
            assert rest[:1] in set(ESCAPES) - set(raw), f"bad escape in {text!r}"
            here, rest = ESCAPES[rest[0]], rest[1:]
        else:
            assert here not in {"\n", '"'} - set(raw), f"{here!r} bare in {text!r}"
        out += here
    return out


def _sample(line: str) -> tuple[str, Labels, float]:
    match = NAME.match(line)
    assert match, line
    rest, labels = line[match.end() :], []
    if rest.startswith("{"):
        rest = rest[1:]
        while not rest.startswith("}"):
            label = LABEL.match(rest)
            assert label, rest
            quoted = re.match(r'="((?:[^"\\\n]|\\.)*)"', rest[label.end() :], re.DOTALL)
            assert quoted, rest
            labels.append((label.group(), _plain(quoted.group(1), "")))
            rest = rest[label.end() + quoted.end() :]
            rest = rest[1:] if rest.startswith(",") else rest
        rest = rest[1:]
    assert rest.startswith(" "), line
    assert NUMBER.fullmatch(rest[1:]), line
    assert len(dict(labels)) == len(labels), line
    return match.group(), tuple(labels), float(rest[1:].replace("Inf", "inf"))
