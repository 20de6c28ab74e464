"""Why a model stopped: one closed list of words for each wire. A word outside of it is unknown.

Only `Finish.WHOLE` is an answer. The settings of a provider may name further words, as in
`finish_words: {done: stop}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Finish(StrEnum):
    """Why a model stopped."""

    WHOLE = "stop"  # it said all that it wanted to say
    LENGTH = "length"  # cut off, at a limit of ours or at its own
    FILTERED = "filtered"  # the model refused, or a filter blocked the answer
    INTERRUPTED = "interrupted"  # the provider stopped in the middle: the next try may work
    TOOLS = "tools"  # it asks for a tool instead of answering
    UNKNOWN = "unknown"  # the provider gave no reason, or one that Rota does not know


Words = Mapping[str, Finish]


def _words(**classes: str) -> dict[str, Finish]:
    """The words of a wire, from a text of words for each class."""
    return {word: Finish[name] for name, text in classes.items() for word in text.split()}


# Gateways pass on the words of the vendors behind them, so the chat wire has those of several.
CHAT: Final = _words(
    WHOLE="stop eos eos_token end_turn stop_sequence STOP COMPLETE",
    LENGTH="length max_tokens MAX_TOKENS model_length model_context_window_exceeded",
    FILTERED="content_filter refusal sensitive guardrail_intervened content_filtered SAFETY"
    " RECITATION BLOCKLIST PROHIBITED_CONTENT SPII LANGUAGE",
    INTERRUPTED="error abort insufficient_system_resource network_error pause_turn cancelled"
    " time_limit",
    TOOLS="tool_calls function_call tool_use MALFORMED_FUNCTION_CALL",
)
MESSAGES: Final = _words(
    WHOLE="end_turn stop_sequence",
    LENGTH="max_tokens model_context_window_exceeded",
    FILTERED="refusal",
    INTERRUPTED="pause_turn",
    TOOLS="tool_use",
)

RESPONSES: Final = _words(
    WHOLE="completed", LENGTH="max_output_tokens", FILTERED="content_filter",
    INTERRUPTED="cancelled steered", TOOLS="function_call",
)  # fmt: skip
GEMINI: Final = _words(
    WHOLE="STOP",
    LENGTH="MAX_TOKENS",
    FILTERED="SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR"
    " IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION",
    INTERRUPTED="MALFORMED_RESPONSE",
    TOOLS="MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS",
)
CONVERSE: Final = _words(
    WHOLE="end_turn stop_sequence",
    LENGTH="max_tokens model_context_window_exceeded",
    FILTERED="guardrail_intervened content_filtered",
    INTERRUPTED="malformed_model_output",
    TOOLS="tool_use malformed_tool_use",
)


def finish_of(word: str, words: Words) -> Finish:
    """The meaning of a provider's word."""
    return words.get(word, Finish.UNKNOWN)
