"""Items made by an AI call: what is asked, and how the reply becomes items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rota.core.pipelines.replies import NoJson, extract
from rota.errors import BadReply
from rota.pipelines.definition.fields import fields_of, instruction, read_reply
from rota.pipelines.definition.model import Generate
from rota.pipelines.definition.sections import AiSection as AskingPart
from rota.pipelines.definition.sections import OutputField
from rota.pipelines.definition.sources import AiSource
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.inputs import Item
from rota.pipelines.run.prompt_builder import ModelPrompt, PromptBuilder
from rota.pipelines.run.single_call import call
from rota.pipelines.snapshot import Snapshot


def generate_question(snapshot: Snapshot, part: Generate | AiSource) -> ModelPrompt:
    """The question that asks for items; parameters may be in its prompt."""
    fields = fields_of(part.schema)
    asked = AskingPart(prompt=part.prompt, model=part.model, **part.call_options)
    asking = PromptBuilder(snapshot, "", asked)
    # As for a batch, but without a known length.
    instructions = instruction(fields, 0).replace("exactly 0 elements, ", "")
    instructions = instructions.replace(", in the order of ITEMS.", ".")
    question = asking.without_item(more=instructions)
    return question._replace(batch=0, fields=fields)


async def generated(context: PipelineContext, stage: str, part: Generate | AiSource) -> list[Item]:
    """Ask for items. The call is a step, so a retry does not repeat it."""
    question = generate_question(context.snapshot, part)
    fields = fields_of(part.schema)

    def read(text: str) -> dict[str, Any]:
        return {"items": read_items_reply(text, fields)}

    # Asked like a single question, so that a reply that cannot be read is asked for once more.
    record = await call(context, stage, question._replace(batch=None, fields=[]), read)
    assert record.output is not None
    return list(record.output["items"])


def read_items_reply(text: str, fields: Sequence[OutputField]) -> list[Item]:
    """The items of a reply, each with all fields; BadReply with its first problem."""
    try:
        found = extract(text, lambda value: _listed(value) is not None)
    except NoJson as error:
        raise BadReply(f"The reply cannot be read: {error}.") from error
    items: list[Item] = []
    for number, each in enumerate(_listed(found) or [], start=1):
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
    lists = [each for each in value.values() if isinstance(each, list)] if value else []
    return lists[0] if isinstance(value, dict) and len(lists) == 1 else None
