"""The JSON Schema of pipeline.yaml for editors, and its reference page, from the one definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from rota.pipelines.definition import model

DIALECT = "https://json-schema.org/draft/2020-12/schema"

HEAD = """# pipeline.yaml

`make docs` makes this page from `src/rota/pipelines/definition/model.py`.

A pipeline is a folder with a `pipeline.yaml` (or `pipeline.yml`). It has one of three forms. The
first is `input`, `map` and `reduce`, with an optional `filter` between. The second is one `job`,
the third a graph of `nodes`. Keys that are not known are refused, and all problems of a file are
reported at once, with line and column. Editors complete and check the file with its JSON Schema:
`rota pipeline schema -o pipelines/pipeline.schema.json` writes it, and this first line names it:
`# yaml-language-server: $schema=../pipeline.schema.json`.

```yaml
name: Daily Bug Report
schedule:
  cron: "0 9 * * 1-5"
  timezone: America/New_York
input:
  from: { type: csv, path: bugs.csv }
map:
  prompt: "Analyze bug: {{title}}"
  output: [severity, category]
reduce:
  type: json
```

**YAML** follows version 1.2: only `true` and `false` are booleans (`no`, `on` and `yes` are text),
dates are text, and numbers with leading zeros (`007`) stay text. Anchors and `<<` work. A key that
occurs twice is an error.

**Templates.** `{{name}}` is replaced by a value, once: placeholders inside the value are not
replaced. Dots lead into nested values (`{{user.name}}`). `\\{{name}}` stays `{{name}}`. A name
without a value is an error that names the nearest one. Text goes in unchanged, null as nothing,
everything else as JSON. If several values have one name, the first of these wins: those of the
runner (`ITEMS`, `RESULTS`, `RESULTS_FILE`, `COUNT`, `SUCCESS_COUNT`, `FAILURE_COUNT`), the fields
of the item, parameters given at the start, `input.parameters`, `parameters`.

**Paths** are relative to the pipeline's folder; parents and absolute paths are allowed. A
`promptFile` without a folder is looked for in the pipeline's folder, in its `prompts`, and in
`prompts` beside it. Skills are `NAME/SKILL.md` in `skills` of the pipeline, in `skills` beside it,
or in `.github/skills` above it. YAML at the top of prompt files and skills is removed.

**Order.** Source, `offset`, `limit`, `sample`, filter, map, reduce. Results have the order of the
items.

**CSV.** The first row names the columns; values are text unless `types` says otherwise. A
byte-order mark and blank lines are ignored, missing cells are empty. More cells than columns, an
open quote, and two columns of one name are errors with their line.

**Comparisons.** A missing or null field makes every comparison false, the negative ones too. Values
are equal as numbers when one is a number and the other is or spells one: `5` and `"5"`, but `"007"`
is text. The same holds for booleans. All others are compared as text. Greater and less compare
numbers and ISO dates. `contains` searches text without regard to case, or a list for an element.
`matches` finds a regular expression anywhere; one text has 0.1 s of CPU time.

**Output.** Plain names in `output` take any value unchanged and may be missing (null). A field with
a `type` or `enum` is checked. If a reply does not fit, Rota asks the model again, once.
"""


@cache
def json_schema() -> dict[str, Any]:
    """The schema; its root is the whole file."""
    made = msgspec.json.schema(model.Pipeline)
    # Only Python 3.13 strips the indentation of docstrings.
    for definition in made["$defs"].values():
        if "description" in definition:
            definition["description"] = " ".join(definition["description"].split())
    return {"$schema": DIALECT, "title": "pipeline.yaml of Rota", **made}


def schema_text() -> str:
    """The schema as it is shipped."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def reference_page() -> str:
    """The reference page: the head, then a table for every mapping of the file."""
    defs = json_schema()["$defs"]
    parts = [HEAD]
    for name, definition in defs.items():
        if "properties" in definition:
            parts.append(
                f"\n## {name}\n\n{_tag(definition)}{definition.get('description', '')}\n\n"
            )
            parts.append("| key | value | default | meaning |\n|---|---|---|---|\n")
            parts.extend(_rows(definition))
    return "".join(parts)


def _tag(definition: dict[str, Any]) -> str:
    """`type: csv`, for one of several kinds that a key tells apart."""
    for key in ("type", "op"):
        options = definition["properties"].get(key, {}).get("enum", [])
        if len(options) == 1:
            return f"`{key}: {options[0]}`. "
    return ""


def _rows(definition: dict[str, Any]) -> Iterator[str]:
    required = set(definition.get("required", []))
    for key, value in definition["properties"].items():
        default = "required" if key in required else _default(value)
        meaning = value.get("description", "").replace("|", "\\|")
        yield f"| `{key}` | {_kind(value)} | {default} | {meaning} |\n"


def _default(value: dict[str, Any]) -> str:
    default = value.get("default")
    if default in (None, [], {}):
        return ""
    return f"`{json.dumps(default, ensure_ascii=False)}`"


def _kind(value: dict[str, Any]) -> str:
    """A type in words."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        options = json_schema()["$defs"][name].get("enum")
        return _options(options) if options else f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        kinds = [_kind(each) for each in value["anyOf"] if each.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in value:
        return _options(value["enum"])
    if value.get("type") == "array":
        return f"list of {_kind(value.get('items', {}))}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_kind(value['additionalProperties'])}"
    words = {"string": "text", "integer": "whole number", "number": "number", "object": "mapping",
             "boolean": "true or false"}  # fmt: skip
    kind = words.get(value.get("type", ""), "anything")
    return f"{kind} ≥ {value['minimum']}" if "minimum" in value else kind


def _options(options: list[Any]) -> str:
    return ", ".join(f"`{each}`" for each in options)
