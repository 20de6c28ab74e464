"""Items made by an AI call: what is asked, and how the reply becomes items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota.core.pipelines.replies import NoJson, extract
from rota.errors import BadReply
from rota.pipelines.definition.fields import fields_of, list_instruction, read_reply
from rota.pipelines.definition.sections import AiSection, OutputField
from rota.pipelines.definition.sources import Generator
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.inputs import Item
from rota.pipelines.run.prompt_builder import ModelPrompt, PromptBuilder
from rota.pipelines.run.single_call import call
from rota.pipelines.snapshot import Snapshot


def generate_question(snapshot: Snapshot, source: Generator) -> ModelPrompt:
    """The question that asks for items; parameters may be in its prompt."""
    section = AiSection(prompt=source.prompt, model=source.model, **source.call_options)
    instructions = list_instruction(fields_of(source.schema))
    return PromptBuilder(snapshot, "", section).without_item(more=instructions)


async def generated(context: PipelineContext, stage: str, source: Generator) -> list[Item]:
    """Ask for items. The call is a step, so a retry does not repeat it."""
    question = generate_question(context.snapshot, source)
    fields = fields_of(source.schema)

    def read(text: str) -> dict[str, Any]:
        return {"items": read_items_reply(text, fields)}

    record = await call(context, stage, question, read)
    assert record.output is not None
    return list(record.output["items"])


def read_items_reply(text: str, fields: Sequence[OutputField]) -> list[Item]:
    """The items of a reply, each with all fields; BadReply with its first problem."""
    try:
        reply = extract(text, lambda value: _listed(value) is not None)
    except NoJson as error:
        raise BadReply(f"The reply cannot be read: {error}.") from error
    items: list[Item] = []
    for number, each in enumerate(_listed(reply) or [], start=1):
        if not isinstance(each, dict):
            raise BadReply(f"Item {number} is not an object.")
        try:
            items.append(read_reply(json.dumps(each), fields))
        except BadReply as error:
            raise BadReply(f"Item {number}: {error.message}") from error
    return items


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    inner = value.values() if isinstance(value, dict) else ()
    lists = [each for each in inner if isinstance(each, list)]
    return lists[0] if len(lists) == 1 else None
